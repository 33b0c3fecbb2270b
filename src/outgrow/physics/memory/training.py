"""The peak memory of a training step, per pipeline stage: states + what the worst moment of the step adds.

The step is walked once: the forward pass fills activations, the loss adds logits, the backward pass frees one
layer after the other while gradients grow, the optimizer needs its temporaries. The largest moment is the peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.layout import Layout
from outgrow.physics.memory.activations import FP32, LayerActivations, context, layer_activations
from outgrow.physics.memory.loss import head_gradient_bytes, logits_bytes, logits_gradient_bytes
from outgrow.physics.memory.overhead import Overhead, with_overhead
from outgrow.physics.memory.parameters import distinct_weights, layer_parameters
from outgrow.physics.memory.states import States, training_states
from outgrow.physics.memory.terms import Breakdown, Phase, Term
from outgrow.units import GIB
from outgrow.workload.model import Layer, ModelShape
from outgrow.workload.training import OPTIMIZER_MOMENTS, TrainingJob

FUSED_WORKSPACE = 0.25 * GIB
"""Matrix-product workspaces that Transformer Engine allocates as tensors (32 MiB on each of up to eight streams)."""
PREFETCHED_LAYERS = 2
"""Sharded training holds the layer at work and the one that is fetched next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """One candidate for the peak."""

    phase: Phase
    terms: tuple[Term, ...]

    @property
    def total(self) -> float:
        return sum(t.bytes for t in self.terms)


def training_memory(
    model: ModelShape,
    job: TrainingJob,
    layout: Layout,
    overhead: Overhead | None = None,
    *,
    capacity_bytes: float | None = None,
) -> tuple[Breakdown, ...]:
    """Peak memory of one rank of every pipeline stage.

    Bytes; `allocated` is what torch.cuda.max_memory_allocated shows on that rank in the second step or later.
    """
    return tuple(_stage(model, job, layout, stage, overhead, capacity_bytes) for stage in range(layout.pp))


def worst(breakdowns: tuple[Breakdown, ...]) -> Breakdown:
    """The stage that needs most."""
    return max(breakdowns, key=lambda b: b.allocated.value)


def _stage(
    model: ModelShape,
    job: TrainingJob,
    layout: Layout,
    stage: int,
    overhead: Overhead | None,
    capacity_bytes: float | None,
) -> Breakdown:
    moments = stage_moments(model, job, layout, stage)
    peak = max(moments, key=lambda m: m.total)
    states = training_states(model, job, layout, stage)
    host = states.host_bytes
    if "activations" in job.offload:
        host += sum(_kept(model, job, layout, stage)) * layout.in_flight(stage, job.accumulation)
    phases: dict[Phase, float] = {}
    largest: dict[str, float] = {}
    for moment in moments:
        for term in moment.terms:
            largest[term.name] = max(largest.get(term.name, 0.0), term.bytes)
        phases[moment.phase] = max(phases.get(moment.phase, 0.0), moment.total)
    return with_overhead(
        stage=stage, phase=peak.phase, terms=peak.terms, idle_bytes=sum(largest.values()) - peak.total, job=job,
        layout=layout, overhead=overhead, host_bytes=host, capacity_bytes=capacity_bytes,
        paged_bytes=states.moment_bytes if states.moments_paged else 0.0, phases=tuple(phases.items()),
    )  # fmt: skip


def micro_batch_tokens(job: TrainingJob, layout: Layout) -> float:
    """Tokens of one micro-batch on one rank."""
    if job.batching == "unpadded" and job.mean_length is not None:
        return (job.sequence_length + (layout.micro_batch - 1) * job.mean_length) / layout.cp
    return layout.micro_batch * job.sequence_length / layout.cp


def _stage_layers(model: ModelShape, layout: Layout, stage: int) -> list[Layer]:
    layers = [model.layers[i] for i in layout.chunks(len(model.layers))[stage]]
    return [*model.encoder, *layers] if stage == 0 else layers


def _activations(
    model: ModelShape, job: TrainingJob, layout: Layout, layers: list[Layer]
) -> list[LayerActivations]:
    cache: dict[Layer, LayerActivations] = {}
    for layer in layers:
        if layer not in cache:
            cache[layer] = layer_activations(layer, model, job, layout)
    return [cache[layer] for layer in layers]


def _kept(model: ModelShape, job: TrainingJob, layout: Layout, stage: int) -> list[float]:
    tokens = micro_batch_tokens(job, layout)
    return [a.kept * tokens for a in _activations(model, job, layout, _stage_layers(model, layout, stage))]


