"""Mixtures of experts, and the DeepSeek line with its latent and compressed attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from outgrow.workload.hf_config.dense import (
    COHERE,
    ERNIE,
    FFN,
    GLM,
    HEADS,
    HIDDEN,
    LLAMA,
    OLMO2,
    Ffn,
    Rules,
    Span,
    Switch,
    attention,
    chunked,
    decoder,
    every_nth,
    feed_forward,
    finish,
    layer_types,
    mtp_modules,
    qwen_moe_windows,
    qwen_windows,
    read_frame,
    switches,
    typed,
    windowed,
)
from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.mixers import CompressedAttention, LatentAttention, SelfAttention, linear
from outgrow.workload.model import FeedForward, Layer, MixtureOfExperts, ModelShape

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = (
    "num_experts_per_tok",
    "moe_topk",
    "moe_k",
    "moe_top_k",
    "num_experts_per_token",
    "experts_per_token",
)
EXPERT_FFN = ("moe_intermediate_size", "expert_ffn_hidden_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")

SparseRule = Callable[[Fields, int], list[bool]]


# -- which layers are sparse


def all_sparse(fields: Fields, count: int) -> list[bool]:  # noqa: ARG001 (one interface for all rules)
    """Every layer routes."""
    return [True] * count


def qwen_sparse(fields: Fields, count: int) -> list[bool]:
    """Every `decoder_sparse_step`-th layer routes, but for those in `mlp_only_layers`."""
    dense = set(fields.integers("mlp_only_layers") or [])
    step = fields.integer("decoder_sparse_step", default=1)
    return [i not in dense and (i + 1) % step == 0 for i in range(count)]


def after_dense(default: int) -> SparseRule:
    """Layers route but for the first `first_k_dense_replace`, or as a list per layer says."""

    def rule(fields: Fields, count: int) -> list[bool]:
        listed = mlp_layer_types(fields, count)
        if listed is not None:
            return listed
        first = fields.integer("first_k_dense_replace", "num_dense_layers", default=default, low=0)
        if isinstance(fields.raw.get("moe_layer_freq"), list):
            flags = fields.integers("moe_layer_freq", length=count, high=1) or [1] * count
            return [bool(f) for f in flags]
        step = fields.integer("moe_layer_freq", default=1)
        return [i >= first and i % step == 0 for i in range(count)]

    return rule


def mlp_layer_types(fields: Fields, count: int) -> list[bool] | None:
    """What `mlp_layer_types` says of each layer, or None where the config does not write it."""
    if not fields.has("mlp_layer_types"):
        return None
    kinds = fields.items("mlp_layer_types", length=count)
    if kinds is None:
        return [True] * count
    unknown = [k for k in kinds if k not in ("dense", "sparse", "moe", "hash_moe")]
    if unknown:
        fields.fault("mlp_layer_types", "holds a kind that is not known here", value=unknown[0])
    return [k != "dense" for k in kinds]


def llama4_sparse(fields: Fields, count: int) -> list[bool]:
    """The layers of `moe_layers`, or every `interleave_moe_layer_step`-th."""
    if fields.has("moe_layers"):
        listed = set(fields.integers("moe_layers") or [])
        return [i in listed for i in range(count)]
    step = fields.integer("interleave_moe_layer_step", default=1)
    return [(i + 1) % step == 0 for i in range(count)]


def ernie_sparse(fields: Fields, count: int) -> list[bool]:
    """Layers from a start to an end, every `moe_layer_interval`-th of them."""
    start = fields.integer("moe_layer_start_index", default=0, low=0)
    end = fields.integer("moe_layer_end_index", default=-1, low=-1)
    step = fields.integer("moe_layer_interval", default=1)
    last = count - 1 if end == -1 else end
    return [(i + 1) % step == 0 and start <= i <= last for i in range(count)]


# -- what a routed layer is made of


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How the routed layers of a model type differ from Mixtral's."""

    sparse: SparseRule = all_sparse
    width: tuple[str, ...] = EXPERT_FFN
    """Keys of the width of one expert."""
    shared_width: tuple[str, ...] = ()
    """Keys of the total width of the shared experts."""
    shared_count: bool = False
    """Shared experts are counted; each is as wide as a routed one."""
    shared_default: int = 0
    shared_gate: bool = False
    bias: Switch = False
    router_bias: bool = False
    correction: bool = False
    """The router's balancing bias is a parameter, not a buffer: one number per expert."""
    dense_width: tuple[str, ...] = ("intermediate_size",)


