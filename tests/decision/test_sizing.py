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
    gpu_counts,
    narrowest_replica,
    replica,
    replicas_needed,
    smallest_in_time,
    smallest_training,
)
from outgrow.layout import Layout
from outgrow.physics.compute import Band, training_tokens_per_second
from outgrow.physics.memory.training import training_memory, worst
from outgrow.units import GIB
from outgrow.workload.serving import ServingJob, Traffic
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
    place = smallest_training(model, job, HGX, base, capacity=capacity)
    assert place is not None
    assert place.layout.gpus == place.gpus
    assert place.peak == worst(training_memory(model, job, place.layout, capacity_bytes=capacity))
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
    found = smallest_in_time(model, job, HGX.device, HGX, tokens=tokens, deadline=hours * 3600)
    assert found is not None
    gpus, rate = found
    assert tokens / rate.value <= hours * 3600 * (1 + 1e-9)
    assert gpus <= 8 or gpus % 8 == 0
    one = training_tokens_per_second(model, job, HGX.device, 1)
    assert one is not None
    # A node less, or half of a node's part, would be too few.
    fewer = gpus - 8 if gpus > 8 else gpus // 2
    assert tokens / (hours * 3600) > one.value * fewer * (1 - 1e-9)
    more = smallest_in_time(model, job, HGX.device, HGX, tokens=tokens * times, deadline=hours * 3600)
    relaxed = smallest_in_time(model, job, HGX.device, HGX, tokens=tokens, deadline=hours * 3600 * times)
    assert more is not None
    assert relaxed is not None
    assert more[0] >= gpus >= relaxed[0]


def test_pretraining_by_hand() -> None:
    # Llama-3.1-8B on 15 T tokens, 6 x 7.5e9 + 3.2e9 (at 4096) flops each: 7.24e23; at 42 % of 989 TFLOP/s in 30 days
    # 671 GPUs: 84 machines.
    found = smallest_in_time(
        catalog.model("llama-3.1-8b"), TrainingJob(), HGX.device, HGX, tokens=15e12, deadline=30 * 86_400
    )
    assert found is not None
    per_token = 6 * (8_030_261_248 - 128_256 * 4096) + 6 * 32 * 4096 * 4096
    peak = HGX.device.peak("bf16")
    assert peak is not None
    needed = 15e12 * per_token / (0.42 * peak * 30 * 86_400)
    assert found[0] == 8 * math.ceil(needed / 8)


# serving


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


def test_the_narrowest_replica_starts_and_nothing_narrower_does() -> None:
    for name in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "gpt-oss-120b"):
        found = narrowest_replica(catalog.model(name), traffic(), HGX)
        if found is None:
            assert name == "llama-3.1-405b"
            continue
        assert found.memory.starts
        for tp in (1, 2, 4):
            if tp < found.tp:
                narrower = replica(catalog.model(name), traffic(), HGX, tp=tp)
                assert narrower is None or not narrower.memory.starts


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
    fewest, expected, most = replicas_needed(rate, peak, one)
    assert 1 <= fewest <= expected <= most
    busier = replicas_needed(rate * times, peak, one)
    assert all(b >= a for a, b in zip((fewest, expected, most), busier, strict=True))
    # Planned at 70 % of saturation: enough, and one fewer would not be.
    exact = rate * peak / (one.value * TARGET_UTILISATION)
    assert exact * (1 - 1e-6) <= expected <= max(1.0, exact * (1 + 1e-6) + 1)


def test_replicas_by_hand() -> None:
    band = Band(low=5, value=10, high=20, source="test")
    # 70 requests per second at 7 each: 10; at 14 and at 3.5: 5 and 20.
    assert replicas_needed(70, 1.0, band) == (5, 10, 20)
    assert replicas_needed(35, 2.0, band) == (5, 10, 20)
    assert replicas_needed(0.001, 1.0, band) == (1, 1, 1)
    # A replica that takes an hour for each of its requests.
    slow = Band(low=1 / 3600, value=1 / 3600, high=1 / 3600, source="test")
    assert replicas_needed(0.1, 1.0, slow) == (515, 515, 515)
