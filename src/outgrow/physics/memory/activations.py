"""What the forward pass keeps for the backward pass: bytes per token of one layer on one rank.

Nothing here is fitted. Each entry is a tensor that autograd saves, in the dtype in which that implementation
saves it. Four implementations are told apart:

eager      plain modules: every pointwise operation saves its inputs; RMSNorm works on an fp32 copy
triton     eager with fused norms, rotary embedding and gated activation (Liger, Unsloth, fused kernels of fms)
compiled   torch.compile: pointwise results are computed again, but what a matrix product reads is kept
fused      Megatron with Transformer Engine: fused norm + linear, fused gated activation
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.layout import Layout
from outgrow.physics.memory.parameters import lora_targets, lora_widths
from outgrow.workload.mixers import (
    CompressedAttention,
    LatentAttention,
    LinearAttention,
    Mamba,
    Mixer,
    ParallelMixers,
    SelfAttention,
    ShortConvolution,
)
from outgrow.workload.model import FeedForward, Layer, MixtureOfExperts, ModelShape
from outgrow.workload.training import TrainingJob

FP32 = 4.0
FP8 = 1.0
MASK = 1.0
"""Dropout keeps one byte per element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Bytes per token of one layer on one rank."""

    kept: float
    """Kept from the forward pass until the layer's backward pass."""
    full: float
    """Kept while the layer itself is differentiated: equal to `kept` without recomputation."""
    transient: float
    """Gradients of activations alive at the same time, at most."""
    parts: tuple[tuple[str, float], ...]
    """`full`, by part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Widths and switches that all parts of a layer share."""

    h: int
    a: float
    """Bytes of an activation."""
    w: float
    """Bytes of an input of a linear layer as it is kept for the weight gradient."""
    i: float
    """Bytes of an input of the gated activation as it is kept."""
    r: float
    """Bytes of an element of the residual stream."""
    tp: int
    sp: int
    """Ranks over which norms and residuals are split."""
    kernels: str
    trains_all: bool
    adapted: frozenset[str]

    keeps_base_inputs: bool
    """Frozen layers keep their inputs as if they were trained."""

    adapters_share: bool
    """Adapters read the same tensors as the base: same dtype, no dropout. Else each keeps a copy of its own."""

    def weight_gradient(self, target: str) -> bool:
        """Whether the input of this linear layer is kept as it is for a weight gradient."""
        return (
            self.trains_all
            or self.keeps_base_inputs
            or (
                self.adapters_share
                and (target in self.adapted or (target in "qkv" and "qkv" in self.adapted))
            )
        )


def context(model: ModelShape, job: TrainingJob, layout: Layout) -> Context:
    """Widths and switches of a job on a layout."""
    regime = job.regime
    residual = FP32 if regime.autocast and job.trains_all else regime.activation
    if job.residual_bytes is not None:
        residual = job.residual_bytes
    adapted = lora_targets(job.lora.targets) if job.method in ("lora", "dora", "qlora") else frozenset()
    return Context(
        h=model.hidden,
        a=regime.activation,
        w=FP8 if regime.fp8 and job.kernels == "fused" else regime.activation,
        i=FP8 if job.fp8_activation_input else regime.activation,
        r=residual,
        tp=layout.tp,
        sp=layout.tp if layout.sequence_parallel else 1,
        kernels=job.kernels,
        trains_all=job.trains_all,
        adapted=adapted,
        keeps_base_inputs=job.keeps_base_inputs,
        adapters_share=job.lora.dropout == 0 and job.lora.parameter_bytes == regime.activation,
    )


