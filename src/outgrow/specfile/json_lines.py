"""Where things stand in a JSON text: lines of dotted paths, and what JSON's readers let pass.

Only read where something is to be told: the values themselves come from the standard library.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from outgrow.errors import Problem
from outgrow.specfile.text import step

MOST_DIGITS: Final = 18
_MOST_PROBLEMS: Final = 200
_DEEPEST: Final = 100
_MOST_PIECES: Final = 1_000_000
"""Where a text is longer its rest goes without lines: to wait for them would be worse."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]:,]|[^\s"{}\[\]:,]+|\n', re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z")


@dataclass(slots=True)
class Lines:
    """What a scan found."""

    lines: dict[str, int] = field(default_factory=dict)
    """Line of every dotted path, of its key where it has one."""
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class _Level:
    path: str
    is_list: bool
    keys: dict[str, int] = field(default_factory=dict)
    key: str | None = None
    index: int = 0


def scan(text: str, *, file: str) -> Lines:
    """Scan a text that is JSON, NaN and repeated keys aside."""
    found = Lines()
    levels: list[_Level] = []
    line = 1
    for match in islice(_TOKEN.finditer(text), _MOST_PIECES):
        piece = match[0]
        if piece == "\n":
            line += 1
            continue
        top = levels[-1] if levels else None
        if piece in "{[":
            path = _enter(found, top, line)
            levels.append(_Level(path=path, is_list=piece == "["))
            if len(levels) > _DEEPEST:
                break
        elif piece in "}]":
            if levels:
                levels.pop()
        elif piece == ",":
            if top is not None:
                top.key, top.index = None, top.index + 1
        elif piece == ":":
            continue
        elif top is not None and not top.is_list and top.key is None and piece[0] == '"':
            _key(found, top, piece, line, file)
        else:
            _scalar(found, _enter(found, top, line), piece, line, file)
        if len(found.problems) >= _MOST_PROBLEMS:
            break
    return found


def _key(found: Lines, level: _Level, piece: str, line: int, file: str) -> None:
    try:
        key = str(json.loads(piece))
    except ValueError:
        key = piece[1:-1]
    if key in level.keys:
        message = f"is given twice, first on line {level.keys[key]}"
        found.problems.append(Problem(path=step(level.path, key), message=message, file=file, line=line))
    level.keys.setdefault(key, line)
    level.key = key


def _enter(found: Lines, level: _Level | None, line: int) -> str:
    """The path of a value that begins here."""
    if level is None:
        path = ""
    elif level.is_list:
        path = step(level.path, str(level.index))
    else:
        path = step(level.path, level.key or "")
        line = level.keys.get(level.key or "", line)
    found.lines.setdefault(path, line)
    return path


def _scalar(found: Lines, path: str, piece: str, line: int, file: str) -> None:
    message = ""
    if piece in ("NaN", "Infinity", "-Infinity"):
        message = "must be a finite number"
    elif (match := _NUMBER.match(piece)) is not None:
        if match[1] is None and match[2] is None:
            if len(piece.lstrip("-")) > MOST_DIGITS:
                message = f"has more than {MOST_DIGITS} digits"
        elif not math.isfinite(float(piece)):
            message = "must be a finite number"
    if message:
        found.problems.append(
            Problem(path=path, message=message, value=f"<{piece[:30]}>", has_value=True, file=file, line=line)
        )
