"""The peak of a training step: totals that add up, and directions in which it may never move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.layout import Layout
from outgrow.physics.memory.activations import layer_activations
from outgrow.physics.memory.overhead import Overhead, communicators
from outgrow.physics.memory.states import training_states
from outgrow.physics.memory.terms import Breakdown
from outgrow.physics.memory.training import training_memory, worst
from outgrow.units import GIB
from outgrow.workload.model import ModelShape
from outgrow.workload.training import Lora, TrainingJob

from .shapes import HIDDEN, decoder, jobs, known, layouts, models, side_by_side

WIDE = settings(derandomize=True, deadline=None, max_examples=250)
FIXED = settings(derandomize=True, deadline=None, max_examples=80)
EPS = 1 + 1e-9
LLAMA = 8_030_261_248


def needed(model: ModelShape, job: TrainingJob, layout: Layout) -> float:
    return max(b.needed_bytes for b in training_memory(model, job, layout))


def check(b: Breakdown) -> None:
    """What must hold for every breakdown."""
    overhead = b.bytes_of("overhead")
    total = sum(t.bytes for t in b.terms)
    assert all(math.isfinite(t.bytes) and t.bytes > 0 for t in b.terms)
    assert b.device.value == pytest.approx(total, rel=1e-9)
    assert b.allocated.value == pytest.approx(total - overhead, rel=1e-9)
    assert 0 < b.allocated.value <= b.reserved.value * EPS <= b.device.value * EPS * EPS
    for q in (b.allocated, b.reserved, b.device):
        assert q.low <= q.value <= q.high
        assert q.unit == "byte"
        assert q.source
    assert b.needed_bytes <= b.device.value * EPS
    assert b.host_bytes >= 0
    assert all(t.name and t.source for t in b.terms)
    phases = dict(b.phases)
    assert phases[b.phase] == pytest.approx(b.allocated.value, rel=1e-9)
    assert max(phases.values()) == phases[b.phase]


@WIDE
@given(data=st.data(), model=models(), job=jobs())
def test_any_job_has_an_answer(data: st.DataObject, model: ModelShape, job: TrainingJob) -> None:
    layout = data.draw(layouts(model))
    found = training_memory(model, job, layout)
    assert [b.stage for b in found] == list(range(layout.pp))
    for b in found:
        check(b)
    assert worst(found).allocated.value == max(b.allocated.value for b in found)
    assert training_memory(model, job, layout) == found


@FIXED
@given(data=st.data(), model=models(), job=jobs(), capacity=st.floats(1e9, 1e12))
def test_idle_cache_never_fills_more_than_there_is(
    data: st.DataObject, model: ModelShape, job: TrainingJob, capacity: float
) -> None:
    layout = data.draw(layouts(model))
    free = training_memory(model, job, layout)
    for bound, unbound in zip(
        training_memory(model, job, layout, capacity_bytes=capacity), free, strict=True
    ):
        check(bound)
        idle = sum(t.bytes for t in bound.terms if t.name == "idle cache")
        assert bound.device.value <= max(capacity, bound.device.value - idle) * EPS
        assert bound.device.value <= unbound.device.value * EPS
        # What a job cannot do without is no matter of how much there is.
        assert bound.needed_bytes == unbound.needed_bytes
        assert bound.allocated == unbound.allocated


@FIXED
@given(data=st.data(), model=models(), job=jobs())
def test_longer_larger_deeper_never_needs_less(
    data: st.DataObject, model: ModelShape, job: TrainingJob
) -> None:
    layout = data.draw(layouts(model))
    here = needed(model, job, layout)
    assert needed(model, replace(job, sequence_length=2 * job.sequence_length), layout) >= here / EPS
    assert needed(model, job, replace(layout, micro_batch=layout.micro_batch + 1)) >= here / EPS
    single = replace(layout, pp=1, vpp=1)
    deeper = replace(model, layers=(*model.layers, model.layers[-1]))
    assert needed(deeper, job, single) >= needed(model, job, single) / EPS


@FIXED
@given(data=st.data(), model=models(), job=jobs(), dp=st.sampled_from((2, 4, 8, 64)))
def test_more_gpus_under_full_sharding_never_need_more(
    data: st.DataObject, model: ModelShape, job: TrainingJob, dp: int
) -> None:
    layout = replace(data.draw(layouts(model)), ep=1, dp=dp, sharding="zero3")
    assert needed(model, job, replace(layout, dp=2 * dp)) <= needed(model, job, layout) * EPS


@FIXED
@given(job=jobs(), kind=st.sampled_from(("llama", "qwen3", "gemma3_text")), data=st.data())
def test_recomputation_never_needs_more(job: TrainingJob, kind: str, data: st.DataObject) -> None:
    # With a second layer alive while recomputing, four layers could be too few to gain anything.
    job = replace(job, recomputed_ahead=0.0)
    model = decoder(kind, num_hidden_layers=12)
    layout = replace(data.draw(layouts(model)), vpp=1, pp=1)
    none, some, all_ = (
        needed(model, job, replace(layout, recompute=mode))  # type: ignore[arg-type]
        for mode in ("none", "selective", "full")
    )
    assert all_ <= none * EPS
    assert some <= none * EPS


@FIXED
@given(job=jobs(), chunks=st.integers(2, 64))
def test_a_chunked_loss_never_needs_more(job: TrainingJob, chunks: int) -> None:
    model = known("llama-3.2-1b")
    plain = needed(model, replace(job, loss="plain"), Layout())
    assert needed(model, replace(job, loss="chunked", loss_chunks=chunks), Layout()) <= plain * EPS


@FIXED
@given(job=jobs(), model=models())
def test_accumulation_never_needs_less(job: TrainingJob, model: ModelShape) -> None:
    # Between micro-batches the gradients of all parameters wait.
    once = needed(model, replace(job, accumulation=1), Layout())
    twice = needed(model, replace(job, accumulation=2), Layout())
    many = needed(model, replace(job, accumulation=64), Layout())
    assert twice >= once / EPS
    assert many == pytest.approx(twice)


@FIXED
@given(job=jobs(), model=models())
def test_offloading_never_needs_more_on_the_device(job: TrainingJob, model: ModelShape) -> None:
    here = training_memory(model, replace(job, offload=()), Layout())[0]
    for away in (("optimizer",), ("activations",), ("parameters",)):
        there = training_memory(model, replace(job, offload=away), Layout())[0]  # type: ignore[arg-type]
        assert there.needed_bytes <= here.needed_bytes * EPS
        assert there.host_bytes >= here.host_bytes


def test_attention_beside_a_state_space_has_an_answer() -> None:
    model = side_by_side()
    attention = decoder()
    for layout in (Layout(), Layout(tp=2, recompute="full")):
        found = training_memory(model, TrainingJob(), layout)[0]
        check(found)
        # It keeps what its attention keeps, and its states beside it.
        kept = layer_activations(model.layers[0], model, TrainingJob(), layout).full
        assert kept > layer_activations(attention.layers[0], attention, TrainingJob(), layout).full


# by hand


def test_all_states_are_there_when_the_optimizer_steps() -> None:
    job = TrainingJob(precision="bf16", sequence_length=512)
    b = training_memory(known("llama-3.1-8b"), job, Layout(recompute="full"))[0]
    assert dict(b.phases)["optimizer"] == 8 * LLAMA
    assert b.allocated.value >= 8 * LLAMA
    foreach = training_memory(
        known("llama-3.1-8b"), replace(job, optimizer_foreach=True), Layout(recompute="full")
    )[0]
    # The square roots of all second moments at once.
    assert dict(foreach.phases)["optimizer"] == 10 * LLAMA
    in_place = training_memory(
        known("llama-3.1-8b"), replace(job, optimizer_in_backward=True), Layout(recompute="full")
    )[0]
    assert 6 * LLAMA < in_place.allocated.value < 7 * LLAMA


def test_a_long_sequence_peaks_at_the_loss() -> None:
    # 6 B of states, 32 inputs of layers, the final norm 8h, and 12 B per logit.
    tokens, h, v = 32_768, 4096, 128_256
    job = TrainingJob(precision="bf16", sequence_length=tokens)
    b = training_memory(known("llama-3.1-8b"), job, Layout(recompute="full"))[0]
    assert b.phase == "loss"
    assert b.allocated.value == pytest.approx(6 * LLAMA + tokens * (32 * 2 * h + 8 * h + 12 * v), rel=2e-3)


def test_adapters_leave_little_but_the_base_and_activations() -> None:
    job = TrainingJob(method="lora", precision="bf16", sequence_length=128, loss="fused")
    b = training_memory(known("llama-3.1-8b"), job, Layout(recompute="full"))[0]
    assert b.bytes_of("state") == pytest.approx(2 * LLAMA + 16 * 13_631_488)
    assert b.allocated.value < 1.06 * 2 * LLAMA


def test_a_context_parallel_rank_holds_its_tokens_only() -> None:
    model = decoder(num_hidden_layers=8)
    job = TrainingJob(sequence_length=8192)
    one = training_memory(model, job, Layout())[0]
    four = training_memory(model, replace(job, sequence_length=4 * 8192), Layout(cp=4))[0]
    assert four.bytes_of("activation") == pytest.approx(one.bytes_of("activation"))


def test_unpadded_batches_hold_one_longest_sample_and_mean_ones() -> None:
    model = decoder(num_hidden_layers=8)
    mixed = TrainingJob(sequence_length=4096, batching="unpadded", mean_length=1024)
    plain = TrainingJob(sequence_length=4096 + 3 * 1024)
    four = training_memory(model, mixed, Layout(micro_batch=4))[0]
    assert four.allocated.value == training_memory(model, plain, Layout())[0].allocated.value


def test_earlier_stages_hold_more_micro_batches() -> None:
    # Middle stages of 1F1B are alike but for one micro-batch in flight.
    model = decoder(num_hidden_layers=8)
    job = TrainingJob(sequence_length=4096, accumulation=16)
    stages = training_memory(model, job, Layout(pp=4))
    layer = layer_activations(model.layers[0], model, job, Layout(pp=4)).full
    difference = stages[1].bytes_of("activation") - stages[2].bytes_of("activation")
    assert difference == pytest.approx(2 * layer * 4096)
    # With one micro-batch there is nothing to wait for, and the first stage holds its embedding's output more.
    alone = training_memory(model, replace(job, accumulation=1), Layout(pp=4))
    assert alone[0].bytes_of("activation") - alone[1].bytes_of("activation") == pytest.approx(
        2 * HIDDEN * 4096
    )


def test_the_stage_with_the_head_pays_for_the_loss() -> None:
    model = known("llama-3.2-1b")
    stages = training_memory(model, TrainingJob(sequence_length=8192), Layout(pp=2, recompute="full"))
    assert worst(stages).stage == 1
    assert stages[1].phase == "loss"


def test_accumulating_without_reduction_holds_every_gradient() -> None:
    model = decoder(num_hidden_layers=8)
    job = TrainingJob(precision="fp32-sharded", accumulation=4, sequence_length=512)
    layout = Layout(dp=8, sharding="zero3", recompute="full")
    reduced = training_memory(model, job, layout)[0]
    whole = training_memory(model, replace(job, accumulate_unsharded=True), layout)[0]
    difference = whole.allocated.value - reduced.allocated.value
    assert difference == pytest.approx(4 * model.parameters * 7 / 8)


def test_keeping_parameters_gathered_costs_them_all() -> None:
    model = known("llama-3.1-8b")
    layout = Layout(dp=8, sharding="zero3", recompute="full")
    job = TrainingJob(precision="fp32-sharded", sequence_length=512)
    kept = training_memory(model, replace(job, reshard=False), layout)[0]
    assert kept.allocated.value - training_memory(model, job, layout)[0].allocated.value > 2 * LLAMA * 0.7
    gathered = next(t for t in kept.terms if t.name == "gathered parameters")
    assert gathered.bytes == 2 * LLAMA


def test_a_fused_loss_keeps_its_head_gradient_beside_a_gradient_buffer() -> None:
    # Two things called gradients at once must not look like one that shrank: idle memory cannot be negative.
    model = known("llama-3.2-3b")
    job = TrainingJob(precision="mixed-fp32-grad", loss="fused", sequence_length=32_768)
    check(training_memory(model, job, Layout(recompute="full"))[0])


def test_gradients_applied_at_once_beside_a_gradient_buffer_are_no_negative_cache() -> None:
    job = TrainingJob(precision="fp8", optimizer_in_backward=True, sequence_length=8)
    for b in training_memory(known("llama-3.2-1b"), job, Layout(pp=2, schedule="gpipe")):
        check(b)


def test_gradients_of_adapters_wait_for_the_optimizer_however_many_micro_batches() -> None:
    # 262.7 M entries of the tied table and adapters of rank 16, 2 or 4 B each: gradients are there when it steps.
    lora = Lora(train_embeddings=True)
    model = known("llama-3.2-1b")
    for count in (1, 4):
        job = TrainingJob(method="lora", precision="bf16", sequence_length=8, accumulation=count, lora=lora)
        b = training_memory(model, job, Layout())[0]
        states = training_states(model, job, Layout())
        assert dict(b.phases)["optimizer"] == pytest.approx(states.resident + states.gradient_bytes)


def test_context_and_communicators_are_counted_once_each() -> None:
    o = Overhead()
    for layout, groups in ((Layout(), 0), (Layout(dp=8), 1), (Layout(dp=8, tp=2, pp=2, cp=2, ep=2), 5)):
        assert communicators(layout) == groups
        model = known("mixtral-8x7b")
        b = training_memory(model, TrainingJob(expandable_segments=True), layout)[0]
        outside = b.device.value - b.reserved.value
        assert outside == pytest.approx(o.context_bytes + groups * o.group_bytes)
        assert outside >= 0.5 * GIB
