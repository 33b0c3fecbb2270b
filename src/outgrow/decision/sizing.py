"""The fewest GPUs on which a job fits, trains in time, or carries its traffic. Closed forms and bisection, no search."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from outgrow.cluster.cluster import Cluster
from outgrow.cluster.fabric import Fabric
from outgrow.decision.levers import SHORT_REQUEST
from outgrow.layout import Layout
from outgrow.physics.collectives import all_reduce_seconds, tensor_traffic
from outgrow.physics.compute import Band, decode_step_seconds, prefill_seconds, training_tokens_per_second
from outgrow.physics.memory.serving import ServingMemory, serving_memory, stored_format
from outgrow.physics.memory.terms import Breakdown
from outgrow.physics.memory.training import training_memory, worst
from outgrow.planning.feasible import legal_tensor_parallel
from outgrow.planning.usual import with_accumulation
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob, Traffic
from outgrow.workload.training import TrainingJob

MOST_GPUS = 65536
MOST_STAGES = 64
"""Pipeline stages that a replica is spread over at most."""
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
    model: ModelShape,
    job: TrainingJob,
    cluster: Cluster,
    base: Layout,
    *,
    capacity: float,
    batch_is_free: bool = False,
) -> Placement | None:
    """The fewest GPUs on which one step fits, every state sharded over the replicas (FSDP); None = none does.

    The batch is kept: no more replicas than it has micro-batches, and as many accumulated as it needs; unless it
    is free, because nobody gave one.
    """
    given = replace(base, dp=1, ep=1, sharding="none", shard_degree=None, stage_layers=None)
    for gpus in gpu_counts(cluster):
        for variant in training_variants(model, cluster, given):
            ranks = variant.tp * variant.pp * variant.cp
            if gpus % ranks:
                continue
            dp = gpus // ranks
            step = dp * variant.micro_batch
            batch = job.global_batch
            if batch_is_free:  # nobody gave one: the smallest that keeps every replica busy
                batch = step if job.optimizer_in_backward else max(batch, step)
            if dp > max(1, batch // variant.micro_batch):
                continue
            sharding = base.sharding if base.sharding != "none" else "zero3"
            layout = replace(
                variant,
                dp=dp,
                ep=math.gcd(base.ep, dp * variant.cp * variant.tp),
                sharding=sharding if dp > 1 else "none",
            )
            whole_job = with_accumulation(replace(job, global_batch=batch), layout)
            peak = worst(training_memory(model, whole_job, layout, capacity_bytes=capacity))
            if peak.needed_bytes <= capacity:
                return Placement(gpus=gpus, layout=layout, peak=peak)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """How many GPUs finish a run by its deadline."""

    gpus: int
    rate: Band
    """Tokens per second of them."""
    limited_by_batch: bool
    """The global batch keeps no more GPUs busy, and they are too few."""


def smallest_in_time(
    model: ModelShape,
    job: TrainingJob,
    cluster: Cluster,
    placement: Placement | None,
    *,
    tokens: float,
    deadline: float,
    batch_is_free: bool = False,
) -> InTime | None:
    """The fewest GPUs that finish a run in time, at the middle of the efficiency band; None where a peak is unknown."""
    one = training_tokens_per_second(model, job, cluster.device, 1)
    if one is None:
        return None
    needed = tokens / (deadline * one.value)
    gpus = next((n for n in gpu_counts(cluster) if n >= needed), MOST_GPUS)
    if gpus > cluster.gpus_per_node:
        gpus = -(-math.ceil(needed) // cluster.gpus_per_node) * cluster.gpus_per_node
    ranks, micro_batch = 1, 1
    if placement is not None:
        layout = placement.layout
        ranks, micro_batch = layout.tp * layout.pp * layout.cp, layout.micro_batch
    busy = ranks * max(1, job.global_batch // micro_batch)
    limited = gpus > busy and not batch_is_free
    gpus = min(gpus, busy) if limited else gpus
    rate = training_tokens_per_second(model, job, cluster.device, gpus)
    return None if rate is None else InTime(gpus=gpus, rate=rate, limited_by_batch=limited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One serving replica: its width, memory, and the most that it can carry."""

    tp: int
    pp: int
    gpus: int
    memory: ServingMemory
    concurrency: float
    """Requests in flight: as many as the cache holds, fewer where the target of time per token asks for it."""
    saturation: Band
    """Requests per second beyond which the queue grows without end."""
    tpot: Band
    """Seconds per output token at that concurrency."""
    prefill: Band
    meets_targets: bool
    """The targets of latency can be met, before any queue."""


def context_needed(model: ModelShape, job: ServingJob) -> int:
    """The longest context that a decision plans for: as given, else what the traffic needs."""
    traffic = job.traffic
    asked = (
        SHORT_REQUEST if traffic is None else max(SHORT_REQUEST, traffic.input_tokens + traffic.output_tokens)
    )
    return job.max_model_len or min(asked, model.max_positions or asked)


