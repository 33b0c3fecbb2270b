"""Reading a file that nobody vouches for: bounded, UTF-8, no devices that never end."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from outgrow.errors import Problem
from outgrow.units import MIB

# What YAML calls not printable, surrogates aside: those fail when the text is encoded.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_LONGEST_WORD: Final = 64


def read_text(path: Path, *, limit: int) -> str | Problem:
    """The text of a file of at most `limit` bytes, or the reason why it cannot be had."""
    file = str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return Problem(path="", message="is a folder, not a file", file=file)
        # Opening a pipe that nobody writes to waits for ever. Those under /dev (standard input, the shell's
        # <(...)) have a writer.
        if not stat.S_ISREG(mode) and not file.startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
            return Problem(path="", message="is not a regular file", file=file)
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        return Problem(path="", message="there is no such file", file=file)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (error.strerror if isinstance(error, OSError) else None) or "its name is not one"
        return Problem(path="", message=f"cannot be read: {reason}", file=file)
    if len(data) > limit:
        return too_large(file, limit)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = "it looks like UTF-16: save it as UTF-8" if utf16 else "save it as UTF-8"
        line = None if utf16 else data.count(b"\n", 0, error.start) + 1
        return Problem(path="", message="is not UTF-8 text", file=file, line=line, hint=hint)


def too_large(file: str, limit: int) -> Problem:
    """The fault of a file that is too large to be what it should be."""
    return Problem(path="", message=f"is larger than {limit // MIB} MiB", file=file)


def text_problem(text: str, file: str, *, limit: int) -> Problem | None:
    """Why a text cannot be YAML, before any parser sees it."""
    try:
        if len(text.encode("utf-8")) > limit:
            return too_large(file, limit)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return Problem(path="", message="holds half a character (a lone surrogate)", file=file, line=line)
    match = _CONTROL.search(text)
    if match is None:
        return None
    line = text.count("\n", 0, match.start()) + 1
    message = f"holds the control character U+{ord(match[0]):04X}: it is binary, not a text"
    return Problem(path="", message=message, file=file, line=line)


def step(path: str, key: str) -> str:
    """One step further down a dotted path, printable and bounded whatever the key is."""
    shown = "".join(c if c.isprintable() else "?" for c in key[:_LONGEST_WORD])
    shown = shown + "…" if len(key) > _LONGEST_WORD else shown
    return f"{path}.{shown or repr('')}" if path else shown or repr("")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the names that look most like a word; "" where none does."""
    if len(word) > _LONGEST_WORD:  # the comparison takes time with the square of the length
        return ""
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), lowered, n=2, cutoff=0.6)
    near += difflib.get_close_matches(word.lower(), lowered, n=2, cutoff=0.6)
    names = list(dict.fromkeys(lowered[name] for name in near))[:2]
    return f"did you mean {' or '.join(names)}?" if names else ""
