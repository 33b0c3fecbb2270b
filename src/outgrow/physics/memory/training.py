"""The peak memory of a training step, per pipeline stage: the largest of its moments, with what surrounds it."""

from __future__ import annotations

from outgrow.layout import Layout
from outgrow.physics.memory.moments import Stage
from outgrow.physics.memory.overhead import Overhead, with_overhead
from outgrow.physics.memory.terms import Breakdown, Phase
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob


def training_memory(
    model: ModelShape, job: TrainingJob, layout: Layout, overhead: Overhead | None = None, *, capacity_bytes: float | None = None
) -> tuple[Breakdown, ...]:  # fmt: skip
    """Peak memory of one rank of every pipeline stage.

    Bytes; `allocated` is what torch.cuda.max_memory_allocated shows on that rank in the second step or later.
    `capacity_bytes` is what the framework sees of the device: near it the allocator gives idle blocks back.
    """
    return tuple(_stage(model, job, layout, stage, overhead, capacity_bytes) for stage in range(layout.pp))


def worst(breakdowns: tuple[Breakdown, ...]) -> Breakdown:
    """The stage that needs most."""
    return max(breakdowns, key=lambda b: b.allocated.value)


def _stage(
    model: ModelShape, job: TrainingJob, layout: Layout, stage: int, overhead: Overhead | None, capacity_bytes: float | None
) -> Breakdown:  # fmt: skip
    sizes = Stage(model, job, layout, stage)
    moments, states = sizes.moments(), sizes.states
    peak = max(moments, key=lambda m: m.total)
    host = states.host_bytes
    if "activations" in job.offload:
        host += sum(sizes.kept_of_layers()) * sizes.in_flight
    phases: dict[Phase, float] = {}
    largest: dict[str, float] = {}
    for moment in moments:
        phases[moment.phase] = max(phases.get(moment.phase, 0.0), moment.total)
        for term in moment.terms:
            largest[term.name] = max(largest.get(term.name, 0.0), term.bytes)
    return with_overhead(
        stage=stage, phase=peak.phase, terms=peak.terms, idle_bytes=sum(largest.values()) - peak.total, job=job,
        layout=layout, overhead=overhead, host_bytes=host, capacity_bytes=capacity_bytes,
        paged_bytes=states.moment_bytes if states.moments_paged else 0.0, phases=tuple(phases.items()),
    )  # fmt: skip