def stage_moments(model: ModelShape, job: TrainingJob, layout: Layout, stage: int) -> list[_Moment]:
    """Every candidate for the peak of one stage."""
    c = context(model, job, layout)
    regime = job.regime
    tokens = micro_batch_tokens(job, layout)
    states = training_states(model, job, layout, stage)
    layers = _stage_layers(model, layout, stage)
    acts = _activations(model, job, layout, layers)
    first, last = stage == 0, stage == layout.pp - 1
    kept = [a.kept * tokens for a in acts]
    offloaded = "activations" in job.offload
    if offloaded:
        # The copy to the host runs behind: the last two layers are still here.
        kept = [0.0] * max(0, len(kept) - PREFETCHED_LAYERS) + kept[-PREFETCHED_LAYERS:]
    in_flight = layout.in_flight(stage, job.accumulation)
    waiting = sum(kept) * (in_flight - 1)
    sharded = layout.sharding == "zero3" and layout.shards > 1

    base = _state_terms(states, job)
    gathered = _gathered(job, states, layout) if sharded else []
    gathered = gathered + _autocast_copies(job, layout, states)
    fused_accumulation = job.kernels == "fused" and states.gradients_persist
    if fused_accumulation:
        base += _fused_buffers(model, job, layout, stage)
    if (
        job.accumulation > 1
        and job.trains_all
        and not states.gradients_persist
        and not job.optimizer_in_backward
    ):
        base += _accumulated(states, job, layout, sharded=sharded)
    boundary = tokens * c.h / c.sp * (c.r if first else 0.0)  # output of the embedding
    final_norm = (
        tokens * c.h * _final_norm_bytes(c.kernels, c.a, c.r, trains_all=c.trains_all) / c.sp if last else 0.0
    )
    logits = logits_bytes(model, job, layout, tokens) if last else 0.0

    def activation_terms(layer_bytes: float, extra: float = 0.0) -> list[Term]:
        return [
            Term(name="activations", bytes=layer_bytes + waiting + extra, kind="activation",
                 source=f"{tokens:,.0f} tokens x {len(layers)} layers x {in_flight:g} micro-batches, {job.kernels}, recompute {layout.recompute}"),
        ]  # fmt: skip

    moments = [
        _Moment(
            phase="loss",
            terms=tuple(
                [*base, *gathered]
                + activation_terms(sum(kept), boundary + final_norm)
                + [
                    Term(
                        name="logits and loss",
                        bytes=logits,
                        kind="activation",
                        source=f"{tokens:,.0f} tokens x {model.vocab:,} entries, {job.loss} loss",
                    )
                ]
                + [
                    Term(
                        name="gradients",
                        bytes=head_gradient_bytes(model, job, layout),
                        kind="state",
                        source="head gradient of the fused loss",
                    )
                ]
            ),
        )
    ]
    if last and job.trains_all:
        head = [Term(name="logits and loss", bytes=logits_gradient_bytes(model, job, layout, tokens), kind="activation", source="gradient of the logits"),
                Term(name="head gradient", bytes=regime.compute * states.rank.head, kind="transient", source="weight gradient of the output head")]  # fmt: skip
        moments.append(
            _Moment(
                phase="backward",
                terms=tuple([*base, *gathered, *activation_terms(sum(kept), boundary + final_norm), *head]),
            )
        )
    moments += _backward(
        model, job, layout, states, layers, acts, kept, base, gathered, activation_terms, boundary, tokens
    )
    optimizer = list(base)
    if not states.gradients_persist and job.accumulation == 1 and not job.optimizer_in_backward:
        optimizer.append(
            Term(
                name="gradients",
                bytes=states.gradient_bytes,
                kind="state",
                source=f"{regime.gradient:g} B per trained parameter",
            )
        )
    if job.optimizer_foreach and OPTIMIZER_MOMENTS[job.optimizer] and "optimizer" not in job.offload:
        width = regime.state if job.trains_all else job.lora.parameter_bytes
        optimizer.append(
            Term(
                name="optimizer temporaries",
                bytes=width * states.trained_shard,
                kind="transient",
                source="one temporary per moment list (foreach)",
            )
        )
    moments.append(_Moment(phase="optimizer", terms=tuple(optimizer)))
    return moments


def _final_norm_bytes(kernels: str, a: float, r: float, *, trains_all: bool) -> float:
    if kernels == "eager":
        return FP32 + (r if trains_all else 0.0) + a
    return r + a


