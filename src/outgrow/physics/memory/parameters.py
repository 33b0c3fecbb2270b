"""Which parameters a rank holds: split over stages, tensor and expert ranks; and which of them are trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.layout import Layout
from outgrow.workload.mixers import LatentAttention, Mixer, ParallelMixers, SelfAttention
from outgrow.workload.model import Layer, MixtureOfExperts, ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters of one rank, before sharding over data-parallel ranks."""

    blocks: float
    """Linear layers of blocks other than routed experts: what a weight format quantises."""
    mixers: float
    """The part of `blocks` that attention and other token mixers hold."""
    experts: float
    """Routed experts."""
    expert_width: int
    """Intermediate width of a routed expert on this rank; 0 = there are none."""
    vectors: float
    """Norms, biases' share, routers: replicated, never quantised."""
    embedding: float
    head: float
    towers: float
    layer: float
    """The largest single layer of the stage, experts included: what sharded training gathers at once."""
    layer_experts: float
    """The routed experts' part of it."""
    extra_head_copy: bool = False
    """The last stage holds a copy of a tied embedding."""

    def expert_padding(self, multiple: int) -> float:
        """Growth of the experts where their width is padded to a multiple."""
        return -(-self.expert_width // multiple) * multiple / self.expert_width if self.expert_width else 1.0

    @property
    def total(self) -> float:
        return self.blocks + self.experts + self.vectors + self.embedding + self.head + self.towers

    @property
    def dense(self) -> float:
        """Everything but routed experts: the group that is sharded over all of dp x cp."""
        return self.total - self.experts


def mixer_shard(mixer: Mixer, hidden: int, tp: int) -> float:
    """Parameters of a mixer on one tensor-parallel rank: heads are split, what all heads share is replicated."""
    total = mixer.parameters(hidden)
    if tp == 1:
        return total
    if isinstance(mixer, ParallelMixers):
        return mixer_shard(mixer.attention, hidden, tp) + mixer_shard(mixer.recurrent, hidden, tp)
    if isinstance(mixer, SelfAttention):
        kv_width = mixer.kv_heads * (mixer.head_dim + (0 if mixer.value_is_key else mixer.value_dim))
        kv = 0 if mixer.shares_kv else hidden * kv_width
        replicated = mixer.qk_norm_parameters
        # Key-value heads are copied once there are more ranks than heads.
        return (total - kv - replicated) / tp + kv / min(tp, mixer.kv_heads) + replicated
    if isinstance(mixer, LatentAttention):
        down = hidden * (mixer.kv_lora_rank + mixer.qk_rope_head_dim + (mixer.q_lora_rank or 0))
        return (total - down) / tp + down
    return total / tp


def layer_parameters(layer: Layer, hidden: int, layout: Layout) -> tuple[float, float, float]:
    """(linear layers, routed experts, vectors) of one layer on one rank."""
    tp = layout.tp
    vectors = float(layer.norm_parameters)
    blocks = layer.extra_parameters / tp
    for mixer in (layer.mixer, layer.cross_attention):
        if mixer is not None:
            blocks += mixer_shard(mixer, hidden, tp)
    experts = 0.0
    if isinstance(layer.ffn, MixtureOfExperts):
        experts = layer.ffn.experts * layer.ffn.expert(hidden) / (layout.ep * layout.expert_tp)
        blocks += layer.ffn.shared(hidden) / tp + layer.ffn.latent_projections(hidden)
        vectors += layer.ffn.router(hidden)
    elif layer.ffn is not None:
        blocks += layer.ffn.parameters(hidden) / tp
    return blocks, experts, vectors


def rank_parameters(model: ModelShape, layout: Layout, stage: int = 0) -> RankParameters:
    """Parameters of one rank of a pipeline stage.

    DualPipe feeds the pipeline from both ends: a rank holds its stage and the mirrored one (DeepSeek-V3 report, table 2).
    """
    own = _stage_parameters(model, layout, stage)
    if layout.schedule != "dualpipe" or layout.pp == 1:
        return own
    other = _stage_parameters(model, layout, layout.pp - 1 - stage)
    larger = max(own, other, key=lambda part: part.layer)
    sums = {name: getattr(own, name) + getattr(other, name) for name in _SUMMED}
    return replace(
        larger,
        expert_width=max(own.expert_width, other.expert_width),
        extra_head_copy=own.extra_head_copy or other.extra_head_copy,
        **sums,
    )


_SUMMED = ("blocks", "mixers", "experts", "vectors", "embedding", "head", "towers")


def _stage_parameters(model: ModelShape, layout: Layout, stage: int) -> RankParameters:
    indices = layout.chunks(len(model.layers))[stage]
    first, last = stage == 0, stage == layout.pp - 1
    layers = [model.layers[i] for i in indices]
    if first:
        layers += model.encoder
    blocks = mixers = experts = vectors = largest = largest_experts = 0.0
    width = 0
    cache: dict[Layer, tuple[float, float, float]] = {}
    for layer in layers:
        if layer not in cache:
            cache[layer] = layer_parameters(layer, model.hidden, layout)
        b, e, v = cache[layer]
        mixers += sum(
            mixer_shard(m, model.hidden, layout.tp)
            for m in (layer.mixer, layer.cross_attention)
            if m is not None
        )
        if isinstance(layer.ffn, MixtureOfExperts):
            width = layer.ffn.intermediate // layout.expert_tp
        blocks, experts, vectors = blocks + b, experts + e, vectors + v
        if b + e + v > largest:
            largest, largest_experts = b + e + v, e
    embedding = (model.embedding_parameters + model.extra_embedding_parameters) / layout.tp if first else 0.0
    head = model.head_parameters / layout.tp if last else 0.0
    copy = last and not first and model.tied and model.has_head
    if copy:
        head += model.embedding_parameters / layout.tp
    return RankParameters(
        blocks=blocks + (model.other_parameters / layout.tp if first else 0),
        mixers=mixers,
        experts=experts,
        expert_width=width,
        vectors=vectors + (model.final_norm_parameters if last else 0),
        embedding=embedding,
        head=head,
        towers=float(sum(t.parameters for t in model.towers)) if first else 0.0,
        layer=largest,
        layer_experts=largest_experts,
        extra_head_copy=copy,
    )


def distinct_weights(model: ModelShape, layout: Layout, stage: int) -> float:
    """Elements of one weight of every distinct shape on a stage's blocks (one expert of each kind).

    Fused gradient accumulation returns a placeholder gradient per distinct shape, and keeps it.
    """
    shapes: dict[tuple[str, float], float] = {}
    for index in set(layout.chunks(len(model.layers))[stage]):
        layer = model.layers[index]
        mixer, ffn, h, tp = layer.mixer, layer.ffn, model.hidden, layout.tp
        if isinstance(mixer, SelfAttention):
            qkv = (
                h * (mixer.heads * mixer.head_dim + mixer.kv_heads * (mixer.head_dim + mixer.value_dim)) / tp
            )
            shapes["qkv", qkv] = qkv
            out = h * mixer.heads * mixer.value_dim / tp
            shapes["out", out] = out
        elif mixer is not None:
            size = mixer_shard(mixer, h, tp)
            shapes["mixer", size] = size
        if isinstance(ffn, MixtureOfExperts):
            expert = ffn.expert(h) / layout.expert_tp
            shapes["expert", expert] = expert
            if ffn.shared_intermediate:
                shapes["shared", ffn.shared(h) / tp] = ffn.shared(h) / tp
        elif ffn is not None:
            shapes["ffn", ffn.parameters(h) / tp] = ffn.parameters(h) / tp
    return sum(shapes.values())


LORA_ALIASES = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down", "query": "q", "key": "k", "value": "v", "dense": "o", "mlp": "gate up down",
    "attention": "q k v o", "all-linear": "all",
}  # fmt: skip


