"""Does it fit: the verdict on one GPU's memory, what would still fit, and what would help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from outgrow.cluster.device import Device
from outgrow.decision.levers import SHORT_REQUEST, Lever, serving_levers, training_levers
from outgrow.evidence import Quantity
from outgrow.layout import Layout, replica_layout
from outgrow.physics.memory.serving import ServingMemory, serving_memory
from outgrow.physics.memory.terms import Breakdown, Term
from outgrow.physics.memory.training import training_memory, worst
from outgrow.planning.feasible import Violation, violations
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob

FitVerdict = Literal["fits", "fits-barely", "barely-not", "does-not-fit", "illegal"]
USUAL_REQUEST = 4096
"""Tokens of the requests that are counted where no traffic is given."""
LONGEST = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The largest value of one thing that still fits, all else as given."""

    name: str
    value: int | None
    """None where not even the smallest fits."""
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The answer to "does it fit"."""

    verdict: FitVerdict
    capacity: Quantity
    """Bytes of one GPU that a framework can use."""
    needed: Quantity
    """Bytes of one GPU that the job cannot do without."""
    allocated: Quantity
    reserved: Quantity
    device: Quantity
    terms: tuple[Term, ...]
    """What fills one GPU at the peak: the worst rank's."""
    free_bytes: float
    phase: str
    stage: int
    host_bytes: float
    limits: tuple[Limit, ...]
    levers: tuple[Lever, ...]
    violations: tuple[Violation, ...]
    cache_tokens: int | None = None
    cache_bytes_per_token: float | None = None
    context_length: int | None = None
    concurrency: float | None = None
    """Sequences of the mean length of the traffic that the cache holds at once."""

    @property
    def fits(self) -> bool:
        return self.verdict in ("fits", "fits-barely")

    def limit(self, name: str) -> int | None:
        """The value of one of the limits; None where nothing fits, or nothing limits it."""
        return next((limit.value for limit in self.limits if limit.name == name), None)


def _verdict(needed: Quantity, capacity: float, broken: bool) -> FitVerdict:
    if broken:
        return "illegal"
    if needed.high <= capacity:
        return "fits"
    if needed.value <= capacity:
        return "fits-barely"
    return "barely-not" if needed.low <= capacity else "does-not-fit"


def largest(fits: Callable[[int], bool], most: int = LONGEST) -> int | None:
    """The largest value in 1..most for which `fits` holds, given that it holds for all smaller ones."""
    if not fits(1):
        return None
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _capacity(device: Device) -> Quantity:
    memory = device.torch_memory
    return Quantity(
        value=memory.value,
        unit="byte",
        low=memory.lowest,
        high=memory.highest,
        source=f"{device.title}: {memory.source}",
    )


