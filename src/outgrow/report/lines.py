"""Lines of text with a role each: the small language that all text views are written in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Role = Literal["plain", "title", "good", "bad", "warn", "dim", "code"]
WIDTH = 80
FULL, EMPTY = "█", "·"
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


@dataclass(frozen=True, slots=True)
class Line:
    """One line. The role only colours it: the words carry the meaning."""

    text: str = ""
    role: Role = "plain"


def wrapped(
    text: str, *, indent: str = "", first: str | None = None, role: Role = "plain", width: int = WIDTH
) -> Iterator[Line]:
    """A paragraph, wrapped to the width."""
    start = indent if first is None else first
    for line in textwrap.wrap(
        text,
        width=width,
        initial_indent=start,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=True,
    ) or [start]:
        yield Line(line, role)


def bar(share: float, width: int) -> str:
    """A bar of `width` cells that is filled to a share."""
    share = min(max(share, 0.0), 1.0)
    cells = share * width
    whole = int(cells)
    part = EIGHTHS[int((cells - whole) * 8)] if whole < width else ""
    return (FULL * whole + part).ljust(width, EMPTY)


def plain_text(lines: Iterable[Line], *, ascii_only: bool = False) -> str:
    """Lines without colour."""
    text = "\n".join(line.text.rstrip() for line in lines) + "\n"
    return to_ascii(text) if ascii_only else text


def to_ascii(text: str) -> str:
    """For terminals and files that cannot show more."""
    for char, replacement in (
        ("█", "#"), ("·", "."), ("×", "x"), ("–", "-"), ("—", "-"), ("…", "..."), ("µ", "u"), ("→", "->"), ("✓", "ok"), ("✗", "NO"),
        ("≤", "<="), ("≥", ">="), *((c, ".") for c in EIGHTHS if c),
    ):  # fmt: skip
        text = text.replace(char, replacement)
    return text.encode("ascii", "replace").decode()


def columns(rows: list[tuple[str, ...]], *, aligns: str, indent: str = "  ", gap: int = 2) -> Iterator[Line]:
    """Rows in columns as wide as their widest cell; `aligns` has one of < > per column."""
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(aligns))]
    for row in rows:
        cells = [f"{cell:{align}{width}}" for cell, align, width in zip(row, aligns, widths, strict=True)]
        yield Line((indent + (" " * gap).join(cells)).rstrip())
