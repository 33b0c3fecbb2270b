"""Plain data against a dataclass of the core, by pydantic, with every fault in this project's words.

The core knows nothing of pydantic. What its classes need to be strict (unknown keys are faults, numbers are
not texts) and to describe themselves is written onto them here, when the first file is read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from outgrow.errors import InputError, Problem
from outgrow.specfile.fields import Slot, slots_of
from outgrow.specfile.text import step
from outgrow.specfile.tree import Location, Reading, unknown_key_hint
from outgrow.workload.limits import problems_of

_CONFIG: Final = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
_CONFIG_KEY: Final = "__pydantic_config__"
_MOST_ROUNDS: Final = 6


@lru_cache(maxsize=8)
def adapter_of(cls: type) -> TypeAdapter[Any]:
    """The validator of a dataclass."""
    _configure(cls)
    return TypeAdapter(cls)


def _configure(cls: type) -> None:
    setattr(cls, _CONFIG_KEY, _CONFIG)
    for slot in slots_of(cls).values():
        block = slot.block or (slot.item.block if slot.item is not None else None)
        if block is not None:
            _configure(block)


def check(reading: Reading, cls: type) -> Any:
    """The value, or None; every fault is added to the reading's.

    What is faulty is taken out and the rest validated again, until the value can be made: then its numbers
    are compared with their bounds, so that a file's faults of every sort are told at once.
    """
    data: dict[str, Any] = json.loads(json.dumps(reading.data))
    sound = not reading.problems
    for _ in range(_MOST_ROUNDS):
        try:
            value = adapter_of(cls).validate_json(json.dumps(data))
        except ValidationError as error:
            sound = False
            for fault in error.errors(include_url=False, include_context=False):
                _tell(fault["type"], fault["loc"], fault["msg"], cls, reading)
                _remove(data, fault["loc"], missing=fault["type"] == "missing")
            continue
        except InputError as error:
            reading.problems += [placed(problem, reading) for problem in error.problems]
            return None
        found = [placed(problem, reading) for problem in problems_of(value)]
        reading.problems += found
        return value if sound and not found else None
    return None


def placed(problem: Problem, reading: Reading) -> Problem:
    """A problem of the core, with the line and the words of the file."""
    at: Location = (
        tuple(int(part) if part.isdigit() else part for part in problem.path.split("."))
        if problem.path
        else ()
    )
    if at not in reading.places:
        return problem
    path, node = reading.places[at]
    value = node.value if node.kind == "scalar" else problem.value
    return replace(problem, path=path, file=node.file, line=node.line, value=value)


def _tell(kind: str, at: Location, text: str, cls: type, reading: Reading) -> None:
    """One fault that pydantic found."""
    if reading.is_told(at):
        return
    owner, slot = _slot_at(cls, at)
    if kind == "missing":
        parent, node = reading.places.get(at[:-1], reading.places[()])
        reading.problems.append(
            Problem(path=step(parent, str(at[-1])), message="is missing", file=node.file, line=node.line)
        )
        return
    if at not in reading.places:
        return
    _, node = reading.places[at]
    if kind == "unexpected_keyword_argument":
        block = ".".join(str(part) for part in at[:-1])
        hint = unknown_key_hint(str(at[-1]), owner, cls, reading)
        message = f"is not a key of {block}" if block else "is not a key that is known"
        reading.fault(at, message, hint=hint, has_value=False)
        return
    message = text[:1].lower() + text[1:] if slot is None else slot.wanted
    hint = ""
    if slot is not None and slot.kind in ("text", "choice") and node.kind == "scalar" and len(node.raw) < 40:
        hint = f'put it in quotes: "{node.raw}"'
    elif (
        slot is not None and slot.kind == "bool" and node.raw.lower() in ("yes", "on", "y", "no", "off", "n")
    ):
        hint = "write true" if node.raw.lower() in ("yes", "on", "y") else "write false"
    reading.fault(at, message, hint=hint)


def _slot_at(cls: type, at: Location) -> tuple[type, Slot | None]:
    """The dataclass that a location lies in, and its slot there."""
    owner, slot = cls, None
    for part in at:
        if isinstance(part, int):
            slot = slot.item if slot is not None else None
            continue
        if slot is not None and slot.block is not None:
            owner = slot.block
        slot = slots_of(owner).get(part)
    return owner, slot


def _remove(data: Any, at: Location, *, missing: bool) -> None:
    """Take a faulty value out, so that the rest can be validated."""
    for depth, part in enumerate(at[:-1]):
        if isinstance(data, list) and isinstance(part, int):
            if part >= len(data):
                return
            data = data[part]
        elif isinstance(data, dict) and part in data:
            if isinstance(at[depth + 1], int) and depth + 2 == len(at):
                del data[part]  # one faulty entry of a list: its default stands in for the whole
                return
            data = data[part]
        else:
            return
    if isinstance(data, dict):
        if missing:
            data[str(at[-1])] = "?"
        else:
            data.pop(str(at[-1]), None)
