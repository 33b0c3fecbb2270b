"""Bytes that stay between steps: the regimes, their sharding, frozen bases, and models beside the trained one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.layout import Layout
from outgrow.physics.memory.states import States, training_states
from outgrow.workload.model import ModelShape
from outgrow.workload.training import Lora, TrainingJob

from .shapes import jobs, known, layouts, models

FIXED = settings(derandomize=True, deadline=None, max_examples=80)
LLAMA = 8_030_261_248
BLOCKS = 6_979_321_856
TABLES_AND_NORMS = LLAMA - BLOCKS
ADAPTERS = 13_631_488


def states(job: TrainingJob, layout: Layout | None = None, name: str = "llama-3.1-8b") -> States:
    return training_states(known(name), job, layout or Layout())


def everything(s: States) -> float:
    """All states, gradients included."""
    total = s.frozen_bytes + s.parameter_bytes + s.adapter_bytes + s.master_bytes + s.moment_bytes
    return total + s.gradient_bytes + s.reference_bytes


@pytest.mark.parametrize(
    ("precision", "per_parameter"),
    [
        ("bf16", 2 + 2 + 2 * 2),
        ("mixed", 2 + 2 + 4 + 2 * 4),
        ("mixed-fp32-grad", 2 + 4 + 4 + 2 * 4),
        ("fp32-sharded", 4 + 4 + 2 * 4),
        ("autocast", 4 + 4 + 2 * 4),
        ("fp32", 4 + 4 + 2 * 4),
        ("fp8", 2 + 4 + 4 + 2 * 4),
        ("fp8-sharded", 4 + 4 + 2 * 4),
        ("fp8-params", 1 + 4 + 4 + 2 * 4),
        ("fp8-bf16-grad", 1 + 2 + 4 + 2 * 4),
    ],
)
def test_bytes_per_parameter_with_adam(precision: str, per_parameter: int) -> None:
    assert everything(states(TrainingJob(precision=precision))) == per_parameter * LLAMA


def test_the_four_regimes_that_people_mean() -> None:
    found = {
        name: everything(states(TrainingJob(precision=name))) / LLAMA
        for name in ("bf16", "mixed", "mixed-fp32-grad", "fp32-sharded")
    }
    assert found == {"bf16": 8, "mixed": 16, "mixed-fp32-grad": 18, "fp32-sharded": 16}


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [
        ("adamw", 8), ("paged-adamw", 8), ("lion", 4), ("sgd-momentum", 4), ("sgd", 0), ("none", 0), ("adafactor", 0),
        # One byte per moment and an fp32 scale per 256 of them.
        ("adamw-8bit", 2 * (1 + 4 / 256)), ("paged-adamw-8bit", 2 * (1 + 4 / 256)), ("lion-8bit", 1 + 4 / 256),
        # Momentum for the blocks' matrices, Adam for tables and norms.
        ("muon", 4 + 4 * TABLES_AND_NORMS / LLAMA),
    ],
)  # fmt: skip
def test_moments_of_optimizers(optimizer: str, moments: float) -> None:
    s = states(TrainingJob(precision="mixed", optimizer=optimizer))  # type: ignore[arg-type]
    assert s.moment_bytes == pytest.approx(moments * LLAMA)
    assert s.moments_paged == optimizer.startswith("paged")
    assert s.host_bytes == (s.moment_bytes if s.moments_paged else 0)


@pytest.mark.parametrize(
    ("sharding", "parameter", "gradient", "optimizer"),
    [("none", 1, 1, 1), ("zero1", 1, 1, 8), ("zero2", 1, 8, 8), ("zero3", 8, 8, 8)],
)
def test_zero_divides_the_right_part(sharding: str, parameter: int, gradient: int, optimizer: int) -> None:
    s = states(TrainingJob(precision="mixed"), Layout(dp=8, sharding=sharding))  # type: ignore[arg-type]
    assert s.parameter_bytes == pytest.approx(2 * LLAMA / parameter)
    assert s.gradient_bytes == pytest.approx(2 * LLAMA / gradient)
    assert s.master_bytes == pytest.approx(4 * LLAMA / optimizer)
    assert s.moment_bytes == pytest.approx(8 * LLAMA / optimizer)


def test_hybrid_sharding_divides_by_its_degree() -> None:
    s = states(TrainingJob(precision="mixed"), Layout(dp=16, sharding="zero3", shard_degree=4))
    assert everything(s) == pytest.approx(16 * LLAMA / 4)


def test_megatron_distributed_optimizer() -> None:
    # 6 + 12 / shards bytes per parameter.
    s = states(TrainingJob(precision="mixed-fp32-grad"), Layout(dp=4, sharding="zero1"))
    assert everything(s) == pytest.approx((6 + 12 / 4) * LLAMA)


def test_experts_are_sharded_over_their_own_replicas() -> None:
    # Mixtral, 16 replicas, 8 ranks of experts: each expert is held twice, and its optimizer states are split in two.
    model = known("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    dense = model.parameters - experts
    s = training_states(model, TrainingJob(precision="mixed"), Layout(dp=16, ep=8, sharding="zero1"))
    assert s.trained_shard == pytest.approx(dense / 16 + experts / 8 / 2)
    assert s.parameter_bytes == pytest.approx(2 * (dense + experts / 8))


# adapters and frozen bases


def test_lora() -> None:
    s = states(TrainingJob(method="lora", precision="bf16"))
    assert s.trained == ADAPTERS
    assert s.frozen_bytes == 2 * LLAMA
    assert s.adapter_bytes == 4 * ADAPTERS
    assert s.gradient_bytes == 4 * ADAPTERS
    assert s.moment_bytes == 8 * ADAPTERS
    assert s.master_bytes == s.parameter_bytes == 0


def test_lora_in_the_dtype_of_the_model() -> None:
    s = states(TrainingJob(method="lora", precision="bf16", lora=Lora(parameter_bytes=2.0)))
    assert (s.adapter_bytes, s.gradient_bytes, s.moment_bytes) == (2 * ADAPTERS, 2 * ADAPTERS, 4 * ADAPTERS)


def test_lora_with_trained_tables() -> None:
    tables = 2 * 128_256 * 4096
    s = states(TrainingJob(method="lora", precision="bf16", lora=Lora(train_embeddings=True)))
    assert s.trained == ADAPTERS + tables
    assert s.adapter_bytes == 4 * (ADAPTERS + tables)


@pytest.mark.parametrize(
    ("base", "bits"),
    [(None, 4 + 32 / 64), ("nf4", 4.5), ("nf4-double", 4 + (8 + 32 / 256) / 64), ("fp8", 8), ("int4", 4.5)],
)
def test_qlora_quantises_linear_layers_only(base: str | None, bits: float) -> None:
    s = states(TrainingJob(method="qlora", precision="bf16", base=base))
    assert s.frozen_bytes == pytest.approx(BLOCKS * bits / 8 + 2 * TABLES_AND_NORMS)


def test_qlora_by_hand() -> None:
    # 6.98e9 x 0.5625 + 1.05e9 x 2 = 6.03e9 bytes: 5.6 GiB, not the 3.7 GiB that half a byte per parameter makes.
    s = states(TrainingJob(method="qlora", precision="bf16"))
    assert s.frozen_bytes == 6_979_321_856 * 9 / 16 + 1_050_939_392 * 2 == 6_027_747_328


def test_405b_in_four_bits_fits_one_node() -> None:
    # field data: 44.8 GB per GPU on one node of 8 x 80 GB, activations included.
    s = states(
        TrainingJob(method="qlora", precision="bf16", base="nf4-double"),
        Layout(dp=8, sharding="zero3"),
        name="llama-3.1-405b",
    )
    assert 25e9 < everything(s) < 44.8e9


# other models


def test_dpo_holds_a_reference_of_the_whole_model() -> None:
    assert states(TrainingJob(objective="dpo", precision="bf16")).reference_bytes == 2 * LLAMA
    quiet = TrainingJob(objective="dpo", precision="bf16", reference_precomputed=True)
    assert states(quiet).reference_bytes == 0
    # The reference of an adapter is its base.
    assert states(TrainingJob(objective="dpo", precision="bf16", method="lora")).reference_bytes == 0
    shared = states(TrainingJob(objective="dpo", precision="bf16"), Layout(dp=8, sharding="zero3"))
    assert shared.reference_bytes == pytest.approx(2 * LLAMA / 8)


def test_reinforcement_holds_its_helpers() -> None:
    # Reference and reward in 16 bits; the value model with gradients and both moments, as the policy itself.
    assert states(TrainingJob(objective="ppo", precision="bf16")).reference_bytes == (2 * 2 + 8) * LLAMA
    assert states(TrainingJob(objective="ppo", precision="mixed")).reference_bytes == (2 * 2 + 16) * LLAMA
    adapted = states(TrainingJob(objective="ppo", precision="bf16", method="lora"))
    assert 2 * 2 * LLAMA < adapted.reference_bytes < 2.1 * 2 * LLAMA
    assert states(TrainingJob(objective="grpo", precision="bf16")).reference_bytes == 2 * LLAMA


def test_a_moving_average_is_fp32_of_the_shard() -> None:
    s = states(TrainingJob(ema=True), Layout(dp=4, sharding="zero1"))
    assert s.reference_bytes == pytest.approx(4 * LLAMA / 4)


# offloading


def test_the_optimizer_moves_to_the_host() -> None:
    s = states(TrainingJob(precision="mixed", offload=("optimizer",)))
    assert s.master_bytes == s.moment_bytes == 0
    # Master, two moments, and the fp32 gradient that the host's optimizer reads: 16 B per parameter (ZeRO-Offload).
    assert s.host_bytes == 16 * LLAMA
    assert s.parameter_bytes == 2 * LLAMA


def test_parameters_move_to_the_host_except_those_at_work() -> None:
    model = known("llama-3.1-8b")
    s = states(TrainingJob(precision="mixed", offload=("parameters",)))
    layer = model.layers[0].parameters(4096)
    assert s.parameter_bytes == pytest.approx(2 * 2 * layer)
    assert s.host_bytes >= 2 * LLAMA


@pytest.mark.parametrize("sharding", ["zero1", "zero2"])
def test_parameters_that_no_one_gathers_are_not_away(sharding: str) -> None:
    # Only zero3 has gathered layers to work on: elsewhere two layers must be on the device.
    layer = known("llama-3.1-8b").layers[0].parameters(4096)
    s = states(TrainingJob(precision="mixed", offload=("parameters",)), Layout(dp=8, sharding=sharding))  # type: ignore[arg-type]
    assert s.parameter_bytes >= 2 * layer


@FIXED
@given(data=st.data(), model=models(), job=jobs())
def test_states_are_numbers_and_offloading_only_moves(
    data: st.DataObject, model: ModelShape, job: TrainingJob
) -> None:
    layout = data.draw(layouts(model))
    for stage in range(layout.pp):
        s = training_states(model, job, layout, stage)
        parts = (
            s.frozen_bytes, s.parameter_bytes, s.gradient_bytes, s.master_bytes, s.moment_bytes, s.reference_bytes,
            s.adapter_bytes, s.host_bytes, s.trained, s.trained_shard,
        )  # fmt: skip
        assert all(part >= 0 for part in parts)
        assert s.trained_shard <= s.trained * (1 + 1e-9)
        here = training_states(model, replace(job, offload=()), layout, stage)
        assert everything(s) <= everything(here) * (1 + 1e-9)
        assert s.host_bytes >= here.host_bytes * (1 - 1e-9)


@FIXED
@given(model=models(), job=jobs(), dp=st.sampled_from((2, 4, 8)))
def test_more_sharding_never_holds_more(model: ModelShape, job: TrainingJob, dp: int) -> None:
    job = replace(job, offload=())
    sizes = [
        everything(training_states(model, job, Layout(dp=dp, sharding=level)))  # type: ignore[arg-type]
        for level in ("none", "zero1", "zero2", "zero3")
    ]
    assert all(a >= b * (1 - 1e-12) for a, b in pairwise(sizes))
    wider = everything(training_states(model, job, Layout(dp=2 * dp, sharding="zero3")))
    assert wider <= sizes[-1] * (1 + 1e-12)