def experts(fields: Fields, routing: Routing) -> MixtureOfExperts:
    """Read the routed part of a layer."""
    count = fields.integer(*EXPERTS)
    top_k = _first(fields, *TOP_K)
    if top_k > count:
        fields.fault(TOP_K[0], f"cannot be more than the {count} experts", value=top_k)
    width = _first(fields, *routing.width)
    shared = 0
    if routing.shared_width:
        shared = fields.integer(*routing.shared_width, default=0, low=0)
    elif routing.shared_count:
        shared = width * _first(fields, *SHARED, default=routing.shared_default, low=0)
    return MixtureOfExperts(
        experts=count,
        top_k=min(top_k, count),
        intermediate=width,
        bias=switches(fields)(routing.bias),
        shared_intermediate=shared,
        shared_gate=routing.shared_gate and shared > 0,
        router_bias=routing.router_bias,
        router_extra=count if routing.correction else 0,
    )


def _first(fields: Fields, *names: str, default: int | None = None, low: int = 1) -> int:
    """A number that some configs write as a list with one entry per layer, all alike."""
    for name in names:
        value = fields.raw.get(name)
        if isinstance(value, list) and value:
            if any(v != value[0] for v in value):
                fields.fault(name, "differs from layer to layer, which is not supported")
            return Fields({name: value[0]}, fields.notes, path=fields.path).integer(name, low=low)
    return fields.integer(*names, default=default, low=low)


def _parts(fields: Fields, routing: Routing, count: int, dense: Callable[[], FeedForward]) -> list[Ffn]:
    """The feed-forward part of each layer. The width of dense ones is asked for only where there are any."""
    sparse = routing.sparse(fields, count)
    routed = experts(fields, routing) if any(sparse) else None
    plain = dense() if routed is None or not all(sparse) else None
    return [part for s in sparse if (part := routed if s else plain) is not None]


def mixture(fields: Fields, name: str, *, rules: Rules, routing: Routing) -> ModelShape:
    """A decoder whose layers, or most of them, route each token to a few experts."""
    frame = read_frame(fields, rules)
    parts = _parts(fields, routing, frame.count, lambda: feed_forward(fields, frame, *routing.dense_width))
    return finish(fields, name, frame, parts)


# -- DeepSeek


def latent_attention(fields: Fields, *, bias: bool = False) -> LatentAttention:
    """Multi-head latent attention (DeepSeek-V2 and V3), with the indexer of V3.2 where the config has one."""
    return LatentAttention(
        heads=fields.integer(*HEADS),
        q_lora_rank=fields.optional("q_lora_rank", low=1),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        value_head_dim=fields.integer("v_head_dim"),
        bias=bias,
        index_heads=fields.integer("index_n_heads", default=0, low=0),
        index_head_dim=fields.integer("index_head_dim", default=0, low=0),
    )


DEEPSEEK = Routing(sparse=after_dense(0), shared_count=True)