def fit_training(
    model: ModelShape, job: TrainingJob, layout: Layout, device: Device, *, global_batch: int | None = None
) -> Fit:
    """Whether one step of a training job fits on every rank."""
    capacity = _capacity(device)
    found = violations(
        model, layout, device=device, job=job, global_batch=global_batch,
        fp8=job.regime.fp8, bf16=job.regime.activation == 2 and not device.supports_bf16,
    )  # fmt: skip
    if layout.stage_layers is not None and sum(layout.stage_layers) != len(model.layers):
        layout = replace(layout, stage_layers=None)
    peak = _peak(model, job, layout, capacity.value)

    def fits(candidate: TrainingJob, plan: Layout) -> bool:
        return _peak(model, candidate, plan, capacity.value).needed_bytes <= capacity.value

    step = 2 * layout.cp
    limits = (
        Limit(
            name="micro-batch",
            value=largest(lambda n: fits(job, replace(layout, micro_batch=n)), 1 << 16),
            unit="sequences",
            note=f"at {job.sequence_length:,} tokens",
        ),
        Limit(
            name="sequence length",
            value=_scaled(
                largest(lambda n: fits(replace(job, sequence_length=n * step), layout), LONGEST // step), step
            ),
            unit="tokens",
            note=f"at micro-batch {layout.micro_batch}",
        ),
    )
    return Fit(
        verdict=_verdict(peak.needed, capacity.value, any(v.severity == "error" for v in found)),
        capacity=capacity, needed=peak.needed, allocated=peak.allocated, reserved=peak.reserved, device=peak.device,
        terms=peak.terms, free_bytes=capacity.value - peak.needed_bytes, phase=peak.phase, stage=peak.stage,
        host_bytes=peak.host_bytes, limits=limits, levers=training_levers(model, job, layout, capacity.value), violations=found,
    )  # fmt: skip


def _scaled(value: int | None, step: int) -> int | None:
    return None if value is None else value * step


def _peak(model: ModelShape, job: TrainingJob, layout: Layout, capacity: float) -> Breakdown:
    return worst(training_memory(model, job, layout, capacity_bytes=capacity))


def takes_fp16(model: ModelShape, job: ServingJob, device: Device) -> bool:
    """The model is stored in bf16 and the device has none: engines multiply in fp16 instead."""
    asked = job.weights in (None, "bf16")
    return asked and model.dtype == "bfloat16" and not device.supports_bf16


def fit_serving(model: ModelShape, job: ServingJob, device: Device) -> Fit:
    """Whether an engine starts with this model, and what its cache holds."""
    capacity = _capacity(device)

    def memory(candidate: ServingJob) -> ServingMemory:
        return serving_memory(model, candidate, device_bytes=capacity.value, is_a100=device.is_a100)

    answer = memory(job)
    layout = replica_layout(job)
    form = answer.weight_format
    found = violations(
        model, layout, device=device, form=form, bf16=takes_fp16(model, job, device), uneven_stages=True
    )
    used = sum(
        t.bytes
        for t in answer.terms
        if t.kind != "cache" and t.name not in ("left free by the engine", "unused")
    )
    # Asked for a context, an engine starts only where one request of it fits.
    shortest = (
        answer.context_length if job.max_model_len is not None else min(answer.context_length, SHORT_REQUEST)
    )
    one_sequence = answer.cost.sequence_bytes(shortest)
    needed_value = used + one_sequence
    slack = answer.uncertainty_bytes
    needed = Quantity(
        value=needed_value,
        unit="byte",
        low=needed_value - slack,
        high=needed_value + slack,
        source="weights, activation peak, context and the cache of one request",
    )
    mean = min(USUAL_REQUEST, model.max_positions or USUAL_REQUEST)
    if job.traffic is not None:
        mean = job.traffic.input_tokens + job.traffic.output_tokens
    if answer.budget.fraction_of == "remaining":
        limit = capacity.value - one_sequence * (1 / answer.budget.memory_fraction - 1)
    else:
        limit = capacity.value - sum(t.bytes for t in answer.terms if t.name == "left free by the engine")
    verdict: FitVerdict = _verdict(needed, limit, any(v.severity == "error" for v in found))
    starts = answer.starts or job.max_model_len is None
    states = answer.state_blocks
    if job.engine == "vllm" and states is not None and answer.budget.max_sequences > states:
        starts = starts and job.max_sequences is None
        refused = Violation(
            severity="warning", what=f"{answer.budget.max_sequences:,} sequences at once need as many blocks for their states, and there are {states:,}: {job.engine} refuses to start",
            legal=f"serving.max_sequences = {states} or less",
        )  # fmt: skip
        found = (*found, refused)
    if verdict in ("fits", "fits-barely") and not starts:
        verdict = "barely-not"
    longest = (
        largest(lambda n: answer.sequences(n) >= 1, min(LONGEST, model.max_positions or LONGEST))
        if answer.cache_bytes > 0
        else None
    )
    at_once = answer.sequences(mean)
    limits: tuple[Limit, ...]
    own, tried = longest == model.max_positions, longest == LONGEST
    limits = (
        Limit(
            name="context of one request",
            value=longest,
            unit="tokens",
            note="the model's own limit"
            if own
            else "and more: a state of fixed size"
            if tried
            else "then the cache is full",
        ),
        Limit(
            name="requests at once",
            value=int(at_once) if at_once != float("inf") else None,
            unit="requests",
            note=f"of {mean:,} tokens each, per replica",
        ),
    )
    if states:
        state = Limit(name="state blocks", value=states, unit="sequences", note="one block each")
        limits = (*limits, state)
    used_total = used + max(answer.cache_bytes, 0.0)
    exact = Quantity(
        value=used_total,
        unit="byte",
        low=used_total - slack,
        high=used_total + slack,
        source="weights, activation peak, cache",
    )
    return Fit(
        verdict=verdict, capacity=capacity, needed=needed, allocated=exact, reserved=exact, device=exact, terms=answer.terms,
        free_bytes=limit - needed_value, phase="serving", stage=answer.stage, host_bytes=0.0, limits=limits,
        levers=serving_levers(model, job, memory, answer, device), violations=found, cache_tokens=answer.cache_tokens,
        cache_bytes_per_token=answer.cost.charged_per_token, context_length=answer.context_length,
        concurrency=at_once,
    )  # fmt: skip
