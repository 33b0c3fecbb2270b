"""Decoder-only transformers: Llama, and the many that differ from it by a key, a bias or a norm.

A model type is described by `Rules`, a row of differences from Llama. `read_frame` reads what all layers
share, the caller decides what feed-forward part each layer has, and `finish` adds embedding, head and norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.mixers import SelfAttention, linear
from outgrow.workload.model import FeedForward, Layer, MixtureOfExperts, ModelShape

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
FFN = ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff")
VOCAB = ("vocab_size", "padded_vocab_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")

Ffn = FeedForward | MixtureOfExperts
Switch = bool | str
"""A fact of the architecture, or the key of the config that decides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How far back one layer looks: everything, a sliding window, or its own chunk."""

    window: int | None = None
    chunk: int | None = None


SpanRule = Callable[[Fields, int], list[Span]]


# -- how far each layer looks back


def unlimited(fields: Fields, count: int) -> list[Span]:  # noqa: ARG001 (one interface for all rules)
    """Every layer reads the whole context."""
    return [Span()] * count


def windowed(fields: Fields, count: int) -> list[Span]:
    """Every layer has the window that the config states, if it states one (Mistral)."""
    return [Span(window=fields.optional("sliding_window") or None)] * count


def typed(slides: Callable[[int], bool]) -> SpanRule:
    """Layers follow `layer_types`, or the pattern of the model type where it is not written."""

    def rule(fields: Fields, count: int) -> list[Span]:
        window = fields.optional("sliding_window") or None
        return layer_types(fields, count, window) or [
            Span(window=window if slides(i) else None) for i in range(count)
        ]

    return rule


def every_nth(default: int) -> SpanRule:
    """One layer in `sliding_window_pattern` reads everything, the others a window (Gemma-3, Cohere-2)."""

    def rule(fields: Fields, count: int) -> list[Span]:
        window = fields.optional("sliding_window") or None
        spans = layer_types(fields, count, window)
        if spans is not None:
            return spans
        pattern = fields.raw.get("sliding_window_pattern")
        if isinstance(pattern, str):  # EXAONE-4 writes LLLG: three local layers, one global
            if not pattern:
                return [Span(window=window)] * count
            return [Span(window=window if pattern[i % len(pattern)] == "L" else None) for i in range(count)]
        step = fields.integer("sliding_window_pattern", default=default)
        return [Span(window=window if (i + 1) % step else None) for i in range(count)]

    return rule


def qwen_windows(fields: Fields, count: int) -> list[Span]:
    """Windows only where `use_sliding_window` is on, and then from layer `max_window_layers` (Qwen)."""
    if not fields.flag("use_sliding_window"):
        return layer_types(fields, count, None) or [Span()] * count
    window = fields.optional("sliding_window") or None
    first = fields.integer("max_window_layers", default=count, low=0)
    return layer_types(fields, count, window) or [
        Span(window=window if i >= first else None) for i in range(count)
    ]


def qwen_moe_windows(fields: Fields, count: int) -> list[Span]:
    """Windows only where `use_sliding_window` is on, and then in all layers (Qwen3-MoE)."""
    if not fields.flag("use_sliding_window"):
        return [Span()] * count
    return windowed(fields, count)


def smollm_windows(fields: Fields, count: int) -> list[Span]:
    """The layers without rotary positions are the ones that may slide (SmolLM3)."""
    window = fields.optional("sliding_window") or None
    if not fields.flag("use_sliding_window"):
        window = None
    rotary = _rotary_layers(fields, count)
    return layer_types(fields, count, window) or [Span(window=None if r else window) for r in rotary]


def chunked(fields: Fields, count: int) -> list[Span]:
    """Layers with rotary positions attend within chunks, the others to everything (Llama-4)."""
    chunk = fields.optional("attention_chunk_size") or None
    spans = layer_types(fields, count, None, chunk)
    return spans or [Span(chunk=chunk if r else None) for r in _rotary_layers(fields, count)]


def neo_windows(fields: Fields, count: int) -> list[Span]:
    """`attention_types` is a list of (kinds, repeats), such as [[["global", "local"], 12]] (GPT-Neo)."""
    window = fields.optional("window_size") or None
    kinds: list[object] = []
    for entry in fields.items("attention_types") or [[["global", "local"], math.ceil(count / 2)]]:
        match entry:
            case [list(names) | tuple(names), int(times)] if 0 <= times <= count:
                kinds += list(names) * times
            case _:
                fields.fault("attention_types", "must hold pairs of a list of kinds and a count")
                return [Span()] * count
    if len(kinds) < count:
        fields.fault("attention_types", f"describes {len(kinds)} of {count} layers")
        return [Span()] * count
    return [Span(window=window if kind == "local" else None) for kind in kinds[:count]]


def _rotary_layers(fields: Fields, count: int) -> list[int]:
    if fields.raw.get("no_rope_layers"):  # 1 = has rotary positions, despite the name of the key
        return fields.integers("no_rope_layers", length=count, high=1) or [1] * count
    step = fields.integer("no_rope_layer_interval", default=4)
    return [int((i + 1) % step != 0) for i in range(count)]


def layer_types(
    fields: Fields, count: int, window: int | None, chunk: int | None = None
) -> list[Span] | None:
    """What `layer_types` says of each layer, or None where the config does not write it."""
    if not fields.has("layer_types"):
        return None
    spans = {
        "full_attention": Span(),
        "global_attention": Span(),
        "attention": Span(),
        "sliding_attention": Span(window=window),
        "chunked_attention": Span(chunk=chunk),
    }
    names = fields.items("layer_types", length=count)
    if names is None:
        return [Span()] * count
    unknown = [n for n in names if not isinstance(n, str) or n not in spans]
    if unknown:
        fields.fault("layer_types", "holds a kind that is not known here", value=unknown[0])
        return [Span()] * count
    return [spans[str(n)] for n in names]


def always(index: int) -> bool:  # noqa: ARG001 (one interface for all patterns)
    """Every layer slides."""
    return True


# -- what all decoders share


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a model type differs from Llama. The defaults are a decoder without biases."""

    qkv_bias: Switch = False
    out_bias: Switch = False
    ffn_bias: Switch = False
    head_bias: Switch = False
    gated: bool = True
    ffn_ratio: int | None = None
    """Width of the feed-forward part over the hidden size, where the config may leave it out (GPT-2: 4)."""
    norms: int = 2
    """Norms per layer."""
    norm_bias: bool = False
    final_norm: bool = True
    qk_norm: Literal["head", "full"] | None = None
    """Norms of queries and keys: one for all heads ("head"), or over the whole width ("full")."""
    qk_norm_if: Switch = True
    qk_norm_bias: bool = False
    sinks: bool = False
    multi_head: bool = False
    """There are no key-value heads to read: each query head has its own."""
    positions: int | None = None
    """Learned positions: how many rows the table has beyond the longest sequence; None = no table."""
    embedding_norm: bool = False
    spans: SpanRule = unlimited
    tied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the layers of a decoder have in common, read once so that a fault is told once."""

    rules: Rules
    hidden: int
    mixers: tuple[SelfAttention, ...]
    norm_width: int
    """Parameters of one norm."""
    ffn_bias: bool
    head_bias: bool

    @property
    def count(self) -> int:
        """Number of layers."""
        return len(self.mixers)

    @property
    def norm_parameters(self) -> int:
        """Parameters of all norms of one layer."""
        return self.rules.norms * self.norm_width


def switches(fields: Fields) -> Callable[[Switch], bool]:
    """A reader of switches that asks the config for each key once."""
    seen: dict[str, bool] = {}

    def read(rule: Switch) -> bool:
        if isinstance(rule, bool):
            return rule
        if rule not in seen:
            seen[rule] = fields.flag(rule)
        return seen[rule]

    return read


def present(fields: Fields, names: Sequence[str]) -> str:
    """The spelling of a key that this config or its model type uses, so that a fault names what is there."""
    return next((n for n in names if fields.has(n) or n in fields.class_defaults), names[0])


def attention(
    fields: Fields,
    *,
    hidden: int | None = None,
    bias: bool = False,
    out_bias: bool = False,
    window: int | None = None,
    qk_norm: bool = False,
    multi_head: bool = False,
) -> SelfAttention:
    """The usual attention: heads, key-value heads and an optional explicit head_dim."""
    hidden = fields.integer(*HIDDEN) if hidden is None else hidden
    heads = fields.integer(*HEADS)
    head_dim = None if multi_head else fields.optional("head_dim", "kv_channels", "attention_head_dim", low=1)
    if head_dim is None:
        head_dim = fields.divided(hidden, heads, key=present(fields, HEADS), what="hidden size over heads")
    kv_heads = heads if multi_head else fields.integer(*KV_HEADS, default=heads)
    if heads % kv_heads:
        fields.fault(present(fields, KV_HEADS), f"must divide the {heads} query heads", value=kv_heads)
    return SelfAttention(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, q_bias=bias, kv_bias=bias, out_bias=out_bias,
        window=window, qk_norm_parameters=2 * head_dim if qk_norm else 0,
    )  # fmt: skip


def read_frame(fields: Fields, rules: Rules) -> Frame:
    """Read the parts of a decoder that every layer shares."""
    switch = switches(fields)
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    base = attention(
        fields,
        hidden=hidden,
        bias=switch(rules.qkv_bias),
        out_bias=switch(rules.out_bias),
        multi_head=rules.multi_head,
    )
    normed = 0
    if rules.qk_norm is not None and switch(rules.qk_norm_if):
        normed = base.head_dim * (2 if rules.qk_norm == "head" else base.heads + base.kv_heads)
    base = replace(base, qk_norm_parameters=normed * (2 if rules.qk_norm_bias else 1), sinks=rules.sinks)
    return Frame(
        rules=rules,
        hidden=hidden,
        mixers=tuple(replace(base, window=s.window, chunk=s.chunk) for s in rules.spans(fields, count)),
        norm_width=hidden * (2 if rules.norm_bias else 1),
        ffn_bias=switch(rules.ffn_bias),
        head_bias=switch(rules.head_bias),
    )


def feed_forward(fields: Fields, frame: Frame, *names: str) -> FeedForward:
    """The dense feed-forward part of a layer."""
    ratio = frame.rules.ffn_ratio
    default = frame.hidden * ratio if ratio is not None else None
    width = fields.integer(*(names or FFN), default=default)
    return FeedForward(intermediate=width, gated=frame.rules.gated, bias=frame.ffn_bias)


def finish(fields: Fields, name: str, frame: Frame, ffns: Sequence[Ffn]) -> ModelShape:
    """Put layers, embedding, head and final norm together."""
    layers = [
        Layer(mixer=mixer, ffn=ffn, norm_parameters=frame.norm_parameters)
        for mixer, ffn in zip(frame.mixers, ffns, strict=True)
    ]
    return decoder(
        fields,
        name,
        layers,
        tied=frame.rules.tied,
        hidden=frame.hidden,
        head_bias=frame.head_bias,
        positions=frame.rules.positions,
        norm_parameters=frame.norm_width * (frame.rules.final_norm + frame.rules.embedding_norm),
        mtp_parameters=mtp_modules(fields, frame.hidden, layers[-1]),
    )


def mtp_modules(fields: Fields, hidden: int, last: Layer) -> int:
    """Parameters of multi-token-prediction modules, where the config itself states some.

    Each is one more layer like the last, a projection from twice the width, and three norms.
    """
    names = ("num_nextn_predict_layers", "num_mtp_layers")
    if not fields.has(*names):
        return 0
    count = fields.integer(*names, low=0, high=64)
    return count * (last.parameters(hidden) + linear(2 * hidden, hidden) + 3 * hidden)


def decoder(
    fields: Fields,
    name: str,
    layers: Sequence[Layer],
    *,
    tied: bool = False,
    norm_width: int = 1,
    hidden: int | None = None,
    positions: int | None = None,
    norm_parameters: int | None = None,
    **more: object,
) -> ModelShape:
    """The parts that all decoders share: embedding, head, final norm (`norm_width` vectors)."""
    hidden = fields.integer(*HIDDEN) if hidden is None else hidden
    longest = fields.optional(*POSITIONS, low=1, high=10**9)
    if positions is not None:
        more["extra_embedding_parameters"] = hidden * ((longest or 0) + positions)
        if longest is None:
            fields.fault(POSITIONS[0], "is missing; the model learns a vector for each position")
    return ModelShape(
        name=name,
        family=fields.text("model_type", default="llama"),
        hidden=hidden,
        vocab=fields.integer(*VOCAB),
        layers=tuple(layers),
        tied=fields.flag("tie_word_embeddings", default=tied),
        final_norm_parameters=norm_width * hidden if norm_parameters is None else norm_parameters,
        max_positions=longest,
        **more,  # type: ignore[arg-type]
    )


def standard(fields: Fields, name: str, *, rules: Rules) -> ModelShape:
    """A decoder whose layers all have the same dense feed-forward part."""
    frame = read_frame(fields, rules)
    return finish(fields, name, frame, [feed_forward(fields, frame)] * frame.count)


# -- layers that differ one by one


def block_configs(fields: Fields, name: str) -> ModelShape:
    """Nemotron-NAS (DeciLM): a search chose attention and width of each layer, or left the part out."""
    hidden = fields.integer(*HIDDEN)
    heads = fields.integer(*HEADS)
    head_dim = fields.optional("head_dim", low=1)
    if head_dim is None:
        head_dim = fields.divided(hidden, heads, key=present(fields, HEADS), what="hidden size over heads")
    bias = fields.flag("attention_bias")
    ffn_bias = fields.flag("mlp_bias")
    count = fields.layer_count()
    if not fields.has("block_configs"):
        fields.fault("block_configs", "is missing: it says what each layer is made of")
    blocks = fields.items("block_configs", length=count) or []
    layers: list[Layer] = []
    for index, raw in enumerate(blocks):
        block = Fields({str(index): raw}, fields.notes, path="block_configs").child(str(index))
        mixer_fields = block.child("attention") if block is not None else None
        ffn_fields = block.child("ffn") if block is not None else None
        mixer: SelfAttention | None = None
        ffn: FeedForward | None = None
        replaced = 0
        if mixer_fields is not None and not mixer_fields.flag("no_op"):
            if mixer_fields.flag("replace_with_linear"):
                replaced += linear(hidden, hidden)
            else:
                group = mixer_fields.integer("n_heads_in_group", default=1)
                mixer = SelfAttention(
                    heads=heads,
                    kv_heads=mixer_fields.divided(
                        heads, group, key="n_heads_in_group", what="heads over group"
                    ),
                    head_dim=head_dim,
                    q_bias=bias,
                    kv_bias=bias,
                    out_bias=bias,
                    window=mixer_fields.optional("window_length") or None,
                )
        if ffn_fields is not None and not ffn_fields.flag("no_op"):
            if ffn_fields.flag("replace_with_linear"):
                replaced += linear(hidden, hidden)
            else:
                ffn = FeedForward(intermediate=_block_width(ffn_fields, hidden), bias=ffn_bias)
        # A part that is left out takes its norm along.
        parts = (mixer is not None) + (ffn is not None) + bool(replaced)
        layers.append(Layer(mixer=mixer, ffn=ffn, norm_parameters=parts * hidden, extra_parameters=replaced))
    return decoder(fields, name, layers, hidden=hidden)


def _block_width(fields: Fields, hidden: int) -> int:
    stated = fields.optional("intermediate_size", low=1)
    if stated is not None:
        return stated
    width = int(2 * fields.number("ffn_mult", high=1000) * hidden / 3)
    return max(256, -(-width // 256) * 256)


LLAMA = Rules(qkv_bias="attention_bias", out_bias="attention_bias", ffn_bias="mlp_bias")
QWEN2 = Rules(qkv_bias=True, spans=qwen_windows)
QWEN3 = Rules(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", spans=qwen_windows)
GEMMA2 = Rules(
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    norms=4,
    tied=True,
    spans=typed(lambda i: i % 2 == 0),
)
OLMO2 = Rules(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="full")
COHERE = Rules(
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    norms=1,
    tied=True,
    qk_norm="full",
    qk_norm_if="use_qk_norm",
)
GLM = Rules(qkv_bias="attention_bias")
ERNIE = Rules(qkv_bias="use_bias", out_bias="use_bias", ffn_bias="use_bias", tied=True)
INTERNLM = Rules(qkv_bias="bias", out_bias="bias")

RULES: dict[str, Rules] = {
    "llama": LLAMA,
    "yi": LLAMA,
    "baichuan": Rules(),
    "internlm": INTERNLM,
    "internlm2": INTERNLM,
    "internlm3": Rules(qkv_bias="qkv_bias", out_bias="bias", ffn_bias="bias"),
    "exaone": LLAMA,
    "helium": replace(LLAMA, out_bias=False),
    "arcee": replace(LLAMA, gated=False),
    "mistral": Rules(spans=windowed),
    "ministral": Rules(spans=typed(always)),
    "ministral3": Rules(spans=windowed),
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "mimo": QWEN2,
    "gemma": Rules(qkv_bias="attention_bias", out_bias="attention_bias", tied=True),
    "gemma2": GEMMA2,
    "gemma3_text": replace(GEMMA2, qk_norm="head", spans=every_nth(6)),
    "phi3": Rules(spans=windowed),
    "cohere": COHERE,
    "cohere2": replace(COHERE, qk_norm=None, spans=every_nth(4)),
    "olmo": Rules(qkv_bias="attention_bias", out_bias="attention_bias", norms=0, final_norm=False),
    "olmo2": OLMO2,
    "olmo3": replace(OLMO2, spans=typed(lambda i: (i + 1) % 4 != 0)),
    "granite": LLAMA,
    "starcoder2": Rules(
        qkv_bias="use_bias",
        out_bias="use_bias",
        ffn_bias="use_bias",
        gated=False,
        norm_bias=True,
        tied=True,
        spans=windowed,
    ),
    "nemotron": replace(LLAMA, gated=False, norm_bias=True),
    "glm": GLM,
    "glm4": replace(GLM, norms=4),
    "ernie4_5": ERNIE,
    "seed_oss": Rules(qkv_bias="attention_bias", out_bias="attention_out_bias", ffn_bias="mlp_bias"),
    "exaone4": Rules(qk_norm="head", spans=every_nth(4)),
    "smollm3": replace(LLAMA, tied=True, spans=smollm_windows),
    "hunyuan_v1_dense": Rules(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"),
    "apertus": Rules(qkv_bias="attention_bias", out_bias="attention_bias", gated=False, qk_norm="head"),
}


def apertus(fields: Fields, name: str) -> ModelShape:
    """Apertus: its activation function has two learned numbers in each layer."""
    shape = standard(fields, name, rules=RULES["apertus"])
    return replace(shape, layers=tuple(replace(layer, extra_parameters=2) for layer in shape.layers))


llama = partial(standard, rules=LLAMA)

MAPPERS: dict[str, Callable[[Fields, str], ModelShape]] = {
    **{model_type: partial(standard, rules=rules) for model_type, rules in RULES.items()},
    "apertus": apertus,
    "nemotron-nas": block_configs,
}
