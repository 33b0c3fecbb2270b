"""Every error that a user can meet, drawn as a tree. Each carries its numbers, a hint and an exit code.

OutgrowError                    70  our bug, unless a subclass says otherwise
├── InputError                   2  something given is wrong: lists *all* faults, each a Problem
│   ├── SpecError                   a YAML file
│   ├── ConfigError                 a model's config.json
│   └── LayoutError                 degrees that do not divide
├── MissingError                 3  something needed is not here: a catalogue entry, an extra, a device
│   └── UnknownNameError             a name that is not in the catalogue, with the nearest ones
└── OutsideError                 4  an outside system failed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXIT_OK = 0
EXIT_NO = 1
EXIT_INPUT = 2
EXIT_MISSING = 3
EXIT_OUTSIDE = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

_SHOWN = 50
_VALUE_WIDTH = 60


def shorten(value: object) -> str:
    """The repr of a value for a message: one line, printable, bounded whatever the value is."""
    try:
        text = value if isinstance(value, str) and value.startswith("<") else repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python will print; a self-reference
        text = f"<{type(value).__name__} too large to print>"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault: where it is, what was found there, why it is wrong, what to do."""

    path: str
    """Dotted path inside the input, "" for the whole."""
    message: str
    value: object = None
    has_value: bool = False
    hint: str = ""
    line: int | None = None
    file: str = ""

    def __str__(self) -> str:
        place = ":".join(p for p in (self.file, str(self.line) if self.line else "") if p)
        head = " ".join(p for p in (f"{place}:" if place else "", f"{self.path}:" if self.path else "") if p)
        text = f"{head} {self.message}".strip()
        if self.has_value:
            text += f" (found {shorten(self.value)})"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text


class OutgrowError(Exception):
    """The root. `str()` is what a person reads; `problems` is what a program reads."""

    exit_code = EXIT_BUG

    def __init__(self, message: str, *, hint: str = "", problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems: Sequence[Problem] = tuple(problems)

    def __str__(self) -> str:
        lines = [self.message]
        lines += [str(p) for p in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"… and {len(self.problems) - _SHOWN} more")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class InputError(OutgrowError):
    """Something that was given is wrong. All faults are listed, not the first."""

    exit_code = EXIT_INPUT


class SpecError(InputError):
    """A YAML file is wrong."""


class ConfigError(InputError):
    """A model's config.json is wrong, or of an architecture that is not known."""


class LayoutError(InputError):
    """Degrees of parallelism do not divide what they must divide."""


class MissingError(OutgrowError):
    """Something that is needed is not here."""

    exit_code = EXIT_MISSING


class UnknownNameError(MissingError):
    """A name that is not in the catalogue."""


class OutsideError(OutgrowError):
    """An outside system failed."""

    exit_code = EXIT_OUTSIDE


def all_of(errors: Sequence[InputError | MissingError]) -> InputError | MissingError:
    """Several errors of one command as one, so that none waits behind another. Wrong input outranks what is missing."""
    if len(errors) == 1:
        return errors[0]
    kind = InputError if any(isinstance(error, InputError) for error in errors) else MissingError
    problems: list[Problem] = []
    for error in errors:
        problems += error.problems or (Problem(path="", message=error.message, hint=error.hint),)
    return kind(f"{len(problems)} things are wrong.", problems=problems)