def deepseek(
    fields: Fields, name: str, *, routing: Routing = DEEPSEEK, mlp_bias: Switch = False, tied: bool = False
) -> ModelShape:
    """DeepSeek-V2 and V3, Kimi-K2, GLM-5: latent attention and many small experts."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    switch = switches(fields)
    mixer = latent_attention(fields, bias=switch("attention_bias"))
    bias = switch(mlp_bias)
    parts: list[Ffn] = _parts(
        fields,
        replace(routing, bias=False),
        count,
        lambda: FeedForward(intermediate=fields.integer("intermediate_size"), bias=bias),
    )
    full = _indexed(fields, count) if mixer.index_heads else [True] * count
    bare = replace(mixer, index_heads=0, index_head_dim=0)
    layers = [
        Layer(
            mixer=mixer if own else bare,
            ffn=part,
            norm_parameters=2 * hidden,
            # The bias key speaks of plain feed-forward parts: shared experts have it, routed ones do not.
            extra_parameters=_shared_bias(part, hidden) if bias else 0,
        )
        for own, part in zip(full, parts, strict=True)
    ]
    mtp = mtp_modules(fields, hidden, layers[-1])
    return decoder(fields, name, layers, hidden=hidden, tied=tied, mtp_parameters=mtp)


def _shared_bias(part: Ffn, hidden: int) -> int:
    if isinstance(part, MixtureOfExperts) and part.shared_intermediate:
        return 2 * part.shared_intermediate + hidden
    return 0


def _indexed(fields: Fields, count: int) -> list[bool]:
    """Which layers have an indexer of their own; the others reuse the choice of an earlier layer (GLM-5)."""
    if fields.has("indexer_types"):
        kinds = fields.items("indexer_types", length=count)
        return [k != "shared" for k in kinds] if kinds is not None else [True] * count
    pattern = fields.raw.get("index_topk_pattern")
    if isinstance(pattern, str | list):
        if len(pattern) != count:
            fields.fault(
                "index_topk_pattern", f"must have {count} entries, one per layer, and has {len(pattern)}"
            )
            return [True] * count
        return [k not in ("S", "shared") for k in pattern]
    step = fields.integer("index_topk_freq", default=1)
    offset = fields.integer("index_skip_topk_offset", default=2, low=0)
    return [max(i - offset + 1, 0) % step == 0 for i in range(count)]


def deepseek_v4(fields: Fields, name: str) -> ModelShape:
    """DeepSeek-V4: a window, a compressed context, one key-value vector, several residual streams."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    heads = fields.integer(*HEADS)
    head_dim = fields.integer("head_dim")
    q_rank = fields.integer("q_lora_rank")
    groups = fields.integer("o_groups")
    o_rank = fields.integer("o_lora_rank")
    index_heads = fields.integer("index_n_heads")
    index_dim = fields.integer("index_head_dim")
    window = fields.integer("sliding_window")
    streams = fields.integer("hc_mult")
    base = linear(hidden, q_rank) + q_rank + linear(q_rank, heads * head_dim)
    base += linear(hidden, head_dim) + head_dim
    base += linear(
        fields.divided(heads * head_dim, groups, key="o_groups", what="query width over groups"),
        groups * o_rank,
    )
    base += linear(groups * o_rank, hidden) + heads  # one sink logit per head

    def mixer(ratio: int, sparse: bool) -> CompressedAttention:
        total = base
        if ratio:
            # Keys and their gate; a sparse layer overlaps two windows, so it projects twice as wide.
            width = head_dim * (2 if sparse else 1)
            total += 2 * linear(hidden, width) + ratio * width + head_dim
        if ratio and sparse:
            total += 2 * linear(hidden, 2 * index_dim) + ratio * 2 * index_dim + index_dim
            total += linear(q_rank, index_heads * index_dim) + linear(hidden, index_heads)
        return CompressedAttention(
            heads=heads, head_dim=head_dim, window=window, ratio=ratio, parameter_count=total,
            index_head_dim=index_dim if ratio and sparse else 0,
        )  # fmt: skip

    routed = experts(fields, Routing(shared_count=True))
    # Hyper-connections: before attention and before the experts, a map over all streams, a base, 3 scales.
    maps = (2 + streams) * streams
    connections = 2 * (maps * streams * hidden + maps + 3)
    pairs = _ratios(fields, count)
    kinds = {pair: mixer(*pair) for pair in set(pairs)}
    layers = [
        Layer(mixer=kinds[pair], ffn=routed, norm_parameters=2 * hidden, extra_parameters=connections)
        for pair in pairs
    ]
    gathering = streams * streams * hidden + streams + 1
    return decoder(
        fields,
        name,
        layers,
        hidden=hidden,
        other_parameters=gathering,
        mtp_parameters=mtp_modules(fields, hidden, layers[-1]),
    )


