"""Text for people fits 80 columns, whatever is asked."""

from __future__ import annotations

import pytest

from cli.answers import ANSWERS
from cli.calls import Call, call
from outgrow import catalog

WIDTH = 80


def too_wide(answer: Call) -> list[str]:
    return [f"{len(line)}: {line}" for line in answer.out.splitlines() if len(line) > WIDTH]


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_answers(argv: str) -> None:
    answer = call(*argv.split())
    assert answer.code == 0, answer.err
    assert too_wide(answer) == []
    assert answer.out == "\n".join(line.rstrip() for line in answer.out.splitlines()) + "\n", (
        "no trailing spaces"
    )
    assert not answer.out.startswith("\n")


@pytest.mark.parametrize("kind", ["model", "device", "node", "fabric"])
def test_every_entry_of_the_catalogue(kind: str) -> None:
    wide = {name: too_wide(call("catalog", "show", name)) for name in catalog.names(kind)}
    assert {name: lines for name, lines in wide.items() if lines} == {}


@pytest.mark.parametrize("kind", ["model", "device", "node", "fabric"])
def test_no_entry_shows_how_it_is_programmed(kind: str) -> None:
    leaks = ("Figure(", "('", "<object", "None", "{'", "Quantity(")
    shown = {name: call("catalog", "show", name).out for name in catalog.names(kind)}
    assert [name for name, text in shown.items() if any(leak in text for leak in leaks)] == []


@pytest.mark.parametrize(
    ("on", "job"), [("rtx-4090", "serving"), ("hgx-h100", "serving"), ("rtx-4090", "qlora")]
)
def test_every_model(on: str, job: str) -> None:
    """Long names, odd terms, tiny and huge sizes; a refusal must be one of input, never one of ours."""
    wide, failed = {}, {}
    for name in catalog.names("model"):
        answer = call("fit", name, "--on", on, "--for", job)
        if answer.code:
            failed[name] = answer.err
        if lines := too_wide(answer):
            wide[name] = lines
    assert failed == {}
    assert wide == {}
