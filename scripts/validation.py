"""The error table of validation/README.md and the golden predictions, made from the data beside them.

python scripts/validation.py            show how the error table moved against the golden predictions
python scripts/validation.py --update   write the table and the golden predictions
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from outgrow.units import GIB
from outgrow.validation import Outcome, Row, Summary, fake_tensors, kv, memory, read_rows, summarise
from outgrow.validation.summary import confusion, grouped

ROOT = Path(__file__).parents[1] / "validation"
GOLDEN = ROOT / "golden" / "predictions.csv"
README = ROOT / "README.md"
KINDS: dict[str, tuple[str, Callable[[list[Row]], list[Outcome]]]] = {
    "memory": ("training.csv", memory.predict_rows),
    "kv": ("kv.csv", kv.predict_rows),
    "fake-tensors": ("fake_tensor_memory.csv", fake_tensors.predict_rows),
}


def everything() -> dict[str, tuple[list[Row], list[Outcome]]]:
    """Rows and outcomes of every kind."""
    found = {}
    for kind, (name, predict) in KINDS.items():
        rows = read_rows(ROOT / "data" / name)
        found[kind] = rows, predict(rows)
    return found


def golden_text(found: dict[str, tuple[list[Row], list[Outcome]]]) -> str:
    """Every prediction, rounded so that other machines agree."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("kind", "id", "quantity", "predicted", "measured"))
    for kind, (_, outcomes) in found.items():
        for o in outcomes:
            predicted = "" if o.predicted is None else f"{o.predicted:.6g}"
            writer.writerow((kind, o.id, o.quantity, predicted, f"{o.measured:.6g}"))
    return out.getvalue()


def read_golden(text: str) -> dict[str, list[Outcome]]:
    """Outcomes of a golden file, without intervals."""
    found: dict[str, list[Outcome]] = {kind: [] for kind in KINDS}
    for row in csv.DictReader(text.splitlines()):
        predicted = float(row["predicted"]) if row["predicted"] else None
        found[row["kind"]].append(
            Outcome(
                id=row["id"], quantity=row["quantity"], predicted=predicted, measured=float(row["measured"])
            )
        )
    return found


def _percent(value: float | None, *, signed: bool = False) -> str:
    return "-" if value is None else f"{value * 100:{'+' if signed else ''}.1f} %"


def _row(name: str, s: Summary) -> str:
    return f"| {name} | {s.n} | {s.answered} | {_percent(s.median_ape)} | {_percent(s.p90_ape)} | {_percent(s.bias, signed=True)} | {_percent(s.coverage)} |"


HEAD = "| | n | answered | median error | 90th percentile | bias | inside interval |\n|---|---|---|---|---|---|---|"


def _table(groups: dict[str, Summary]) -> str:
    return "\n".join([HEAD, *(_row(name or "(not stated)", s) for name, s in groups.items() if s.n)])


def _method(row: Row) -> str:
    task = row.get("task", "")
    return "other adapters (PEFT)" if task.startswith("peft:") else task or "(not stated)"


def _bytes(quantity: str, value: float) -> str:
    return f"{value / GIB:.1f} GiB" if quantity.endswith("bytes") or quantity == "peak" else f"{value:,.0f}"


def worst_table(outcomes: list[Outcome], count: int, reasons: dict[str, str]) -> str:
    ranked = sorted(
        (o for o in outcomes if o.error is not None), key=lambda o: (-abs(o.error or 0.0), o.id, o.quantity)
    )
    lines = ["| row | quantity | predicted | measured | error | reason |", "|---|---|---|---|---|---|"]
    for o in ranked[:count]:
        predicted = _bytes(o.quantity, o.predicted or 0.0)
        lines.append(
            f"| {o.id} | {o.quantity} | {predicted} | {_bytes(o.quantity, o.measured)} | {_percent(o.error, signed=True)} | {reasons.get(o.id, 'not found yet')} |"
        )
    return "\n".join(lines)