def _ratios(fields: Fields, count: int) -> list[tuple[int, bool]]:
    """(tokens per compressed entry, whether an indexer picks among the entries) of each layer."""
    rates = fields.child("compress_rates") or Fields({}, fields.notes)
    sparse = rates.integer(
        "compressed_sparse_attention", default=fields.integer("compress_rate_csa", default=4)
    )
    heavy = rates.integer(
        "heavily_compressed_attention", default=fields.integer("compress_rate_hca", default=128)
    )
    known = {
        "sliding_attention": (0, False),
        "compressed_sparse_attention": (sparse, True),
        "heavily_compressed_attention": (heavy, False),
    }
    if fields.has("layer_types"):
        names = fields.items("layer_types", length=count) or []
        if all(isinstance(n, str) and n in known for n in names) and names:
            return [known[str(n)] for n in names]
        fields.fault("layer_types", "holds a kind that is not known here")
        return [(0, False)] * count
    # One entry more than layers is usual: the last is of the prediction module.
    ratios = fields.integers("compress_ratios")
    if ratios is not None:
        if len(ratios) < count:
            fields.fault("compress_ratios", f"has {len(ratios)} entries for {count} layers")
            return [(0, False)] * count
        return [(r, r == sparse) for r in ratios[:count]]
    return [(heavy, False) if i < 2 or i % 2 == 0 else (sparse, True) for i in range(count)]


# -- attention of two widths


def mimo_v2(fields: Fields, name: str) -> ModelShape:
    """MiMo-V2: values narrower than keys; window layers have heads, widths and sinks of their own."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    bias = fields.flag("attention_bias")
    full = attention(fields, hidden=hidden, bias=bias)
    full = replace(
        full,
        value_head_dim=fields.optional("v_head_dim", low=1),
        sinks=fields.flag("add_full_attention_sink_bias"),
    )
    near = SelfAttention(
        heads=fields.integer("swa_num_attention_heads", default=full.heads),
        kv_heads=fields.integer("swa_num_key_value_heads", default=2 * full.kv_heads),
        head_dim=fields.integer("swa_head_dim", default=full.head_dim),
        value_head_dim=fields.integer("swa_v_head_dim", default=full.value_dim),
        q_bias=bias,
        kv_bias=bias,
        sinks=fields.flag("add_swa_attention_sink_bias", default=True),
        window=fields.integer("sliding_window_size", "sliding_window", default=128),
    )
    if near.heads % near.kv_heads:
        fields.fault(
            "swa_num_key_value_heads", f"must divide the {near.heads} query heads", value=near.kv_heads
        )
    pattern = fields.integers("hybrid_layer_pattern", length=count, high=1)
    spans = layer_types(fields, count, near.window)
    if spans is not None:
        slides = [s != Span() for s in spans]
    elif pattern is not None:
        slides = [bool(p) for p in pattern]
    else:
        slides = [i > 0 and (i + 1) % 6 != 0 for i in range(count)]
    parts = _parts(
        fields,
        Routing(sparse=after_dense(1)),
        count,
        lambda: FeedForward(intermediate=fields.integer("intermediate_size")),
    )
    layers = [
        Layer(mixer=near if slide else full, ffn=part, norm_parameters=2 * hidden)
        for slide, part in zip(slides, parts, strict=True)
    ]
    return decoder(fields, name, layers, hidden=hidden)


def gemma4(fields: Fields, name: str) -> ModelShape:
    """Gemma-4: wider heads in global layers, late layers that borrow keys, per-layer embeddings."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    heads = fields.integer(*HEADS)
    kv_heads = fields.integer("num_key_value_heads", default=heads)
    head_dim = fields.integer("head_dim", default=256)
    wide = fields.integer("global_head_dim", default=512)
    same = fields.flag("attention_k_eq_v")
    wide_kv = fields.integer("num_global_key_value_heads", default=kv_heads) if same else kv_heads
    bias = fields.flag("attention_bias")
    shared = fields.integer("num_kv_shared_layers", default=0, low=0)
    for key, value in (("num_key_value_heads", kv_heads), ("num_global_key_value_heads", wide_kv)):
        if heads % value:
            fields.fault(key, f"must divide the {heads} query heads", value=value)
    spans = typed(lambda i: (i + 1) % 6 != 0)(fields, count)
    spans[-1] = Span()  # the last layer is always global
    width = fields.integer("intermediate_size")
    double = fields.flag("use_double_wide_mlp")
    routed = _gemma4_experts(fields) if fields.flag("enable_moe_block") else None
    gate = fields.integer("hidden_size_per_layer_input", default=0, low=0)
    norms = (4 + (3 if routed is not None else 0)) * hidden
    extra = 2 * hidden * gate + hidden if gate else 0
    layers = []
    for index, span in enumerate(spans):
        borrows = index >= count - shared
        local = span.window is not None
        mixer = SelfAttention(
            heads=heads,
            kv_heads=kv_heads if local else wide_kv,
            head_dim=head_dim if local else wide,
            q_bias=bias,
            kv_bias=bias,
            out_bias=bias,
            qk_norm_parameters=(head_dim if local else wide) * (1 if borrows else 2),
            window=span.window,
            shares_kv=borrows,
            value_is_key=same and not local,
        )
        dense = FeedForward(intermediate=width * (2 if double and borrows else 1))
        # Dense part and experts run side by side: what is not the experts' is counted as the layer's own.
        beside = dense.parameters(hidden) if routed is not None else 0
        layers.append(
            Layer(
                mixer=mixer,
                ffn=replace(routed, router_extra=hidden + routed.experts) if routed is not None else dense,
                norm_parameters=norms,
                extra_parameters=extra + beside,
            )
        )
    table = 0
    other = 0
    if gate:
        table = fields.integer("vocab_size_per_layer_input", default=262_144) * count * gate
        other = hidden * count * gate + gate
    return decoder(
        fields,
        name,
        layers,
        hidden=hidden,
        tied=True,
        extra_embedding_parameters=table,
        other_parameters=other,
    )


