"""What surrounds the plain step: pairs of preferences, logits that live on, evaluations, engines that share the GPU."""

from __future__ import annotations

from typing import Any

import pytest

from outgrow import app, catalog
from outgrow.layout import Layout
from outgrow.physics.memory.host import load_bytes
from outgrow.physics.memory.moments import Moment, micro_batch_tokens, stage_moments
from outgrow.physics.memory.parameters import rank_parameters
from outgrow.physics.memory.terms import Breakdown
from outgrow.physics.memory.training import training_memory
from outgrow.units import GIB
from outgrow.workload.training import TrainingJob

MODEL = catalog.model("llama-3.2-1b")
CAPACITY = 80.0 * GIB


def peak(layout: Layout | None = None, **settings: Any) -> Breakdown:
    job = TrainingJob(**({"sequence_length": 2048} | settings))
    return training_memory(MODEL, job, layout or Layout(recompute="full"), capacity_bytes=CAPACITY)[0]


def terms(of: Breakdown | Moment) -> dict[str, float]:
    found: dict[str, float] = {}
    for term in of.terms:
        found[term.name] = found.get(term.name, 0.0) + term.bytes
    return found


def test_preferences_come_in_pairs() -> None:
    layout = Layout(micro_batch=3)
    assert micro_batch_tokens(TrainingJob(objective="dpo", sequence_length=100), layout) == 600
    assert micro_batch_tokens(TrainingJob(objective="sft", sequence_length=100), layout) == 300
    unpadded = TrainingJob(objective="dpo", batching="unpadded", sequence_length=100, mean_length=50)
    assert micro_batch_tokens(unpadded, layout) == 100 + 5 * 50


def test_the_reference_scores_while_the_logits_of_the_policy_wait() -> None:
    """Plain loss, 10 B per logit in the forward pass, twice; beforehand, only the 12 B of the backward pass."""
    with_reference = terms(peak(objective="dpo"))["logits and loss"]
    beforehand = terms(peak(objective="dpo", reference_precomputed=True))["logits and loss"]
    assert with_reference == 2 * 2048 * 128256 * 20
    assert beforehand == 2 * 2048 * 128256 * 12


def test_logits_that_stay_referenced_are_one_more_copy() -> None:
    copy = 2048 * 128256 * 4
    assert terms(peak(keeps_logits=True))["kept logits"] == copy
    assert peak(keeps_logits=True).allocated.value - peak().allocated.value == pytest.approx(copy)


def test_an_evaluation_that_gathers_its_logits_can_be_the_peak() -> None:
    found = peak(evaluation_samples=100)
    assert found.phase == "evaluation"
    assert terms(found)["evaluation logits"] == 100 * 2048 * 128256 * 4
    assert peak(evaluation_samples=1).phase != "evaluation"
    assert {k: v for k, v in found.phases if k != "evaluation"} == dict(peak().phases)


def test_an_engine_that_shares_the_gpu_takes_its_share_of_the_device_only() -> None:
    alone, shared = peak(), peak(rollout_fraction=0.4)
    assert terms(shared)["rollout engine"] == pytest.approx(0.4 * CAPACITY)
    assert shared.needed_bytes - alone.needed_bytes == pytest.approx(0.4 * CAPACITY)
    assert shared.allocated == alone.allocated


def test_layers_that_are_gathered_ahead_are_unsharded_together() -> None:
    layout = Layout(dp=8, sharding="zero3", recompute="full")
    sizes = [
        max(
            terms(m).get("gathered parameters", 0.0)
            for m in stage_moments(MODEL, TrainingJob(sequence_length=2048, gather_ahead=n), layout, 0)
        )
        for n in (2, 4, 16, 1000)
    ]
    assert sizes == sorted(sizes)
    assert sizes[2] == sizes[3], "no more layers than there are"
    step = (sizes[1] - sizes[0]) / 2
    assert sizes[2] - sizes[1] == pytest.approx(12 * step)


def test_the_root_reduces_both_tables_at_once() -> None:
    model = catalog.model("llama-3.1-8b")
    layout = Layout(dp=8, sharding="zero3", recompute="full")
    found = stage_moments(model, TrainingJob(precision="fp32-sharded"), layout, 0)
    wanted = 4 * 2 * 128256 * 4096
    assert any(terms(m).get("gradient reduction") == pytest.approx(wanted) for m in found)


def test_loading_by_every_rank_multiplies_the_host_memory() -> None:
    model = catalog.model("qwen3-30b-a3b")
    one = load_bytes(model, 8, full_per_rank=False)
    assert one == 6 * model.parameters
    assert load_bytes(model, 8, full_per_rank=True) == 8 * one
    assert load_bytes(model, 8, full_per_rank=True, cast=False) == 8 * 2 * model.parameters


def test_dualpipe_holds_the_stage_and_its_mirror() -> None:
    model = catalog.model("llama-3.1-70b")
    for stage in range(4):
        plain = [rank_parameters(model, Layout(pp=4), s) for s in (stage, 3 - stage)]
        both = rank_parameters(model, Layout(pp=4, schedule="dualpipe"), stage)
        assert both.total == plain[0].total + plain[1].total
        assert both.layer == max(p.layer for p in plain)
    total = sum(rank_parameters(model, Layout(pp=4, schedule="dualpipe"), s).total for s in range(4))
    assert total == pytest.approx(2 * model.parameters)


def test_a_step_in_the_backward_pass_has_one_micro_batch() -> None:
    result = app.fit(
        "llama-3.1-8b",
        on="h100-sxm",
        job="training",
        overrides=["training.optimizer_in_backward=true", "training.global_batch=8"],
    )
    assert result.value.fit.verdict == "illegal"
    assert any("optimizer steps in the backward pass" in v.what for v in result.value.fit.violations)
    free = app.fit(
        "llama-3.1-8b", on="h100-sxm", job="training", overrides=["training.optimizer_in_backward=true"]
    )
    assert free.value.workload.training is not None
    assert free.value.workload.training.accumulation == 1


def test_a_sharded_step_in_the_backward_pass_counts_each_gradient_once() -> None:
    layout = Layout(dp=8, sharding="zero3", recompute="full")
    for moment in stage_moments(MODEL, TrainingJob(optimizer_in_backward=True), layout, 0):
        names = terms(moment)
        assert not ("gradients" in names and "unsharded gradients" in names)


def test_batches_of_varying_length_never_need_less() -> None:
    packed, padded = peak(batching="packed"), peak(batching="padded")
    assert padded.needed_bytes >= packed.needed_bytes
    assert padded.device.value >= packed.device.value
