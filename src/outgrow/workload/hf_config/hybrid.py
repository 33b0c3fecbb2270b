"""Decoders whose layers are not all attention: gated delta rule, state space layers, short convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from outgrow.workload.hf_config.dense import HIDDEN, attention, decoder
from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.mixers import (
    LatentAttention,
    LinearAttention,
    Mamba,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    linear,
)
from outgrow.workload.model import FeedForward, Layer, MixtureOfExperts, ModelShape

Kind = Literal["attention", "recurrent", "moe", "mlp"]

NAMES: dict[str, Kind] = {
    "attention": "attention",
    "full_attention": "attention",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "conv": "recurrent",
    "moe": "moe",
    "mlp": "mlp",
}
"""Spellings of one kind of layer in `layer_types`, `layers_block_type` and their like."""

LETTERS: dict[str, Kind] = {"M": "recurrent", "*": "attention", "-": "mlp", "E": "moe"}
"""Nemotron-H writes its layers as one string."""


def _kinds(fields: Fields, *names: str, count: int | None) -> list[Kind] | None:
    """The kind of each layer as a list of names spells it."""
    values = fields.items(*names, length=count)
    if values is None:
        return None
    unknown = sorted({str(v)[:40] for v in values if not isinstance(v, str) or v not in NAMES})
    if unknown:
        hint = "one of " + ", ".join(NAMES)
        fields.fault(names[0], f"has kinds of layer that are not known: {', '.join(unknown)}", hint=hint)
    return [NAMES.get(v, "recurrent") if isinstance(v, str) else "recurrent" for v in values]


def _top_k(fields: Fields, experts: int, *names: str) -> int:
    """Experts that one token visits, of the `experts` that there are."""
    top_k = fields.integer(*names)
    if top_k > experts:
        fields.fault(names[0], f"must be at most the {experts} experts", value=top_k)
    return min(top_k, experts)


def _either(full: Iterable[bool]) -> list[Kind]:
    """Attention where true, the other mixer where not."""
    return ["attention" if yes else "recurrent" for yes in full]


# -- gated delta rule: Qwen3-Next, Qwen3.5


def _delta(fields: Fields) -> LinearAttention:
    return LinearAttention(
        key_heads=fields.integer("linear_num_key_heads"),
        value_heads=fields.integer("linear_num_value_heads"),
        key_head_dim=fields.integer("linear_key_head_dim"),
        value_head_dim=fields.integer("linear_value_head_dim"),
        conv_kernel=fields.integer("linear_conv_kernel_dim"),
    )


def _qwen_experts(fields: Fields) -> MixtureOfExperts:
    count = fields.integer("num_experts")
    return MixtureOfExperts(
        experts=count,
        top_k=_top_k(fields, count, "num_experts_per_tok"),
        intermediate=fields.integer("moe_intermediate_size"),
        shared_intermediate=fields.integer("shared_expert_intermediate_size", default=0, low=0),
        shared_gate=True,
    )


def _mtp(fields: Fields, hidden: int, layer: Layer) -> int:
    """Multi-token prediction: embedding and state, normed and merged, pass through full layers and a norm."""
    count = fields.integer("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, low=0, high=100)
    if not count:
        return 0
    total = count * layer.parameters(hidden) + linear(2 * hidden, hidden) + 3 * hidden
    if fields.flag("mtp_use_dedicated_embeddings"):
        total += fields.integer("vocab_size") * hidden
    return total


def _qwen_hybrid(fields: Fields, name: str, *, sparse: bool) -> ModelShape:
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    kinds = _kinds(fields, "layer_types", count=count)
    if kinds is None:
        interval = fields.integer("full_attention_interval", default=4)
        kinds = _either((i + 1) % interval == 0 for i in range(count))
    bias = fields.flag("attention_bias")
    full = replace(
        attention(fields, hidden=hidden, bias=bias, out_bias=bias, qk_norm=True),
        output_gate=fields.flag("attn_output_gate", default=True),
    )
    delta = _delta(fields)
    dense_layers: Sequence[int] = ()
    step = 1
    if sparse:
        dense_layers = fields.integers("mlp_only_layers") or ()
        step = fields.integer("decoder_sparse_step", default=1)
    experts = _qwen_experts(fields) if sparse else None
    needs_dense = not sparse or bool(dense_layers) or step > 1
    dense = FeedForward(intermediate=fields.integer("intermediate_size")) if needs_dense else None
    layers = []
    for i, kind in enumerate(kinds):
        routed = experts is not None and i not in dense_layers and (i + 1) % step == 0
        mixer: Mixer = full if kind == "attention" else delta
        layers.append(Layer(mixer=mixer, ffn=experts if routed else dense, norm_parameters=2 * hidden))
    block = Layer(mixer=full, ffn=experts or dense, norm_parameters=2 * hidden)
    return decoder(fields, name, layers, hidden=hidden, mtp_parameters=_mtp(fields, hidden, block))


def qwen3_next(fields: Fields, name: str) -> ModelShape:
    """Qwen3-Next: three layers of gated delta rule to one of gated attention, all with experts."""
    return _qwen_hybrid(fields, name, sparse=True)


def qwen3_5_text(fields: Fields, name: str) -> ModelShape:
    """Qwen3.5, text part, dense."""
    return _qwen_hybrid(fields, name, sparse=False)


def qwen3_5_moe_text(fields: Fields, name: str) -> ModelShape:
    """Qwen3.5, text part, with experts."""
    return _qwen_hybrid(fields, name, sparse=True)


def kimi_linear(fields: Fields, name: str) -> ModelShape:
    """Kimi Linear: delta attention with low-rank gates, latent attention, experts."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    section = fields.child("linear_attn_config") or Fields({}, fields.notes, path="linear_attn_config")
    own = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
    section.class_defaults = {
        key: fields.raw.get(other) or own[key]
        for key, other in (
            ("head_dim", "linear_head_dim"),
            ("num_heads", "linear_num_heads"),
            ("short_conv_kernel_size", "linear_conv_kernel_dim"),
        )
    }
    kinds = _kinds(fields, "layer_types", count=count)
    full = section.integers("full_attn_layers", low=1, high=count)
    if kinds is None and full is not None:  # checkpoints count layers from 1
        kinds = _either(i + 1 in full for i in range(count))
    if kinds is None:
        kinds = _either(i > 0 and i % 4 == 0 for i in range(count))
    heads = section.integer("num_heads")
    head_dim = section.integer("head_dim")
    kernel = section.integer("short_conv_kernel_size")
    width = heads * head_dim
    delta = LinearAttention(
        key_heads=heads,
        value_heads=heads,
        key_head_dim=head_dim,
        value_head_dim=head_dim,
        conv_kernel=kernel,
        # Queries, keys, values, output; two gates of rank head_dim; beta; convolutions; decay; norm.
        parameter_count=4 * width * hidden
        + 2 * (hidden * head_dim + head_dim * width)
        + hidden * heads
        + 3 * width * kernel
        + width
        + heads
        + head_dim,
    )
    latent = LatentAttention(
        heads=fields.integer("num_attention_heads"),
        q_lora_rank=fields.optional("q_lora_rank", low=1),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        value_head_dim=fields.integer("v_head_dim"),
        bias=fields.flag("attention_bias"),
    )
    width_of_expert = fields.integer("moe_intermediate_size")
    number = fields.integer("num_experts", "num_local_experts")
    experts = MixtureOfExperts(
        experts=number,
        top_k=_top_k(fields, number, "num_experts_per_token", "num_experts_per_tok"),
        intermediate=width_of_expert,
        shared_intermediate=width_of_expert * fields.integer("num_shared_experts", "n_shared_experts", low=0),
    )
    dense = FeedForward(intermediate=fields.integer("intermediate_size"))
    first = fields.integer("first_k_dense_replace", default=1, low=0)
    sparse: list[bool] = [i >= first for i in range(count)]
    named = fields.items("mlp_layer_types", length=count)
    if named is not None:
        sparse = [v == "sparse" for v in named]
        if not all(v in ("sparse", "dense") for v in named):
            fields.fault("mlp_layer_types", "must hold sparse and dense only")
    layers = [
        Layer(
            mixer=latent if kind == "attention" else delta,
            ffn=experts if routed else dense,
            norm_parameters=2 * hidden,
        )
        for kind, routed in zip(kinds, sparse, strict=True)
    ]
    return decoder(fields, name, layers, hidden=hidden)


