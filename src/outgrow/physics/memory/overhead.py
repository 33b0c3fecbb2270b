"""From allocated bytes to what the allocator reserves and what the driver reports.

The caching allocator keeps what one moment of a step frees, and can hand only part of it to another moment that
asks for blocks of other sizes. What it could not reuse is `idle`: the sum of every part's own largest size, less
what was alive at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.evidence import Quantity
from outgrow.layout import Layout
from outgrow.physics.memory.terms import Breakdown, Phase, Term
from outgrow.units import GIB, format_percent
from outgrow.workload.training import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Constants between allocated and device memory. Fitted on the 127 runs of foundation-model-stack/fms-acceleration
    that report both, and judged on sources that report reserved memory (validation/README.md)."""

    idle_share: float = 0.5
    """Share of idle bytes that stay reserved."""
    rounding_share: float = 0.04
    """Bytes lost inside of blocks, per byte that comes and goes within a step."""
    varying_share: float = 0.6
    """The same where batches differ in size from step to step."""
    context_bytes: float = 1.0 * GIB
    """CUDA context, kernels, library workspaces."""
    group_bytes: float = 1.2 * GIB
    """Buffers of one communicator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Relative bounds of the central 80 % of measurements around a prediction."""

    low: float
    high: float


# Residuals of leave-one-source-out predictions, by what is measured (scripts/intervals.py prints them).
INTERVALS = {
    "allocated": Interval(low=0.91, high=1.10),
    "reserved": Interval(low=0.88, high=1.10),
    "device": Interval(low=0.90, high=1.30),
}


def communicators(layout: Layout) -> int:
    """Process groups with more than one rank that a layout creates."""
    return sum(1 for degree in (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep) if degree > 1)


def with_overhead(
    *, stage: int, phase: Phase, terms: tuple[Term, ...], idle_bytes: float, job: TrainingJob, layout: Layout,
    overhead: Overhead | None, host_bytes: float, paged_bytes: float, phases: tuple[tuple[Phase, float], ...],
    capacity_bytes: float | None = None,
) -> Breakdown:  # fmt: skip
    """A breakdown whose three totals carry intervals.

    `capacity_bytes` is what the framework sees of the device: near it the allocator gives idle blocks back.
    """
    o = overhead or Overhead()
    allocated = sum(t.bytes for t in terms)
    moving = sum(t.bytes for t in terms if t.kind != "state")
    varying = job.batching != "packed" and not job.empties_cache
    gap = moving * (o.varying_share if varying else o.rounding_share)
    idle = 0.0 if job.expandable_segments else o.idle_share * max(0.0, idle_bytes)
    groups = communicators(layout) * o.group_bytes
    rollout = job.rollout_fraction * (capacity_bytes or 0.0)
    outside = o.context_bytes + groups + rollout
    if capacity_bytes is not None:
        idle = max(0.0, min(idle, capacity_bytes - outside - allocated - gap))
    reserved = allocated + gap + idle
    device = reserved + outside
    extra = (
        Term(
            name="allocator gap",
            bytes=gap,
            kind="overhead",
            source="batches of varying size leave blocks that fit no other"
            if varying
            else "blocks are rounded up",
        ),
        Term(
            name="idle cache",
            bytes=idle,
            kind="overhead",
            source=f"{format_percent(o.idle_share, digits=0)} of what other moments of the step needed; given back when memory runs short",
        ),
        Term(
            name="context",
            bytes=o.context_bytes,
            kind="overhead",
            source="CUDA context and library workspaces",
        ),
        Term(
            name="communicators",
            bytes=groups,
            kind="overhead",
            source=f"{communicators(layout)} groups x {o.group_bytes / GIB:.1f} GiB",
        ),
        Term(
            name="rollout engine",
            bytes=rollout,
            kind="overhead",
            source=f"{format_percent(job.rollout_fraction, digits=0)} of the device for the engine that shares it",
        ),
    )
    return Breakdown(
        stage=stage, phase=phase, terms=tuple(t for t in (*terms, *extra) if t.bytes > 0),
        allocated=_interval("allocated", allocated, "sum of tensors alive at the peak"),
        reserved=_interval("reserved", reserved, "allocated, allocator gap and idle cache"),
        device=_interval("device", device, "reserved, context and communicators", paged_bytes),
        needed=_interval(
            "allocated", allocated + moving * o.rounding_share + outside, "allocated, allocator gap, context and communicators"
        ), host_bytes=host_bytes, phases=phases,
    )  # fmt: skip


def _interval(name: str, value: float, source: str, more: float = 0.0) -> Quantity:
    """`more` bytes may live on the device where there is room (paged optimizer states)."""
    bounds = INTERVALS[name]
    return Quantity(
        value=value, unit="byte", low=value * bounds.low, high=value * bounds.high + more, source=source
    )
