"""stdout is the answer, stderr is talk; colours only where a person looks; bytes that any reader can take."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from cli.answers import ANSWERS
from cli.calls import ROOT, call, child, config_folder, environment, fresh

ESCAPE = "\x1b"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
FIT = ("fit", "llama-3.1-8b", "--on", "rtx-4090", "--for", "training")


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_json_is_one_document_and_nothing_else(argv: str) -> None:
    answer = call(*argv.split(), "--json")
    assert answer.code == 0, answer.err
    assert answer.err == ""
    assert answer.out.startswith("{\n")
    assert answer.out.endswith("\n}\n")
    assert json.loads(answer.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_piped_text_is_plain(argv: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", call(*argv.split()).out)


def test_a_child_answers_like_this_process() -> None:
    done = child(*FIT)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, call(*FIT).out, b"")
    module = child("--version")
    assert module.stdout.decode().startswith("outgrow, version ")


def test_errors_never_come_on_stdout() -> None:
    done = child("fit", "lama-3.1-8b", "--json")
    assert done.returncode == 3
    assert done.stdout == b""
    assert b"did you mean" in done.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=lambda env: " ".join(f"{k}={v}" for k, v in env.items()),
)
def test_ascii(env: dict[str, str]) -> None:
    done = child(*FIT, env=environment(**env))
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert "#" in text
    assert "?" not in text, "a replacement for every character that the views use"
    bars = [line for line in text.splitlines() if re.search(r"\d %$", line) and "[" not in line]
    assert len(bars) > 4
    assert len({len(line) for line in bars}) == 1, "the column after the bars stays straight:\n" + text
    document = json.loads(child(*FIT, "--json", env=environment(**env)).stdout.decode("utf-8"))
    assert document == call(*FIT, "--json").document


def test_ascii_of_every_view() -> None:
    from outgrow.report.lines import to_ascii

    for argv in ANSWERS.values():
        text = to_ascii(call(*argv.split()).out)
        assert text.count("?") == call(*argv.split()).out.count("?"), argv
        assert max(map(len, text.splitlines())) <= 80, argv


def test_c_locale() -> None:
    done = child(*FIT, env=environment(LC_ALL="C"))
    assert done.returncode == 0
    assert done.stdout.decode("utf-8").startswith("llama-3.1-8b on 1 ")


def test_no_reader() -> None:
    """What `| head` leaves behind: a pipe that nobody reads. Quiet, and not the "no" of --check."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for argv in (FIT, ("schema", "workload"), ("--help",)):
            done = child(*argv, env=environment(PYTHONUNBUFFERED="1"), stdout=writing)
            assert done.stderr == b"", argv
            assert done.returncode in (0, -13, 141), argv
            done = child(*argv, stdout=writing)
            assert done.stderr == b"", argv
            assert done.returncode in (0, -13, 141), argv
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_no_room() -> None:
    """An answer that could not be written was not given."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "outgrow", *FIT], cwd=ROOT, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )  # fmt: skip
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
    assert b"our fault" not in done.stderr


def on_terminal(*argv: str, columns: int = 80, **env: str) -> tuple[int, str]:
    """Run with a pseudo-terminal as stdout; what it received, with plain line ends."""
    pty = pytest.importorskip("pty")
    fcntl = pytest.importorskip("fcntl")
    termios = pytest.importorskip("termios")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "outgrow", *argv], cwd=ROOT, env=environment(**{"TERM": "xterm-256color", **env}),
        stdin=slave, stdout=slave, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(slave)
    data = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        data += block
    _, talk = process.communicate(timeout=60)
    os.close(master)
    assert talk == b""
    return process.returncode, data.decode("utf-8").replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_shows_colour(columns: int) -> None:
    code, shown = on_terminal(*FIT, columns=columns)
    assert code == 0
    assert ANSI.search(shown)
    bare = ANSI.sub("", shown)
    assert ESCAPE not in bare
    assert [line.rstrip() for line in bare.rstrip().split("\n")] == call(*FIT).out.rstrip().split("\n")
    assert max(len(line) for line in bare.split("\n")) <= 80


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_that_wants_no_colour(env: dict[str, str]) -> None:
    code, shown = on_terminal(*FIT, **env)
    assert code == 0
    assert shown == call(*FIT).out


def test_an_empty_no_color_asks_for_nothing() -> None:
    """The convention (no-color.org): only a value that is not empty counts."""
    assert ESCAPE in on_terminal(*FIT, NO_COLOR="")[1]


def test_a_terminal_that_shows_ascii_only() -> None:
    code, shown = on_terminal(*FIT, PYTHONIOENCODING="ascii")
    assert code == 0
    assert ANSI.sub("", shown).isascii()


def test_json_on_a_terminal_has_no_colour() -> None:
    code, shown = on_terminal(*FIT, "--json")
    assert code == 0
    assert json.loads(shown) == call(*FIT, "--json").document


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_the_same_bytes_twice(argv: str) -> None:
    for more in ((), ("--json",)):
        words = (*argv.split(), *more)
        assert fresh(*words) == call(*words)


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    names = (
        "fit-serving",
        "fit-lora",
        "fit-illegal",
        "fit-window",
        "table-one",
        "decide-chat",
        "show-model",
        "show-fabric",
        "explain",
    )
    calls = [ANSWERS[name].split() for name in names]
    code = (
        "import sys\nfrom outgrow.cli.main import run\n"
        f"for argv in {calls!r}:\n    for more in ([], ['--json']):\n        try:\n            run([*argv, *more])\n"
        "        except SystemExit:\n            pass\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment(PYTHONHASHSEED=seed), capture_output=True, check=True, timeout=120
        ).stdout
        for seed in ("0", "1", "20260")
    }  # fmt: skip
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


@pytest.mark.parametrize(
    "name", ["\x1b]0;title\x07", "\x1b[31mred", "two\nlines", "a\tb", "\x9b31m", "\u202eabc"], ids=repr
)
def test_names_cannot_steer_a_terminal(name: str, tmp_path: Path) -> None:
    """A folder's name comes from whoever made it; what is shown of it is printable."""
    folder = config_folder(tmp_path / name)
    shown = [fresh("fit", str(folder)), fresh("catalog", "show", str(folder)), fresh("decide", str(folder)), fresh("fit", name), fresh("catalog", "show", name),
             fresh("fit", "qwen3-8b", "--on", name), fresh("explain", name), fresh("validate", "kv", name), fresh("fit", "qwen3-8b", "--set", f"{name}=1"),
             fresh("fit", str(folder / "x.yaml")), fresh("fit", "qwen3-8b", "--set", f"serving.engine={name}")]  # fmt: skip
    for answer in shown:
        assert answer.code in (0, 2, 3), answer
        for text in (answer.out, answer.err):
            assert not [c for c in text if not c.isprintable() and c != "\n"], answer
        assert "lines" not in answer.out.split("\n"), "a line break in a name breaks no line"


@pytest.mark.parametrize(
    "name",
    [
        "it's",
        'say "hi"',
        "a: b",
        "# c",
        "- d",
        "Modèle 模型",
        " led by a space",
        "%x {y} [z]",
        "null",
        "1e3",
        "a&b<c>",
        "[red]",
    ],
    ids=repr,
)
def test_odd_names_of_folders_are_names(name: str, tmp_path: Path) -> None:
    folder = config_folder(tmp_path / name)
    for command in (("fit",), ("decide",), ("catalog", "show")):
        answer = fresh(*command, str(folder), "--json")
        assert answer.code == 0, answer.err
        assert answer.document["result"].get("model", answer.document["result"].get("name")) == name
    shown = fresh("fit", str(folder)).out
    assert shown.startswith(f"{name} on ")


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    try:
        folder = config_folder(tmp_path / os.fsdecode(b"caf\xe9"))
    except OSError:
        pytest.skip("this file system knows only Unicode names")
    for more in ((), ("--json",)):
        done = child("fit", str(folder), *more)
        assert done.returncode in (0, 2), done.stderr
        done.stdout.decode("utf-8")
