"""A figure: one number of a catalogue entry that says where it comes from and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

FigureKind = Literal["datasheet", "measured", "estimated"]
FIGURE_KINDS: tuple[str, ...] = get_args(FigureKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number in the base unit of its dimension: bytes, B/s, FLOP/s, W, s, a fraction or a plain count."""

    value: float
    unit: str
    kind: FigureKind
    """`datasheet`: from a vendor's or a curated table; `measured`: somebody ran it; `estimated`: neither."""
    source: str
    date: str = ""
    """When the source was published or read, "" where that is not known."""
    low: float | None = None
    """Lower end where sources or measurements disagree; None = no spread is known."""
    high: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not (self.low is None or self.low <= self.value) or not (
            self.high is None or self.value <= self.high
        ):
            raise ValueError(f"the spread [{self.low}, {self.high}] does not hold {self.value} {self.unit}")

    @property
    def lowest(self) -> float:
        """`low`, or the value itself where no spread is known."""
        return self.value if self.low is None else self.low

    @property
    def highest(self) -> float:
        """`high`, or the value itself where no spread is known."""
        return self.value if self.high is None else self.high