def minimax(fields: Fields, name: str) -> ModelShape:
    """MiniMax-01: lightning attention, which keeps a matrix per head, and full attention, with experts."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    kinds = _kinds(fields, "layer_types", count=count)
    numbers = fields.integers("attn_type_list", length=count, high=1)
    if kinds is None and numbers is not None:
        kinds = _either(v == 1 for v in numbers)
    if kinds is None:
        kinds = _either(i % 2 == 0 for i in range(count))
    full = attention(fields, hidden=hidden)
    width = full.heads * full.head_dim
    lightning = LinearAttention(
        key_heads=full.heads,
        value_heads=full.heads,
        key_head_dim=full.head_dim,
        value_head_dim=full.head_dim,
        conv_kernel=1,
        # Queries, keys, values, gate, output, and a norm over all heads.
        parameter_count=5 * linear(hidden, width) + width,
    )
    number = fields.integer("num_local_experts")
    experts = MixtureOfExperts(
        experts=number,
        top_k=_top_k(fields, number, "num_experts_per_tok"),
        intermediate=fields.integer("intermediate_size"),
    )
    layers = [
        Layer(mixer=full if kind == "attention" else lightning, ffn=experts, norm_parameters=2 * hidden)
        for kind in kinds
    ]
    return decoder(fields, name, layers, hidden=hidden)


# -- state space layers


def _rank(fields: Fields, *names: str, hidden: int) -> int:
    """Rank of the time step: "auto" and null both mean a sixteenth of the hidden size."""
    if any(fields.raw.get(n) == "auto" for n in names) or not fields.has(*names):
        return -(-hidden // 16)
    return fields.integer(*names)


def _mamba1(fields: Fields, hidden: int, *, prefix: bool, norms: bool) -> Mamba:
    """Mamba-1 layer; Jamba writes the keys with a prefix and norms the time step and both projections."""
    if prefix:
        state, kernel, expand = (fields.integer(k) for k in ("mamba_d_state", "mamba_d_conv", "mamba_expand"))
        rank = _rank(fields, "mamba_dt_rank", hidden=hidden)
        conv_bias, bias = fields.flag("mamba_conv_bias", default=True), fields.flag("mamba_proj_bias")
    else:
        state, kernel, expand = (fields.integer(k) for k in ("state_size", "conv_kernel", "expand"))
        rank = _rank(fields, "time_step_rank", hidden=hidden)
        conv_bias, bias = fields.flag("use_conv_bias", default=True), fields.flag("use_bias")
    return Mamba(
        version=1,
        inner=expand * hidden,
        state=state,
        conv_kernel=kernel,
        dt_rank=rank,
        conv_bias=conv_bias,
        bias=bias,
        norm_parameters=rank + 2 * state if norms else 0,
    )


def _mamba2(fields: Fields, hidden: int) -> Mamba:
    """Mamba-2 layer as Bamba and Granite spell it."""
    inner = fields.integer("mamba_expand") * hidden
    return Mamba(
        version=2,
        inner=inner,
        state=fields.integer("mamba_d_state"),
        conv_kernel=fields.integer("mamba_d_conv"),
        heads=fields.integer("mamba_n_heads"),
        groups=fields.integer("mamba_n_groups"),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias"),
        norm_parameters=inner,
    )


def mamba(fields: Fields, name: str) -> ModelShape:
    """Mamba and Falcon-Mamba: one mixer per layer, no feed-forward part."""
    hidden = fields.integer(*HIDDEN)
    layer = Layer(mixer=_mamba1(fields, hidden, prefix=False, norms=False), ffn=None, norm_parameters=hidden)
    return decoder(fields, name, [layer] * fields.layer_count(), hidden=hidden, tied=True)


def mamba2(fields: Fields, name: str) -> ModelShape:
    """Mamba-2."""
    hidden = fields.integer(*HIDDEN)
    inner = fields.integer("expand") * hidden
    mixer = Mamba(
        version=2,
        inner=inner,
        state=fields.integer("state_size"),
        conv_kernel=fields.integer("conv_kernel"),
        heads=fields.integer("num_heads"),
        groups=fields.integer("n_groups"),
        conv_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("use_bias"),
        norm_parameters=inner,
    )
    layer = Layer(mixer=mixer, ffn=None, norm_parameters=hidden)
    return decoder(fields, name, [layer] * fields.layer_count(), hidden=hidden)


def jamba(fields: Fields, name: str) -> ModelShape:
    """Jamba: Mamba-1 and attention by period and offset, experts in some layers."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    kinds = _kinds(fields, "layers_block_type", "layer_types", count=count)
    if kinds is None:
        period, offset = fields.integer("attn_layer_period"), fields.integer("attn_layer_offset", low=0)
        kinds = _either(i % period == offset for i in range(count))
    step, start = fields.integer("expert_layer_period"), fields.integer("expert_layer_offset", low=0)
    full = attention(fields, hidden=hidden)
    recurrent = _mamba1(fields, hidden, prefix=True, norms=True)
    dense = FeedForward(intermediate=fields.integer("intermediate_size"))
    number = fields.integer("num_experts")
    experts = MixtureOfExperts(
        experts=number,
        # A model without experts may still say how many of them each token visits.
        top_k=_top_k(fields, number, "num_experts_per_tok") if number > 1 else 1,
        intermediate=dense.intermediate,
    )
    layers = []
    for i, kind in enumerate(kinds):
        ffn = experts if experts.experts > 1 and i % step == start else dense
        layers.append(
            Layer(mixer=full if kind == "attention" else recurrent, ffn=ffn, norm_parameters=2 * hidden)
        )
    return decoder(fields, name, layers, hidden=hidden)


