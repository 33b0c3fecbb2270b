"""What a shell script can rely on: the exit code, and that no fault of a user looks like one of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calls import BROKEN, Call, call, fresh
from outgrow import app
from outgrow.errors import (
    EXIT_BUG,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_MISSING,
    EXIT_NO,
    EXIT_OK,
    OutsideError,
)

FITS = ("fit", "llama-3.1-8b", "--on", "h100-sxm")
FITS_NOT = ("fit", "llama-3.1-405b", "--on", "h100-sxm")


def words(value: object) -> str:
    """The id of a case: what was typed; codes and messages go unsaid."""
    return " ".join(value) if isinstance(value, tuple) else ""


def refused(answer: Call, code: int) -> Call:
    assert answer.code == code, answer.err
    assert answer.out == ""
    assert answer.err.strip()
    assert "Traceback" not in answer.err
    assert "our fault" not in answer.err
    return answer


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((*FITS,), EXIT_OK),
        ((*FITS, "--check"), EXIT_OK),
        ((*FITS_NOT,), EXIT_OK),
        ((*FITS_NOT, "--check"), EXIT_NO),
        ((*FITS_NOT, "--check", "--json"), EXIT_NO),
        (("decide", "llama-3.1-8b", "--check"), EXIT_OK),
        (("decide", "examples/sft-70b.yaml"), EXIT_OK),
        (("decide", "examples/sft-70b.yaml", "--check"), EXIT_NO),
        ((), EXIT_OK),
        (("--help",), EXIT_OK),
        (("-h",), EXIT_OK),
        (("--version",), EXIT_OK),
        (("fit", "--help"), EXIT_OK),
    ],
    ids=words,
)
def test_answered(argv: tuple[str, ...], code: int) -> None:
    answer = call(*argv)
    assert answer.code == code, answer.err
    assert answer.out
    assert answer.err == ""


def test_a_layout_that_does_not_divide_is_a_no() -> None:
    answer = call("fit", "llama-3.1-8b", "--on", "hgx-h100", "--set", "serving.tp=3", "--check", "--json")
    assert answer.code == EXIT_NO
    assert answer.document["result"]["verdict"] == "illegal"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("fit",), "Say which model"),
        (("fitt", "llama-3.1-8b"), "Did you mean fit?"),
        (("wholly-unlike",), "No such command"),
        (("fit", "llama-3.1-8b", "--frobnicate"), "--frobnicate"),
        (("fit", "llama-3.1-8b", "--jsno"), "--json"),
        (("fit", "llama-3.1-8b", "surplus"), "surplus"),
        (("fit", "llama-3.1-8b", "--on"), "--on"),
        (("fit", "llama-3.1-8b", "--on", ""), ""),
        (("decide", "llama-3.1-8b", "--on", ""), ""),
        (("fit", ""), "model"),
        (("fit", "llama-3.1-8b", "--for", "cooking"), "'cooking'"),
        (("fit", "llama-3.1-8b", "--on", "0xh100-sxm"), "count"),
        (("fit", "llama-3.1-8b", "--on", "99999999xh100-sxm"), "count"),
        (("fit", "nowhere/workload.yaml"), "no such file"),
        (("fit", "nowhere/config.json"), "no such file"),
        (("fit", "llama-3.1-8b", "--on", "nowhere/cluster.yaml"), "no such file"),
        (("fit", "examples/cluster-hgx.yaml"), "describes a cluster"),
        (("fit", "llama-3.1-8b", "--on", "examples/chat-8b.yaml"), "node"),
        (("fit", "./tests"), "config.json"),
        (("decide",), "Missing argument"),
        (("catalog",), "Usage"),
        (("catalog", "list"), "Missing argument"),
        (("catalog", "list", "planets"), "planets"),
        (("catalog", "show"), "Missing argument"),
        (("schema", "nothing"), "nothing"),
        (("explain",), "Missing argument"),
        (("validate", "kv"), "Missing argument"),
        (("validate", "weather", "x.csv"), "weather"),
        (("validate", "kv", "nowhere.csv"), "nowhere.csv"),
        (("validate", "kv", "tests"), "Is a directory"),
        (("validate", "kv", "examples/chat-8b.yaml"), "lacks the columns"),
    ],
    ids=words,
)  # fmt: skip
def test_wrong_usage_and_wrong_input(argv: tuple[str, ...], says: str) -> None:
    assert says in refused(call(*argv), EXIT_INPUT).err


@pytest.mark.parametrize(
    "argv",
    [
        ("fit", "examples/chat-8b.yaml", "--for", "training"),
        ("fit", "--table", "--set", "serving.tp=2"),
        ("fit", "--table", "--for", "lora"),
        ("fit", "--table", "--check"),
    ],
    ids=words,
)
def test_an_option_that_would_be_ignored_is_refused(argv: tuple[str, ...]) -> None:
    refused(call(*argv), EXIT_INPUT)


@pytest.mark.parametrize(
    ("argv", "near"),
    [
        (("fit", "lama-3.1-8b"), "llama-3.1-8b"),
        (("decide", "qwen3-9b"), "qwen3-8b"),
        (("fit", "llama-3.1-8b", "--on", "h100-sxn"), "h100-sxm"),
        (("fit", "llama-3.1-8b", "--on", "4xhgx-h10"), "hgx-h100"),
        (("catalog", "show", "mixtral-8x7"), "mixtral-8x7b"),
        (("catalog", "show", "ib-nrd"), "ib-ndr"),
        (("explain", "mfuu"), "mfu"),
    ],
    ids=words,
)
def test_an_unknown_name_has_neighbours(argv: tuple[str, ...], near: str) -> None:
    answer = refused(call(*argv), EXIT_MISSING)
    assert "did you mean" in answer.err.lower()
    assert near in answer.err


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("nonsense", "must be path=value"),
        ("=", "must be path=value"),
        ("serving.tpp=1", "did you mean tp"),
        ("servin.tp=1", "did you mean serving"),
        ("serving.tp=two", "must be a whole number"),
        ("serving.tp=", "must be a whole number"),
        ("serving.tp=0", "must be between"),
        ("serving.tp=1e400", ""),
        ("serving.tp.deep=1", ""),
        ("serving.memory_fraction=.nan", ""),
        ("serving.traffic.input_tokens=8k", "write the number out"),
        ("training.method=lora", "--for"),
        ("serving=[1", ""),
        ("serving={a: b: c}", ""),
    ],
)
def test_settings_that_are_wrong(setting: str, says: str) -> None:
    answer = refused(call("fit", "llama-3.1-8b", "--set", setting), EXIT_INPUT)
    assert "--set" in answer.err or "--for" in answer.err
    assert says in answer.err
    assert "<text>" not in answer.err, "the user wrote no text: they gave a name and settings"


def broken_call(path: Path) -> tuple[str, ...]:
    name = str(path.relative_to(BROKEN.parents[2]))
    return ("fit", "llama-3.1-8b", "--on", name) if path.name.startswith("cluster") else ("fit", name)


@pytest.mark.parametrize(
    "path", sorted(p for p in BROKEN.iterdir() if p.suffix != ".txt"), ids=lambda p: p.name
)
def test_broken_files(path: Path) -> None:
    told = path.with_name(path.name + ".txt").read_text(encoding="utf-8")
    code = EXIT_MISSING if "(exit 3)" in told.splitlines()[0] else EXIT_INPUT
    answer = refused(call(*broken_call(path)), code)
    assert path.name in answer.err
    # Several faults are told at once: as many lines with a place as the kept message has.
    assert answer.err.count(f"{path.name}:") == sum(
        line.startswith(f"{path.name}:") for line in told.splitlines()
    )
    as_json = refused(call(*broken_call(path), "--json"), code)
    assert as_json.err == answer.err


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "lacks the columns"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"id,source\n", "lacks the columns"),
        (b'id,model\n"open', ""),
        (b"id,model\nx" + b",y" * 5 + b"\n", ""),
    ],
    ids=["empty", "binary", "other header", "open quote", "ragged"],
)
def test_broken_measurements(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    for kind in ("memory", "kv"):
        assert says in refused(fresh("validate", kind, str(path)), EXIT_INPUT).err


def explode(error: BaseException) -> object:
    def fit(*_args: object, **_kwargs: object) -> None:
        raise error

    return fit


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("k"), AssertionError(), RecursionError(), MemoryError()], ids=repr)  # fmt: skip
def test_a_fault_of_ours_says_so(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTGROW_DEBUG", raising=False)
    monkeypatch.setattr(app, "fit", explode(error))
    answer = fresh(*FITS)
    assert answer.code == EXIT_BUG
    assert answer.out == ""
    assert type(error).__name__ in answer.err
    assert "our fault" in answer.err
    assert "Traceback" not in answer.err


def test_a_fault_of_ours_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTGROW_DEBUG", "1")
    monkeypatch.setattr(app, "fit", explode(RuntimeError("boom")))
    answer = fresh(*FITS)
    assert answer.code == EXIT_BUG
    assert answer.out == ""
    assert "Traceback" in answer.err


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "fit", explode(KeyboardInterrupt()))
    answer = fresh(*FITS)
    assert answer.code == EXIT_INTERRUPTED
    assert answer.out == ""
    assert answer.err.strip() == "Interrupted."


def test_an_outside_system_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "fit", explode(OutsideError("It did not answer.", hint="try again")))
    answer = fresh(*FITS)
    assert answer.code == 4
    assert answer.out == ""
    assert "hint: try again" in answer.err
