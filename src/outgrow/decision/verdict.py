"""One GPU, one node or a cluster; shared or private; today and later; and what would flip it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.cluster.cluster import Cluster
from outgrow.decision import questions
from outgrow.decision.answers import Answer, Confidence, Flip, Scale, Tenancy, scale_of, widest
from outgrow.decision.questions import Sizes
from outgrow.decision.sizing import narrowest_replica, replicas_needed, smallest_in_time, smallest_training
from outgrow.layout import Layout
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import Traffic
from outgrow.workload.workload import Workload

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
    flips: tuple[Flip, ...] = ()
    horizon: Horizon | None = None

    @property
    def name(self) -> str:
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


def decide(workload: Workload, model: ModelShape, cluster: Cluster, base: Layout) -> Verdict:
    """Answer every question for today, then for the horizon, and look for what would flip the verdict."""
    today = judge(workload, model, cluster, base)
    horizon = _horizon(workload, model, cluster, base, today)
    return replace(today, flips=_flips(workload, model, cluster, base, today), horizon=horizon)


def sizes_of(workload: Workload, model: ModelShape, cluster: Cluster, base: Layout) -> Sizes:
    """Fewest GPUs by memory, by time and by traffic."""
    device = cluster.device
    job, serving = workload.training, workload.serving
    if job is not None:
        place = smallest_training(model, job, cluster, base, capacity=device.torch_memory.value)
        in_time = None
        if job.tokens is not None and workload.budget.deadline_seconds is not None:
            in_time = smallest_in_time(
                model, job, device, cluster, tokens=job.tokens, deadline=workload.budget.deadline_seconds
            )
        return Sizes(placement=place, in_time=in_time)
    if serving is None:
        return Sizes()
    asked = serving if serving.traffic is not None else replace(serving, traffic=_SOME_TRAFFIC)
    found = narrowest_replica(model, asked, cluster)
    counts = None
    if found is not None and serving.traffic is not None and serving.traffic.requests_per_second:
        counts = replicas_needed(
            serving.traffic.requests_per_second, serving.traffic.peak_factor, found.saturation
        )
    return Sizes(replica=found, replicas=counts)


def judge(workload: Workload, model: ModelShape, cluster: Cluster, base: Layout) -> Verdict:
    """The verdict for one moment."""
    sizes = sizes_of(workload, model, cluster, base)
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
    )  # fmt: skip


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
        serving = replace(
            serving,
            max_model_len=length,
            traffic=replace(
                t, requests_per_second=rate, input_tokens=max(1, round(t.input_tokens * factor(g.context)))
            ),
        )
    bigger = model
    if g.parameters != 1 and model.layers:
        count = max(1, round(len(model.layers) * factor(g.parameters)))
        layers = tuple(model.layers[i * len(model.layers) // count] for i in range(count))
        bigger = replace(model, layers=layers, name=f"{model.name} x {factor(g.parameters):.3g}")
    return replace(workload, training=job, serving=serving), bigger


def _horizon(
    workload: Workload, model: ModelShape, cluster: Cluster, base: Layout, today: Verdict
) -> Horizon:
    months = workload.growth.months
    later_workload, later_model = grown(workload, model, 1.0)
    later = judge(later_workload, later_model, cluster, base)
    changed = (later.scale, later.gpus) != (today.scale, today.gpus)
    when = None
    if later.gpus > today.gpus:
        low, high = 0.0, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            part_workload, part_model = grown(workload, model, middle)
            if judge(part_workload, part_model, cluster, base).gpus > today.gpus:
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
    workload: Workload, model: ModelShape, cluster: Cluster, base: Layout, today: Verdict
) -> tuple[Flip, ...]:
    """Single changes of the workload that change the scale or the number of GPUs."""
    candidates: list[tuple[str, Workload]] = []
    job, serving = workload.training, workload.serving
    if job is not None:
        if job.trains_all:
            candidates.append(
                ("LoRA instead of full fine-tuning", replace(workload, training=replace(job, method="lora")))
            )
            candidates.append(
                (
                    "QLoRA instead of full fine-tuning",
                    replace(workload, training=replace(job, method="qlora")),
                )
            )
            candidates.append(
                ("all states in bf16", replace(workload, training=replace(job, precision="bf16")))
            )
        elif job.base_format is None:
            candidates.append(
                ("a 4-bit base (QLoRA)", replace(workload, training=replace(job, method="qlora")))
            )
            candidates.append(("full fine-tuning", replace(workload, training=replace(job, method="full"))))
        else:
            candidates.append(("full fine-tuning", replace(workload, training=replace(job, method="full"))))
        if workload.budget.deadline_seconds is not None:
            for times in (2.0, 4.0, 0.5):
                what = f"{times:g} times the deadline" if times > 1 else "half the deadline"
                candidates.append(
                    (
                        what,
                        replace(
                            workload,
                            budget=replace(
                                workload.budget, deadline_seconds=workload.budget.deadline_seconds * times
                            ),
                        ),
                    )
                )
        candidates.append(
            (
                "4 times the sequence",
                replace(workload, training=replace(job, sequence_length=job.sequence_length * 4)),
            )
        )
    if serving is not None:
        if serving.weights is None:
            candidates.append(("fp8 weights", replace(workload, serving=replace(serving, weights="fp8"))))
            candidates.append(("4-bit weights", replace(workload, serving=replace(serving, weights="awq"))))
        if serving.traffic is not None and serving.traffic.requests_per_second is not None:
            for times in (0.25, 0.5, 2.0, 4.0, 10.0):
                busier = replace(
                    serving.traffic, requests_per_second=serving.traffic.requests_per_second * times
                )
                candidates.append(
                    (
                        f"{times:g} times the traffic",
                        replace(workload, serving=replace(serving, traffic=busier)),
                    )
                )
    if serving is None:
        pass
    elif workload.availability.target is not None:
        candidates.append(
            (
                "a restart is acceptable",
                replace(workload, availability=replace(workload.availability, target=None)),
            )
        )
    else:
        candidates.append(
            (
                "99.9 % availability",
                replace(workload, availability=replace(workload.availability, target=0.999)),
            )
        )
    flips = []
    for change, other in candidates:
        then = judge(other, model, cluster, base)
        if then.scale != today.scale:
            flips.append(
                Flip(change=change, then=f"{then.name}, {then.gpus} GPU{'s' if then.gpus > 1 else ''}")
            )
        elif then.gpus != today.gpus and (then.gpus <= today.gpus / 2 or then.gpus >= 2 * today.gpus):
            flips.append(
                Flip(
                    change=change,
                    then=f"{then.gpus} GPU{'s' if then.gpus > 1 else ''} instead of {today.gpus}",
                )
            )
    return tuple(flips[:6])
