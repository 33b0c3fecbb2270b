"""The fewest GPUs on which a job fits, trains in time, or carries its traffic. Closed forms and bisection, no search."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from outgrow.cluster.cluster import Cluster
from outgrow.cluster.device import Device
from outgrow.cluster.fabric import Fabric
from outgrow.layout import Layout
from outgrow.physics.collectives import all_reduce_seconds, tensor_traffic
from outgrow.physics.compute import Band, decode_step_seconds, prefill_seconds, training_tokens_per_second
from outgrow.physics.memory.serving import ServingMemory, serving_memory
from outgrow.physics.memory.terms import Breakdown
from outgrow.physics.memory.training import training_memory, worst
from outgrow.planning.feasible import legal_tensor_parallel
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob

MOST_GPUS = 65536
TARGET_UTILISATION = 0.7
"""Share of a replica's saturation rate that is planned for: above it queues grow steeply (1 / (1 - utilisation))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A number of GPUs, the layout on them, and the memory that it takes."""

    gpus: int
    layout: Layout
    peak: Breakdown


def gpu_counts(cluster: Cluster) -> list[int]:
    """1, 2, 4, ... GPUs of one node, then 1, 2, 4, ... whole nodes."""
    per_node = cluster.gpus_per_node
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < per_node]
    nodes = 1
    while nodes * per_node <= MOST_GPUS:
        counts.append(nodes * per_node)
        nodes *= 2
    return counts


def training_variants(model: ModelShape, cluster: Cluster, base: Layout) -> list[Layout]:
    """What is given first; then with full recomputation; then split over a node by tensor parallelism as well."""
    variants = [base]
    if base.recompute != "full":
        variants.append(replace(base, recompute="full"))
    if base.tp == 1:
        widths = [
            d
            for d in legal_tensor_parallel(model, most=cluster.gpus_per_node)
            if d > 1 and cluster.gpus_per_node % d == 0
        ]
        variants += [replace(v, tp=widths[-1]) for v in list(variants) if widths]
    return variants


def smallest_training(
    model: ModelShape, job: TrainingJob, cluster: Cluster, base: Layout, *, capacity: float
) -> Placement | None:
    """The fewest GPUs on which one step fits, every state sharded over the replicas (FSDP); None = none does."""
    for gpus in gpu_counts(cluster):
        for variant in training_variants(
            model, cluster, replace(base, dp=1, ep=1, sharding="none", shard_degree=None)
        ):
            ranks = variant.tp * variant.pp * variant.cp
            if gpus % ranks:
                continue
            dp = gpus // ranks
            sharding = base.sharding if base.sharding != "none" else "zero3"
            layout = replace(
                variant,
                dp=dp,
                ep=math.gcd(base.ep, dp * variant.cp * variant.tp),
                sharding=sharding if dp > 1 else "none",
            )
            peak = worst(training_memory(model, job, layout, capacity_bytes=capacity))
            if peak.needed_bytes <= capacity:
                return Placement(gpus=gpus, layout=layout, peak=peak)
    return None


def smallest_in_time(
    model: ModelShape, job: TrainingJob, device: Device, cluster: Cluster, *, tokens: float, deadline: float
) -> tuple[int, Band] | None:
    """The fewest GPUs that finish a run in time, at the middle of the efficiency band; None where a peak is unknown."""
    one = training_tokens_per_second(model, job, device, 1)
    if one is None:
        return None
    needed = tokens / (deadline * one.value)
    gpus = next((n for n in gpu_counts(cluster) if n >= needed), MOST_GPUS)
    if gpus > cluster.gpus_per_node:
        gpus = -(-math.ceil(needed) // cluster.gpus_per_node) * cluster.gpus_per_node
    rate = training_tokens_per_second(model, job, device, gpus)
    return None if rate is None else (gpus, rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One serving replica: its width, memory, and the most that it can carry."""

    tp: int
    memory: ServingMemory
    concurrency: float
    """Requests that the cache holds at once."""
    saturation: Band
    """Requests per second beyond which the queue grows without end."""
    tpot: Band
    """Seconds per output token at that concurrency."""
    prefill: Band


def replica(model: ModelShape, job: ServingJob, cluster: Cluster, *, tp: int) -> Replica | None:
    """What one replica of `tp` GPUs of a machine can carry; None where it does not start.

    A roofline, the all-reduces between its GPUs, and Little's law.
    """
    traffic, device = job.traffic, cluster.device
    if traffic is None:
        return None
    changed = replace(job, tp=tp)
    memory = serving_memory(
        model, changed, device_bytes=device.torch_memory.value, is_a100="a100" in device.name
    )
    mean = traffic.input_tokens + traffic.output_tokens / 2
    concurrency = min(
        memory.sequences(traffic.input_tokens + traffic.output_tokens), memory.budget.max_sequences
    )
    if concurrency < 1:
        return None
    fp8 = memory.weight_format.bits == 8 and device.supports_fp8
    prefill = prefill_seconds(model, device, traffic.input_tokens, gpus=tp, fp8=fp8)
    step = decode_step_seconds(
        model, device, weight_bytes=memory.weights_bytes, cache_bytes=memory.cost.sequence_bytes(mean) * concurrency,
        sequences=concurrency, gpus=tp, fp8=fp8,
    )  # fmt: skip
    if prefill is None or step is None:
        return None
    prefill = _with_reduces(prefill, model, traffic.input_tokens, tp, cluster.intra)
    step = _with_reduces(step, model, concurrency, tp, cluster.intra)

    def rate(p: float, s: float) -> float:
        # While n requests are in flight each takes its own prefill and output x step; prefills of others interleave.
        return 1.0 / (p + traffic.output_tokens * s / concurrency)

    saturation = Band(
        value=rate(prefill.value, step.value),
        low=rate(prefill.high, step.high),
        high=rate(prefill.low, step.low),
        source="1 / (prefill + output tokens x step / requests in flight)",
    )
    return Replica(
        tp=tp, memory=memory, concurrency=concurrency, saturation=saturation, tpot=step, prefill=prefill
    )


def _with_reduces(work: Band, model: ModelShape, tokens: float, tp: int, link: Fabric | None) -> Band:
    """Compute, then the all-reduces of tensor parallelism: nothing hides them while one batch is served."""
    if tp == 1 or link is None:
        return work
    wire = all_reduce_seconds(tensor_traffic(model, tokens, tp), tp, link)
    return Band(
        value=work.value + wire.value,
        low=work.low + wire.low,
        high=work.high + wire.high,
        source=f"{work.source}; all-reduces over {link.title}",
    )


def narrowest_replica(model: ModelShape, job: ServingJob, cluster: Cluster) -> Replica | None:
    """The replica of fewest GPUs that starts, within one node."""
    for tp in legal_tensor_parallel(model, most=cluster.gpus_per_node):
        if cluster.gpus_per_node % tp:
            continue
        found = replica(model, job, cluster, tp=tp)
        if found is not None and found.memory.starts:
            return found
    return None


def replicas_needed(rate: float, peak_factor: float, one: Band) -> tuple[int, int, int]:
    """(fewest, expected, most) replicas for a rate, at the planned utilisation."""
    load = rate * peak_factor

    def count(capacity: float) -> int:
        return max(1, math.ceil(load / (capacity * TARGET_UTILISATION) - 1e-9))

    return count(one.high), count(one.value), count(one.low)
