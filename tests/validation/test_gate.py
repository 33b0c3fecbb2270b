"""The gate: predictions of all published rows are kept; a change that moves them shows how the error table moves."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from outgrow.validation import Outcome, summarise
from outgrow.validation.summary import confusion

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validation_script", ROOT / "scripts" / "validation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["validation_script"] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
FOUND = SCRIPT.everything()


def test_no_prediction_moved_unseen() -> None:
    old = SCRIPT.read_golden(SCRIPT.GOLDEN.read_text(encoding="utf-8"))
    lines = SCRIPT.moved(old, FOUND)
    assert not lines, "predictions moved; look, then run scripts/validation.py --update:\n" + "\n".join(lines)


def test_error_table_is_current() -> None:
    assert SCRIPT.README.read_text(encoding="utf-8") == SCRIPT.readme(FOUND)


def _of(kind: str, quantity: str | None = None) -> list[Outcome]:
    return [o for o in FOUND[kind][1] if quantity is None or o.quantity == quantity]


@pytest.mark.parametrize(
    ("quantity", "median", "p90"),
    [("allocated_bytes", 0.08, 0.25), ("reserved_bytes", 0.12, 0.30), ("device_bytes", 0.12, 0.35)],
)
def test_memory_errors_stay_below_their_bounds(quantity: str, median: float, p90: float) -> None:
    summary = summarise(_of("memory", quantity))
    assert summary.answered == summary.n
    assert summary.median_ape is not None
    assert summary.p90_ape is not None
    assert summary.median_ape <= median
    assert summary.p90_ape <= p90


def test_megatron_rows_are_within_three_percent() -> None:
    summary = summarise(o for o in _of("memory") if o.group == "MooreThreads/SimuMax")
    assert summary.n == 43
    assert summary.median_ape is not None
    assert summary.median_ape <= 0.03


def test_intervals_hold_what_they_promise() -> None:
    summary = summarise(_of("memory"))
    assert summary.coverage is not None
    assert 0.75 <= summary.coverage <= 0.92


def test_failed_runs_are_foreseen_and_successful_ones_not_refused() -> None:
    verdicts = confusion(_of("memory"))
    assert verdicts.failed_said_no >= 0.9 * verdicts.failed
    assert verdicts.succeeded_said_no <= 0.08 * verdicts.succeeded


def test_order_of_runs_of_one_model_is_right() -> None:
    """Kendall's tau of runs of one model and one file, for the source that has many of them."""
    rows = {row["id"]: row for row in FOUND["memory"][0]}
    runs: dict[tuple[str, str], list[Outcome]] = {}
    for o in _of("memory", "allocated_bytes"):
        row = rows[o.id]
        if "fms-acceleration" in row["source"]:
            runs.setdefault((row["model"], row["source"].split(".csv")[0]), []).append(o)
    for key, outcomes in runs.items():
        agree = disagree = 0
        for i, a in enumerate(outcomes):
            for b in outcomes[:i]:
                if a.measured == b.measured or a.predicted is None or b.predicted is None:
                    continue
                same = (a.predicted - b.predicted) * (a.measured - b.measured)
                agree, disagree = agree + (same > 0), disagree + (same < 0)
        assert (agree - disagree) / (agree + disagree) >= 0.85, key


def test_cache_bytes_per_token_are_exact() -> None:
    for o in _of("kv", "kv_bytes_per_token"):
        if o.error is not None:
            assert abs(o.error) <= 0.005, o


def test_cache_capacity_from_inputs_alone() -> None:
    summary = summarise(_of("kv", "kv_capacity"))
    assert summary.median_ape is not None
    assert summary.p90_ape is not None
    assert summary.median_ape <= 0.05
    assert summary.p90_ape <= 0.15
    assert summary.answered >= 30


def test_cache_capacity_with_printed_terms() -> None:
    summary = summarise(_of("kv", "kv_capacity_from_log"))
    assert summary.median_ape is not None
    assert summary.p90_ape is not None
    assert summary.p90_ape <= 0.01


def test_refusals_to_start_are_foreseen() -> None:
    verdicts = confusion(_of("kv"))
    assert verdicts.failed_said_no == verdicts.failed
    assert verdicts.succeeded_said_no <= 0.08 * verdicts.succeeded


def test_activations_match_pytorch_within_five_percent() -> None:
    outcomes = [o for o in _of("fake-tensors", "activations") if o.error is not None]
    assert len(outcomes) >= 40
    assert sum(abs(o.error or 0.0) <= 0.05 for o in outcomes) >= 0.95 * len(outcomes)


def test_peaks_match_pytorch_within_five_percent() -> None:
    for o in _of("fake-tensors", "peak"):
        if o.error is not None:
            assert abs(o.error) <= 0.055, o