def bamba(fields: Fields, name: str) -> ModelShape:
    """Bamba: Mamba-2 with a few attention layers, named by index."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    bias = fields.flag("attention_bias")
    full = attention(fields, hidden=hidden, bias=bias, out_bias=bias)
    recurrent = _mamba2(fields, hidden)
    dense = FeedForward(intermediate=fields.integer("intermediate_size"), bias=fields.flag("mlp_bias"))
    at = set(fields.integers("attn_layer_indices", high=count - 1) or ())
    layers = [
        Layer(mixer=full if i in at else recurrent, ffn=dense, norm_parameters=2 * hidden)
        for i in range(count)
    ]
    return decoder(fields, name, layers, hidden=hidden)


def granitemoehybrid(fields: Fields, name: str) -> ModelShape:
    """Granite 4: Mamba-2 and attention, each followed by experts beside a block that every token visits."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    kinds = _kinds(fields, "layer_types", "layers_block_type", count=count) or ["recurrent"] * count
    bias = fields.flag("attention_bias")
    full = attention(fields, hidden=hidden, bias=bias, out_bias=bias)
    recurrent = _mamba2(fields, hidden) if "recurrent" in kinds else None
    shared = fields.integer("shared_intermediate_size", low=0)
    experts = fields.integer("num_local_experts", low=0)
    ffn: FeedForward | MixtureOfExperts = FeedForward(intermediate=shared)
    if experts:
        ffn = MixtureOfExperts(
            experts=experts,
            top_k=_top_k(fields, experts, "num_experts_per_tok"),
            intermediate=fields.integer("intermediate_size"),
            shared_intermediate=shared,
        )
    layers = [
        Layer(mixer=full if kind == "attention" else recurrent, ffn=ffn, norm_parameters=2 * hidden)
        for kind in kinds
    ]
    return decoder(fields, name, layers, hidden=hidden)


