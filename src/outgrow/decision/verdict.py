"""One GPU, one node or a cluster; shared or private; today and later; and what would flip it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from outgrow.cluster.cluster import Cluster
from outgrow.decision import questions
from outgrow.decision.answers import Answer, Confidence, Flip, Scale, Tenancy, scale_of, widest
from outgrow.decision.questions import Sizes
from outgrow.decision.sizing import (
    cheapest,
    replicas_needed,
    replicas_that_start,
    smallest_in_time,
    smallest_training,
)
from outgrow.layout import Layout
from outgrow.units import counted
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob, Traffic
from outgrow.workload.training import TrainingJob
from outgrow.workload.workload import Workload

SHOWN_FLIPS = 6
_SOME_TRAFFIC = Traffic()
"""Where no traffic is given, one request of the default lengths still must fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision."""

    scale: Scale
    tenancy: Tenancy
    gpus: int
    """GPUs of the kind that was asked about."""
    nodes: int
    confidence: Confidence
    deciding: tuple[str, ...]
    """Slugs of the questions that ask for the most."""
    answers: tuple[Answer, ...]
    settings: tuple[str, ...] = ()
    """What `fit` has to be told to see the layout that was found."""
    flips: tuple[Flip, ...] = ()
    horizon: Horizon | None = None

    @property
    def impossible(self) -> tuple[str, ...]:
        """Slugs of the questions that no number of these GPUs satisfies."""
        return tuple(answer.question for answer in self.answers if answer.impossible)

    @property
    def name(self) -> str:
        if self.impossible:
            return "NOT ON THIS GPU"
        names = {"single-gpu": "SINGLE GPU", "one-node": "ONE NODE", "cluster": "CLUSTER"}
        return names[self.scale] + (", private" if self.tenancy == "private" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The same questions after the workload has grown."""

    months: int
    scale: Scale
    gpus: int
    outgrown_in_months: float | None
    """When today's scale stops being enough, growing evenly; None = not within the horizon."""
    text: str


def decide(
    workload: Workload, model: ModelShape, cluster: Cluster, base: Layout, *, batch_is_free: bool = False
) -> Verdict:
    """Answer every question for today, then for the horizon, and look for what would flip the verdict."""
    today = judge(workload, model, cluster, base, batch_is_free=batch_is_free)

    def again(other: Workload, shape: ModelShape) -> Verdict:
        return judge(other, shape, cluster, base, batch_is_free=batch_is_free)

    horizon = _horizon(workload, model, today, again)
    return replace(today, flips=_flips(workload, model, cluster, today, again), horizon=horizon)


def sizes_of(
    workload: Workload, model: ModelShape, cluster: Cluster, base: Layout, *, batch_is_free: bool = False
) -> Sizes:
    """Fewest GPUs by memory, by time and by traffic."""
    device = cluster.device
    job, serving = workload.training, workload.serving
    if job is not None:
        place = smallest_training(
            model, job, cluster, base, capacity=device.torch_memory.value, batch_is_free=batch_is_free
        )
        in_time = None
        if job.tokens is not None and workload.budget.deadline_seconds is not None:
            in_time = smallest_in_time(
                model,
                job,
                cluster,
                place,
                tokens=job.tokens,
                deadline=workload.budget.deadline_seconds,
                batch_is_free=batch_is_free,
            )
        return Sizes(placement=place, in_time=in_time)
    if serving is None:
        return Sizes()
    asked = serving if serving.traffic is not None else replace(serving, traffic=_SOME_TRAFFIC)
    candidates = replicas_that_start(model, asked, cluster)
    if not candidates or asked.traffic is None:
        return Sizes()
    chosen = cheapest(asked.traffic, candidates)
    counts = None if serving.traffic is None else replicas_needed(serving.traffic, chosen)
    return Sizes(narrowest=candidates[0], replica=chosen, replicas=counts)