def layer_activations(layer: Layer, model: ModelShape, job: TrainingJob, layout: Layout) -> LayerActivations:
    """Activations of one layer, by part."""
    c = context(model, job, layout)
    parts: dict[str, float] = {}
    norms = max(1, round(layer.norm_parameters / c.h / (2 if model.norm == "layer" else 1)))
    for index in range(norms):
        feeds = "attention" if index < (norms + 1) // 2 else "ffn"
        # With four norms a layer, two normalise what a block adds and feed no linear layer.
        adds = model.post_norm or (norms == 4 and index % 2 == 1)
        parts["norms"] = parts.get("norms", 0.0) + _norm(c, layer, model, feeds, adds=adds)
    if model.post_norm and c.trains_all:
        parts["norms"] += 2 * c.a * c.h / c.sp  # linear layers read the residual stream itself
    if layer.mixer is not None:
        for name, size in _mixer(c, layer.mixer, job, model).items():
            parts[name] = parts.get(name, 0.0) + size
    if layer.cross_attention is not None:
        parts["cross-attention"] = sum(_mixer(c, layer.cross_attention, job, model).values())
    if layer.ffn is not None:
        parts |= _ffn(c, layer.ffn, layout, job)
    adapters = _adapters(c, layer, job)
    if adapters:
        parts["adapters"] = adapters
    if job.dropout:
        parts["dropout masks"] = 2 * MASK * c.h / c.sp
    full = sum(parts.values())
    kept = full
    if layout.recompute == "full":
        kept = c.r * c.h / c.sp
    elif layout.recompute == "selective":
        kept = min(full, _selective(c, layer, full))
    return LayerActivations(
        kept=kept, full=full, transient=_transient(c, layer, layout, job), parts=tuple(parts.items())
    )


def _norm(c: Context, layer: Layer, model: ModelShape, feeds: str, *, adds: bool) -> float:
    """One norm: its input as it saves it, its normalised value for the scale's gradient, its output for the linears."""
    targets = ("q", "k", "v") if feeds == "attention" else ("gate", "up")
    is_moe = isinstance(layer.ffn, MixtureOfExperts) and feeds == "ffn"
    output_kept = not adds and (c.trains_all or any(c.weight_gradient(t) for t in targets))
    # Experts read copies of their own; the router reads the output itself.
    width = c.a if is_moe else c.w
    output = width * c.h if output_kept and (c.trains_all or not is_moe) else 0.0
    if c.kernels in ("fused", "triton", "compiled") or model.norm == "layer":
        return (c.r * c.h + output) / c.sp
    upcast = FP32 * c.h
    if c.r > c.a and output and not is_moe:
        output *= len(targets)  # autocast casts the output once for every linear layer that reads it
    normalised = max(c.r, FP32 if model.norm == "rms-fp32" else 0.0) * c.h if c.trains_all else 0.0
    return (upcast + normalised + output + FP32) / c.sp