def falcon_h1(fields: Fields, name: str) -> ModelShape:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden = fields.integer(*HIDDEN)
    bias = fields.flag("attention_bias")
    inner = fields.optional("mamba_d_ssm", low=1) or fields.integer("mamba_expand") * hidden
    into, out = fields.flag("mamba_proj_bias"), fields.flag("projectors_bias")
    recurrent = Mamba(
        version=2,
        inner=inner,
        state=fields.integer("mamba_d_state"),
        conv_kernel=fields.integer("mamba_d_conv"),
        heads=fields.integer("mamba_n_heads"),
        groups=fields.integer("mamba_n_groups"),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        bias=into,
        norm_parameters=inner if fields.flag("mamba_rms_norm") else 0,
        # The two projections have biases of their own switches.
        extra_parameters=hidden * (int(out) - int(into)),
    )
    full = attention(fields, hidden=hidden, bias=bias, out_bias=bias)
    mixer = ParallelMixers(attention=full, recurrent=recurrent)
    ffn = FeedForward(intermediate=fields.integer("intermediate_size"), bias=fields.flag("mlp_bias"))
    layer = Layer(mixer=mixer, ffn=ffn, norm_parameters=2 * hidden)
    return decoder(fields, name, [layer] * fields.layer_count(), hidden=hidden)


