"""The only room that knows units: bytes, seconds, rates, their parsing and their printing.

Memory is always binary (GiB) and says so, because that is what drivers and allocators report. Bandwidth is
decimal (GB/s, Gb/s), because that is what wires carry. Nothing else in the project spells 1024**3 or 1e9.
"""

from __future__ import annotations

import math
import re
from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
TIB: Final = 1024**4

KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12

TERA: Final = 10**12
GIGA: Final = 10**9

_SIZES: Final = {
    "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "kb": KB, "mb": MB, "gb": GB, "tb": TB,
}  # fmt: skip
_TIMES: Final = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0,
    "hours": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0, "w": 604800.0, "week": 604800.0,
    "weeks": 604800.0,
}  # fmt: skip
_COUNTS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*\Z")


def _split(text: str) -> tuple[float, str]:
    match = _NUMBER.match(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(f"{text[:64]!r} is not a number with a unit")
    value = float(match[1].replace("_", ""))
    if not math.isfinite(value):
        raise ValueError(f"{text[:64]!r} is not finite")
    return value, match[2]


def parse_bytes(text: str) -> int:
    """Read "80GiB", "141 GB" or "512" (bytes). Decimal and binary prefixes are kept apart."""
    value, unit = _split(text)
    if unit.lower() not in _SIZES and unit:
        raise ValueError(f"unknown size unit {unit!r}; use GiB (1024**3 bytes) or GB (10**9 bytes)")
    return round(value * _SIZES[unit.lower() or "b"])


def parse_seconds(text: str) -> float:
    """Read "500ms", "36h", "5 days". A bare number is seconds."""
    value, unit = _split(text)
    if unit.lower() not in _TIMES and unit:
        raise ValueError(f"unknown time unit {unit!r}; use ms, s, min, h or days")
    return value * _TIMES[unit.lower() or "s"]


def parse_count(text: str) -> float:
    """Read "15T", "200k", "8.03B": a count with a decimal prefix."""
    value, unit = _split(text)
    if unit.lower() not in _COUNTS:
        raise ValueError(f"unknown suffix {unit!r}; use k, M, B (10**9) or T (10**12)")
    return value * _COUNTS[unit.lower()]


def gib(value: float) -> float:
    """Bytes as GiB."""
    return value / GIB


def format_bytes(value: float, *, digits: int = 1) -> str:
    """Memory for people: "15.0 GiB", "128 KiB". Always binary, always labelled."""
    size = abs(value)
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # Memory totals stay in GiB up to 10 TiB, so that columns of one table compare at a glance.
        if size >= unit * (10 if unit == TIB else 1) or (unit == GIB and size >= 0.1 * GIB):
            scaled = value / unit
            return f"{scaled:,.{digits}f} {name}" if unit >= GIB else f"{scaled:,.0f} {name}"
    return f"{value:,.0f} B"


def format_count(value: float) -> str:
    """A count for people: "8.03 B" parameters, "452 k" tokens."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"


def format_seconds(value: float) -> str:
    """A duration for people, in the unit that keeps two or three digits."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    if value < 120:
        return f"{value:.3g} s"
    if value < 7200:
        return f"{value / 60:.3g} min"
    if value < 2 * 86400:
        return f"{value / 3600:.3g} h"
    if value < 1e11:
        return f"{value / 86400:,.3g} days"
    return "never"


def counted(number: int, noun: str) -> str:
    """ "1 GPU", "3 GPUs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_percent(fraction: float, *, digits: int = 1) -> str:
    """0.188 -> "18.8 %"."""
    return f"{fraction * 100:.{digits}f} %"
