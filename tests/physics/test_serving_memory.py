"""A serving replica's memory: what an engine sets aside and what is left, to the byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.layout import Layout
from outgrow.physics.memory.parameters import rank_parameters
from outgrow.physics.memory.serving import ServingMemory, minimum_bytes, serving_memory, weights_on_rank
from outgrow.units import GIB
from outgrow.workload.model import ModelShape
from outgrow.workload.quantization import FORMATS
from outgrow.workload.serving import ServingJob

from .shapes import known, models

FIXED = settings(derandomize=True, deadline=None, max_examples=100)
SIZED: dict[str, Any] = {"max_batched_tokens": 8192, "max_sequences": 256, "max_model_len": 8192}
"""Budgets that engines would else choose by the size of the device."""


def named(memory: ServingMemory) -> dict[str, float]:
    return {t.name: t.bytes for t in memory.terms}


# weights


@pytest.mark.parametrize(
    ("form", "bits"),
    [
        ("bf16", 16), ("fp16", 16), ("fp32", 32), ("fp8", 8), ("int8", 8), ("fp8-block", 8 + 32 / 128**2),
        # A scale of 16 bits and a zero point of 4 for 128 weights; an 8-bit scale for 32.
        ("awq", 4 + 20 / 128), ("gptq", 4 + 20 / 128), ("int4", 4 + 16 / 32),
    ],
)  # fmt: skip
def test_linear_layers_are_quantised_and_tables_are_not(form: str, bits: float) -> None:
    rank = rank_parameters(known("llama-3.1-8b"), Layout())
    blocks, rest = 6_979_321_856, 1_050_939_392
    assert weights_on_rank(rank, FORMATS[form]) == pytest.approx(
        blocks * bits / 8 + rest * max(2, bits / 8 if bits > 16 else 2)
    )


def test_gguf_quantises_everything_but_norms() -> None:
    rank = rank_parameters(known("llama-3.1-8b"), Layout())
    assert weights_on_rank(rank, FORMATS["q8_0"]) == pytest.approx(
        (8_030_261_248 - 266_240) * 8.5 / 8 + 2 * 266_240
    )


def test_mxfp4_quantises_experts_only() -> None:
    # gpt-oss-20b: 24 layers of 32 experts of 2880: gate and up with 2 x 2880 biases, down; 4.25 bits each, and widths
    # padded from 2880 to 3072 by the kernels that read them.
    model = known("gpt-oss-20b")
    rank = rank_parameters(model, Layout())
    experts = 24 * 32 * (3 * 2880 * 2880 + 3 * 2880)
    assert rank.experts == experts
    expected = experts * 4.25 / 8 * 3072 / 2880 + 2 * (model.parameters - experts)
    assert weights_on_rank(rank, FORMATS["mxfp4"]) == pytest.approx(expected)


def test_405b_in_fp8_on_eight_gpus() -> None:
    # field data: 57.75 GiB of fp8 weights per GPU in a checkpoint that leaves attention of some layers in 16 bits.
    memory = serving_memory(
        known("llama-3.1-405b"), ServingJob(weights="fp8", tp=8, **SIZED), device_bytes=80 * GIB
    )
    hand = (126 * (2 * 16384**2 + 2 * 16384 * 1024 + 3 * 16384 * 53248) + 2 * 2 * 128_256 * 16384) / 8
    assert memory.weights_bytes == pytest.approx(hand, rel=2e-4)
    assert 45 * GIB < memory.weights_bytes < 57.75 * GIB


# conservation


@FIXED
@given(
    model=models(), tp=st.sampled_from((1, 2, 8)), pp=st.sampled_from((1, 2)), size=st.floats(20e9, 400e9),
    version=st.sampled_from((None, "0.6.3", "0.7.0", "0.9.0", "0.11.0", "0.21")), adapters=st.sampled_from((0, 4)),
    eager=st.booleans(), engine=st.sampled_from(("vllm", "sglang", "tensorrt-llm")),
)  # fmt: skip
def test_terms_fill_the_device(
    model: ModelShape,
    tp: int,
    pp: int,
    size: float,
    version: str | None,
    adapters: int,
    eager: bool,
    engine: str,
) -> None:
    job = ServingJob(
        engine=engine,
        engine_version=version,
        tp=tp,
        pp=pp,
        lora_adapters=adapters,
        enforce_eager=eager,
        **SIZED,
    )  # type: ignore[arg-type]
    memory = serving_memory(model, job, device_bytes=size)
    total = sum(t.bytes for t in memory.terms)
    assert all(t.bytes > 0 and t.source for t in memory.terms)
    if memory.cache_bytes >= 0:
        assert total == pytest.approx(size, rel=1e-9)
    else:
        # What is needed without any cache is more than there is.
        assert total >= size * 0.999 or named(memory).get("left free by the engine", 0.0) > 0
        assert memory.cache_tokens == 0
        assert memory.sequences(1) == 0
        assert not memory.starts
    assert memory.cache_tokens >= 0
    assert serving_memory(model, job, device_bytes=size) == memory


def test_given_numbers_replace_the_engines() -> None:
    # A start log: 15 GiB of weights, 1.5 of activations, 0.3 outside, 0.7 of graphs, 0.9 of 80 GiB.
    job = ServingJob(
        memory_fraction=0.9, weights_bytes=15 * GIB, activation_bytes=1.5 * GIB, non_torch_bytes=0.3 * GIB,
        graph_bytes=0.7 * GIB,
    )  # fmt: skip
    memory = serving_memory(known("llama-3.1-8b"), job, device_bytes=80 * GIB)
    assert memory.cache_bytes == pytest.approx((72 - 17.5) * GIB)
    # 54.5 GiB in blocks of 16 x 128 KiB.
    assert memory.cache_tokens == int(54.5 * 1024 / 2) * 16


def test_tokens_are_whole_blocks() -> None:
    # 2.89 GiB and 128 KiB per token: 23,675, of which 1479 whole blocks of 16. The log that prints 23,648 had
    # 2.887 GiB.
    job = ServingJob(
        memory_fraction=1.0, weights_bytes=0.0, activation_bytes=0.0, non_torch_bytes=0.0, graph_bytes=0.0, max_model_len=8192
    )  # fmt: skip
    memory = serving_memory(known("llama-3.1-8b"), job, device_bytes=2.89 * GIB)
    assert memory.cache_tokens == 1479 * 16


def test_sglang_takes_its_fraction_of_what_is_available() -> None:
    job = ServingJob(
        engine="sglang",
        memory_fraction=0.8,
        weights_bytes=10 * GIB,
        non_torch_bytes=1 * GIB,
        max_model_len=4096,
    )
    assert serving_memory(known("llama-3.1-8b"), job, device_bytes=41 * GIB).cache_bytes == pytest.approx(
        22 * GIB
    )


def test_tensorrt_takes_its_fraction_of_what_remains() -> None:
    job = ServingJob(
        engine="tensorrt-llm", memory_fraction=0.5, weights_bytes=10 * GIB, non_torch_bytes=1 * GIB,
        activation_bytes=1 * GIB, max_model_len=4096,
    )  # fmt: skip
    assert serving_memory(known("llama-3.1-8b"), job, device_bytes=40 * GIB).cache_bytes == pytest.approx(
        14 * GIB
    )


# directions


@FIXED
@given(
    model=models(), tp=st.sampled_from((1, 2, 4)), size=st.floats(10e9, 300e9), more=st.floats(1.0, 2.0),
    engine=st.sampled_from(("vllm", "sglang", "tensorrt-llm")),
)  # fmt: skip
def test_more_memory_never_caches_less(
    model: ModelShape, tp: int, size: float, more: float, engine: str
) -> None:
    job = ServingJob(engine=engine, tp=tp, memory_fraction=0.9, **SIZED)  # type: ignore[arg-type]
    small = serving_memory(model, job, device_bytes=size)
    large = serving_memory(model, job, device_bytes=size * more)
    assert large.cache_bytes >= small.cache_bytes - 1
    assert large.cache_tokens >= small.cache_tokens
    assert large.sequences(1000) >= small.sequences(1000) * (1 - 1e-12)


@FIXED
@given(model=models(), fraction=st.floats(0.3, 0.9))
def test_a_larger_fraction_never_caches_less(model: ModelShape, fraction: float) -> None:
    small = serving_memory(model, ServingJob(memory_fraction=fraction, **SIZED), device_bytes=80 * GIB)
    large = serving_memory(model, ServingJob(memory_fraction=fraction + 0.05, **SIZED), device_bytes=80 * GIB)
    assert large.cache_tokens >= small.cache_tokens


@FIXED
@given(model=models(), tp=st.sampled_from((1, 2, 4)), size=st.floats(40e9, 200e9))
def test_a_wider_replica_never_has_less_room(model: ModelShape, tp: int, size: float) -> None:
    job = ServingJob(**SIZED)
    narrow = serving_memory(model, replace(job, tp=tp), device_bytes=size)
    wide = serving_memory(model, replace(job, tp=2 * tp), device_bytes=size)
    if narrow.cache_bytes > 0:
        assert 2 * tp * wide.cache_bytes >= tp * narrow.cache_bytes
    assert wide.weights_bytes <= narrow.weights_bytes * (1 + 1e-12)


@FIXED
@given(model=models(), tokens=st.integers(1, 8000))
def test_longer_requests_are_never_more(model: ModelShape, tokens: int) -> None:
    memory = serving_memory(model, ServingJob(**SIZED), device_bytes=400 * GIB)
    assert memory.sequences(tokens) >= memory.sequences(tokens + 200)


@FIXED
@given(model=models(), form=st.sampled_from(("fp8", "awq", "int8")))
def test_narrower_weights_leave_more(model: ModelShape, form: str) -> None:
    wide = serving_memory(model, ServingJob(weights="bf16", **SIZED), device_bytes=400 * GIB)
    narrow = serving_memory(model, ServingJob(weights=form, **SIZED), device_bytes=400 * GIB)
    assert narrow.weights_bytes <= wide.weights_bytes
    assert narrow.cache_bytes >= wide.cache_bytes


def test_an_8_bit_cache_holds_twice_as_many() -> None:
    wide = serving_memory(known("llama-3.1-8b"), ServingJob(cache="bf16", **SIZED), device_bytes=80 * GIB)
    narrow = serving_memory(known("llama-3.1-8b"), ServingJob(cache="fp8", **SIZED), device_bytes=80 * GIB)
    assert narrow.cache_bytes == wide.cache_bytes
    assert narrow.cache_tokens == pytest.approx(2 * wide.cache_tokens, abs=16)


def test_the_fullest_stage_decides() -> None:
    model = known("llama-3.1-70b")
    memory = serving_memory(model, ServingJob(pp=2, **SIZED), device_bytes=141 * GIB)
    # Both stages hold 40 layers and a table, and differ by the final norm alone.
    ranks = [rank_parameters(model, Layout(pp=2, sequence_parallel=False), s) for s in (0, 1)]
    assert memory.weights_bytes == pytest.approx(2 * max(r.total for r in ranks), abs=2 * 8192)
    # 81 layers cannot be even: the first stage has one more, and its cache costs more per token.
    odd = replace(model, layers=(*model.layers, model.layers[0]))
    fuller = serving_memory(odd, ServingJob(pp=2, **SIZED), device_bytes=141 * GIB)
    assert fuller.stage == 0
    assert fuller.cost.charged_per_token == 41 * 2 * 8 * 128 * 2


def test_an_engine_starts_if_one_longest_request_fits() -> None:
    # 131,072 tokens of 128 KiB are 16 GiB: with 15 of weights too much for 24 GiB, enough on 48.
    job = ServingJob(max_model_len=131_072, max_batched_tokens=2048, max_sequences=64)
    assert not serving_memory(known("llama-3.1-8b"), job, device_bytes=24 * GIB).starts
    assert serving_memory(known("llama-3.1-8b"), job, device_bytes=48 * GIB).starts
    assert serving_memory(
        known("llama-3.1-8b"), replace(job, max_model_len=8192), device_bytes=24 * GIB
    ).starts


@FIXED
@given(model=models(), tp=st.sampled_from((1, 2, 8)))
def test_the_least_that_a_gpu_needs(model: ModelShape, tp: int) -> None:
    job = ServingJob(tp=tp, **SIZED)
    assert minimum_bytes(model, job) > serving_memory(model, job, device_bytes=80 * GIB).weights_bytes * 0.999