def _mixer(c: Context, mixer: Mixer, job: TrainingJob, model: ModelShape) -> dict[str, float]:
    if isinstance(mixer, SelfAttention):
        q = mixer.heads * mixer.head_dim / c.tp
        kv_heads = max(mixer.kv_heads / c.tp, 1.0)
        k, v = kv_heads * mixer.head_dim, kv_heads * mixer.value_dim
        math = job.attention == "math" or (model.attention_softcap and c.kernels == "eager")
        masked = job.attention == "sdpa" and job.batching == "padded"
        if job.attention == "flash-expanded" or masked or math:
            k, v = mixer.heads * mixer.head_dim / c.tp, mixer.heads * mixer.value_dim / c.tp
        out = mixer.heads * mixer.value_dim / c.tp
        width = FP8 if job.attention == "flash-fp8" else c.a
        parts = {
            "queries, keys, values": width * (q + k + v),
            "attention output": width * out + FP32 * mixer.heads / c.tp,
        }
        if mixer.fused_projection and c.kernels == "eager":
            # Values are a view of the fused output and keep it alive; queries and keys are copied out, the output too.
            parts["queries, keys, values"] += c.a * (q + k)
            parts["attention output"] += c.a * out
        if mixer.qk_norm_parameters and c.kernels == "eager":
            kept = max(c.a, FP32 if model.norm == "rms-fp32" else 0.0) if c.trains_all else 0.0
            parts["query and key norms"] = (FP32 + kept) * (q + k) + FP32 * (
                mixer.heads / c.tp + kv_heads if mixer.qk_norm_parameters <= 2 * mixer.head_dim else 2
            )
        elif mixer.qk_norm_parameters:
            parts["query and key norms"] = c.a * (q + k)
        if c.w != c.a and c.weight_gradient("o"):
            parts["attention output"] += c.w * out  # the 8-bit copy that the output projection keeps
        if mixer.output_gate:
            parts["output gate"] = c.a * 2 * out
        if math:
            span = min(job.sequence_length, mixer.span or job.sequence_length)
            # Softmax in fp32 for its own backward pass, in 16 bits for the product with the values, and the soft cap.
            capped = c.a if model.attention_softcap else 0.0
            reach = job.sequence_length if c.kernels == "eager" else span
            parts["attention matrix"] = mixer.heads / c.tp * reach * (FP32 + c.a + capped)
            parts["attention output"] -= FP32 * mixer.heads / c.tp
        elif masked:
            # A mask of the batch is kept in 16 bits, one row per token.
            parts["attention mask"] = c.a * job.sequence_length
        return parts
    if isinstance(mixer, LatentAttention):
        heads = mixer.heads / c.tp
        qk, vd = heads * mixer.head_dim, heads * mixer.value_head_dim
        low = (mixer.q_lora_rank or 0) + mixer.kv_lora_rank
        norm = (2 * c.a if c.kernels == "fused" else FP32 + 2 * c.a) * low
        rope = c.a * mixer.qk_rope_head_dim
        return {
            "latents": norm + rope,
            "queries, keys, values": c.a * (2 * qk + vd),
            "attention output": c.a * vd + FP32 * heads,
        }
    if isinstance(mixer, CompressedAttention):
        width = mixer.heads * mixer.head_dim / c.tp
        return {"queries, keys, values": c.a * (width + 2 * mixer.head_dim), "attention output": c.a * width}
    if isinstance(mixer, LinearAttention):
        value = mixer.value_heads * mixer.value_head_dim / c.tp
        conv = mixer.conv_width / c.tp
        # Projections, convolution in and out, normalised queries and keys, gate, output and its norm.
        return {
            "linear attention": c.a * (3 * conv + 4 * value) + FP32 * (2 * mixer.value_heads / c.tp + value)
        }
    if isinstance(mixer, Mamba):
        inner, conv = mixer.inner / c.tp, mixer.conv_width / c.tp
        return {"state space": c.a * (2 * conv + 4 * inner) + FP32 * mixer.heads / c.tp * 2}
    if isinstance(mixer, ParallelMixers):
        return _mixer(c, mixer.attention, job, model) | _mixer(c, mixer.recurrent, job, model)
    assert isinstance(mixer, ShortConvolution)  # noqa: S101 (exhaustive)
    return {"convolution": c.a * 6 * mixer.width / c.tp}


def _gated(c: Context, width: float, *, gated: bool, down_gradient: bool) -> float:
    """Bytes of a feed-forward block of `width` on this rank."""
    product = c.w * width if down_gradient else 0.0
    if not gated:
        # Input of the activation, and its output as the input of the second matrix.
        return c.a * width + product
    if c.kernels in ("fused", "triton", "compiled"):
        # Gate and up projection; their activation is computed again.
        return c.i * 2 * width + product
    return c.a * 3 * width + product