def _gemma4_experts(fields: Fields) -> MixtureOfExperts:
    count = fields.integer("num_experts")
    return MixtureOfExperts(
        experts=count,
        top_k=min(count, fields.integer("top_k_experts")),
        intermediate=fields.integer("moe_intermediate_size"),
    )


# -- others with a shape of their own


def gpt_oss(fields: Fields, name: str) -> ModelShape:
    """gpt-oss: biases everywhere, one sink logit per head, a window in every second layer."""
    return mixture(fields, name, rules=GPT_OSS, routing=Routing(width=FFN, bias=True, router_bias=True))


def cohere2_moe(fields: Fields, name: str) -> ModelShape:
    """Cohere-2 with experts; shared experts are counted in widths of a routed one."""
    rules = replace(COHERE, qk_norm=None, spans=every_nth(4))
    routing = Routing(
        sparse=after_dense(0),
        width=("intermediate_size",),
        shared_count=True,
        dense_width=("prefix_dense_intermediate_size", "intermediate_size"),
    )
    return mixture(fields, name, rules=rules, routing=routing)


def afmoe(fields: Fields, name: str) -> ModelShape:
    """AFMoE (Trinity): attention output is gated, and the balancing bias is a parameter."""
    frame = read_frame(fields, AFMOE)
    gated = replace(
        frame,
        mixers=tuple(replace(m, extra_parameters=frame.hidden * m.heads * m.head_dim) for m in frame.mixers),
    )
    routing = Routing(sparse=after_dense(1), shared_count=True, correction=True)
    parts = _parts(fields, routing, frame.count, lambda: feed_forward(fields, frame, "intermediate_size"))
    return finish(fields, name, gated, parts)


def dbrx(fields: Fields, name: str) -> ModelShape:
    """DBRX: attention and experts are described in nested dictionaries."""
    hidden = fields.integer(*HIDDEN)
    heads = fields.integer(*HEADS)
    inner = fields.child("attn_config") or Fields({}, fields.notes, path="attn_config")
    outer = fields.child("ffn_config") or Fields({}, fields.notes, path="ffn_config")
    kv_heads = inner.integer("kv_n_heads", default=1)
    if heads % kv_heads:
        inner.fault("kv_n_heads", f"must divide the {heads} query heads", value=kv_heads)
    mixer = SelfAttention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.divided(hidden, heads, key="n_heads", what="hidden size over heads"),
    )
    count = outer.integer("moe_num_experts", default=4)
    routed = MixtureOfExperts(
        experts=count,
        top_k=min(count, outer.integer("moe_top_k", default=1)),
        intermediate=outer.integer("ffn_hidden_size", default=3584),
    )
    layer = Layer(mixer=mixer, ffn=routed, norm_parameters=2 * hidden)
    return decoder(fields, name, [layer] * fields.layer_count(), hidden=hidden)