def readme(found: dict[str, tuple[list[Row], list[Outcome]]]) -> str:
    """The page."""
    reasons = tomllib.loads((ROOT / "reasons.toml").read_text(encoding="utf-8"))["reason"]
    rows, outcomes = found["memory"]
    by_id = {row["id"]: row for row in rows}
    measured = [o for o in outcomes if o.quantity != "fits"]
    verdicts = confusion(outcomes)
    kv_rows, kv_outcomes = found["kv"]
    kv_verdicts = confusion(kv_outcomes)
    _, tensors = found["fake-tensors"]
    close = [o for o in tensors if o.quantity == "activations" and o.error is not None]
    unanswered = sorted(
        {(o.id, o.reason) for o in (*measured, *kv_outcomes) if o.predicted is None and o.quantity != "fits"}
    )
    parts = [
        (ROOT / "head.md").read_text(encoding="utf-8").rstrip(),
        "## Peak memory of training\n\nEvery row is predicted from its inputs and its source's recipe, by the row's own definition of memory.",
        HEAD + "\n" + _row("all", summarise(measured)),
        "By what was measured:\n\n" + _table(grouped(measured, lambda o: o.quantity)),
        "By source:\n\n" + _table(grouped(measured, lambda o: o.group)),
        "By GPU:\n\n" + _table(grouped(measured, lambda o: by_id[o.id]["gpu"])),
        "By method:\n\n" + _table(grouped(measured, lambda o: _method(by_id[o.id]))),
        f"Runs that failed for memory: {verdicts.failed_said_no} of {verdicts.failed} were said not to fit. "
        f"Runs that succeeded: {verdicts.succeeded_said_no} of {verdicts.succeeded} were said not to fit.",
        "The ten worst rows:\n\n" + worst_table(measured, 10, reasons),
        "## Ledgers of inference engines\n\nBytes per token and GPU; capacity of the cache from the inputs alone; capacity with the terms that the start log prints.",
        _table(grouped((o for o in kv_outcomes if o.quantity != "fits"), lambda o: o.quantity)),
        f"Refusals to start: {kv_verdicts.failed_said_no} of {kv_verdicts.failed} foreseen; {kv_verdicts.succeeded_said_no} of {kv_verdicts.succeeded} that started were said not to.",
        "The five worst capacities:\n\n" + worst_table([o for o in kv_outcomes if o.quantity == "kv_capacity"], 5, reasons),
        "## A second oracle: PyTorch's own count\n\nSteps of real model classes under fake tensors (no GPU, no weights), counted by PyTorch: "
        "`scripts/oracle/fake_step.py`. Activations are those that one layer keeps; the peak is that of the second step.",
        _table(grouped(tensors, lambda o: o.quantity)),
        f"Activations within 5 %: {sum(abs(o.error or 0) <= 0.05 for o in close)} of {len(close)}.",
        "## Not answered\n\n" + ("\n".join(f"- {i}: {reason}" for i, reason in unanswered) or "None."),
    ]  # fmt: skip
    assert len(kv_rows) > 0  # noqa: S101
    return "\n\n".join(parts) + "\n"


def moved(old: dict[str, list[Outcome]], new: dict[str, tuple[list[Row], list[Outcome]]]) -> list[str]:
    """How the error table moves between two sets of predictions; nothing where no prediction moved."""
    lines = []
    for kind, (_, outcomes) in new.items():
        before = {(o.id, o.quantity): o for o in old.get(kind, [])}
        changed = [o for o in outcomes if _differs(before.get((o.id, o.quantity)), o)]
        if not changed and len(before) == len(outcomes):
            continue
        lines.append(f"{kind}: {len(changed)} of {len(outcomes)} predictions moved")
        for name in sorted({o.quantity for o in outcomes if o.quantity != "fits"}):
            a, b = (
                summarise(o for o in old.get(kind, []) if o.quantity == name),
                summarise(o for o in outcomes if o.quantity == name),
            )
            lines.append(
                f"  {name}: median {_percent(a.median_ape)} -> {_percent(b.median_ape)}, p90 {_percent(a.p90_ape)} -> {_percent(b.p90_ape)}, answered {a.answered} -> {b.answered}"
            )
        ranked = sorted(
            changed,
            key=lambda o: (
                -abs((o.error or 0) - (getattr(before.get((o.id, o.quantity)), "error", None) or 0))
            ),
        )
        for o in ranked[:10]:
            was = before.get((o.id, o.quantity))
            lines.append(
                f"    {o.id} {o.quantity}: {_percent(was.error if was else None, signed=True)} -> {_percent(o.error, signed=True)}"
            )
    return lines


def _differs(old: Outcome | None, new: Outcome) -> bool:
    if old is None or (old.predicted is None) != (new.predicted is None):
        return True
    if old.predicted is None or new.predicted is None:
        return False
    return abs(old.predicted - new.predicted) > 2e-5 * max(abs(old.predicted), abs(new.predicted), 1e-9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    found = everything()
    old = read_golden(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    lines = moved(old, found)
    print("\n".join(lines) or "No prediction moved.")
    if arguments.update:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(golden_text(found), encoding="utf-8")
        README.write_text(readme(found), encoding="utf-8")
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