def _ffn(
    c: Context, ffn: FeedForward | MixtureOfExperts, layout: Layout, job: TrainingJob
) -> dict[str, float]:
    if isinstance(ffn, FeedForward):
        width = ffn.intermediate / c.tp
        size = _gated(c, width, gated=ffn.gated, down_gradient=c.weight_gradient("down"))
        if ffn.composite and c.kernels == "eager":
            # GELU as tanh of a cubic, written out: four results more, in fp32 where autocast promotes the power.
            size += (6.0 if c.r > c.a else 3.0) * c.a * width
        return {"feed-forward": size}
    copies = ffn.top_k * job.expert_load
    width = ffn.latent or c.h
    experts = c.trains_all
    if c.r > c.a and c.kernels == "eager":
        c = replace(
            c, a=FP32, w=FP32, i=FP32
        )  # grouped products are not autocast: fp32 weights, fp32 activations
    routed = _gated(c, ffn.intermediate / layout.expert_tp, gated=ffn.gated, down_gradient=experts) * copies
    parts = {
        "router": (1 if c.kernels == "eager" else 2) * FP32 * ffn.experts / c.sp,
        "tokens sent to experts": c.a * width * copies / (c.sp if layout.expert_tp == 1 else 1)
        if experts
        else 0.0,
        "experts": routed / (c.sp if layout.expert_tp == 1 and c.tp > 1 else 1),
    }
    if c.kernels != "fused":
        # Outputs of the experts are kept to differentiate their weighting.
        parts["expert outputs"] = c.a * width * copies
    if ffn.shared_intermediate:
        parts["shared experts"] = _gated(
            c, ffn.shared_intermediate / c.tp, gated=ffn.gated, down_gradient=c.weight_gradient("down")
        )
    return parts


def _adapters(c: Context, layer: Layer, job: TrainingJob) -> float:
    """What low-rank adapters keep beside the base."""
    if not c.adapted:
        return 0.0
    total = 0.0
    width = job.lora.parameter_bytes
    for _, inputs, _, copies in lora_widths(layer, c.h, c.adapted):
        cast = width != c.a
        if job.lora.dropout > 0:
            own = MASK + (c.a if job.lora.autocast or not cast else width)
        elif cast:
            own = c.a if job.lora.autocast else width
        else:
            own = 0.0
        rank = c.a if job.lora.autocast or not cast else width
        total += copies * (own * inputs / c.tp + rank * job.lora.rank)
    return total


def _selective(c: Context, layer: Layer, full: float) -> float:
    """Selective recomputation.

    Megatron's drops what flash attention does not keep anyway. PyTorch's per-operation policy keeps every second
    matrix product and the attention output: queries, values, gate and down projection of a block, and its input.
    """
    if (
        c.kernels == "fused"
        or not isinstance(layer.mixer, SelfAttention)
        or not isinstance(layer.ffn, FeedForward)
    ):
        return full
    mixer = layer.mixer
    q, v = mixer.heads * mixer.head_dim / c.tp, mixer.kv_heads * mixer.value_dim / c.tp
    out = mixer.heads * mixer.value_dim / c.tp
    gate = layer.ffn.intermediate / c.tp
    return c.a * (q + v + out + gate) + c.a * 2 * c.h / c.sp + FP32 * mixer.heads / c.tp


def _transient(c: Context, layer: Layer, layout: Layout, job: TrainingJob) -> float:
    """Gradients alive beside a layer's activations: those of the feed-forward block are the widest."""
    width = 0.0
    gated = True
    if isinstance(layer.ffn, FeedForward):
        width, gated = layer.ffn.intermediate / c.tp, layer.ffn.gated
    elif layer.ffn is not None:
        gated = layer.ffn.gated
        width = layer.ffn.intermediate * layer.ffn.top_k / layout.expert_tp
        if c.kernels in ("eager", "triton"):
            width /= layer.ffn.experts  # one expert after the other
    casts = 0.0
    if c.adapted and job.lora.parameter_bytes > c.a:
        # An adapter's input is cast, and dropped out, in the adapter's own width.
        casts = (1 + (job.lora.dropout > 0)) * job.lora.parameter_bytes * c.h / c.sp
    return c.a * width * (2 if gated else 1) + c.r * c.h / c.sp + casts
