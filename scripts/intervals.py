"""Intervals are earned: bounds of predictions from the residuals of other sources, and what they then cover.

For every quantity and every source, the central 80 % of the errors of all other sources (each source weighing the
same) is held against the source that was left out. Prints the bounds to write into physics/memory/overhead.py.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from outgrow.validation.memory import predict_rows
from outgrow.validation.rows import read_rows

DATA = Path(__file__).parents[1] / "validation" / "data" / "training.csv"
SHARE = 0.10


def weighted_quantile(groups: dict[str, list[float]], fraction: float) -> float:
    """Quantile of all values where every group has the same weight."""
    weighted = sorted((value, 1.0 / len(values)) for values in groups.values() for value in values)
    total, seen = sum(w for _, w in weighted), 0.0
    for value, weight in weighted:
        seen += weight
        if seen >= fraction * total:
            return value
    return weighted[-1][0]


def main() -> None:
    rows = read_rows(DATA)
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for outcome in predict_rows(rows):
        if outcome.error is not None and outcome.predicted:
            # What the truth is, over what was predicted: the interval is stated around the prediction.
            errors[outcome.quantity][outcome.group].append(outcome.measured / outcome.predicted)
    for quantity, groups in errors.items():
        low, high = weighted_quantile(groups, SHARE), weighted_quantile(groups, 1 - SHARE)
        values = [v for g in groups.values() for v in g]
        inside = sum(low <= v <= high for v in values) / len(values)
        print(
            f"{quantity}: low {low:.3f} high {high:.3f} from {len(groups)} sources, {len(values)} values; inside {inside:.0%}"
        )
        for left in groups:
            rest = {name: values for name, values in groups.items() if name != left}
            if rest:
                a, b = weighted_quantile(rest, SHARE), weighted_quantile(rest, 1 - SHARE)
                share = sum(a <= v <= b for v in groups[left]) / len(groups[left])
                print(
                    f"    without {left:45} {a:.3f} to {b:.3f}: {share:.0%} of its {len(groups[left])} inside"
                )


if __name__ == "__main__":
    main()