def _backward(
    model: ModelShape, job: TrainingJob, layout: Layout, states: States, layers: list[Layer], acts: list[LayerActivations],
    kept: list[float], base: list[Term], gathered: list[Term], activation_terms: object, boundary: float, tokens: float,
) -> list[_Moment]:  # fmt: skip
    """The backward pass, layer by layer from the last: activations shrink, gradients grow."""
    regime = job.regime
    sharded = layout.sharding == "zero3" and layout.shards > 1
    share_dense = 1 / layout.shards if layout.sharding in ("zero2", "zero3") else 1.0
    share_expert = 1 / layout.expert_shards if layout.sharding in ("zero2", "zero3") else 1.0
    fresh = (
        job.trains_all
        and not states.gradients_persist
        and job.accumulation == 1
        and not job.optimizer_in_backward
    )
    last_stage = states.rank.head > 0
    grown = 0.0
    if fresh and last_stage:
        grown = regime.gradient * states.rank.head * (1.0 if not sharded else share_dense)
    if not job.trains_all:
        grown = states.gradient_bytes
    recomputing = layout.recompute != "none"
    alive = 1.0 + (job.recomputed_ahead if recomputing else 0.0)
    result = []
    remaining = sum(kept)
    cache: dict[Layer, tuple[float, float, float]] = {}
    for index in range(len(layers) - 1, -1, -1):
        layer, act = layers[index], acts[index]
        if layer not in cache:
            cache[layer] = layer_parameters(layer, model.hidden, layout)
        blocks, experts, vectors = cache[layer]
        own = act.full * alive * tokens if recomputing or "activations" in job.offload else kept[index]
        before = remaining if layout.recompute == "full" else remaining - kept[index]
        terms = [*base, *gathered]
        terms += activation_terms(before + own, boundary)  # type: ignore[operator]
        terms.append(
            Term(
                name="activation gradients",
                bytes=act.transient * alive * tokens,
                kind="transient",
                source="widest gradients in a layer",
            )
        )
        if job.base_format is not None and not job.trains_all:
            matrix = _widest_matrix(layer, model.hidden, layout)
            terms.append(
                Term(
                    name="dequantised weights",
                    bytes=regime.compute * matrix,
                    kind="transient",
                    source="one matrix of the base at a time",
                )
            )
        layer_gradient = 0.0
        if job.trains_all:
            layer_gradient = regime.compute * (blocks + experts + vectors)
            if sharded:
                # The whole layer's gradient, and the buffer in which it is reduced.
                reduce = regime.reduce * (blocks + experts + vectors)
                terms.append(
                    Term(
                        name="gradient reduction",
                        bytes=layer_gradient + reduce,
                        kind="transient",
                        source=f"one layer unsharded, {regime.compute:g} + {regime.reduce:g} B",
                    )
                )
                root = regime.compute * states.rank.head
                terms.append(
                    Term(
                        name="unsharded head gradient",
                        bytes=root,
                        kind="transient",
                        source="kept until the root is reduced",
                    )
                )
        if fresh or not job.trains_all:
            terms.append(
                Term(
                    name="gradients",
                    bytes=grown,
                    kind="state",
                    source=f"{regime.gradient:g} B per trained parameter, so far",
                )
            )
        elif job.optimizer_in_backward:
            terms.append(
                Term(
                    name="gradients",
                    bytes=regime.gradient * (blocks + experts + vectors),
                    kind="transient",
                    source="one layer: applied and freed in the backward pass",
                )
            )
        result.append(_Moment(phase="backward", terms=tuple(terms)))
        if fresh:
            grown += regime.gradient * ((blocks + vectors) * share_dense + experts * share_expert)
        remaining -= kept[index]
    return result


def _widest_matrix(layer: Layer, hidden: int, layout: Layout) -> float:
    """Elements of the widest matrix of a layer on one rank."""
    ffn = layer.ffn
    width = ffn.intermediate if ffn is not None else hidden
    return hidden * max(width, hidden) / layout.tp


def _autocast_copies(job: TrainingJob, layout: Layout, states: States) -> list[Term]:
    """Casts of weights that autocast keeps for the backward pass; with recomputation they go after the forward pass."""
    if not job.regime.autocast or not job.trains_all or layout.recompute == "full":
        return []
    rank = states.rank
    size = job.regime.compute * (rank.blocks + rank.experts + rank.head)
    return [
        Term(
            name="autocast copies",
            bytes=size,
            kind="transient",
            source=f"{job.regime.compute:g} B per weight of linear layers",
        )
    ]


