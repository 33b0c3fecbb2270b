"""The moments of a training step that can be its peak, on one rank of one pipeline stage.

The step is walked once: the forward pass fills activations, the loss adds logits, the backward pass frees one
layer after the other while gradients grow, the optimizer needs its temporaries.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.layout import Layout
from outgrow.physics.memory.activations import FP32, Context, LayerActivations, context, layer_activations
from outgrow.physics.memory.loss import logits_gradient_bytes, loss_bytes, loss_cost
from outgrow.physics.memory.parameters import distinct_weights, layer_parameters
from outgrow.physics.memory.states import States, training_states
from outgrow.physics.memory.terms import Phase, Term, TermKind
from outgrow.units import GIB
from outgrow.workload.model import Layer, ModelShape
from outgrow.workload.training import OPTIMIZER_MOMENTS, TrainingJob

FUSED_WORKSPACE = 0.25 * GIB
"""Matrix-product workspaces that Transformer Engine allocates as tensors (32 MiB on each of up to eight streams)."""
LAYERS_ON_THE_WAY = 2
"""Offloaded activations that are still on the device: copies to the host run behind by two layers."""
NORM_BACKWARD = 20.0
"""fp32 temporaries in the backward pass of an RMS norm of plain modules: five, 4 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One candidate for the peak: what is alive, and in which phase."""

    phase: Phase
    terms: tuple[Term, ...]

    @property
    def total(self) -> float:
        return sum(t.bytes for t in self.terms)


def micro_batch_tokens(job: TrainingJob, layout: Layout) -> float:
    """Tokens of one micro-batch on one rank. Preferences come in pairs: chosen and rejected go through together."""
    sequences = layout.micro_batch * (2 if job.objective == "dpo" else 1)
    if job.batching == "unpadded" and job.mean_length is not None:
        return (job.sequence_length + (sequences - 1) * job.mean_length) / layout.cp
    return sequences * job.sequence_length / layout.cp


def stage_moments(model: ModelShape, job: TrainingJob, layout: Layout, stage: int) -> list[Moment]:
    """Every candidate for the peak of one stage."""
    return Stage(model, job, layout, stage).moments()


class Stage:
    """One stage's sizes, and the moments made of them."""

    def __init__(self, model: ModelShape, job: TrainingJob, layout: Layout, stage: int) -> None:
        self.model, self.job, self.layout, self.stage = model, job, layout, stage
        self.c: Context = context(model, job, layout)
        self.regime = job.regime
        self.tokens = micro_batch_tokens(job, layout)
        self.states: States = training_states(model, job, layout, stage)
        layers = [model.layers[i] for i in layout.chunks(len(model.layers))[stage]]
        self.layers: list[Layer] = [*model.encoder, *layers] if stage == 0 else layers
        self.first, self.last = stage == 0, stage == layout.pp - 1
        self.sharded = layout.sharding == "zero3" and layout.shards > 1
        self.in_flight = layout.in_flight(stage, job.accumulation)
        # Gradients that appear during the backward pass and are gone after the step.
        self.fresh = (
            job.trains_all
            and not self.states.gradients_persist
            and job.accumulation == 1
            and not job.optimizer_in_backward
        )
        cache: dict[Layer, tuple[LayerActivations, tuple[float, float, float]]] = {}
        for layer in self.layers:
            if layer not in cache:
                cache[layer] = (
                    layer_activations(layer, model, job, layout),
                    layer_parameters(layer, model.hidden, layout),
                )
        self.acts = [cache[layer][0] for layer in self.layers]
        self.weights = [cache[layer][1] for layer in self.layers]

    # -- sizes

    def kept_of_layers(self) -> list[float]:
        """Bytes that one micro-batch leaves of each layer for the backward pass, before any offloading."""
        return [a.kept * self.tokens for a in self.acts]

    def kept(self) -> list[float]:
        kept = self.kept_of_layers()
        if "activations" in self.job.offload:
            return [0.0] * max(0, len(kept) - LAYERS_ON_THE_WAY) + kept[-LAYERS_ON_THE_WAY:]
        return kept

    def _activations(self, size: float) -> Term:
        source = f"{self.tokens:,.0f} tokens x {len(self.layers)} layers x {self.in_flight:g} micro-batches, {self.job.kernels}, recompute {self.layout.recompute}"
        return _term(
            "activations",
            size + sum(self.kept()) * (self.in_flight - 1) + self._boundary(),
            "activation",
            source,
        )

    def _boundary(self) -> float:
        """Output of the embedding; with full recomputation it is the first layer's kept input itself."""
        if not self.first or self.layout.recompute == "full":
            return 0.0
        return self.tokens * self.c.h / self.c.sp * self.c.r

    def _final_norm(self) -> float:
        if not self.last:
            return 0.0
        c = self.c
        if c.kernels == "eager" and self.model.norm != "layer":
            width = (
                FP32
                + (max(c.r, FP32 if self.model.norm == "rms-fp32" else 0.0) if c.trains_all else 0.0)
                + c.a
            )
        else:
            width = c.r + c.a
        return self.tokens * c.h * width / c.sp

    # -- terms that last

    def base(self) -> list[Term]:
        terms = _state_terms(self.states, self.job)
        if self.job.kernels == "fused" and self.states.gradients_persist:
            placeholders = self.regime.compute * distinct_weights(self.model, self.layout, self.stage)
            terms.append(
                _term(
                    "gradient placeholders",
                    placeholders,
                    "transient",
                    "fused accumulation keeps one unused gradient per shape of weight",
                )
            )
            terms.append(
                _term(
                    "workspaces",
                    FUSED_WORKSPACE,
                    "transient",
                    "matrix-product workspaces of Transformer Engine",
                )
            )
        if self.job.keeps_logits and self.last and self.model.has_head:
            size = FP32 * self.tokens * self.model.vocab / self.layout.tp
            terms.append(
                _term("kept logits", size, "transient", "fp32 logits that stay referenced after the loss")
            )
        accumulating = self.job.accumulation > 1 and self.job.trains_all and not self.states.gradients_persist
        if accumulating and not self.job.optimizer_in_backward:
            terms.append(self._accumulated())
        return terms

    def _accumulated(self) -> Term:
        if self.sharded and self.job.accumulate_unsharded:
            size = self.regime.reduce * self.states.trained
            return _term(
                "gradients",
                size,
                "state",
                f"accumulated without reduction: {self.regime.reduce:g} B x {self.states.trained:,.0f} unsharded",
            )
        return _term(
            "gradients",
            self.states.gradient_bytes,
            "state",
            f"{self.regime.gradient:g} B per parameter, accumulated over {self.job.accumulation} micro-batches",
        )

    def gathered(self, *, loss: bool = False) -> list[Term]:
        """Parameters that sharded training has gathered at one moment; at the loss one layer is still, or already."""
        if not self.sharded:
            return []
        layers = 1 if loss else min(self.job.gather_ahead, max(1, len(self.layers)))
        rank, job, width = self.states.rank, self.job, self.regime.compute
        layer_width = width
        if not job.trains_all:
            width = job.base_bytes if job.base_bytes is not None else width
            layer_width = job.base_format.bytes_per_element if job.base_format is not None else width
        if not job.reshard:
            return [
                _term(
                    "gathered parameters",
                    width * rank.total,
                    "transient",
                    f"all {rank.total:,.0f} parameters of the stage stay unsharded",
                )
            ]
        tables = rank.embedding + rank.head
        if job.tables_apart:
            tables = rank.head if loss else 0.0
        size = layers * layer_width * rank.layer + width * tables
        return [
            _term(
                "gathered parameters",
                size,
                "transient",
                f"{layers} layer{'s' if layers > 1 else ''} and the embedding and head, unsharded",
            )
        ]

    def casts(self, *, forward: bool) -> list[Term]:
        """16-bit copies of weights that autocast keeps: all until the forward pass ends, then what autograd holds."""
        if not self.regime.autocast or not self.job.trains_all:
            return []
        rank = self.states.rank
        width = self.regime.compute
        linear = rank.blocks  # routed experts run in fp32: grouped products are not cast
        head = rank.head if rank.head else (rank.embedding if self.last and self.model.tied else 0.0)
        size = width * (linear + head) if forward or self.layout.recompute != "full" else width * head
        return [_term("autocast copies", size, "transient", f"{width:g} B per weight of a linear layer")]

    # -- moments

    def moments(self) -> list[Moment]:
        base, gathered = self.base(), self.gathered()
        found = [
            *self._loss(base, self.gathered(loss=True)),
            *self._backward(base, gathered),
            *self._end_of_backward(base),
        ]
        found.append(self._optimizer(base))
        if self.job.evaluation_samples and self.last and self.model.has_head:
            found.append(self._evaluation(base))
        return found

    def _loss(self, base: list[Term], gathered: list[Term]) -> list[Moment]:
        forward, backward = (
            loss_bytes(self.model, self.job, self.layout, self.tokens) if self.last else (0.0, 0.0)
        )
        what = "a chunk at a time" if self.job.loss == "fused" else loss_cost(self.job).what
        source = f"{self.tokens:,.0f} tokens x {self.model.vocab:,} entries: {what}"
        activations = self._activations(sum(self.kept()) + self._final_norm())
        head = self._head_gradient_of_fused_loss()

        def moment(phase: Phase, size: float, *extra: Term, casts: bool) -> Moment:
            terms = (
                *base,
                *gathered,
                *self.casts(forward=casts),
                activations,
                _term("logits and loss", size, "activation", source),
                *extra,
            )
            return Moment(phase=phase, terms=terms)

        found = [moment("loss", forward, *head, casts=True), moment("loss", backward, *head, casts=False)]
        if self.job.objective == "dpo" and not self.job.reference_precomputed:
            # The reference scores the same pairs while the logits of the policy wait for their backward pass.
            found.append(moment("loss", 2 * forward, *head, casts=True))
        if self.last and self.job.trains_all and self.model.has_head:
            # The head is differentiated while every layer's activations wait.
            logits = logits_gradient_bytes(self.model, self.job, self.layout, self.tokens)
            weight = self.regime.compute * (self.states.rank.head or self.states.rank.embedding)
            found.append(
                moment(
                    "backward",
                    logits,
                    _term("head gradient", weight, "transient", "weight gradient of the output head"),
                    casts=False,
                )
            )
            if self.c.kernels == "eager" and self.model.norm != "layer":
                norm = NORM_BACKWARD * self.tokens * self.c.h / self.c.sp
                found.append(
                    moment(
                        "backward",
                        0.0,
                        _term("head gradient", weight, "transient", "weight gradient of the output head"),
                        _term(
                            "activation gradients", norm, "transient", "fp32 temporaries of the final norm"
                        ),
                        casts=False,
                    )
                )
        return found

    def _evaluation(self, base: list[Term]) -> Moment:
        """Logits of an evaluation that are kept on the device until a metric is computed of all of them."""
        job = self.job
        entries = job.evaluation_samples * job.sequence_length * self.model.vocab / self.layout.tp
        source = f"{job.evaluation_samples:,} samples x {job.sequence_length:,} tokens x {self.model.vocab:,} entries x 4 B"
        kept = _term("evaluation logits", FP32 * entries, "activation", source)
        return Moment(phase="evaluation", terms=(*base, *self.gathered(loss=True), kept))

    def _head_gradient_of_fused_loss(self) -> tuple[Term, ...]:
        """A fused loss makes the head's gradient in the forward pass: gradient, product of a chunk, its fp32 copy."""
        if self.job.loss != "fused" or not self.job.trains_all or not self.last or not self.model.has_head:
            return ()
        size = (self.states.rank.head or self.states.rank.embedding) * (2 * self.regime.compute + FP32)
        return (_term("head gradient", size, "transient", "the fused loss makes it in the forward pass"),)

    def _backward(self, base: list[Term], gathered: list[Term]) -> list[Moment]:
        """Layer by layer from the last: activations shrink, gradients grow."""
        job, layout, regime = self.job, self.layout, self.regime
        share_dense = 1 / layout.shards if layout.sharding in ("zero2", "zero3") else 1.0
        share_expert = 1 / layout.expert_shards if layout.sharding in ("zero2", "zero3") else 1.0
        head = self.states.rank.head
        fresh_here = self.fresh and "parameters" not in job.offload
        grown = regime.gradient * head * share_dense if fresh_here else 0.0
        if not job.trains_all:
            grown = self.states.gradient_bytes
        recomputing = layout.recompute != "none" or "activations" in job.offload
        alive = 1.0 + (job.recomputed_ahead if layout.recompute != "none" else 0.0)
        casts = self.casts(forward=False)
        kept = self.kept()
        remaining = sum(kept)
        found = []
        for index in range(len(self.layers) - 1, -1, -1):
            act, (blocks, experts, vectors) = self.acts[index], self.weights[index]
            whole = blocks + experts + vectors
            own = act.full * alive * self.tokens if recomputing else kept[index]
            # A checkpointed layer's input is kept beside what is computed again from it.
            before = remaining if layout.recompute == "full" else remaining - kept[index]
            terms = [*base, *gathered, *casts, self._activations(before + own)]
            terms.append(
                _term(
                    "activation gradients",
                    act.transient * alive * self.tokens,
                    "transient",
                    "widest gradients in a layer",
                )
            )
            if regime.autocast and job.trains_all and layout.recompute == "full":
                terms.append(
                    _term(
                        "layer casts",
                        regime.compute * blocks,
                        "transient",
                        "a recomputed layer casts its weights again",
                    )
                )
            if job.base_format is not None and not job.trains_all:
                terms.append(
                    _term(
                        "dequantised weights",
                        regime.compute * self._widest_matrix(self.layers[index]),
                        "transient",
                        "one matrix of the base at a time",
                    )
                )
            if job.trains_all and self.sharded:
                # The whole layer's gradient, the buffer in which it is reduced, and the head's until the root is reduced.
                terms += self._reduction(whole, "one layer")
                apart = 0.0 if job.tables_apart else regime.compute * head
                terms.append(
                    _term("unsharded head gradient", apart, "transient", "kept until the root is reduced")
                )
            if self.fresh or not job.trains_all:
                terms.append(
                    _term("gradients", grown, "state", f"{regime.gradient:g} B per trained parameter, so far")
                )
            elif job.optimizer_in_backward and not self.states.gradients_persist and not self.sharded:
                terms.append(
                    _term(
                        "gradients",
                        regime.gradient * whole,
                        "transient",
                        "one layer: applied and freed in the backward pass",
                    )
                )
            found.append(Moment(phase="backward", terms=tuple(terms)))
            if (
                self.fresh and "parameters" not in job.offload
            ):  # else each gradient goes to the host as it is reduced
                grown += regime.gradient * ((blocks + vectors) * share_dense + experts * share_expert)
            remaining -= kept[index]
        return found

    def _end_of_backward(self, base: list[Term]) -> list[Moment]:
        """Embedding and head at the very end: the root of sharded training is reduced, tied gradients are summed."""
        if not self.job.trains_all:
            return []
        rank, regime = self.states.rank, self.regime
        terms = list(base)
        if self.fresh:
            terms.append(
                _term(
                    "gradients",
                    self.states.gradient_bytes,
                    "state",
                    f"{regime.gradient:g} B per trained parameter",
                )
            )
        root = rank.embedding + rank.head
        if self.sharded:
            terms += self._reduction(root, "embedding and head")
        elif self.model.tied and self.model.has_head and self.layout.pp == 1:
            # The head's gradient waits for the embedding's, and their sum is a third table.
            terms.append(
                _term(
                    "tied gradients",
                    2 * regime.compute * rank.embedding,
                    "transient",
                    "gradients of the head and of the embedding before they are summed",
                )
            )
        return [Moment(phase="backward", terms=tuple(terms))]

    def _reduction(self, parameters: float, what: str) -> list[Term]:
        """Gradients of a sharded unit: whole, and the buffer in which they are reduced."""
        compute, reduce = self.regime.compute, self.regime.reduce
        return [
            _term("unsharded gradients", compute * parameters, "transient", f"{what}, {compute:g} B"),
            _term("gradient reduction", reduce * parameters, "transient", f"{what}, {reduce:g} B"),
        ]

    def _widest_matrix(self, layer: Layer) -> float:
        ffn = layer.ffn
        width = ffn.intermediate if ffn is not None else self.model.hidden
        return self.model.hidden * max(width, self.model.hidden) / self.layout.tp

    def _optimizer(self, base: list[Term]) -> Moment:
        job, states, regime = self.job, self.states, self.regime
        terms = list(base)
        if (
            not states.gradients_persist
            and (job.accumulation == 1 or not job.trains_all)
            and not job.optimizer_in_backward
        ):
            terms.append(
                _term(
                    "gradients",
                    states.gradient_bytes,
                    "state",
                    f"{regime.gradient:g} B per trained parameter",
                )
            )
        if job.optimizer_foreach and OPTIMIZER_MOMENTS[job.optimizer] and "optimizer" not in job.offload:
            width = regime.state if job.trains_all else job.lora.parameter_bytes
            terms.append(
                _term(
                    "optimizer temporaries",
                    width * states.trained_shard,
                    "transient",
                    "one temporary per moment list (foreach)",
                )
            )
        return Moment(phase="optimizer", terms=tuple(terms))


