"""One convention for flops, held against published tables; and rooflines that move the right way."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.physics.compute import (
    Band,
    attention_flops_per_token,
    decode_step_seconds,
    forward_flops_per_token,
    peak_flops,
    prefill_seconds,
    training_efficiency,
    training_flops_per_token,
    training_tokens_per_second,
)
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob

from .shapes import HEAD_DIM, HEADS, LAYERS, decoder, known, models, side_by_side

FIXED = settings(derandomize=True, deadline=None, max_examples=80)
ROOT = Path(__file__).resolve().parents[2]
TABLES = (ROOT / "validation/data/training.csv", ROOT.parent / "shared/truth/training.csv")
NAMES = {"llama3-8b": "llama-3-8b", "llama3-70b": "llama-3-70b", "llama3.1-405b": "llama-3.1-405b"}
"""Dense models of the table, as the catalogue calls them."""


def published() -> list[dict[str, str]]:
    """Rows of Megatron-Bridge's performance pages that print both tokens and model flops per second and GPU."""
    table = next((t for t in TABLES if t.exists()), None)
    if table is None:
        return []
    with table.open(encoding="utf-8", newline="") as lines:
        return [
            row
            for row in csv.DictReader(lines)
            if "Megatron-Bridge" in row["source"]
            and row["model"] in NAMES
            and row["task"] == "pretrain"
            and row["tokens_per_s_per_gpu"]
            and row["tflops_per_gpu"]
        ]


HERE = pytest.mark.skipif(not published(), reason="the table of published training runs is not here")


@pytest.mark.shared
@HERE
def test_the_convention_reproduces_published_flops() -> None:
    """TFLOP/s = (6 (N - input embedding) + 6 L h s) x tokens per second, from the table's own columns."""
    close = 0
    for row in published():
        parameters, vocab = float(row["params_b"]) * 1e9, int(row["vocab"])
        layers, hidden, length = int(row["layers"]), int(row["hidden"]), int(row["seq_len"])
        per_token = 6 * (parameters - vocab * hidden) + 6 * layers * hidden * length
        found = per_token * float(row["tokens_per_s_per_gpu"]) / 1e12
        close += abs(found / float(row["tflops_per_gpu"]) - 1) < 0.03
    assert close >= 80
    assert close >= 0.97 * len(published())


@pytest.mark.shared
@HERE
def test_the_code_follows_the_convention() -> None:
    close = 0
    for row in published():
        job = TrainingJob(sequence_length=int(row["seq_len"]))
        per_token = training_flops_per_token(known(NAMES[row["model"]]), job)
        found = per_token * float(row["tokens_per_s_per_gpu"]) / 1e12
        close += abs(found / float(row["tflops_per_gpu"]) - 1) < 0.03
    assert close >= 80


def test_llama_by_hand() -> None:
    n, embedding, layers, h, s = 8_030_261_248, 128_256 * 4096, 32, 4096, 8192
    per_token = 6 * (n - embedding) + 6 * layers * h * s
    job = TrainingJob(sequence_length=s)
    assert training_flops_per_token(known("llama-3.1-8b"), job) == pytest.approx(per_token)
    assert forward_flops_per_token(known("llama-3.1-8b"), s) == pytest.approx(per_token / 3)


def test_a_frozen_base_has_no_weight_gradients() -> None:
    # Forward 2 and gradients of activations 2 per weight: published adapters count 4 N.
    model = known("llama-3.1-70b")
    full = training_flops_per_token(model, TrainingJob())
    assert training_flops_per_token(model, TrainingJob(method="lora")) == pytest.approx(full * 4 / 6)
    assert training_flops_per_token(model, TrainingJob(method="qlora")) == pytest.approx(full * 4 / 6)


def test_experts_count_where_tokens_go() -> None:
    # Mixtral: two of eight experts of 3 x 4096 x 14336 in each of 32 layers.
    model = known("mixtral-8x7b")
    active = model.parameters - 32 * 6 * 3 * 4096 * 14336 - 32_000 * 4096
    attention = 2 * 32 * 4096 * 1024
    assert forward_flops_per_token(model, 1024) == pytest.approx(2 * active + attention)
    assert training_flops_per_token(model, TrainingJob(sequence_length=1024)) == pytest.approx(
        6 * active + 3 * attention
    )


def test_a_tied_table_is_multiplied_once() -> None:
    # It is looked up at the input and multiplied at the output: tied or not, the flops are the same.
    tied = decoder(tie_word_embeddings=True)
    assert tied.tied
    assert forward_flops_per_token(tied, 128) == forward_flops_per_token(decoder(), 128)


def test_learned_positions_are_looked_up() -> None:
    model = replace(decoder(), extra_embedding_parameters=10**9)
    assert forward_flops_per_token(model, 128) == forward_flops_per_token(decoder(), 128)


def test_attention_by_hand() -> None:
    # Scores and weighted values: 2 x 2 x s x q forward, half of it under a causal mask.
    model = decoder()
    square = LAYERS * 4 * 1000 * HEADS * HEAD_DIM
    assert attention_flops_per_token(model, 1000, causal=False) == square
    assert attention_flops_per_token(model, 1000) == square / 2


def test_attention_beside_a_state_space_attends() -> None:
    assert attention_flops_per_token(side_by_side(), 1000) == attention_flops_per_token(decoder(), 1000)


def windowed(window: int) -> ModelShape:
    model = decoder("mistral", sliding_window=window)
    assert model.layers[0].mixer is not None
    assert model.layers[0].mixer.span == window
    return model


def test_a_window_that_is_never_full_changes_nothing() -> None:
    # Up to its own length a window is an ordinary causal mask: a token reaches half the sequence on average.
    plain = attention_flops_per_token(decoder(), 1000)
    assert attention_flops_per_token(windowed(1000), 1000) == pytest.approx(plain)
    assert attention_flops_per_token(windowed(4096), 1000) == pytest.approx(plain)