def longcat(fields: Fields, name: str) -> ModelShape:
    """LongCat-Flash: each layer is two attentions and two dense parts around one set of experts."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count("num_layers", "num_hidden_layers")
    mixer = latent_attention(fields, bias=fields.flag("attention_bias"))
    dense = FeedForward(intermediate=fields.integer("ffn_hidden_size", "intermediate_size"))
    routed = experts(fields, Routing())
    idle = fields.integer("zero_expert_num", default=0, low=0)
    # Experts that do nothing have a row in the router.
    rows = replace(
        routed, router_extra=idle * hidden + (routed.experts + idle if fields.flag("router_bias") else 0)
    )
    first = Layer(
        mixer=mixer, ffn=rows, norm_parameters=2 * hidden, extra_parameters=dense.parameters(hidden)
    )
    second = Layer(mixer=mixer, ffn=dense, norm_parameters=2 * hidden)
    return decoder(fields, name, [first, second] * count, hidden=hidden)


GPT_OSS = Rules(
    qkv_bias="attention_bias", out_bias="attention_bias", sinks=True, spans=typed(lambda i: i % 2 == 0)
)
AFMOE = Rules(
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    norms=4,
    qk_norm="head",
    spans=typed(lambda i: (i + 1) % 4 != 0),
)
BIASED = Rules(qkv_bias="attention_bias", out_bias="attention_bias")
NORMED = replace(BIASED, qk_norm="head")
MIXTRAL = Routing(width=("intermediate_size",))
QWEN = Routing(sparse=qwen_sparse)

FAMILIES: dict[str, tuple[Rules, Routing]] = {
    "mixtral": (Rules(spans=windowed), MIXTRAL),
    "phimoe": (replace(BIASED, norm_bias=True, head_bias="lm_head_bias", spans=windowed), MIXTRAL),
    "qwen2_moe": (
        Rules(qkv_bias="qkv_bias", spans=qwen_windows),
        replace(QWEN, shared_width=("shared_expert_intermediate_size",), shared_gate=True),
    ),
    "qwen3_moe": (replace(NORMED, spans=qwen_moe_windows), QWEN),
    "olmoe": (OLMO2, MIXTRAL),
    "flex_olmo": (OLMO2, MIXTRAL),
    "granitemoe": (BIASED, MIXTRAL),
    "granitemoeshared": (BIASED, replace(MIXTRAL, shared_width=("shared_intermediate_size",))),
    "llama4_text": (
        replace(BIASED, spans=chunked),
        Routing(
            sparse=llama4_sparse,
            width=("intermediate_size",),
            shared_width=("intermediate_size",),
            dense_width=("intermediate_size_mlp",),
        ),
    ),
    "deepseek": (BIASED, DEEPSEEK),
    "glm4_moe": (
        replace(GLM, qk_norm="head", qk_norm_if="use_qk_norm"),
        replace(DEEPSEEK, sparse=after_dense(1)),
    ),
    "dots1": (replace(NORMED, spans=qwen_windows), DEEPSEEK),
    "solar_open": (BIASED, DEEPSEEK),
    "exaone_moe": (replace(NORMED, qkv_bias=False, out_bias=False, spans=every_nth(4)), DEEPSEEK),
    "hy_v3": (replace(LLAMA, qk_norm="head"), replace(DEEPSEEK, sparse=after_dense(1))),
    "hunyuan_v1_moe": (NORMED, replace(MIXTRAL, shared_width=("intermediate_size",))),
    "minimax_m2": (Rules(qk_norm="full"), MIXTRAL),
    "ernie4_5_moe": (
        replace(ERNIE, head_bias="use_bias"),
        Routing(sparse=ernie_sparse, shared_count=True, correction=True),
    ),
}

MAPPERS: dict[str, Callable[[Fields, str], ModelShape]] = {
    **{kind: partial(mixture, rules=rules, routing=routing) for kind, (rules, routing) in FAMILIES.items()},
    "gpt_oss": gpt_oss,
    "cohere2_moe": cohere2_moe,
    "afmoe": afmoe,
    "dbrx": dbrx,
    "mimo_v2_flash": mimo_v2,
    "gemma4_text": gemma4,
    "longcat_flash": longcat,
    "deepseek_v2": partial(deepseek, mlp_bias="mlp_bias"),
    "deepseek_v3": deepseek,
    "kimi_k2": deepseek,
    "deepseek_v32": deepseek,
    "glm_moe_dsa": deepseek,
    "glm4_moe_lite": partial(deepseek, routing=replace(DEEPSEEK, sparse=after_dense(1))),
    "deepseek_v4": deepseek_v4,
}
