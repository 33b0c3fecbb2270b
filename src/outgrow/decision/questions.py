"""The questions that decide between one GPU, one node and a cluster. One pure function each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outgrow.cluster.cluster import Cluster
from outgrow.decision.answers import Answer, scale_of
from outgrow.decision.sizing import TARGET_UTILISATION, InTime, Placement, Replica, context_needed
from outgrow.evidence import Quantity
from outgrow.layout import Layout
from outgrow.physics.compute import Band, training_tokens_per_second
from outgrow.units import counted, format_bytes, format_percent, format_seconds
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob
from outgrow.workload.workload import Workload

GPU_HOURS_BETWEEN_FAILURES = Quantity(
    value=50_000, unit="GPU-hour", low=20_000, high=100_000,
    source="419 unexpected interruptions of 16,384 GPUs in 54 days (arXiv 2407.21783, table 5)",
)  # fmt: skip
WITHOUT_MAINTENANCE = 0.995
"""Availability that one replica can promise with updates and maintenance: an estimate, four hours a month."""
HOURS_PER_YEAR = 8766.0
HOURS_PER_WEEK = 168.0
PLANNED_SHARE = 0.7
"""Share of its GPUs that a group can plan to use before people wait for one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What sizing found for one workload on one kind of machine."""

    placement: Placement | None = None
    """Fewest GPUs on which training fits."""
    in_time: InTime | None = None
    narrowest: Replica | None = None
    """The replica of fewest GPUs that starts."""
    replica: Replica | None = None
    """The one with which the traffic takes the fewest GPUs in all."""
    replicas: tuple[int, int, int] | None = None


def _quantity(band: Band, unit: str) -> Quantity:
    return Quantity(value=band.value, unit=unit, low=band.low, high=band.high, source=band.source)


def _run_seconds(tokens: float, rate: Band, times: int = 1) -> Quantity:
    """Time of a run at a rate, or at several times it."""
    return Quantity(
        value=tokens / (rate.value * times),
        unit="s",
        low=tokens / (rate.high * times),
        high=tokens / (rate.low * times),
        source=rate.source,
    )


def fits(workload: Workload, model: ModelShape, cluster: Cluster, sizes: Sizes) -> Answer:
    """Does it fit in one GPU, one node, or more?"""
    title = "does it fit one GPU"
    device = cluster.device
    capacity = device.torch_memory.value
    if workload.training is not None:
        place = sizes.placement
        if place is None:
            return Answer(
                question="fits",
                title=title,
                scale="cluster",
                text="no: no layout fits, over any number of replicas that the batch allows; recompute, shorten or split the sequence (cp), or split the model (tp, pp)",
                how="memory of every rank, all states sharded, over tp of one machine",
                impossible=True,
            )
        need = place.peak.needed
        verb = "yes" if place.gpus == 1 else "no"
        largest = max(place.peak.terms, key=lambda t: t.bytes)
        text = f"{verb}: {place.gpus} × {device.title} is the smallest that fits ({layout_words(place.layout)}); {format_bytes(need.value)} of {format_bytes(capacity)} per GPU, most of it {largest.name}"
        tight = need.high > capacity
        return Answer(
            question="fits", title=title, scale=scale_of(place.gpus, cluster.gpus_per_node), gpus=place.gpus, text=text + (" (close)" if tight else ""),
            how=f"memory of the worst rank with {place.layout}", quantities=(("needed_bytes", need),),
            rule_of_thumb=_training_thumb(model, workload.training), confidence="medium" if tight else "high",
        )  # fmt: skip
    found = sizes.narrowest
    if found is None:
        return Answer(
            question="fits",
            title=title,
            scale="cluster",
            text=f"no: the engine starts on no replica of {device.title}, in one machine or in stages over several; quantise, shorten the context, or take larger GPUs",
            how="weights, engine budget and one request's cache",
            impossible=True,
        )
    weights = found.memory.weights_bytes
    width = f"{found.gpus} × {device.title}" + (f" in {found.pp} stages" if found.pp > 1 else "")
    context = context_needed(model, workload.serving) if workload.serving else 0
    text = f"{'yes' if found.gpus == 1 else 'no'}: {format_bytes(weights)} of weights per GPU on {width}, room for {found.memory.cache_tokens:,} tokens of cache, requests of up to {context:,}"
    slack = found.memory.uncertainty_bytes
    return Answer(
        question="fits", title=title, scale=scale_of(found.gpus, cluster.gpus_per_node), gpus=found.gpus, text=text,
        how=f"budget of {workload.serving.engine if workload.serving else 'the engine'}, line by line", confidence="high",
        rule_of_thumb="guides say that 70B needs a cluster: in 8 bits it serves from one 80 GB GPU" if 60e9 < model.parameters < 80e9 and found.gpus == 1 else "",
        quantities=(("weights_bytes", Quantity(value=weights, unit="byte", low=weights - slack, high=weights + slack, source="parameters x format; error of published ledgers")),),
    )  # fmt: skip


def layout_words(layout: Layout) -> str:
    """A layout in a few words."""
    parts = []
    if layout.dp > 1:
        parts.append(
            f"{layout.sharding.replace('zero3', 'FSDP').replace('none', 'replicas')} over {layout.dp}"
        )
    parts += [
        f"{name}{value}"
        for name, value in (("tp", layout.tp), ("pp", layout.pp), ("cp", layout.cp), ("ep", layout.ep))
        if value > 1
    ]
    return ", ".join([*parts, f"recompute {layout.recompute}"])


def _training_thumb(model: ModelShape, job: TrainingJob) -> str:
    if not job.trains_all:
        return (
            "guides count a cluster from 70B on: a frozen base in 4 bits needs a half byte per parameter"
            if model.parameters > 60e9
            else ""
        )
    per = job.bytes_per_parameter
    return f"guides add 20 to 40 % to the weights for training: it is {per:g} bytes per parameter, {per / 2:.0f} times the 16-bit weights, before activations"


def fast_enough(workload: Workload, model: ModelShape, cluster: Cluster, sizes: Sizes) -> Answer | None:
    """Is training fast enough?"""
    job, deadline = workload.training, workload.budget.deadline_seconds
    if job is None:
        return None
    title = "is training fast enough"
    if job.tokens is None:
        return Answer(
            question="fast-enough",
            title=title,
            scale="single-gpu",
            text="not asked: give training.tokens and budget.deadline",
            how="",
            applies=False,
        )
    one = training_tokens_per_second(model, job, cluster.device, 1)
    if one is None:
        return Answer(
            question="fast-enough",
            title=title,
            scale="single-gpu",
            text=f"not known: {cluster.device.title} has no published peak",
            how="roofline",
            applies=False,
        )
    gpus = sizes.placement.gpus if sizes.placement is not None else 1
    seconds = _run_seconds(job.tokens, one, gpus)
    if deadline is None:
        text = f"{format_seconds(seconds.value)} on the {gpus} that fit ({format_seconds(seconds.low)} to {format_seconds(seconds.high)}); no deadline is given"
        return Answer(
            question="fast-enough",
            title=title,
            scale=scale_of(gpus, cluster.gpus_per_node),
            gpus=gpus,
            text=text,
            how=one.source,
            quantities=(("run_seconds", seconds),),
            confidence="low",
            applies=False,
        )
    needed = sizes.in_time
    if needed is None:
        return None
    count = max(needed.gpus, gpus)
    rate = training_tokens_per_second(model, job, cluster.device, count) or one
    run = _run_seconds(job.tokens, rate)
    alone = job.tokens / one.value
    verb = "yes on one" if count == 1 else "no" if gpus == 1 else "not on one"
    if needed.limited_by_batch:
        verb = f"no: a global batch of {job.global_batch:,} keeps no more than {count} GPUs busy"
    text = f"{verb}: {format_seconds(alone)} on one GPU, {format_seconds(run.value)} on {count} ({format_seconds(run.low)} to {format_seconds(run.high)}); wanted in {format_seconds(deadline)}"
    return Answer(
        question="fast-enough", title=title, scale=scale_of(count, cluster.gpus_per_node), gpus=count, text=text, how=f"{rate.source}; communication between GPUs is inside of that band, for the machines that it was measured on", impossible=needed.limited_by_batch,
        quantities=(("run_seconds", run), ("single_gpu_seconds", Quantity.exact(alone, "s", one.source))), confidence="medium" if run.high <= deadline else "low",
    )  # fmt: skip


def traffic(workload: Workload, cluster: Cluster, sizes: Sizes) -> Answer | None:
    """Can it carry the traffic?"""
    job = workload.serving
    if job is None:
        return None
    title = "can it carry the traffic"
    if job.traffic is None or (job.traffic.requests_per_second is None and job.traffic.concurrency is None):
        return Answer(
            question="traffic",
            title=title,
            scale="single-gpu",
            text="not asked: give serving.traffic.requests_per_second",
            how="",
            applies=False,
        )
    found, counts = sizes.replica, sizes.replicas
    if found is None or counts is None:
        return Answer(
            question="traffic",
            title=title,
            scale="cluster",
            text="no: the model does not start",
            how="engine budget",
            impossible=True,
        )
    asked = job.traffic
    low, expected, high = counts
    gpus = expected * found.gpus
    per = _quantity(found.saturation, "1/s")
    if asked.requests_per_second is None:
        load = f"{asked.concurrency or 1:,} at once (peak ×{asked.peak_factor:g}); one replica holds {found.concurrency:,.0f}"
    else:
        peak = asked.requests_per_second * asked.peak_factor
        planned = per.value * TARGET_UTILISATION
        load = f"{peak:,.4g}/s at the peak; one replica carries {planned:,.3g}/s ({format_percent(TARGET_UTILISATION, digits=0)} of the {per.value:,.3g}/s at which it saturates, {per.low:,.3g} to {per.high:,.3g})"
    text = f"{'yes on one' if gpus == 1 else 'no'}: {load}: {counted(expected, 'replica')} of {counted(found.gpus, 'GPU')} ({low} to {high})"
    return Answer(
        question="traffic", title=title, scale=scale_of(gpus, cluster.gpus_per_node), gpus=gpus, text=text,
        how=f"Little's law on a roofline step at {found.concurrency:,.0f} requests in flight; a closed form, not a simulation of the queue",
        quantities=(("saturation_per_second", per),), confidence="medium" if low == high else "low",
    )  # fmt: skip


def latency(workload: Workload, cluster: Cluster, sizes: Sizes) -> Answer | None:
    """Is latency critical?"""
    job = workload.serving
    if job is None or (job.targets.tpot_seconds is None and job.targets.ttft_seconds is None):
        return None
    title = "is latency met"
    found = sizes.replica
    if found is None:
        return None
    step, prefill = found.tpot, found.prefill
    parts, misses = [], 0
    if job.targets.tpot_seconds is not None:
        misses += step.value > job.targets.tpot_seconds
        parts.append(
            f"{format_seconds(step.value)} per token with {found.concurrency:,.0f} in flight ({format_seconds(step.low)} to {format_seconds(step.high)}), wanted {format_seconds(job.targets.tpot_seconds)}"
        )
    if job.targets.ttft_seconds is not None:
        misses += prefill.value > job.targets.ttft_seconds
        parts.append(
            f"prompt read in {format_seconds(prefill.value)} before any queue, wanted {format_seconds(job.targets.ttft_seconds)}"
        )
    text = ("yes: " if not misses else f"no, on no number of {cluster.device.title}: ") + "; ".join(parts)
    return Answer(
        question="latency", title=title, scale=scale_of(found.gpus, cluster.gpus_per_node), gpus=found.gpus, text=text, impossible=bool(misses),
        how="roofline of one decode step and one prefill, over every legal width of one machine",
        quantities=(("tpot_seconds", _quantity(step, "s")), ("prefill_seconds", _quantity(prefill, "s"))), confidence="low",
    )  # fmt: skip


def sharing(workload: Workload, cluster: Cluster) -> Answer:
    """Who shares it?"""
    title = "who shares it"
    teams = workload.sharing
    if len(teams) <= 1:
        who = teams[0].name if teams else "one team"
        return Answer(
            question="sharing",
            title=title,
            scale="single-gpu",
            text=f"{who} alone: nothing to share",
            how="as given",
            confidence="high",
        )
    hours = sum(t.gpus * t.hours_per_week for t in teams)
    busy = hours / (HOURS_PER_WEEK * PLANNED_SHARE)
    floor = max(t.gpus for t in teams)
    production = [t for t in teams if t.production]
    reserved = sum(t.gpus for t in production)
    needed = max(
        1,
        floor,
        math.ceil(busy),
        reserved + max((t.gpus for t in teams if not t.production), default=0) if production else 0,
    )
    isolated = [t for t in teams if t.isolated]
    per_node = cluster.gpus_per_node
    apart = sum(-(-t.gpus // per_node) * per_node for t in isolated)
    together = [t for t in teams if not t.isolated]
    text = f"{len(teams)} teams use {hours:,.0f} GPU-hours a week: {needed} GPU{'s keep' if needed > 1 else ' keeps'} waiting low"
    if production and len(production) < len(teams):
        text += f", {reserved} of them held for production"
    if isolated:
        text += f"; {', '.join(t.name for t in isolated)} may not share a machine: {apart} GPUs in machines of their own"
    gpus = max(needed, apart + max((t.gpus for t in together), default=0) if isolated else needed)
    return Answer(
        question="sharing", title=title, scale=scale_of(gpus, cluster.gpus_per_node), gpus=gpus, text=text, private=bool(isolated),
        how=f"GPU-hours over a week of 168 hours at {format_percent(PLANNED_SHARE, digits=0)} use; production and isolated teams apart", confidence="medium",
    )  # fmt: skip


def downtime(workload: Workload, cluster: Cluster, sizes: Sizes) -> Answer:
    """May it go down?"""
    title = "may it go down"
    target = workload.availability.target
    if workload.training is not None:
        return _interrupted(workload, sizes)
    need = 1 if sizes.replica is None else sizes.replica.gpus
    count = sizes.replicas[1] if sizes.replicas is not None else 1
    mean = GPU_HOURS_BETWEEN_FAILURES
    reload = workload.availability.reload_seconds / 3600
    failures = need * count * HOURS_PER_YEAR / mean.value
    alone = 1 - need * reload / mean.value
    if target is None:
        return Answer(
            question="downtime",
            title=title,
            scale="single-gpu",
            text=f"a restart is acceptable; expect {failures:.2g} failures a year of {counted(need * count, 'GPU')}",
            how=mean.source,
            applies=False,
        )
    share = Quantity(
        value=alone,
        unit="share",
        low=1 - need * reload / mean.low,
        high=1 - need * reload / mean.high,
        source=mean.source,
    )
    maintenance = target > WITHOUT_MAINTENANCE
    if alone >= target and not maintenance:
        return Answer(
            question="downtime",
            title=title,
            scale=scale_of(need * count, cluster.gpus_per_node),
            gpus=need * count,
            text=f"yes: one replica answers {format_percent(alone, digits=3)} of the time, {format_percent(target, digits=2)} is wanted",
            how=mean.source,
            quantities=(("availability", share),),
        )
    # What goes down together is one machine: with several machines full of replicas, all of those in one.
    spare = max(1, cluster.gpus_per_node // need) if need * count > cluster.gpus_per_node else 1
    gpus = (count + spare) * need
    why = (
        "updates and maintenance alone take one replica out for longer than that"
        if alone >= target
        else f"one replica answers {format_percent(alone, digits=3)} of the time"
    )
    return Answer(
        question="downtime", title=title, scale="cluster", gpus=gpus,
        text=f"no on {count * need}: {format_percent(target, digits=2)} is wanted; {why}: {count} + {spare} replicas, {gpus} GPUs, on machines that fail apart",
        how=f"{mean.value:,.0f} GPU-hours between failures, {workload.availability.reload_seconds:g} s until a replacement serves; {mean.source}",
        quantities=(("availability_of_one", share),), confidence="medium",
    )  # fmt: skip


def _interrupted(workload: Workload, sizes: Sizes) -> Answer:
    """What a failure costs a training run."""
    mean = GPU_HOURS_BETWEEN_FAILURES
    gpus = max(
        sizes.placement.gpus if sizes.placement is not None else 1,
        sizes.in_time.gpus if sizes.in_time is not None else 1,
    )
    hours = 0.0
    job = workload.training
    if job is not None and job.tokens is not None and sizes.in_time is not None:
        hours = job.tokens / sizes.in_time.rate.value / 3600
    expected = gpus * hours / mean.value
    text = (
        f"a run starts again from its last checkpoint; {expected:.2g} failures are expected in one run of {counted(gpus, 'GPU')}"
        if hours
        else "a run starts again from its last checkpoint"
    )
    return Answer(
        question="downtime",
        title="may it go down",
        scale="single-gpu",
        text=text,
        how=mean.source,
        applies=False,
        confidence="medium",
    )


def sensitivity(workload: Workload, cluster: Cluster) -> Answer:
    """Is the data sensitive or regulated?"""
    title = "is the data sensitive"
    s = workload.sensitivity
    private = s.data_class in ("confidential", "regulated")
    parts = [f"{s.data_class} data"]
    if s.regimes:
        parts.append("under " + ", ".join(s.regimes))
    if s.regions:
        place = cluster.region or "not said"
        inside = cluster.region in s.regions
        parts.append(
            f"only in {', '.join(s.regions)}: the cluster's region is {place}"
            + ("" if inside else ", which must be settled before anything is copied")
        )
    asks = (
        "machines of its own, access and audit that can be shown"
        if private
        else "no more than the usual isolation"
    )
    return Answer(
        question="sensitivity",
        title=title,
        scale="single-gpu",
        private=private,
        text=f"{'; '.join(parts)}: {asks}",
        how="data class and regimes as given; sensitivity asks for tenancy, not for size",
        confidence="high",
    )


def operations(workload: Workload, scale_gpus: int, cluster: Cluster) -> Answer:
    """How much operation can be carried?"""
    title = "who operates it"
    who = workload.budget.operations
    scale = scale_of(scale_gpus, cluster.gpus_per_node)
    options = {
        "none": {
            "single-gpu": "a rented GPU with the engine's image",
            "one-node": "a managed machine",
            "cluster": "a managed Slurm or Kubernetes, or a dedicated cloud",
        },
        "some": {
            "single-gpu": "any machine",
            "one-node": "one machine of your own or rented",
            "cluster": "managed metal with a managed scheduler",
        },
        "platform-team": {
            "single-gpu": "any machine",
            "one-node": "any machine",
            "cluster": "metal of your own, Slurm or Kubernetes operated by the team",
        },
    }[who]
    return Answer(
        question="operations",
        title=title,
        scale="single-gpu",
        text=f"{who.replace('-', ' ')}: {options[scale]}",
        how="as given",
        confidence="medium",
    )