def test_a_window_reaches_its_width_at_last() -> None:
    # Mean over 0..L-1 of min(position, w): w - w^2 / (2 L).
    length, w = 8192, 1024
    reach = w - w**2 / (2 * length)
    expected = LAYERS * 4 * HEADS * HEAD_DIM * reach
    assert attention_flops_per_token(windowed(w), length) == pytest.approx(expected, rel=0.01)


@FIXED
@given(model=models(), length=st.integers(1, 200_000), more=st.integers(1, 5000))
def test_longer_sequences_never_cost_less(model: ModelShape, length: int, more: int) -> None:
    assert forward_flops_per_token(model, length) <= forward_flops_per_token(model, length + more)
    assert forward_flops_per_token(model, length) > 0
    causal = attention_flops_per_token(model, length)
    assert causal <= attention_flops_per_token(model, length, causal=False)


# rooflines


def ordered(band: Band | None) -> Band:
    assert band is not None
    assert 0 < band.low <= band.value <= band.high
    assert band.source
    return band


def test_training_rate_by_hand() -> None:
    # 989 TFLOP/s dense, at the middle of the band of published dense runs.
    model, job, device = known("llama-3.1-8b"), TrainingJob(sequence_length=8192), catalog.device("h100-sxm")
    peak = peak_flops(device)
    assert peak == pytest.approx(989e12, rel=0.01)
    rate = ordered(training_tokens_per_second(model, job, device, 8))
    share = training_efficiency(model).value
    assert rate.value == pytest.approx(8 * 989e12 * share / training_flops_per_token(model, job), rel=0.01)


@FIXED
@given(
    model=models(),
    length=st.sampled_from((128, 4096)),
    gpus=st.integers(1, 4096),
    device=st.sampled_from(("a100-sxm-80gb", "h100-sxm", "b200-sxm", "mi300x", "v100-sxm2-32gb")),
)
def test_rates_are_linear_in_gpus(model: ModelShape, length: int, gpus: int, device: str) -> None:
    job = TrainingJob(sequence_length=length)
    one = ordered(training_tokens_per_second(model, job, catalog.device(device), 1))
    many = ordered(training_tokens_per_second(model, job, catalog.device(device), gpus))
    assert many.value == pytest.approx(gpus * one.value)


def test_a_decode_step_reads_every_weight_once() -> None:
    # 16 GB of weights at 65 % of 3.35 TB/s: 7.4 ms; the product of one sequence is far below.
    model, device = known("llama-3.1-8b"), catalog.device("h100-sxm")
    step = ordered(decode_step_seconds(model, device, weight_bytes=16e9, cache_bytes=0.0, sequences=1))
    bandwidth = device.memory_bandwidth.value
    assert step.value == pytest.approx(16e9 / (0.65 * bandwidth), rel=0.01)
    assert 0.006 < step.value < 0.009


def test_a_large_batch_is_bound_by_its_products() -> None:
    model, device = known("llama-3.1-8b"), catalog.device("h100-sxm")
    step = ordered(decode_step_seconds(model, device, weight_bytes=16e9, cache_bytes=0.0, sequences=100_000))
    n = 8_030_261_248 - 128_256 * 4096
    assert step.value == pytest.approx(100_000 * 2 * n / (989e12 * 0.5), rel=0.02)


def test_a_tied_head_is_multiplied_while_decoding() -> None:
    device = catalog.device("h100-sxm")
    tied, own = (
        ordered(decode_step_seconds(m, device, weight_bytes=0.0, cache_bytes=0.0, sequences=1))
        for m in (decoder(tie_word_embeddings=True), decoder())
    )
    assert tied.value == pytest.approx(own.value)


@FIXED
@given(model=models(), sequences=st.floats(1, 1e5), cache=st.floats(0, 1e11))
def test_more_work_never_takes_less_time(model: ModelShape, sequences: float, cache: float) -> None:
    device = catalog.device("a100-sxm-80gb")

    def step(n: float, c: float, gpus: int = 1) -> float:
        return ordered(
            decode_step_seconds(model, device, weight_bytes=1e9, cache_bytes=c, sequences=n, gpus=gpus)
        ).value

    here = step(sequences, cache)
    assert step(2 * sequences, cache) >= here
    assert step(sequences, 2 * cache) >= here
    assert step(sequences, cache, gpus=2) <= here
    prompt = ordered(prefill_seconds(model, device, 1000)).value
    assert ordered(prefill_seconds(model, device, 2000)).value >= 2 * prompt * (1 - 1e-9)
    assert ordered(prefill_seconds(model, device, 1000, gpus=2)).value == pytest.approx(prompt / 2)


def test_eight_bits_are_faster_only_where_there_are_units_for_them() -> None:
    model = known("llama-3.1-8b")
    for name, faster in (("h100-sxm", True), ("a100-sxm-80gb", False)):
        device = catalog.device(name)
        wide = ordered(prefill_seconds(model, device, 1000)).value
        narrow = ordered(prefill_seconds(model, device, 1000, fp8=True)).value
        assert narrow == pytest.approx(wide / 2 if faster else wide, rel=0.01)


def test_a_device_without_a_published_peak_has_no_answer() -> None:
    device = catalog.device("h100-sxm")
    unknown = replace(device, peaks=type(device.peaks)())
    assert training_tokens_per_second(known("gpt2"), TrainingJob(), unknown, 1) is None
    assert prefill_seconds(known("gpt2"), unknown, 10) is None
    assert decode_step_seconds(known("gpt2"), unknown, weight_bytes=1, cache_bytes=1, sequences=1) is None