def _state_terms(states: States, job: TrainingJob) -> list[Term]:
    regime = job.regime
    terms = []
    if job.trains_all:
        terms.append(
            Term(name="parameters", bytes=states.parameter_bytes, kind="state", source=states.formula)
        )
        if states.gradients_persist:
            terms.append(
                Term(
                    name="gradients",
                    bytes=states.gradient_bytes,
                    kind="state",
                    source=f"{regime.gradient:g} B per parameter in a buffer that stays",
                )
            )
    else:
        form = job.base_format.name if job.base_format else f"{job.base_bytes or regime.compute:g} B"
        terms.append(
            Term(
                name="frozen base",
                bytes=states.frozen_bytes,
                kind="state",
                source=f"{states.formula} in {form}, tables and norms in 16 bits",
            )
        )
    if states.adapter_bytes:
        terms.append(
            Term(
                name="adapters",
                bytes=states.adapter_bytes,
                kind="state",
                source=f"rank {job.lora.rank} on {' '.join(job.lora.targets)}, {job.lora.parameter_bytes:g} B",
            )
        )
    if states.master_bytes:
        terms.append(
            Term(
                name="master parameters",
                bytes=states.master_bytes,
                kind="state",
                source=f"{regime.master:g} B per parameter of the shard",
            )
        )
    if states.moment_bytes and not states.moments_paged:
        terms.append(
            Term(
                name="optimizer states",
                bytes=states.moment_bytes,
                kind="state",
                source=f"{job.optimizer}, {states.trained_shard:,.0f} parameters of this shard",
            )
        )
    if states.reference_bytes:
        terms.append(
            Term(
                name="other models",
                bytes=states.reference_bytes,
                kind="state",
                source=f"resident for {job.objective}" + (", moving average" if job.ema else ""),
            )
        )
    return terms


def _fused_buffers(model: ModelShape, job: TrainingJob, layout: Layout, stage: int) -> list[Term]:
    placeholders = job.regime.compute * distinct_weights(model, layout, stage)
    return [
        Term(
            name="gradient placeholders",
            bytes=placeholders,
            kind="transient",
            source="fused accumulation keeps one unused gradient per shape of weight",
        ),
        Term(
            name="workspaces",
            bytes=FUSED_WORKSPACE,
            kind="transient",
            source="matrix-product workspaces of Transformer Engine",
        ),
    ]


def _accumulated(states: States, job: TrainingJob, layout: Layout, *, sharded: bool) -> list[Term]:
    if sharded and job.accumulate_unsharded:
        size = job.regime.reduce * states.trained
        return [
            Term(
                name="gradients",
                bytes=size,
                kind="state",
                source=f"accumulated without reduction: {job.regime.reduce:g} B x {states.trained:,.0f} unsharded",
            )
        ]
    return [
        Term(
            name="gradients",
            bytes=states.gradient_bytes,
            kind="state",
            source=f"{job.regime.gradient:g} B per parameter, accumulated over {job.accumulation} micro-batches",
        )
    ]


def _gathered(job: TrainingJob, states: States, layout: Layout) -> list[Term]:
    """Parameters that sharded training has gathered at one moment."""
    rank = states.rank
    width = job.regime.compute
    if job.trains_all:
        layer = width * rank.layer
    else:
        form = job.base_format
        plain = job.base_bytes if job.base_bytes is not None else width
        layer = (form.bytes_per_element if form is not None else plain) * rank.layer
        width = plain
    root = width * (rank.embedding + rank.head)
    if not job.reshard:
        return [
            Term(
                name="gathered parameters",
                bytes=width * rank.total,
                kind="transient",
                source=f"all {rank.total:,.0f} parameters of the stage stay unsharded",
            )
        ]
    return [
        Term(
            name="gathered parameters",
            bytes=PREFETCHED_LAYERS * layer + root,
            kind="transient",
            source=f"{PREFETCHED_LAYERS} layers and the embedding and head, unsharded",
        )
    ]


def sized(
    job: TrainingJob, layout: Layout, *, micro_batch: int | None = None, sequence_length: int | None = None
) -> tuple[TrainingJob, Layout]:
    """The same job with another micro-batch or sequence length."""
    if sequence_length is not None:
        job = replace(job, sequence_length=sequence_length)
    if micro_batch is not None:
        layout = replace(layout, micro_batch=micro_batch)
    return job, layout
