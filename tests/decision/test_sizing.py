"""The fewest GPUs: enough, and no fewer would be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.decision.sizing import (
    TARGET_UTILISATION,
    InTime,
    Replica,
    cheapest,
    gpu_counts,
    replica,
    replicas_needed,
    replicas_that_start,
    smallest_in_time,
    smallest_training,
)
from outgrow.layout import Layout
from outgrow.physics.compute import Band, training_tokens_per_second
from outgrow.physics.memory.training import training_memory, worst
from outgrow.planning.usual import with_accumulation
from outgrow.units import GIB
from outgrow.workload.serving import ServingJob, Targets, Traffic
from outgrow.workload.training import TrainingJob

FIXED = settings(derandomize=True, deadline=None, max_examples=25)
HGX = catalog.target("8x h100-sxm")
CAPACITY = HGX.device.torch_memory.value
MODELS = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b", "llama-3.1-70b")


def test_counts_are_parts_of_a_node_then_whole_nodes() -> None:
    assert gpu_counts(HGX)[:7] == [1, 2, 4, 8, 16, 32, 64]
    assert gpu_counts(catalog.target("4x h100-sxm"))[:5] == [1, 2, 4, 8, 16]
    counts = gpu_counts(HGX)
    assert counts == sorted(set(counts))
    assert counts[-1] <= 65_536


@FIXED
@given(
    name=st.sampled_from(MODELS), method=st.sampled_from(("full", "lora", "qlora")),
    length=st.sampled_from((1024, 8192)), capacity=st.sampled_from((24 * GIB, 80 * GIB, 141 * GIB)),
)  # fmt: skip
def test_the_smallest_fits_and_nothing_smaller_does(
    name: str, method: str, length: int, capacity: float
) -> None:
    model = catalog.model(name)
    job = TrainingJob(method=method, sequence_length=length)  # type: ignore[arg-type]
    base = Layout(recompute="full")
    place = smallest_training(model, job, HGX, base, capacity=capacity, batch_is_free=True)
    assert place is not None
    assert place.layout.gpus == place.gpus
    batch = max(job.global_batch, place.layout.dp)
    seen = with_accumulation(replace(job, global_batch=batch), place.layout)
    assert place.peak == worst(training_memory(model, seen, place.layout, capacity_bytes=capacity))
    assert place.peak.needed_bytes <= capacity
    for gpus in gpu_counts(HGX):
        if gpus >= place.gpus:
            break
        sharded = replace(base, dp=gpus, sharding="zero3" if gpus > 1 else "none")
        assert worst(training_memory(model, job, sharded)).needed_bytes > capacity
    assert place == smallest_training(model, job, HGX, base, capacity=capacity)


@FIXED
@given(name=st.sampled_from(MODELS), length=st.sampled_from((512, 4096)))
def test_more_room_or_less_work_never_needs_more_gpus(name: str, length: int) -> None:
    model, base = catalog.model(name), Layout(recompute="full")

    def gpus(capacity: float, job: TrainingJob) -> float:
        place = smallest_training(model, job, HGX, base, capacity=capacity)
        return math.inf if place is None else place.gpus

    job = TrainingJob(sequence_length=length)
    rooms = [gpus(c * GIB, job) for c in (16, 24, 48, 80, 141, 192)]
    assert rooms == sorted(rooms, reverse=True)
    assert gpus(CAPACITY, replace(job, method="lora")) <= gpus(CAPACITY, job)
    assert gpus(CAPACITY, replace(job, method="qlora")) <= gpus(CAPACITY, replace(job, method="lora"))
    assert gpus(CAPACITY, replace(job, sequence_length=16 * length)) >= gpus(CAPACITY, job)


def test_what_no_number_of_gpus_can_hold() -> None:
    # One sequence of a hundred million tokens: its activations are on one rank, however many there are.
    job = TrainingJob(sequence_length=100_000_000)
    assert (
        smallest_training(
            catalog.model("llama-3.1-8b"), job, HGX, Layout(recompute="full"), capacity=CAPACITY
        )
        is None
    )


def test_a_layout_with_experts_spread_out_is_sized_too() -> None:
    # A base that spreads experts over eight replicas cannot be tried on one GPU, and must not fail there.
    base = Layout(dp=8, ep=8, recompute="full")
    place = smallest_training(catalog.model("mixtral-8x7b"), TrainingJob(), HGX, base, capacity=CAPACITY)
    assert place is not None
    assert place.gpus >= 8


# in time


@FIXED
@given(
    name=st.sampled_from(MODELS), tokens=st.floats(1e6, 1e13), hours=st.floats(1, 2000), times=st.floats(1, 50)
)  # fmt: skip
def test_enough_in_time(name: str, tokens: float, hours: float, times: float) -> None:
    model, job = catalog.model(name), TrainingJob()

    def find(tokens: float, deadline: float) -> InTime:
        found = smallest_in_time(model, job, HGX, None, tokens=tokens, deadline=deadline, batch_is_free=True)
        assert found is not None
        return found

    found = find(tokens, hours * 3600)
    gpus = found.gpus
    assert not found.limited_by_batch
    assert tokens / found.rate.value <= hours * 3600 * (1 + 1e-9)
    assert gpus <= 8 or gpus % 8 == 0
    one = training_tokens_per_second(model, job, HGX.device, 1)
    assert one is not None
    # A node less, or half of a node's part, would be too few.
    fewer = gpus - 8 if gpus > 8 else gpus // 2
    assert tokens / (hours * 3600) > one.value * fewer * (1 - 1e-9)
    assert find(tokens * times, hours * 3600).gpus >= gpus >= find(tokens, hours * 3600 * times).gpus


def test_a_batch_keeps_no_more_replicas_busy_than_it_has_sequences() -> None:
    model, job = catalog.model("llama-3.1-70b"), TrainingJob(global_batch=8)
    layout = Layout(tp=8, recompute="full")
    place = smallest_training(model, job, HGX, layout, capacity=CAPACITY)
    assert place is not None
    found = smallest_in_time(model, job, HGX, place, tokens=100e9, deadline=86_400)
    assert found is not None
    assert found.limited_by_batch
    assert found.gpus == 8 * place.layout.tp


def test_pretraining_by_hand() -> None:
    # Llama-3.1-8B on 15 T tokens, 6 x 7.5e9 + 3.2e9 (at 4096) flops each: 7.24e23; at 42 % of 989 TFLOP/s in 30 days
    # 671 GPUs: 84 machines.
    job = TrainingJob(global_batch=1024)
    found = smallest_in_time(
        catalog.model("llama-3.1-8b"), job, HGX, None, tokens=15e12, deadline=30 * 86_400
    )
    assert found is not None
    per_token = 6 * (8_030_261_248 - 128_256 * 4096) + 6 * 32 * 4096 * 4096
    peak = HGX.device.peak("bf16")
    assert peak is not None
    needed = 15e12 * per_token / (0.42 * peak * 30 * 86_400)
    assert found.gpus == 8 * math.ceil(needed / 8)


# serving


def some_replica(saturation: Band) -> Replica:
    one = replica(catalog.model("llama-3.2-1b"), traffic(), HGX, tp=1)
    assert one is not None
    return replace(one, saturation=saturation, concurrency=64.0)


def needed(rate: float, peak: float, saturation: Band) -> tuple[int, int, int]:
    return replicas_needed(Traffic(requests_per_second=rate, peak_factor=peak), some_replica(saturation))


def traffic(**changes: object) -> ServingJob:
    return ServingJob(max_model_len=8192, traffic=Traffic(requests_per_second=1.0, **changes))  # type: ignore[arg-type]


def test_a_replica_carries_what_littles_law_says() -> None:
    job = traffic(input_tokens=1000, output_tokens=200)
    one = replica(catalog.model("llama-3.1-8b"), job, HGX, tp=1)
    assert one is not None
    # Each request takes its prefill, and its share of 200 steps.
    expected = 1 / (one.prefill.value + 200 * one.tpot.value / one.concurrency)
    assert one.saturation.value == pytest.approx(expected)
    assert one.saturation.low <= one.saturation.value <= one.saturation.high
    assert 1 <= one.concurrency <= one.memory.budget.max_sequences
    assert replica(catalog.model("llama-3.1-8b"), ServingJob(), HGX, tp=1) is None


def test_replicas_of_every_width_that_starts_the_narrowest_first() -> None:
    for name in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "gpt-oss-120b"):
        found = replicas_that_start(catalog.model(name), traffic(), HGX)
        assert all(one.memory.starts for one in found)
        widths = [one.gpus for one in found]
        assert widths == sorted(set(widths))
        for tp in (1, 2, 4):
            if tp < found[0].tp:
                assert replica(catalog.model(name), traffic(), HGX, tp=tp) is None


def test_what_no_machine_holds_is_spread_over_stages() -> None:
    found = replicas_that_start(catalog.model("llama-3.1-405b"), traffic(), HGX)
    assert [(one.tp, one.pp, one.gpus) for one in found] == [(8, 2, 16)]


def test_a_width_that_is_given_is_kept() -> None:
    job = replace(traffic(), tp=4)
    assert [(one.tp, one.pp) for one in replicas_that_start(catalog.model("llama-3.1-8b"), job, HGX)] == [
        (4, 1)
    ]


def test_a_target_of_latency_lowers_what_is_in_flight_or_widens_the_replica() -> None:
    model = catalog.model("llama-3.1-8b")
    free = replica(model, traffic(), HGX, tp=1)
    assert free is not None
    tight = replica(model, replace(traffic(), targets=Targets(tpot_seconds=free.tpot.value / 2)), HGX, tp=1)
    assert tight is not None
    assert tight.meets_targets
    assert tight.concurrency < free.concurrency
    assert tight.tpot.value <= free.tpot.value / 2
    assert tight.saturation.value < free.saturation.value
    never = replica(model, replace(traffic(), targets=Targets(tpot_seconds=1e-6)), HGX, tp=1)
    assert never is not None
    assert not never.meets_targets
    # A token in 3 ms is too fast for one GPU and not for several.
    quick = replace(traffic(), targets=Targets(tpot_seconds=3e-3))
    assert cheapest(Traffic(requests_per_second=1), replicas_that_start(model, quick, HGX)).tp > 1


def test_the_cheapest_takes_the_fewest_gpus_in_all() -> None:
    model = catalog.model("llama-3.1-70b")
    candidates = replicas_that_start(model, replace(traffic(), weights="fp8"), HGX)
    asked = Traffic(requests_per_second=100)
    chosen = cheapest(asked, candidates)
    total = replicas_needed(asked, chosen)[1] * chosen.gpus
    assert all(total <= replicas_needed(asked, one)[1] * one.gpus for one in candidates)


@FIXED
@given(output=st.integers(1, 4000), more=st.integers(1, 2000), prompt=st.integers(1, 4000))
def test_longer_requests_saturate_earlier(output: int, more: int, prompt: int) -> None:
    model = catalog.model("llama-3.2-1b")
    here = replica(model, traffic(input_tokens=prompt, output_tokens=output), HGX, tp=1)
    there = replica(model, traffic(input_tokens=prompt, output_tokens=output + more), HGX, tp=1)
    assert here is not None
    assert there is not None
    assert there.saturation.value <= here.saturation.value * (1 + 1e-9)


BANDS = st.tuples(st.floats(1e-4, 100), st.floats(1, 5), st.floats(1, 5)).map(
    lambda t: Band(low=t[0], value=t[0] * t[1], high=t[0] * t[1] * t[2], source="test")
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(rate=st.floats(1e-3, 1e3), peak=st.floats(1, 10), one=BANDS, times=st.floats(1, 10))
def test_replicas_are_enough_and_ordered(rate: float, peak: float, one: Band, times: float) -> None:
    fewest, expected, most = needed(rate, peak, one)
    assert 1 <= fewest <= expected <= most
    busier = needed(rate * times, peak, one)
    assert all(b >= a for a, b in zip((fewest, expected, most), busier, strict=True))
    # Planned at 70 % of saturation: enough, and one fewer would not be.
    exact = rate * peak / (one.value * TARGET_UTILISATION)
    assert exact * (1 - 1e-6) <= expected <= max(1.0, exact * (1 + 1e-6) + 1)


def test_a_closed_loop_takes_what_it_holds_in_flight() -> None:
    one = some_replica(Band(low=5, value=10, high=20, source="test"))
    held = one.concurrency
    assert replicas_needed(Traffic(concurrency=int(3 * held)), one) == (3, 3, 3)
    assert replicas_needed(Traffic(concurrency=int(3 * held) + 1), one)[1] == 4
    assert replicas_needed(Traffic(requests_per_second=0), one) == (1, 1, 1)


def test_replicas_by_hand() -> None:
    band = Band(low=5, value=10, high=20, source="test")
    # 70 requests per second at 7 each: 10; at 14 and at 3.5: 5 and 20.
    assert needed(70, 1.0, band) == (5, 10, 20)
    assert needed(35, 2.0, band) == (5, 10, 20)
    assert needed(0.001, 1.0, band) == (1, 1, 1)
    # A replica that takes an hour for each of its requests.
    slow = Band(low=1 / 3600, value=1 / 3600, high=1 / 3600, source="test")
    assert needed(0.1, 1.0, slow) == (515, 515, 515)
