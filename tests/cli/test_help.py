"""The help pages, kept as files: wording that people read is changed on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calls import call
from cli.goldens import check

PAGES = ["", "fit", "decide", "catalog", "catalog list", "catalog show", "validate", "explain", "schema"]


@pytest.mark.parametrize("words", PAGES)
def test_help(words: str) -> None:
    answer = call(*words.split(), "--help")
    assert answer.code == 0
    assert answer.err == ""
    assert [line for line in answer.out.splitlines() if len(line) > 80] == []
    check(Path(__file__).parent / "golden", "-".join(["outgrow", *words.split()]), answer.out)


def test_no_words_is_help() -> None:
    assert call().out == call("--help").out


def test_the_examples_of_the_first_page_run() -> None:
    lines = [line.strip() for line in call("--help").out.splitlines()]
    examples = [line.split("  ")[0].split()[1:] for line in lines if line.startswith("outgrow ")]
    assert len(examples) >= 3
    for argv in examples:
        assert call(*argv).code == 0, argv
