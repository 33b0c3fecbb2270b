"""A model by its name in the catalogue or by its config.json, with values set from the command line."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from outgrow import catalog
from outgrow.errors import ConfigError, Problem, UnknownNameError, shorten
from outgrow.specfile.json_lines import MOST_DIGITS, scan
from outgrow.specfile.override import OVERRIDE
from outgrow.specfile.text import did_you_mean, read_text, step
from outgrow.units import MIB
from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape

MOST_BYTES: Final = 8 * MIB
DEEPEST: Final = 50
_CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"
MOST_INDEX_BYTES: Final = 64 * MIB
LARGEST_GAP: Final = 0.01
"""Between the parameters of a configuration and those that an index claims: buffers and padding stay below it."""
_LONGEST_NAME: Final = 4096
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")


def looks_like_path(ref: str) -> bool:
    """Whether a text can only mean a place on the disk. `owner/name` does not: it may be the id of a hub."""
    starts = ("/", "./", "../", "~", ".\\", "..\\", "\\\\")
    return (
        ref in (".", "..") or ref.startswith(starts) or ref.endswith(".json") or _DRIVE.match(ref) is not None
    )


def load_model(ref: str, overrides: Mapping[str, object] | None = None, *, files: bool = True) -> ModelShape:
    """The shape of a model: a name of the catalogue, a config.json, or a folder that holds one.

    What exists on the disk wins over a name. `overrides` are values by their dotted path in the config. With
    `files` = False the disk is left alone, for callers that serve others. Raises `ConfigError` with every
    fault of the file, each with its line, or `UnknownNameError`.
    """
    overrides = overrides or {}
    if not isinstance(ref, str) or not ref.strip() or len(ref) > _LONGEST_NAME:
        raise ConfigError(
            f"{shorten(ref)} names no model.",
            hint="say for example llama-3.1-8b, or the path of a config.json",
        )
    place = _place(ref) if files else None
    if place is not None:
        return _from_file(place, overrides)
    try:
        if not overrides:
            shape = catalog.model(ref)
        else:
            entry = catalog.model_entry(ref)
            source = str(entry.get("source") or entry.get("hub_id") or "")
            config = catalog.model_config(ref)
            shape = _resolved(config, overrides, name=str(entry.get("name") or ref), source=source)
        read_as = catalog.explain_name("model", ref)
    except UnknownNameError as error:
        hint = "give the path of its config.json"
        near = error.hint if error.hint.startswith("did you mean") else ""
        raise UnknownNameError(error.message, hint=f"{near} Otherwise {hint}" if near else hint) from None
    return shape if read_as is None else replace(shape, assumed=(*shape.assumed, read_as))


def _place(ref: str) -> Path | None:
    """The file that a text means, or None where it means a name."""
    certain = looks_like_path(ref)
    try:
        path = Path(ref).expanduser() if certain else Path(ref)
        if path.is_dir():
            inside = path / _CONFIG
            if inside.exists() or certain:
                return inside
        if certain or path.is_file():
            return path
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a name too long, a user without a home
        if certain:
            problem = Problem(path="", message="is not the name of a file", value=ref, has_value=True)
            raise ConfigError("Cannot read the model's configuration.", problems=[problem]) from error
    return None


def _from_file(path: Path, overrides: Mapping[str, object]) -> ModelShape:
    file = str(path)
    found = read_text(path, limit=MOST_BYTES)
    if isinstance(found, Problem):
        raise ConfigError(f"Cannot read {shorten(file)}.", problems=[found])
    config = read_config(found, file=file)
    name = path.resolve().parent.name if path.name == _CONFIG else path.stem
    try:
        shape = _resolved(config, overrides, name=name, source=file)
        claimed = _claimed_parameters(path.parent / _INDEX)
        if claimed is None or abs(claimed - shape.parameters) <= LARGEST_GAP * shape.parameters:
            return shape
        gap = f"{_INDEX} claims {claimed:,} parameters, the configuration has {shape.parameters:,}: the configuration is taken"
        return replace(shape, assumed=(*shape.assumed, gap))
    except ConfigError as error:
        lines = scan(found, file=file).lines
        problems = [p if p.file else _placed(p, file, lines) for p in error.problems]
        raise ConfigError(error.message, hint=error.hint, problems=problems) from None


def _claimed_parameters(index: Path) -> int | None:
    """What the index of the weights beside a configuration states as their number; None where it does not."""
    try:
        if not index.is_file() or index.stat().st_size > MOST_INDEX_BYTES:
            return None
        metadata = json.loads(index.read_text(encoding="utf-8"))["metadata"]
        claimed = metadata["total_parameters"]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ):  # it is not asked for: no fault of the model
        return None
    return claimed if isinstance(claimed, int) and not isinstance(claimed, bool) else None


def _placed(problem: Problem, file: str, lines: Mapping[str, int]) -> Problem:
    """A fault with the line of its path, or of the nearest thing around it that has one."""
    path = problem.path
    if path and path not in lines and "." not in path:
        return replace(problem, file=file)  # a key that is missing has no line
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return replace(problem, file=file, line=lines.get(path) if path else None)


def read_config(text: str, *, file: str) -> dict[str, Any]:
    """The object of a config.json. Raises `ConfigError` with every fault."""
    doubtful: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) != len(items):
            doubtful.append("a key twice")
        return table

    def number(token: str) -> float:
        value = float(token)
        if not math.isfinite(value):
            doubtful.append(token)
        return value

    def integer(token: str) -> int:
        if len(token.lstrip("-")) > MOST_DIGITS:
            doubtful.append(token)
            return 0
        return int(token)

    def constant(token: str) -> float:
        doubtful.append(token)
        return 0.0

    head = f"Cannot read {shorten(file)}."
    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_float=number, parse_int=integer, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}" if text.strip() else "is empty"
        line = error.lineno if text.strip() else None
        raise ConfigError(head, problems=[Problem(path="", message=message, file=file, line=line)]) from None
    except RecursionError:
        raise ConfigError(head, problems=[_too_deep(file)]) from None
    if not isinstance(value, dict):
        noun = "a list" if isinstance(value, list) else "a single value"
        problem = Problem(path="", message=f"must be an object with keys, and is {noun}", file=file)
        raise ConfigError(head, problems=[problem])
    if _is_too_deep(value):
        raise ConfigError(head, problems=[_too_deep(file)])
    if doubtful:
        first = Problem(path="", message=f"holds {shorten(doubtful[0])}", file=file)
        raise ConfigError(head, problems=scan(text, file=file).problems or [first])
    return value


def _too_deep(file: str) -> Problem:
    return Problem(path="", message=f"is nested more than {DEEPEST} deep", file=file)


def _is_too_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


# -- values from the command line


class _Watched(Mapping[str, object]):
    """A config that notes which keys are asked for, so that a misspelt override is not silent."""

    def __init__(self, table: Mapping[str, object], asked: set[str], path: str = "") -> None:
        self._table = table
        self._asked = asked
        self._path = path
        self._children: dict[str, _Watched] = {}

    def __getitem__(self, key: str) -> object:
        where = f"{self._path}.{key}" if self._path else key
        self._asked.add(where)
        value = self._table[key]
        if isinstance(value, dict):
            if key not in self._children:
                self._children[key] = _Watched(value, self._asked, where)
            return self._children[key]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return repr(self._table)


def _resolved(
    config: dict[str, Any], overrides: Mapping[str, object], *, name: str, source: str
) -> ModelShape:
    if not overrides:
        return resolve(config, name=name, source=source)
    config = copy.deepcopy(config)
    problems: list[Problem] = []
    new = [path for path, value in overrides.items() if _set(config, path, value, problems)]
    if problems:
        raise ConfigError("Cannot use these settings.", problems=problems)
    asked: set[str] = set()
    try:
        shape = resolve(_Watched(config, asked), name=name, source=source)
    except ConfigError as error:
        told = [_from_override(problem, overrides) for problem in error.problems]
        raise ConfigError(error.message, hint=error.hint, problems=told) from None
    known = sorted({key for key in asked if key not in new} | {key for key in config if key not in new})
    problems = [
        Problem(
            path=step("model", path),
            message="would change nothing: this architecture has no such key",
            file=OVERRIDE,
            hint=did_you_mean(path, known),
        )
        for path in new
        if path not in asked
    ]
    if problems:
        raise ConfigError("Cannot use these settings.", problems=problems)
    return shape


def _set(config: dict[str, Any], path: str, value: object, problems: list[Problem]) -> bool:
    """Set one value; whether its key is a new one."""
    table: Any = config
    *parents, last = path.split(".")
    for part in parents:
        inner = table.get(part)
        if inner is None:
            inner = table[part] = {}
        if not isinstance(inner, dict):
            message = f"cannot be set: {part} is not a mapping"
            problems.append(Problem(path=step("model", path), message=message, file=OVERRIDE))
            return False
        table = inner
    is_new = last not in table
    table[last] = value
    return is_new


def _from_override(problem: Problem, overrides: Mapping[str, object]) -> Problem:
    parts = problem.path.split(".")
    prefixes = {".".join(parts[: length + 1]) for length in range(len(parts))}
    if prefixes.isdisjoint(overrides):
        return problem
    return replace(problem, path=f"model.{problem.path}", file=OVERRIDE)