def replica(model: ModelShape, job: ServingJob, cluster: Cluster, *, tp: int, pp: int = 1) -> Replica | None:
    """What one replica of `tp` x `pp` GPUs can carry; None where it does not start.

    A roofline, the all-reduces between its GPUs, and Little's law. Stages work on a part of the requests each.
    """
    traffic, device = job.traffic, cluster.device
    if traffic is None:
        return None
    changed = replace(job, tp=tp, pp=pp, max_model_len=context_needed(model, job))
    memory = serving_memory(model, changed, device_bytes=device.torch_memory.value, is_a100=device.is_a100)
    mean = traffic.input_tokens + traffic.output_tokens / 2
    wide = changed.gpus // pp  # GPUs that work on one layer
    held = memory.sequences(traffic.input_tokens + traffic.output_tokens) * (wide // tp)
    most = min(held, memory.budget.max_sequences)
    if most < 1 or not memory.starts:
        return None
    fp8 = memory.weight_format.bits == 8 and device.supports_fp8
    prompt = prefill_seconds(model, device, traffic.input_tokens, gpus=wide, fp8=fp8)
    if prompt is None:
        return None
    prefill = _with_reduces(prompt, model, traffic.input_tokens, tp, cluster.intra)

    def step(sequences: float) -> Band:
        """One token for each of `sequences`: every stage reads its weights once for its part of them."""
        part = sequences / pp
        stage = decode_step_seconds(
            model, device, weight_bytes=memory.weights_bytes, cache_bytes=memory.cost.sequence_bytes(mean) * part * tp / wide,
            sequences=part, gpus=wide * pp, fp8=fp8,
        )  # fmt: skip
        assert stage is not None  # noqa: S101 (it has a peak: it read the prompt)
        return _with_reduces(_times(stage, pp), model, part, tp, cluster.intra)

    wanted = job.targets.tpot_seconds
    count = most
    if wanted is not None and step(1.0).value <= wanted < step(most).value:
        low, high = 1.0, most
        for _ in range(24):
            middle = (low + high) / 2
            low, high = (middle, high) if step(middle).value <= wanted else (low, middle)
        count = float(math.floor(low))
    tpot = step(count)
    late = job.targets.ttft_seconds is not None and prefill.value > job.targets.ttft_seconds
    slow = wanted is not None and tpot.value > wanted

    def rate(p: float, s: float) -> float:
        # While n requests are in flight each takes its own prefill and output x step; prefills of others interleave.
        return 1.0 / (p / pp + traffic.output_tokens * s / count)

    saturation = Band(
        value=rate(prefill.value, tpot.value),
        low=rate(prefill.high, tpot.high),
        high=rate(prefill.low, tpot.low),
        source="1 / (prefill + output tokens x step / requests in flight)",
    )
    return Replica(
        tp=tp, pp=pp, gpus=changed.gpus, memory=memory, concurrency=count, saturation=saturation, tpot=tpot, prefill=prefill,
        meets_targets=not (late or slow),
    )  # fmt: skip


def _times(band: Band, factor: float) -> Band:
    return Band(value=band.value * factor, low=band.low * factor, high=band.high * factor, source=band.source)


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


def replicas_that_start(model: ModelShape, job: ServingJob, cluster: Cluster) -> list[Replica]:
    """Replicas of every legal width that start, the narrowest first.

    As given where a width is given; else tensor parallel in one machine, then the fewest pipeline stages over several.
    """
    if job.gpus > 1:
        given = replica(model, job, cluster, tp=job.tp, pp=job.pp)
        return [] if given is None else [given]
    legal = legal_tensor_parallel(model, most=cluster.gpus_per_node, form=stored_format(model, job)) or (1,)
    found = [one for tp in legal if (one := replica(model, job, cluster, tp=tp)) is not None]
    for pp in range(2, min(MOST_STAGES, len(model.layers)) + 1):
        if found:
            break
        staged = replica(model, job, cluster, tp=legal[-1], pp=pp)
        found = [] if staged is None else [staged]
    return found


def cheapest(traffic: Traffic, candidates: list[Replica]) -> Replica:
    """The replica with which the traffic takes the fewest GPUs, of those that meet the targets where any does."""
    meeting = [one for one in candidates if one.meets_targets] or candidates
    return min(meeting, key=lambda one: (replicas_needed(traffic, one)[1] * one.gpus, one.gpus))


def replicas_needed(traffic: Traffic, one: Replica) -> tuple[int, int, int]:
    """(fewest, expected, most) replicas for a traffic, at the planned utilisation."""
    if traffic.requests_per_second is None:
        in_flight = (traffic.concurrency or 1) * traffic.peak_factor
        needed = max(1, math.ceil(in_flight / one.concurrency - 1e-9))
        return needed, needed, needed
    load = traffic.requests_per_second * traffic.peak_factor

    def count(capacity: float) -> int:
        return max(1, math.ceil(load / (capacity * TARGET_UTILISATION) - 1e-9))

    return count(one.saturation.high), count(one.saturation.value), count(one.saturation.low)
