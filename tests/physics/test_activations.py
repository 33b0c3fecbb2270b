"""What a layer keeps for its backward pass, against formulas that were read off PyTorch's own tracking of tensors.

h hidden, q query width, kv width of keys (and of values), i feed-forward width, n query heads, m key-value heads,
s sequence: bytes per token and layer. Statistics of norms (4 bytes each) are below the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.layout import Layout
from outgrow.physics.memory.activations import LayerActivations, layer_activations
from outgrow.workload.model import ModelShape
from outgrow.workload.training import Lora, TrainingJob

from .shapes import decoder, jobs, known, layouts, models

FIXED = settings(derandomize=True, deadline=None, max_examples=80)
STATISTICS = 40.0
"""Norms keep one fp32 number per token; up to six norms, and some room for indices of experts."""


@dataclass(frozen=True)
class W:
    """Widths of one model, for the formulas."""

    h: int
    q: int
    kv: int
    i: int
    n: int
    m: int
    s: int
    e: int = 0
    k: int = 0


def widths(model: ModelShape, job: TrainingJob) -> W:
    mixer, ffn = model.layers[0].mixer, model.layers[0].ffn
    assert mixer is not None
    assert ffn is not None
    n, m, d = mixer.heads, mixer.kv_heads, mixer.head_dim  # type: ignore[union-attr]
    return W(
        h=model.hidden, q=n * d, kv=m * d, i=ffn.intermediate, n=n, m=m, s=job.sequence_length,
        e=getattr(ffn, "experts", 0), k=getattr(ffn, "top_k", 0),
    )  # fmt: skip


def full(model: ModelShape, job: TrainingJob, layout: Layout | None = None) -> float:
    return layer_activations(model.layers[0], model, job, layout or Layout()).full


def attention(w: W) -> int:
    """Flash attention: q, k, v, out in 16 bits (o_proj reads out), one fp32 number per head."""
    return 4 * w.q + 4 * w.kv + 4 * w.n


BF16 = TrainingJob(precision="bf16", sequence_length=1024)
AUTOCAST = TrainingJob(precision="autocast", sequence_length=1024)
FP32 = TrainingJob(precision="fp32", sequence_length=1024)
MIXTRAL = {"num_local_experts": 8, "num_experts_per_tok": 2}
QWEN_MOE = {
    "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "norm_topk_prob": True,
}  # fmt: skip


def experts(w: W) -> int:
    """Gathered tokens 2h, gate and up 4i, activation 2i, product 2i, output 2h per chosen expert; router in fp32."""
    return w.k * (4 * w.h + 8 * w.i) + 4 * w.e


CASES: list[tuple[str, str, dict[str, Any], TrainingJob, Callable[[W], float]]] = [
    # Each norm 8h: fp32 copy 4, normalised 2, output 2. Gated block 8i: gate, activation, up, product.
    ("llama", "llama", {}, BF16, lambda w: 16 * w.h + attention(w) + 8 * w.i),
    ("mistral", "mistral", {"sliding_window": None}, BF16, lambda w: 16 * w.h + attention(w) + 8 * w.i),
    ("qwen2 (biases cost nothing)", "qwen2", {}, BF16, lambda w: 16 * w.h + attention(w) + 8 * w.i),
    ("llama without grouped queries", "llama", {"num_key_value_heads": 8}, BF16, lambda w: 16 * w.h + attention(w) + 8 * w.i),
    # The residual stream is fp32, and each linear layer casts the norm's output for itself: 4 + 4 + 2 per linear.
    ("llama, autocast", "llama", {}, AUTOCAST, lambda w: 26 * w.h + attention(w) + 8 * w.i),
    ("llama, fp32", "llama", {}, FP32, lambda w: 24 * w.h + 8 * w.q + 8 * w.kv + 4 * w.n + 16 * w.i),
    # Norms of queries and keys: fp32 copy 4 and normalised 2 of each, one number per head.
    ("qwen3", "qwen3", {}, BF16, lambda w: 16 * w.h + attention(w) + 6 * (w.q + w.kv) + 4 * (w.n + w.m) + 8 * w.i),
    ("qwen3, autocast", "qwen3", {}, AUTOCAST, lambda w: 26 * w.h + attention(w) + 6 * (w.q + w.kv) + 4 * (w.n + w.m) + 8 * w.i),
    # Four norms that scale in fp32: 8 each; outputs of the two that feed linear layers.
    ("gemma3", "gemma3_text", {}, BF16, lambda w: 36 * w.h + attention(w) + 8 * (w.q + w.kv) + 4 * (w.n + w.m) + 8 * w.i),
    ("gemma3, autocast", "gemma3_text", {}, AUTOCAST, lambda w: 42 * w.h + attention(w) + 8 * (w.q + w.kv) + 4 * (w.n + w.m) + 8 * w.i),
    # Soft-capped scores are computed in the open: q, expanded k and v, out; per score fp32 softmax, its copy, tanh.
    ("gemma2", "gemma2", {"attn_logit_softcapping": 50.0}, BF16, lambda w: 36 * w.h + 8 * w.q + 8 * w.n * w.s + 8 * w.i),
    # Values keep the fused projection alive; queries and keys are copied, and so is the output.
    ("phi3", "phi3", {"pad_token_id": 0}, BF16, lambda w: 16 * w.h + 8 * w.q + 6 * w.kv + 4 * w.n + 8 * w.i),
    # Norms on what is added: 8 each, and 2h twice where linear layers read the stream; q and k norms over all heads.
    ("olmo2", "olmo2", {}, BF16, lambda w: 20 * w.h + attention(w) + 8 * (w.q + w.kv) + 8 * w.i),
    ("llama, math attention", "llama", {}, replace(BF16, attention="math"), lambda w: 16 * w.h + 8 * w.q + 6 * w.n * w.s + 8 * w.i),
    ("llama, padded", "llama", {}, replace(BF16, attention="sdpa", batching="padded"),
     lambda w: 16 * w.h + 8 * w.q + 4 * w.n + 2 * w.s + 8 * w.i),
    ("mixtral", "mixtral", MIXTRAL, BF16, lambda w: 16 * w.h + attention(w) + experts(w)),
    ("qwen3_moe", "qwen3_moe", QWEN_MOE, BF16,
     lambda w: 16 * w.h + attention(w) + 6 * (w.q + w.kv) + 4 * (w.n + w.m) + experts(w)),
    # Grouped products are not autocast: experts work in fp32.
    ("mixtral, autocast", "mixtral", MIXTRAL, AUTOCAST,
     lambda w: 24 * w.h + attention(w) + w.k * (8 * w.h + 16 * w.i) + 4 * w.e),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "changes", "job", "formula"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_plain_modules(
    kind: str, changes: dict[str, Any], job: TrainingJob, formula: Callable[[W], float]
) -> None:
    # Three sizes, so that no two terms can stand for each other.
    for scale in (1, 2, 3):
        sizes = {
            "hidden_size": 512 * scale,
            "intermediate_size": 1408 + 640 * scale,
            "head_dim": 64 if scale < 3 else 128,
            "num_attention_heads": 8 * (1 + scale % 2),
        }
        model = decoder(kind, **(sizes | changes))
        one = replace(job, sequence_length=512 * scale)
        assert full(model, one) == pytest.approx(formula(widths(model, one)), abs=STATISTICS)


def gpt2(job: TrainingJob) -> tuple[float, W]:
    from outgrow.workload.hf_config import resolve

    config = {
        "model_type": "gpt2", "n_embd": 512, "n_layer": 2, "n_head": 8, "n_positions": 1024, "vocab_size": 50257,
        "activation_function": "gelu_new",
    }  # fmt: skip
    model = resolve(config, name="gpt2")
    return full(model, job), widths(model, job)


def test_gpt2() -> None:
    # Layer norms 4h each; the fused projection whole; the output; GELU written out: 10i.
    found, w = gpt2(BF16)
    assert found == pytest.approx(8 * w.h + 6 * w.h + 2 * w.q + 4 * w.n + 10 * w.i, abs=STATISTICS)


def test_gpt2_with_dropout_keeps_byte_masks() -> None:
    found, w = gpt2(replace(BF16, dropout=0.1))
    assert found - gpt2(BF16)[0] == 2 * w.h


def test_gpt2_under_autocast() -> None:
    # Inputs of norms 4h each, their outputs cast once; the power in GELU is fp32, and what follows it.
    found, w = gpt2(AUTOCAST)
    assert found == pytest.approx(12 * w.h + 6 * w.h + 2 * w.q + 4 * w.n + 16 * w.i, abs=STATISTICS)


# recomputation


@pytest.mark.parametrize(("job", "per_hidden"), [(BF16, 2), (AUTOCAST, 4), (FP32, 4)])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "olmo2"])
def test_full_recomputation_keeps_the_input(kind: str, job: TrainingJob, per_hidden: int) -> None:
    model = decoder(kind)
    assert (
        layer_activations(model.layers[0], model, job, Layout(recompute="full")).kept
        == per_hidden * model.hidden
    )


def test_selective_recomputation_keeps_every_second_product() -> None:
    # torchtitan's policy: q, v, gate and down of the products, the attention output with its statistics, the input.
    model = decoder()
    w = widths(model, BF16)
    kept = layer_activations(model.layers[0], model, BF16, Layout(recompute="selective")).kept
    assert kept == 2 * (w.q + w.kv + w.i + w.h) + 2 * w.q + 4 * w.n + 2 * w.h


@FIXED
@given(data=st.data(), model=models(), job=jobs())
def test_recomputation_only_takes_away(data: st.DataObject, model: ModelShape, job: TrainingJob) -> None:
    layout = data.draw(layouts(model))
    for layer in set(model.layers):
        none, selective, all_ = (
            layer_activations(layer, model, job, replace(layout, recompute=mode))  # type: ignore[arg-type]
            for mode in ("none", "selective", "full")
        )
        assert 0 < all_.kept <= none.kept
        assert selective.kept <= none.kept
        assert none.full == selective.full == all_.full == none.kept
        assert none.full == pytest.approx(sum(size for _, size in none.parts))
        assert all(size >= 0 for _, size in none.parts)
        assert none.transient >= 0


@FIXED
@given(job=jobs(), kind=st.sampled_from(("llama", "qwen3")))
def test_recomputation_is_ordered_for_plain_decoders(job: TrainingJob, kind: str) -> None:
    model = decoder(kind)
    sizes: list[LayerActivations] = [
        layer_activations(model.layers[0], model, job, Layout(recompute=mode))  # type: ignore[arg-type]
        for mode in ("full", "selective", "none")
    ]
    assert sizes[0].kept <= sizes[1].kept <= sizes[2].kept


def test_selective_recomputation_keeps_nothing_that_a_frozen_base_would_not() -> None:
    # A frozen block without gates keeps little: a policy that saves products may not make it more.
    model = known("falcon-7b")
    job = TrainingJob(
        method="lora", precision="bf16", sequence_length=8, lora=Lora(rank=1, targets=("q", "v"))
    )
    found = layer_activations(
        model.layers[0], model, job, Layout(tp=4, sequence_parallel=False, recompute="selective")
    )
    assert found.kept <= found.full


# adapters on a frozen base: no input of a linear layer, no normalised value is kept for a weight gradient


def lora(targets: tuple[str, ...], **changes: Any) -> TrainingJob:
    return TrainingJob(
        method="lora", precision="bf16", sequence_length=1024, lora=Lora(rank=16, targets=targets, **changes)
    )


QKVO = ("q", "k", "v", "o")
EVERY = ("all",)
R = 16


def frozen(w: W) -> int:
    """Norms keep the fp32 copy of their input; the gated block gate, activation and up, not their product."""
    return 8 * w.h + attention(w) + 6 * w.i


def read(w: W, targets: tuple[str, ...]) -> int:
    """Widths that the adapted linear layers read, together."""
    return 3 * w.h + w.q + (0 if targets == QKVO else 2 * w.h + w.i)


def count(targets: tuple[str, ...]) -> int:
    return 4 if targets == QKVO else 7


LORA: list[tuple[str, dict[str, Any], Callable[[W, tuple[str, ...]], float]]] = [
    # fp32 adapters on a bf16 base (PEFT): every adapter casts its own fp32 copy of its input.
    ("fp32", {"autocast": False}, lambda w, t: 4 * read(w, t) + 4 * R * count(t)),
    # and with dropout a byte mask of it.
    ("fp32 with dropout", {"autocast": False, "dropout": 0.1}, lambda w, t: 5 * read(w, t) + 4 * R * count(t)),
    # Under autocast each casts back to 16 bits.
    ("fp32 under autocast", {}, lambda w, t: 2 * read(w, t) + 2 * R * count(t)),
    # 16-bit adapters share the tensor that their linear layers read: q, k, v one, gate and up one; o reads out,
    # which attention keeps anyway.
    ("bf16", {"parameter_bytes": 2.0}, lambda w, t: 2 * (w.h if t == QKVO else 2 * w.h + w.i) + 2 * R * count(t)),
    ("bf16 with dropout", {"parameter_bytes": 2.0, "dropout": 0.1}, lambda w, t: 3 * read(w, t) + 2 * R * count(t)),
]  # fmt: skip


@pytest.mark.parametrize("targets", [QKVO, EVERY], ids=["qkvo", "all"])
@pytest.mark.parametrize(("changes", "formula"), [c[1:] for c in LORA], ids=[c[0] for c in LORA])
def test_adapters(
    targets: tuple[str, ...], changes: dict[str, Any], formula: Callable[[W, tuple[str, ...]], float]
) -> None:
    job = lora(targets, **changes)
    for model in (decoder(), decoder(hidden_size=1024, intermediate_size=2816, num_attention_heads=8)):
        w = widths(model, job)
        assert full(model, job) == pytest.approx(frozen(w) + formula(w, targets), abs=STATISTICS)


def test_a_frozen_base_keeps_no_more_than_a_trained_one() -> None:
    model = decoder()
    assert full(model, replace(BF16, method="frozen")) < full(model, BF16)


# fused kernels


def test_fused_layers_are_those_of_the_megatron_paper() -> None:
    # Korthikanti et al. (arXiv 2205.05198): 34 s b h of a block of GPT, of which 2 are dropout masks; i = 4h. Flash
    # attention keeps no matrix and one fp32 number per head.
    config = {"num_key_value_heads": 8, "intermediate_size": 2048}
    model = decoder("starcoder2", **config)
    job = replace(BF16, precision="mixed-fp32-grad", kernels="fused")
    h, n = model.hidden, 8
    assert model.norm == "layer"
    assert full(model, job) == pytest.approx(32 * h + 4 * n)
    # t ranks with sequence parallelism divide all of it, without it what lies between the blocks stays: 10 less the
    # two masks; 24 is divided.
    assert full(model, job, Layout(tp=4)) == pytest.approx((32 * h + 4 * n) / 4)
    alone = full(model, job, Layout(tp=4, sequence_parallel=False))
    assert alone == pytest.approx(8 * h + 24 * h / 4 + 4 * n / 4)


@pytest.mark.parametrize("kernels", ["fused", "triton", "compiled"])
def test_fused_llama(kernels: str) -> None:
    # Norms keep input and output, 4h each; gate, up and product 6i: their activation is computed again.
    model = decoder()
    w = widths(model, BF16)
    assert full(model, replace(BF16, kernels=kernels)) == pytest.approx(  # type: ignore[arg-type]
        8 * w.h + attention(w) + 6 * w.i, abs=STATISTICS
    )


def test_eight_bits_keep_inputs_of_linear_layers_in_one_byte() -> None:
    model = decoder()
    w = widths(model, BF16)
    job = replace(BF16, precision="fp8", kernels="fused")
    # Outputs of norms and the product in 8 bits; the attention output in 16 for attention and in 8 for its projection.
    expected = 2 * (2 + 1) * w.h + attention(w) + w.q + 4 * w.i + w.i
    assert full(model, job) == pytest.approx(expected, abs=STATISTICS)


# splitting


def test_tensor_parallelism_without_sequence_parallelism_leaves_the_norms() -> None:
    model = decoder(num_key_value_heads=4)
    w = widths(model, BF16)
    for tp in (2, 4):
        expected = 16 * w.h + (attention(w) + 8 * w.i) / tp
        assert full(model, BF16, Layout(tp=tp, sequence_parallel=False)) == pytest.approx(
            expected, abs=STATISTICS
        )
        divided = (16 * w.h + attention(w) + 8 * w.i) / tp
        assert full(model, BF16, Layout(tp=tp)) == pytest.approx(divided, abs=STATISTICS)


def test_keys_and_values_are_copied_beyond_their_heads() -> None:
    # Two key-value heads of 64 on four ranks: each rank holds one.
    model = decoder()
    w = widths(model, BF16)
    expected = 16 * w.h + (4 * w.q + 4 * w.n + 8 * w.i) / 4 + 4 * 64
    assert full(model, BF16, Layout(tp=4, sequence_parallel=False)) == pytest.approx(expected, abs=STATISTICS)


@FIXED
@given(data=st.data(), model=models(), job=jobs())
def test_splitting_never_keeps_more(data: st.DataObject, model: ModelShape, job: TrainingJob) -> None:
    layout = replace(data.draw(layouts(model)), ep=1)
    for layer in set(model.layers):
        one = layer_activations(layer, model, job, replace(layout, tp=1)).full
        two = layer_activations(layer, model, job, replace(layout, tp=2)).full
        assert two <= one * (1 + 1e-9)
        parallel = layer_activations(layer, model, job, replace(layout, tp=2, sequence_parallel=True)).full
        alone = layer_activations(layer, model, job, replace(layout, tp=2, sequence_parallel=False)).full
        assert parallel <= alone * (1 + 1e-9)


def test_widest_gradients_of_a_gated_block() -> None:
    # Gradients of gate and up, or of the product and one of them: 4i; and the gradient that came in, 2h.
    model = known("llama-3.1-8b")
    acts = layer_activations(model.layers[0], model, BF16, Layout())
    assert acts.transient == pytest.approx(4 * 14336 + 2 * 4096, rel=0.15)