def lora_targets(targets: tuple[str, ...]) -> frozenset[str]:
    """Targets in their short names."""
    names: set[str] = set()
    for target in targets:
        names.update(LORA_ALIASES.get(target, target).split())
    return frozenset(("q", "k", "v", "o", "gate", "up", "down") if "all" in names else names)


def lora_widths(layer: Layer, hidden: int, targets: frozenset[str]) -> list[tuple[str, int, int, int]]:
    """(target, inputs, outputs, copies) of every adapted linear layer of a layer; experts are not adapted."""
    widths: list[tuple[str, int, int, int]] = []
    mixer = layer.mixer
    if isinstance(mixer, SelfAttention):
        q = mixer.heads * mixer.head_dim * (2 if mixer.output_gate else 1)
        widths += [("q", hidden, q, 1), ("o", mixer.heads * mixer.value_dim, hidden, 1)]
        kv = 0 if mixer.shares_kv else mixer.kv_heads * (mixer.head_dim + mixer.value_dim)
        widths.append(("qkv", hidden, q + kv, 1))  # one adapter on the fused projection
        if not mixer.shares_kv:
            widths += [
                ("k", hidden, mixer.kv_heads * mixer.head_dim, 1),
                ("v", hidden, mixer.kv_heads * mixer.value_dim, 1),
            ]
    elif isinstance(mixer, LatentAttention):
        inputs = mixer.q_lora_rank or hidden
        widths += [
            ("q", inputs, mixer.heads * mixer.head_dim, 1),
            ("o", mixer.heads * mixer.value_dim, hidden, 1),
        ]
        widths += [("k", mixer.kv_lora_rank, mixer.heads * (mixer.qk_nope_head_dim + mixer.value_dim), 1)]
    ffn = layer.ffn
    width = (
        ffn.shared_intermediate
        if isinstance(ffn, MixtureOfExperts)
        else ffn.intermediate
        if ffn is not None
        else 0
    )
    if ffn is not None and width:
        if ffn.gated:
            widths.append(("gate", hidden, width, 1))
        widths += [("up", hidden, width, 1), ("down", width, hidden, 1)]
    return [w for w in widths if w[0] in targets]


def lora_parameters(
    model: ModelShape,
    indices: tuple[int, ...],
    rank: int,
    targets: frozenset[str],
    *,
    tp: int = 1,
    dora: bool = False,
) -> float:
    """Adapter parameters of a stage on one rank.

    Where a layer is split by its outputs A is whole and B split; where by its inputs (o, down), the reverse.
    """
    total = 0.0
    for index in indices:
        for name, inputs, outputs, copies in lora_widths(model.layers[index], model.hidden, targets):
            by_inputs = name in ("o", "down")
            a, b = (inputs / tp, outputs) if by_inputs else (inputs, outputs / tp)
            total += copies * (rank * (a + b) + (b if dora else 0))
    return total