# -- Nemotron-H


def _pattern(fields: Fields, key: str) -> list[Kind]:
    text = fields.text(key)
    unknown = sorted({letter for letter in text if letter not in LETTERS})
    if unknown:
        hint = "M is Mamba, * attention, - a dense block, E experts"
        fields.fault(key, f"has letters that are not known: {' '.join(unknown)}", hint=hint)
    return [LETTERS.get(letter, "mlp") for letter in text]


def _nemotron_kinds(fields: Fields) -> list[Kind]:
    stated = fields.optional("num_hidden_layers", "num_layers", low=1, high=10_000)
    if fields.has("hybrid_override_pattern"):
        kinds = _pattern(fields, "hybrid_override_pattern")
        if kinds and stated is not None and len(kinds) != stated:
            message = f"has {len(kinds)} letters, and num_hidden_layers is {stated}"
            fields.fault("hybrid_override_pattern", message, hint="one letter per layer")
        return kinds or ["mlp"]
    named = _kinds(fields, "layers_block_type", "layer_types", count=stated)
    if named is not None:
        return named
    hint = 'one letter per layer: M is Mamba, * attention, - a dense block, E experts, as in "M-M*-"'
    fields.fault("hybrid_override_pattern", "is missing", hint=hint)
    return ["mlp"]


def nemotron_h(fields: Fields, name: str) -> ModelShape:
    """Nemotron-H and Nemotron-3: one part per layer, named by a letter of the pattern."""
    hidden = fields.integer(*HIDDEN)
    kinds = _nemotron_kinds(fields)
    count = fields.integer("num_nextn_predict_layers", default=0, low=0, high=100)
    ahead: list[Kind] = []
    if count:
        ahead = ["attention", "moe"]
        if fields.has("mtp_hybrid_override_pattern"):
            ahead = _pattern(fields, "mtp_hybrid_override_pattern")
        elif fields.has("mtp_layers_block_type"):
            ahead = _kinds(fields, "mtp_layers_block_type", count=None) or ahead
    parts: Mapping[Kind, Layer] = {
        kind: _nemotron_layer(fields, hidden, kind) for kind in dict.fromkeys([*kinds, *ahead])
    }
    mtp = 0
    if count:
        # Each module norms and merges embedding and state, runs its layers and ends in a norm.
        block = linear(2 * hidden, hidden) + 3 * hidden
        mtp = count * (block + sum(parts[kind].parameters(hidden) for kind in ahead))
    return decoder(fields, name, [parts[kind] for kind in kinds], hidden=hidden, mtp_parameters=mtp)


