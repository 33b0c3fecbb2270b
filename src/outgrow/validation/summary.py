"""Errors, and what they add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One measured quantity of one row, and what was predicted for it."""

    id: str
    quantity: str
    predicted: float | None
    measured: float | None
    """None where the measurement itself cannot be read."""
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """Why it was not answered."""
    group: str = ""
    note: str = ""

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        if self.predicted is None or self.quantity == "fits" or not self.measured:
            return None
        return self.predicted / self.measured - 1

    @property
    def covered(self) -> bool | None:
        """Whether the measurement lies in the stated interval."""
        if (
            self.predicted is None
            or self.measured is None
            or self.low is None
            or self.high is None
            or self.quantity == "fits"
        ):
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of a set of outcomes; fractions throughout. None where nothing was answered."""

    n: int
    answered: int
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    """Median signed error."""
    coverage: float | None
    """Share of measurements inside of the stated intervals."""


def quantile(values: Sequence[float], fraction: float) -> float:
    """A quantile by linear interpolation."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    index = min(int(position), len(ordered) - 2) if len(ordered) > 1 else 0
    if len(ordered) == 1:
        return ordered[0]
    return ordered[index] + (ordered[index + 1] - ordered[index]) * (position - index)


def summarise(outcomes: Iterable[Outcome]) -> Summary:
    """Errors of continuous quantities. `fits` rows are counted by `confusion`."""
    rows = [o for o in outcomes if o.quantity != "fits"]
    errors = [o.error for o in rows if o.error is not None]
    covered = [o.covered for o in rows if o.covered is not None]
    absolute = [abs(e) for e in errors]
    return Summary(
        n=len(rows),
        answered=len(errors),
        median_ape=median(absolute) if absolute else None,
        p90_ape=quantile(absolute, 0.9) if absolute else None,
        bias=median(errors) if errors else None,
        coverage=sum(covered) / len(covered) if covered else None,
    )


def grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, Summary]:
    """One summary per group, by name."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[key(outcome)].append(outcome)
    return {name: summarise(groups[name]) for name in sorted(groups)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Fit or no fit: predicted against what happened."""

    failed: int
    failed_said_no: int
    succeeded: int
    succeeded_said_no: int


def confusion(outcomes: Iterable[Outcome]) -> Confusion:
    """Count the fit verdicts."""
    rows = [o for o in outcomes if o.quantity == "fits" and o.predicted is not None]
    failed = [o for o in rows if not o.measured]
    succeeded = [o for o in rows if o.measured]
    return Confusion(
        failed=len(failed), failed_said_no=sum(not o.predicted for o in failed),
        succeeded=len(succeeded), succeeded_said_no=sum(not o.predicted for o in succeeded),
    )  # fmt: skip
