"""The text of answers, kept as files."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli.answers import ANSWERS
from cli.calls import call, fresh
from cli.goldens import check
from report.test_documents import KV, MEMORY

KEPT = ["fit-serving", "fit-training", "fit-lora", "fit-qlora-file", "fit-moe-node", "fit-several-gpus", "fit-does-not", "fit-cluster", "fit-illegal",
        "table", "decide-chat", "decide-sft", "decide-qlora", "show-model", "show-device", "show-node", "show-fabric", "explain"]  # fmt: skip
FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", KEPT)
def test_text(name: str) -> None:
    answer = call(*ANSWERS[name].split())
    assert answer.code == 0, answer.err
    check(FOLDER, name, answer.out)


@pytest.mark.parametrize(("kind", "rows"), [("memory", MEMORY), ("kv", KV)], ids=["memory", "kv"])
def test_validation_text(kind: str, rows: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(rows, encoding="utf-8")
    answer = fresh("validate", kind, str(path))
    assert answer.code == 0, answer.err
    check(FOLDER, f"validate-{kind}", answer.out)


def next_command(lines: list[str]) -> str:
    """The command at the end of an answer, as a shell reads it: a backslash ends every line but the last."""
    assert all(line.endswith(" \\") for line in lines[:-1])
    return " ".join(line.removesuffix("\\").strip() for line in lines).removeprefix("next: ")


@pytest.mark.parametrize("name", [n for n in KEPT if n.startswith(("fit", "decide", "table"))])
def test_an_answer_ends_with_the_next_command_and_it_runs(name: str) -> None:
    lines = call(*ANSWERS[name].split()).out.splitlines()
    start = max(i for i, line in enumerate(lines) if line.startswith("next: "))
    words = shlex.split(next_command(lines[start:]))
    assert words[0] == "outgrow"
    assert call(*words[1:]).code == 0, words


@pytest.mark.parametrize("name", [n for n in KEPT if n.startswith(("fit", "decide", "table"))])
def test_the_next_command_can_be_pasted_into_any_shell(name: str) -> None:
    """zsh takes brackets for a pattern and fails; a space parts words."""
    lines = call(*ANSWERS[name].split()).out.splitlines()
    start = max(i for i, line in enumerate(lines) if line.startswith("next: "))
    text = next_command(lines[start:])
    assert text == shlex.join(shlex.split(text))