def _nemotron_layer(fields: Fields, hidden: int, kind: Kind) -> Layer:
    if kind == "attention":
        return Layer(mixer=attention(fields, hidden=hidden), ffn=None, norm_parameters=hidden)
    if kind == "mlp":
        dense = FeedForward(
            intermediate=fields.integer("intermediate_size"), gated=False, bias=fields.flag("mlp_bias")
        )
        return Layer(mixer=None, ffn=dense, norm_parameters=hidden)
    if kind == "moe":
        shared = fields.integer("moe_shared_expert_intermediate_size", low=0)
        number = fields.integer("n_routed_experts", "num_local_experts")
        experts = MixtureOfExperts(
            experts=number,
            top_k=_top_k(fields, number, "num_experts_per_tok"),
            intermediate=fields.integer("moe_intermediate_size"),
            gated=False,
            # One block of the stated width, however many experts it is said to stand for.
            shared_intermediate=shared if fields.integer("n_shared_experts", low=0) else 0,
            latent=fields.optional("moe_latent_size", low=1),
        )
        return Layer(mixer=None, ffn=experts, norm_parameters=hidden)
    heads = fields.integer("mamba_num_heads")
    inner = heads * fields.integer("mamba_head_dim")
    recurrent = Mamba(
        version=2,
        inner=inner,
        state=fields.integer("ssm_state_size", "mamba_state_dim"),
        conv_kernel=fields.integer("conv_kernel", "mamba_d_conv"),
        heads=heads,
        groups=fields.integer("n_groups", "mamba_n_groups", "mamba_num_groups"),
        conv_bias=fields.flag("use_conv_bias", "mamba_conv_bias", default=True),
        bias=fields.flag("use_bias"),
        norm_parameters=inner,
    )
    return Layer(mixer=recurrent, ffn=None, norm_parameters=hidden)


# -- short convolutions: LFM2


def _lfm2_width(fields: Fields) -> int:
    """Width of the feed-forward part: the config's figure is adjusted unless it says that it is final."""
    width = fields.integer("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(2 * width / 3)
    multiplier = "block_ffn_dim_multiplier"
    if multiplier in fields.raw and fields.raw[multiplier] is None:
        return width
    multiple = fields.integer("block_multiple_of")
    width = int(fields.number(multiplier, default=1.0, high=1e3) * width)
    return -(-width // multiple) * multiple


def _lfm2(fields: Fields, name: str, *, sparse: bool) -> ModelShape:
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    kinds = _kinds(fields, "layer_types", count=count)
    if kinds is None:
        full_at = fields.integers("full_attn_idxs", high=count - 1)
        kinds = _either(full_at is None or i in full_at for i in range(count))
    full = attention(fields, hidden=hidden, qk_norm=True)
    convolution = ShortConvolution(
        width=hidden, kernel=fields.integer("conv_L_cache"), bias=fields.flag("conv_bias")
    )
    dense = FeedForward(intermediate=fields.integer("intermediate_size") if sparse else _lfm2_width(fields))
    experts: MixtureOfExperts | None = None
    first = count
    if sparse:
        first = fields.integer("num_dense_layers", low=0)
        number = fields.integer("num_experts")
        experts = MixtureOfExperts(
            experts=number,
            top_k=_top_k(fields, number, "num_experts_per_tok"),
            intermediate=fields.integer("moe_intermediate_size"),
        )
    layers = []
    for i, kind in enumerate(kinds):
        mixer: Mixer = full if kind == "attention" else convolution
        layers.append(Layer(mixer=mixer, ffn=dense if i < first else experts, norm_parameters=2 * hidden))
    tied = fields.flag("tie_embedding", "tie_word_embeddings", default=True)
    return replace(decoder(fields, name, layers, hidden=hidden, tied=True), tied=tied)


def lfm2(fields: Fields, name: str) -> ModelShape:
    """LFM2: gated short convolutions and a few attention layers."""
    return _lfm2(fields, name, sparse=False)


def lfm2_moe(fields: Fields, name: str) -> ModelShape:
    """LFM2 with experts after the first dense layers."""
    return _lfm2(fields, name, sparse=True)


MAPPERS = {
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_5_text,
    "qwen3_5_moe_text": qwen3_5_moe_text,
    "kimi_linear": kimi_linear,
    "minimax": minimax,
    "minimax_text_01": minimax,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granitemoehybrid,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
}
