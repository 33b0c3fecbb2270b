"""Rules that no single file can keep on its own: floors, vocabulary, size, and what may not grow by accident."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import outgrow
from cli.calls import ROOT, environment
from outgrow.cli.main import COMMANDS, cli

SOURCE = ROOT / "src" / "outgrow"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE = 700

# Floors 0 to 3: same input, same bytes out.
CORE = ("units.py", "errors.py", "evidence.py", "layout.py", "workload", "cluster", "catalog", "physics", "planning", "serve", "decision", "govern")  # fmt: skip
# Modules through which time, chance and the world come in.
WORLD = {"time", "datetime", "random", "secrets", "uuid", "socket", "subprocess", "sqlite3", "urllib", "http", "threading", "tempfile"}  # fmt: skip

PUBLIC = ["__version__", "decide", "explain", "fit", "memory_table", "show", "validate"]

# Every command with its arguments and options, in order. A new flag is a decision: few flags, the file is the
# interface, and `--set` reaches the rest.
OPTIONS: dict[str, list[str]] = {
    "outgrow": ["--version", "-h --help"],
    "outgrow fit": ["WHAT", "--on", "--for", "--set", "--table", "--check", "--json", "-h --help"],
    "outgrow decide": ["WHAT", "--on", "--for", "--set", "--check", "--json", "-h --help"],
    "outgrow catalog": ["-h --help"],
    "outgrow catalog list": ["KIND", "--json", "-h --help"],
    "outgrow catalog show": ["NAME", "--json", "-h --help"],
    "outgrow validate": ["KIND", "FILE", "--by", "--json", "-h --help"],
    "outgrow explain": ["TERM", "--json", "-h --help"],
    "outgrow schema": ["KIND", "-h --help"],
}
CHOICES: dict[str, list[str]] = {
    "outgrow fit --for": ["serving", "training", "lora", "qlora"],
    "outgrow decide --for": ["serving", "training", "lora", "qlora"],
    "outgrow catalog list KIND": ["model", "device", "node", "fabric"],
    "outgrow validate KIND": ["memory", "kv"],
    "outgrow schema KIND": ["workload", "cluster", "fit", "decide", "table", "catalog", "catalog-list", "validate", "explain"],
}  # fmt: skip


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def core_files() -> list[Path]:
    return [path for path in FILES if name_of(path).split("/")[0] in CORE]


def test_imports_only_point_down() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(script), "--no-cache"], cwd=ROOT, env=environment(PYTHONIOENCODING="utf-8"), capture_output=True, text=True, encoding="utf-8",
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken\.", done.stdout)


# Spellings of a unit that belong to units.py alone. Bounds that say "absurdly many" are no units, but a bound
# that is spelt like one reads like one: `limits.py` may, since a table of bounds is what it is.
MAGIC = re.compile(
    r"1024\s*\*\*\s*[2-9]|1024\s*\*\s*1024|2\s*\*\*\s*[2-9]0\b|1\s*<<\s*[2-9]0\b|\b1(?:\.0)?e(?:9|12)\b|\b10\s*\*\*\s*(?:9|12)\b"
    r"|\b1_000_000_000\b|\b1073741824\b"
)
BOUND = re.compile(r"\bhigh\s*(?::\s*float)?\s*=\s*(?:10\*\*9|1e9)\b")


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file without its comments and plain strings: what is computed, not what is told."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            (first, start), (last, end) = token.start, token.end
            for number in range(first, last + 1):
                line = lines[number - 1]
                left = start if number == first else 0
                right = end if number == last else len(line)
                lines[number - 1] = line[:left] + " " * (right - left) + line[right:]
    yield from enumerate(lines, start=1)


def test_units_are_spelt_in_one_room() -> None:
    offenders = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in FILES
        if name_of(path) not in ("units.py", "workload/limits.py")
        for number, line in code_lines(path)
        if MAGIC.search(BOUND.sub("", line))
    ]
    assert not offenders, "use the names of units.py:\n" + "\n".join(offenders)


@pytest.mark.parametrize("path", core_files(), ids=name_of)
def test_the_core_has_no_clock_no_chance_no_output(path: Path) -> None:
    offenders = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            modules = [node.func.id] if node.func.id in ("print", "input", "open", "exec", "eval") else []
        elif isinstance(node, ast.Attribute) and node.attr == "random":
            modules = ["random"]
        for module in modules:
            if module.split(".")[0] in WORLD | {"print", "input", "open", "exec", "eval"}:
                offenders.append(f"{name_of(path)}:{getattr(node, 'lineno', 0)}: {module}")
    assert not offenders


def test_only_the_doors_print() -> None:
    offenders = [
        f"{name_of(path)}:{number}"
        for path in FILES
        if not name_of(path).startswith(("cli/", "web/"))
        for number, line in code_lines(path)
        if re.search(r"(?<![\w.])print\(", line)
    ]
    assert not offenders


def test_a_file_is_a_concept() -> None:
    long = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines >= LONGEST_FILE} == {}


def test_every_file_says_what_it_is() -> None:
    silent = [name_of(p) for p in FILES if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert silent in ([], ["__main__.py"])


def test_the_public_api_is_curated() -> None:
    assert outgrow.__all__ == PUBLIC
    assert dir(outgrow) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(outgrow, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = outgrow.fitt


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pydantic", "rich", "yaml", "click", "outgrow.app")
    code = f"import outgrow, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom outgrow.cli.main import run\ntry:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('numpy', 'pydantic', 'rich', 'yaml', 'outgrow.app', 'outgrow.catalog')\n"
        "print([m for m in sys.modules if m in heavy or m.startswith('outgrow.cli.') and m != 'outgrow.cli.main'], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "[]"


def commands() -> dict[str, click.Command]:
    """Every command by the words that call it."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, words: str) -> None:
        found[words] = command
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=words)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, f"{words} {name}")

    walk(cli, "outgrow")
    return found


def spelt(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return str(parameter.name).upper()
    return " ".join([*parameter.opts, *parameter.secondary_opts])


def options(command: click.Command, words: str) -> list[str]:
    # The root's settings, which the inner commands inherit, name the help option.
    context = click.Context(command, info_name=words, help_option_names=["-h", "--help"])
    return [spelt(parameter) for parameter in command.get_params(context)]


def test_options_are_decided() -> None:
    assert {words: options(command, words) for words, command in commands().items()} == OPTIONS


def test_choices_are_decided() -> None:
    found = {
        f"{words} {spelt(parameter)}": list(parameter.type.choices)
        for words, command in commands().items()
        for parameter in command.params
        if isinstance(parameter.type, click.Choice)
    }
    assert found == CHOICES


def test_few_flags() -> None:
    assert {words: names for words, names in OPTIONS.items() if sum(n[0] == "-" for n in names) > 9} == {}


def test_every_command_answers_in_json_but_the_one_that_prints_schemas() -> None:
    silent = [w for w, command in commands().items() if not isinstance(command, click.Group) and "--json" not in options(command, w)]  # fmt: skip
    assert silent == ["outgrow schema"]


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    assert list(COMMANDS) == [words.split()[1] for words in OPTIONS if words.count(" ") == 1]
    for module, line in COMMANDS.values():
        assert line.endswith(".")
        assert (SOURCE.parent / (module.replace(".", "/") + ".py")).is_file()
