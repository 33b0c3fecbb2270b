"""The documents are executable: every command and every Python block in them runs, and prints what they show.

In a ```console block each `$ outgrow ...` line is run, and what follows it is compared with what it prints, on
stdout and stderr together. A line `...` stands for any lines, `...` inside of a line for anything in it. Nothing
after a command means that it must succeed. `$ echo $?` after it shows another exit code. Other commands, such as
`$ pip install .`, are not run. The ```python blocks of a document share one namespace, from top to bottom; a block
of `>>>` is a doctest.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outgrow.cli.main import run

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    path
    for path in (
        *(
            ROOT / name
            for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "validation/README.md")
        ),
        *sorted((ROOT / "docs").rglob("*.md")),
    )
    if path.is_file()
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a document."""

    path: Path
    line: int
    """Line of its first content."""
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a console block and what is shown below it."""

    text: str
    shown: tuple[str, ...]
    exit_code: int = 0


def blocks(path: Path) -> Iterator[Block]:
    """Fenced blocks of one document, in order."""
    inside: tuple[str, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"(\s*`{3,})\s*([\w+-]*)", line)
        if inside is None and fence:
            inside, lines = (fence[1], fence[2], number + 1), []
        elif inside is not None and line.rstrip() == inside[0]:
            yield Block(path=path, line=inside[2], language=inside[1], text="\n".join(lines))
            inside = None
        elif inside is not None:
            lines.append(line)
    assert inside is None, f"{path.name}:{inside[2] if inside else 0}: a block that is never closed"


def commands(block: Block) -> Iterator[Command]:
    """Commands of a console block, a backslash at the end of a line continuing it."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block.place}: a console block starts with a command"
    found: list[Command] = []
    for part in parts[1:]:
        lines = part.split("\n")
        text = lines.pop(0)
        while text.endswith("\\"):
            text = text[:-1].rstrip() + " " + lines.pop(0).lstrip("> ")
        while lines and not lines[-1].strip():
            lines.pop()
        if text == "echo $?":
            last = found.pop()
            found.append(Command(text=last.text, shown=last.shown, exit_code=int(lines[0])))
        else:
            found.append(Command(text=text, shown=tuple(lines)))
    yield from (c for c in found if c.text.split()[0] == "outgrow")


def printed(command: str) -> tuple[int, str]:
    """Exit code and everything that a command prints, as a UTF-8 terminal that is no terminal gets it."""
    arguments = shlex.split(command, comments=True)[1:]
    bytes_out = io.BytesIO()
    out = io.TextIOWrapper(bytes_out, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), pytest.raises(SystemExit) as left:
        run(arguments)
    out.flush()
    return int(left.value.code or 0), bytes_out.getvalue().decode()


def pattern(shown: tuple[str, ...]) -> re.Pattern[str]:
    """What is shown, as a pattern of what may be printed."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"\n")
    return re.compile("".join(parts))


def first_difference(shown: tuple[str, ...], output: str) -> str:
    """The first shown line up to which the output no longer matches."""
    for count in range(1, len(shown) + 1):
        if not pattern((*shown[:count], "...")).fullmatch(output):
            return f"line {count} is not printed where it is shown: {shown[count - 1]!r}"
    return "more is printed than is shown"


def _blocks(language: str) -> list[Block]:
    return [b for path in DOCUMENTS for b in blocks(path) if b.language == language]


CONSOLE = _blocks("console")
PYTHON = {path: [b for b in blocks(path) if b.language == "python"] for path in DOCUMENTS}


@pytest.mark.parametrize("block", CONSOLE, ids=[b.place for b in CONSOLE])
def test_commands_print_what_is_shown(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for command in commands(block):
        code, output = printed(command.text)
        assert code == command.exit_code, f"{block.place}: $ {command.text} exits with {code}\n{output}"
        if command.shown:
            lines = "".join(line.rstrip() + "\n" for line in output.rstrip("\n").split("\n"))
            matches = pattern(command.shown).fullmatch(lines)
            assert matches, (
                f"{block.place}: $ {command.text}\n{first_difference(command.shown, lines)}\n\n{lines}"
            )


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if PYTHON[p]], ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "__docs__"}
    for block in PYTHON[path]:
        if block.text.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.text, names, block.place, str(path), block.line)
            report = io.StringIO()
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            result = runner.run(test, out=report.write, clear_globs=False)
            names = test.globs
            assert not result.failed, report.getvalue()
        else:
            code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, names)  # noqa: S102 (the documents are ours)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_word_to_explain_is_explained(path: Path) -> None:
    from outgrow import app

    for term in re.findall(r"outgrow explain ([\w-]+)", path.read_text(encoding="utf-8")):
        if not term.isupper():
            assert app.explain(term).value.text


def test_documents_are_there() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS}
    pages = ("memory-training", "memory-serving", "models", "intervals", "decide")
    assert {"docs/start/five-minutes.md", *(f"docs/concepts/{page}.md" for page in pages)} <= names
    assert len(CONSOLE) >= 15
    assert sum(map(len, PYTHON.values())) >= 8


# ---- the comparison itself


def _block(text: str) -> Block:
    return Block(path=ROOT / "README.md", line=1, language="console", text=text)


def test_wildcards_stand_for_lines_and_for_parts_of_lines() -> None:
    output = "one\ntwo 3.14 x\nthree\n"
    assert pattern(("one", "two ... x", "three")).fullmatch(output)
    assert pattern(("one", "...")).fullmatch(output)
    assert pattern(("one", "...", "two 3.14 x", "three")).fullmatch(output)
    assert not pattern(("one", "three")).fullmatch(output)
    assert not pattern(("one", "two")).fullmatch(output)
    assert not pattern(("one", "... y", "three")).fullmatch(output)
    assert "line 2" in first_difference(("one", "three"), output)
    assert first_difference(("one",), output) == "more is printed than is shown"


def test_commands_are_read_with_their_exit_codes_and_continuations() -> None:
    block = _block("$ pip install .\n$ outgrow fit a \\\n    --check\nno\n\n$ echo $?\n1\n$ outgrow b\n")
    assert list(commands(block)) == [
        Command(text="outgrow fit a --check", shown=("no",), exit_code=1),
        Command(text="outgrow b", shown=()),
    ]


def test_a_failing_command_is_noticed() -> None:
    code, output = printed("outgrow explain nosuchword")
    assert code == 3
    assert "No entry explains" in output
