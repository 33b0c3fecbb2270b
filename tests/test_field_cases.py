"""Cases that practitioners met: right answers stay right, and what is not right is known and counted."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOOR = 70
"""Cases that are answered right. It only ever rises: a change that turns one right raises it."""


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("field_cases", ROOT / "scripts" / "field_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["field_cases"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
CASES = SCRIPT.cases()
FACTS = SCRIPT.facts()


def _parameter(name: str) -> object:
    case = CASES[name]
    # Strict: a case that turns right without being marked so fails here.
    marks = (
        ()
        if case.status == "right"
        else pytest.mark.xfail(strict=True, reason=f"{case.status}: {case.reason}")
    )
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [_parameter(name) for name in CASES])
def test_case_is_answered_right(name: str) -> None:
    outcome = SCRIPT.evaluate(CASES[name])
    assert outcome.is_right, "\n".join(outcome.failures)


def test_every_fact_has_its_case() -> None:
    assert list(CASES) == list(FACTS)
    assert len(CASES) == 77


@pytest.mark.parametrize("name", CASES)
def test_expectations_speak_of_answers(name: str) -> None:
    case = CASES[name]
    asked = set(case.asks)
    assert not asked & SCRIPT.VOCABULARY.keys()
    used: set[str] = set()
    for text in case.expect:
        named = SCRIPT.names_of(text)
        assert named, f"cannot fail: {text}"
        assert named <= asked, f"speaks of {named - asked}: {text}"
        # A comparison, a call of the vocabulary or a truth value of an answer: never a constant.
        assert not isinstance(ast.parse(text, mode="eval").body, ast.Constant)
        used |= named
    assert used == asked, f"asked for nothing: {asked - used}"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.status != "right"])
def test_what_is_not_right_says_why(name: str) -> None:
    case = CASES[name]
    assert case.status in ("wrong", "not-answered")
    assert len(case.reason) > 20
    assert len(case.needs) > 20


def test_score(capsys: pytest.CaptureFixture[str]) -> None:
    right = sum(case.status == "right" for case in CASES.values())
    with capsys.disabled():
        print(f"\nfield cases: {right} of {len(CASES)} right ({right / len(CASES):.0%})")  # noqa: T201 (the score is for people)
    assert right >= FLOOR, "answers that were right are not any more"
    assert right == FLOOR, f"raise FLOOR to {right}"


def test_readme_is_generated() -> None:
    written = SCRIPT.README.read_text(encoding="utf-8")
    assert written == SCRIPT.readme(), "run: python scripts/field_cases.py --write"
