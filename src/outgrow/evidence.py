"""How a number explains itself: its unit, its interval, its source; and how findings and assumptions are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SourceKind = Literal["arithmetic", "measured", "datasheet", "fitted", "estimated", "given", "default"]
Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a number comes from."""

    kind: SourceKind
    ref: str
    """Public place where it can be checked, or the formula."""
    date: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number that knows its unit, its interval and its source.

    `low` and `high` bound the central 80 % of what a measurement is expected to show, unless a source says
    that they are hard bounds. Exact numbers have low == value == high.
    """

    value: float
    unit: str
    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval [{self.low}, {self.high}] does not hold {self.value} {self.unit}")

    @classmethod
    def exact(cls, value: float, unit: str, source: str) -> Quantity:
        """A number without uncertainty: arithmetic on given facts."""
        return cls(value=value, unit=unit, low=value, high=value, source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A default that mattered: its name (usable with --set), the value that was taken, and why."""

    name: str
    value: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something noticed that the user did not ask for but should know."""

    severity: Severity
    code: str
    message: str
    hint: str = ""
