"""The memory of a serving replica: weights, what the engine sets aside, and the cache that is left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.layout import Layout, replica_layout
from outgrow.physics.memory.engines import CONTEXT_BYTES, EngineBudget, engine_budget
from outgrow.physics.memory.kv import CacheCost, Pool, cache_cost, pool
from outgrow.physics.memory.parameters import RankParameters, lora_parameters, lora_targets, rank_parameters
from outgrow.physics.memory.terms import Term
from outgrow.units import GIB
from outgrow.workload.model import MixtureOfExperts, ModelShape, Tower
from outgrow.workload.quantization import BFLOAT16, FLOAT32, WeightFormat, weight_format
from outgrow.workload.serving import CACHE_BYTES, ServingJob

ACTIVATION = 2.0
WEIGHTS_UNCERTAINTY = 0.05
"""Padding of kernels, layers that a checkpoint leaves in 16 bits, buffers beside the weights."""
PROFILE_UNCERTAINTY = 1.0 * GIB
"""What the profile run, other libraries and graphs are off by."""
VISION_ITEM_TOKENS = 16384
"""Tokens of the largest image that an engine profiles where the model does not say (Qwen2.5-VL's default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Memory of one GPU of a replica: the one with the least room."""

    stage: int
    budget: EngineBudget
    terms: tuple[Term, ...]
    """Weights, activation peak, memory outside of the framework, graphs, what the engine leaves free, cache."""
    device_bytes: float
    weights_bytes: float
    cache_bytes: float
    """Bytes for the cache; negative where there is no room."""
    cost: CacheCost
    pool: Pool
    context_length: int
    weight_format: WeightFormat

    @property
    def uncertainty_bytes(self) -> float:
        """Half width of the interval of everything before the cache (80 % of published ledgers lie inside)."""
        return WEIGHTS_UNCERTAINTY * self.weights_bytes + PROFILE_UNCERTAINTY

    @property
    def cache_tokens(self) -> int:
        """Tokens of context that the cache holds."""
        if self.cache_bytes <= 0:
            return 0
        if len(self.pool.groups) > 1:
            return self.pool.tokens
        per_token, block = self.cost.charged_per_token, self.budget.block_tokens
        return int(self.cache_bytes // (per_token * block)) * block if per_token else 0

    def sequences(self, tokens: int) -> float:
        """Sequences of `tokens` that fit at once."""
        if self.cache_bytes <= 0:
            return 0.0
        if not self.pool.groups:
            state = self.cost.state_per_sequence
            return self.cache_bytes / state if state else float("inf")
        return self.pool.sequences(tokens)

    @property
    def state_blocks(self) -> int | None:
        """Sequences whose recurrent states fit, one block each; None where no layer has such a state."""
        return self.pool.pages if any(group.kind == "state" for group in self.pool.groups) else None

    @property
    def starts(self) -> bool:
        """Whether the engine starts: the cache must hold one request of the longest context."""
        return self.cache_bytes > 0 and self.sequences(self.context_length) >= 1


def stored_format(model: ModelShape, job: ServingJob) -> WeightFormat:
    """The weight format that is served: the job's, else the checkpoint's, else the model's dtype."""
    if job.weights is not None:
        return weight_format(job.weights)
    if model.weights is not None:
        return model.weights
    return FLOAT32 if model.dtype == "float32" else BFLOAT16


def weights_on_rank(rank: RankParameters, form: WeightFormat) -> float:
    """Bytes of the weights of one rank: linear layers in the format, tables and norms in 16 bits."""
    wide = (
        max(form.bytes_per_element, BFLOAT16.bytes_per_element)
        if not form.is_quantised
        else BFLOAT16.bytes_per_element
    )
    linear = wide if form.experts_only else form.bytes_per_element
    table = form.bytes_per_element if form.covers_embedding else wide
    head = form.bytes_per_element if form.covers_head else wide
    mixers = rank.mixers * (wide - linear) if form.ffn_only else 0.0
    experts = rank.experts * form.bytes_per_element * rank.expert_padding(form.pad)
    total = rank.blocks * linear + mixers + experts + rank.embedding * table + rank.head * head
    return total + (rank.vectors + rank.towers) * wide


def serving_memory(
    model: ModelShape, job: ServingJob, *, device_bytes: float, is_a100: bool = False
) -> ServingMemory:
    """Memory of the GPU of a replica that has the least room for its cache.

    `device_bytes` is what the framework sees of one GPU. Bytes throughout.
    """
    context_length = job.max_model_len or model.max_positions or 8192
    multimodal = model.takes_images and job.images_per_prompt > 0
    budget = engine_budget(
        job, device_bytes=device_bytes, is_a100=is_a100, context_length=context_length, multimodal=multimodal
    )
    layout = replica_layout(job)
    form = stored_format(model, job)
    candidates = [
        _stage(model, job, layout, stage, budget, form, device_bytes, context_length)
        for stage in range(job.pp)
    ]
    return min(
        candidates,
        key=lambda m: m.sequences(min(context_length, 4096)) if m.cache_bytes > 0 else m.cache_bytes,
    )


def _stage(
    model: ModelShape, job: ServingJob, layout: Layout, stage: int, budget: EngineBudget, form: WeightFormat,
    device_bytes: float, context_length: int,
) -> ServingMemory:  # fmt: skip
    rank = rank_parameters(model, layout, stage)
    if budget.tables_everywhere and layout.pp > 1:
        first, last = rank_parameters(model, layout, 0), rank_parameters(model, layout, layout.pp - 1)
        rank = replace(rank, embedding=first.embedding, head=last.head)
    weights = job.weights_bytes if job.weights_bytes is not None else weights_on_rank(rank, form)
    adapters = job.lora_adapters * _adapter_bytes(model, job, layout, stage)
    activation, reason = activation_peak(model, job, budget)
    if job.activation_bytes is not None:
        activation, reason = job.activation_bytes, "given"
    outside = job.non_torch_bytes if job.non_torch_bytes is not None else budget.non_torch_bytes
    graphs = job.graph_bytes if job.graph_bytes is not None else budget.graph_bytes
    if budget.fraction_of == "total":
        limit = device_bytes * budget.memory_fraction
        cache = limit - weights - adapters - activation - outside - graphs
        unused = device_bytes - limit
    elif budget.fraction_of == "available":
        available = device_bytes - outside
        cache = available * budget.memory_fraction - weights - adapters
        unused = available * (1 - budget.memory_fraction)
        activation = 0.0  # it lives in what the fraction leaves free
    else:
        free = device_bytes - weights - adapters - activation - outside - graphs
        cache = free * budget.memory_fraction
        unused = free - cache
    cache_width = CACHE_BYTES[job.cache]
    indices = layout.chunks(len(model.layers))[stage]
    cost = cache_cost(
        model, tp=job.tp, cache_bytes=cache_width, layers=indices, latent_alignment=budget.latent_alignment
    )
    division = pool(
        model, max(cache, 0.0), tp=job.tp, cache_bytes=cache_width, block_tokens=budget.block_tokens,
        hybrid=job.hybrid_cache, window_slack=budget.max_batched_tokens, layers=indices,
    )  # fmt: skip
    # An encoder generates nothing and keeps no cache: what is left is for batches.
    kept = bool(cost.charged_per_token or cost.state_per_sequence)
    terms = [
        Term(
            name="weights",
            bytes=weights,
            kind="state",
            source=f"{rank.total:,.0f} parameters, linear layers in {form.name}",
        ),
        Term(
            name="adapters",
            bytes=adapters,
            kind="state",
            source=f"{job.lora_adapters} adapters of rank {job.lora_rank}",
        ),
        Term(name="activation peak", bytes=activation, kind="activation", source=reason),
        Term(
            name="context, communication",
            bytes=outside,
            kind="overhead",
            source="outside of the framework, as start logs print it",
        ),
        Term(
            name="CUDA graphs",
            bytes=graphs,
            kind="overhead",
            source="deducted by this version" if graphs else "not deducted",
        ),
        Term(
            name="KV cache",
            bytes=max(cache, 0.0) if kept else 0.0,
            kind="cache",
            source=f"{cost.charged_per_token:,.0f} B per token",
        ),
        Term(
            name="unused", bytes=0.0 if kept else max(cache, 0.0), kind="overhead", source="no cache is kept"
        ),
        Term(
            name="left free by the engine",
            bytes=max(unused, 0.0),
            kind="overhead",
            source=f"memory fraction {budget.memory_fraction:.3g}",
        ),
    ]
    return ServingMemory(
        stage=stage, budget=budget, terms=tuple(t for t in terms if t.bytes), device_bytes=device_bytes,
        weights_bytes=weights, cache_bytes=cache, cost=cost, pool=division, context_length=context_length,
        weight_format=form,
    )  # fmt: skip


def _adapter_bytes(model: ModelShape, job: ServingJob, layout: Layout, stage: int) -> float:
    """One adapter in 16 bits, on every linear layer of the stage: engines reserve the slots of all of them."""
    if not job.lora_adapters:
        return 0.0
    indices = layout.chunks(len(model.layers))[stage]
    return ACTIVATION * lora_parameters(model, indices, job.lora_rank, lora_targets(("all",)), tp=job.tp)


def activation_peak(model: ModelShape, job: ServingJob, budget: EngineBudget) -> tuple[float, str]:
    """The engine's profile run: the largest of the sampler, the widest layer and the vision encoder."""
    tokens = budget.max_batched_tokens
    sampled = min(budget.max_sequences, tokens)
    hidden_states = ACTIVATION * tokens * model.hidden
    candidates = []
    if model.has_head and budget.all_logits:
        candidates.append(
            (ACTIVATION * tokens * model.vocab + hidden_states, f"logits of all {tokens:,} tokens")
        )
    elif model.has_head:
        sampler = budget.sampler_bytes * sampled * model.vocab + hidden_states + budget.profile_extra_bytes
        candidates.append(
            (
                sampler,
                f"sampler: {sampled:,} sequences x {model.vocab:,} entries x {budget.sampler_bytes:g} B",
            )
        )
    widest = max((_layer_width(layer.ffn, model.hidden, job.tp) for layer in model.layers), default=0.0)
    layer = ACTIVATION * tokens * (widest + 3 * model.hidden)
    candidates.append((layer, f"widest layer: {tokens:,} tokens"))
    crossing = any(x.cross_attention is not None for x in model.layers)
    candidates += [
        (
            _tower_peak(tower, job, budget, hidden_states, every_sequence=crossing),
            "vision encoder on its largest input",
        )
        for tower in model.towers
        if job.images_per_prompt
    ]
    if budget.keeps_reduced_inputs and job.tp > 1:
        kept = 2 * len(model.layers) * hidden_states
        candidates.append(
            (layer + kept, f"inputs of {2 * len(model.layers)} all-reduces stay until a synchronisation")
        )
    return max(candidates)


def _layer_width(ffn: object, hidden: int, tp: int) -> float:
    """Elements per token alive in the widest layer."""
    if isinstance(ffn, MixtureOfExperts):
        routed = ffn.top_k * (3 * ffn.intermediate / tp + (ffn.latent or hidden))
        return max(routed, 3 * ffn.shared_intermediate / tp)
    return 3 * getattr(ffn, "intermediate", 0) / tp


def _tower_peak(
    tower: Tower, job: ServingJob, budget: EngineBudget, hidden_states: float, *, every_sequence: bool
) -> float:
    if tower.kind != "vision":
        return 0.0
    item = job.image_tokens or tower.max_tokens_per_item or VISION_ITEM_TOKENS
    width = 3 * tower.hidden + 2 * (tower.intermediate or 4 * tower.hidden)
    if every_sequence:
        # Cross-attention models are profiled with one image per sequence; a patch is a token. Alive at once: the
        # feed-forward block, five intermediate outputs and the stream, and a dense mask between an image's tiles
        # (vllm/model_executor/models/mllama.py).
        width = 2 * (tower.intermediate or 4 * tower.hidden) + 6 * tower.hidden
        return ACTIVATION * budget.max_sequences * (item * width + item**2)
    items = max(1, min(job.images_per_prompt, budget.max_batched_tokens // item))
    # A vision encoder sees four patches for every token that it hands over (2 x 2 merging).
    return ACTIVATION * 4 * item * items * width + hidden_states


def minimum_bytes(model: ModelShape, job: ServingJob) -> float:
    """Bytes of one GPU below which nothing fits: weights and context, whatever the engine's budget."""
    form = stored_format(model, job)
    stages = (rank_parameters(model, replica_layout(job), stage) for stage in range(job.pp))
    return max(weights_on_rank(rank, form) for rank in stages) + CONTEXT_BYTES