def _term(name: str, size: float, kind: TermKind, source: str) -> Term:
    return Term(name=name, bytes=size, kind=kind, source=source)


def _state_terms(states: States, job: TrainingJob) -> list[Term]:
    regime = job.regime
    terms = []
    if job.trains_all:
        terms.append(_term("parameters", states.parameter_bytes, "state", states.formula))
        if states.gradients_persist:
            terms.append(
                _term(
                    "gradients",
                    states.gradient_bytes,
                    "state",
                    f"{regime.gradient:g} B per parameter in a buffer that stays",
                )
            )
    else:
        form = job.base_format.name if job.base_format else f"{job.base_bytes or regime.compute:g} B"
        terms.append(
            _term(
                "frozen base",
                states.frozen_bytes,
                "state",
                f"{states.formula} in {form}, tables and norms in 16 bits",
            )
        )
    if states.adapter_bytes:
        terms.append(
            _term(
                "adapters",
                states.adapter_bytes,
                "state",
                f"rank {job.lora.rank} on {' '.join(job.lora.targets)}, {job.lora.parameter_bytes:g} B",
            )
        )
    if states.master_bytes:
        terms.append(
            _term(
                "master parameters",
                states.master_bytes,
                "state",
                f"{regime.master:g} B per parameter of the shard",
            )
        )
    if states.moment_bytes and not states.moments_paged:
        terms.append(
            _term(
                "optimizer states",
                states.moment_bytes,
                "state",
                f"{job.optimizer}, {states.trained_shard:,.0f} parameters of this shard",
            )
        )
    if states.reference_bytes:
        terms.append(
            _term(
                "other models",
                states.reference_bytes,
                "state",
                f"resident for {job.objective}" + (", moving average" if job.ema else ""),
            )
        )
    return terms
