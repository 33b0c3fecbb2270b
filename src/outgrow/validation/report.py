"""A validation as a value: outcomes, their summary by quantity and by group, and the fit verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.validation.rows import Row
from outgrow.validation.summary import Confusion, Outcome, Summary, confusion, grouped, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Every outcome of one file, and what they add up to."""

    kind: str
    outcomes: tuple[Outcome, ...]
    summary: Summary
    quantities: dict[str, Summary]
    groups: dict[str, Summary]
    by: str
    verdicts: Confusion
    worst: tuple[Outcome, ...]


def build(
    kind: str, rows: list[Row], outcomes: list[Outcome], *, by: str | None, worst: int = 10
) -> Validation:
    """Summarise outcomes, grouped by a column of the file or by source."""
    values = {row["id"]: row.get(by, "") for row in rows} if by is not None else {}
    ranked = sorted(
        (o for o in outcomes if o.error is not None), key=lambda o: (-abs(o.error or 0.0), o.id, o.quantity)
    )
    return Validation(
        kind=kind, outcomes=tuple(outcomes), summary=summarise(outcomes), quantities=grouped((o for o in outcomes if o.quantity != "fits"), lambda o: o.quantity),
        groups=grouped(outcomes, lambda o: values.get(o.id, "") or "(none)" if by is not None else o.group), by=by or "source",
        verdicts=confusion(outcomes), worst=tuple(ranked[:worst]),
    )  # fmt: skip