def judge(
    workload: Workload, model: ModelShape, cluster: Cluster, base: Layout, *, batch_is_free: bool = False
) -> Verdict:
    """The verdict for one moment."""
    sizes = sizes_of(workload, model, cluster, base, batch_is_free=batch_is_free)
    found: list[Answer | None] = [
        questions.fits(workload, model, cluster, sizes),
        questions.fast_enough(workload, model, cluster, sizes),
        questions.traffic(workload, cluster, sizes),
        questions.latency(workload, cluster, sizes),
        questions.sharing(workload, cluster),
        questions.downtime(workload, cluster, sizes),
        questions.sensitivity(workload, cluster),
    ]
    answers = [a for a in found if a is not None]
    counted = [a for a in answers if a.applies]
    gpus = max((a.gpus for a in counted), default=1)
    answers.append(questions.operations(workload, gpus, cluster))
    scale = widest([scale_of(gpus, cluster.gpus_per_node), *(a.scale for a in counted)])
    deciding = tuple(a.question for a in counted if a.scale == scale and a.gpus == gpus) or tuple(
        a.question for a in counted if a.scale == scale or a.gpus == gpus
    )
    ranks = {"low": 0, "medium": 1, "high": 2}
    confidence: Confidence = min(
        (a.confidence for a in counted if a.question in deciding), key=lambda c: ranks[c], default="medium"
    )
    return Verdict(
        scale=scale, tenancy="private" if any(a.private for a in answers) else "shared", gpus=gpus,
        nodes=max(-(-gpus // cluster.gpus_per_node), 2 if scale == "cluster" else 1), confidence=confidence, deciding=deciding, answers=tuple(answers),
        settings=_settings(sizes),
    )  # fmt: skip


def _settings(sizes: Sizes) -> tuple[str, ...]:
    if sizes.placement is not None:
        layout = sizes.placement.layout
        split = ((name, getattr(layout, name)) for name in ("tp", "pp", "cp", "ep"))
        return (
            *(f"layout.{name}={value}" for name, value in split if value > 1),
            f"layout.recompute={layout.recompute}",
        )
    if sizes.replica is not None:
        degrees = (("tp", sizes.replica.tp), ("pp", sizes.replica.pp))
        return tuple(f"serving.{name}={value}" for name, value in degrees if value > 1)
    return ()


def grown(workload: Workload, model: ModelShape, share: float) -> tuple[Workload, ModelShape]:
    """The workload when `share` of its growth has happened (0 = today, 1 = the horizon)."""
    g = workload.growth

    def factor(full: float) -> float:
        return float(full**share)

    job, serving = workload.training, workload.serving
    if job is not None:
        job = replace(
            job,
            tokens=None if job.tokens is None else job.tokens * factor(g.tokens),
            sequence_length=max(1, round(job.sequence_length * factor(g.context))),
        )
    if serving is not None and serving.traffic is not None:
        t = serving.traffic
        rate = None if t.requests_per_second is None else t.requests_per_second * factor(g.traffic)
        length = (
            None
            if serving.max_model_len is None
            else max(1, round(serving.max_model_len * factor(g.context)))
        )
        prompt = max(1, round(t.input_tokens * factor(g.context)))
        if model.max_positions is not None:  # what the model cannot read does not come
            prompt = max(1, min(prompt, model.max_positions - t.output_tokens))
            length = None if length is None else min(length, model.max_positions)
        serving = replace(
            serving,
            max_model_len=length,
            traffic=replace(t, requests_per_second=rate, input_tokens=prompt),
        )
    bigger = model
    if g.parameters != 1 and model.layers:
        count = max(1, round(len(model.layers) * factor(g.parameters)))
        layers = tuple(model.layers[i * len(model.layers) // count] for i in range(count))
        bigger = replace(model, layers=layers, name=f"{model.name} x {factor(g.parameters):.3g}")
    return replace(workload, training=job, serving=serving), bigger


def _horizon(
    workload: Workload, model: ModelShape, today: Verdict, again: Callable[[Workload, ModelShape], Verdict]
) -> Horizon:
    months = workload.growth.months
    later_workload, later_model = grown(workload, model, 1.0)
    later = again(later_workload, later_model)
    changed = (later.scale, later.gpus, later.name) != (today.scale, today.gpus, today.name)
    when = None
    if today.impossible or later.impossible:
        text = (
            f"in {months} months: {later.name}"
            if later.impossible
            else f"in {months} months: {later.gpus} GPUs"
        )
        return Horizon(months=months, scale=later.scale, gpus=later.gpus, outgrown_in_months=None, text=text)
    if later.gpus > today.gpus:
        low, high = 0.0, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            part_workload, part_model = grown(workload, model, middle)
            if again(part_workload, part_model).gpus > today.gpus:
                high = middle
            else:
                low = middle
        when = high * months
    if not changed:
        text = f"in {months} months: the same" + (
            "" if workload.growth != type(workload.growth)() else "; no growth is given"
        )
    elif when is None:
        text = f"in {months} months: {later.gpus} GPUs are enough"
    else:
        text = f"in {months} months: {later.gpus} GPUs ({later.name}); today's {today.gpus} are outgrown after about {when:.1f} months"
    return Horizon(months=months, scale=later.scale, gpus=later.gpus, outgrown_in_months=when, text=text)


def _flips(
    workload: Workload,
    model: ModelShape,
    cluster: Cluster,
    today: Verdict,
    again: Callable[[Workload, ModelShape], Verdict],
) -> tuple[Flip, ...]:
    """Single changes of the workload that change the scale or the number of GPUs."""
    flips = []
    for change, other in _changes(workload, cluster):
        then = again(other, model)
        if then.impossible:
            if not today.impossible:
                flips.append(Flip(change=change, then=then.name))
        elif then.scale != today.scale or today.impossible:
            flips.append(Flip(change=change, then=f"{then.name}, {counted(then.gpus, 'GPU')}"))
        elif then.gpus != today.gpus and (then.gpus <= today.gpus / 2 or then.gpus >= 2 * today.gpus):
            flips.append(Flip(change=change, then=f"{counted(then.gpus, 'GPU')} instead of {today.gpus}"))
    return tuple(flips[:SHOWN_FLIPS])


def _changes(workload: Workload, cluster: Cluster) -> Iterator[tuple[str, Workload]]:
    """What people would try next, one change at a time."""
    if workload.training is not None:
        yield from _training_changes(workload, workload.training)
    if workload.serving is not None:
        yield from _serving_changes(workload, workload.serving, cluster)


def _training_changes(workload: Workload, job: TrainingJob) -> Iterator[tuple[str, Workload]]:
    def trained(**changes: Any) -> Workload:
        return replace(workload, training=replace(job, **changes))

    if job.loss in ("plain", "plain-shifted"):
        yield "fused loss", trained(loss="fused")
    if job.trains_all:
        yield "LoRA instead of full fine-tuning", trained(method="lora")
        yield "QLoRA instead of full fine-tuning", trained(method="qlora")
        yield "all states in bf16", trained(precision="bf16")
    else:
        if job.base_format is None:
            yield "a 4-bit base (QLoRA)", trained(method="qlora")
        yield "full fine-tuning", trained(method="full")
    deadline = workload.budget.deadline_seconds
    if deadline is not None:
        for times in (2.0, 4.0, 0.5):
            what = f"{times:g} times the deadline" if times > 1 else "half the deadline"
            yield what, replace(workload, budget=replace(workload.budget, deadline_seconds=deadline * times))
    yield "4 times the sequence", trained(sequence_length=job.sequence_length * 4)


def _serving_changes(workload: Workload, job: ServingJob, cluster: Cluster) -> Iterator[tuple[str, Workload]]:
    def served(**changes: Any) -> Workload:
        return replace(workload, serving=replace(job, **changes))

    if job.weights is None:
        yield "fp8 weights", served(weights="fp8")
        yield "4-bit weights", served(weights="awq")
    if job.cache == "auto" and cluster.device.stores_fp8:
        yield "cache in fp8", served(cache="fp8")
    if job.traffic is not None and job.traffic.requests_per_second is not None:
        rate = job.traffic.requests_per_second
        for times in (0.25, 0.5, 2.0, 4.0, 10.0):
            yield (
                f"{times:g} times the traffic",
                served(traffic=replace(job.traffic, requests_per_second=rate * times)),
            )
    asked = workload.availability.target is not None
    what, target = ("a restart is acceptable", None) if asked else ("99.9 % availability", 0.999)
    yield what, replace(workload, availability=replace(workload.availability, target=target))
