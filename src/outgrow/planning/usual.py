"""The usual layout of a job on some GPUs: what most people would start with, before anyone searches."""

from __future__ import annotations

from dataclasses import replace

from outgrow.evidence import Assumption
from outgrow.layout import Layout
from outgrow.physics.memory.serving import minimum_bytes, stored_format
from outgrow.planning.feasible import legal_tensor_parallel
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob
from outgrow.workload.workload import LayoutChoice

WEIGHTS_SHARE = 0.8
"""Weights may take this share of a GPU before a replica is spread over more of them."""


def training_layout(
    job: TrainingJob, choice: LayoutChoice, gpus: int
) -> tuple[Layout, tuple[Assumption, ...]]:
    """What is given, completed: the rest is data parallel, with everything sharded over the replicas (FSDP)."""
    assumed = []
    given = {
        name: value
        for name in ("tp", "pp", "vpp", "cp", "ep")
        if (value := getattr(choice, name)) is not None
    }
    model_ranks = given.get("tp", 1) * given.get("pp", 1) * given.get("cp", 1)
    dp = choice.dp if choice.dp is not None else max(1, gpus // model_ranks)
    if choice.dp is None and gpus > 1:
        assumed.append(
            Assumption(name="layout.dp", value=str(dp), why=f"{gpus} GPUs over tp x pp x cp = {model_ranks}")
        )
    sharding = choice.sharding
    if sharding is None:
        sharding = "zero3" if dp > 1 else "none"
        if dp > 1:
            assumed.append(
                Assumption(
                    name="layout.sharding",
                    value="zero3",
                    why="states, gradients and parameters sharded over the replicas (FSDP)",
                )
            )
    recompute = choice.recompute
    if recompute is None:
        recompute = "full" if job.trains_all or job.method in ("lora", "qlora", "dora") else "none"
        assumed.append(
            Assumption(
                name="layout.recompute",
                value=recompute,
                why="activation checkpointing is what fine-tuning scripts start with",
            )
        )
    micro_batch = choice.micro_batch or 1
    if choice.micro_batch is None:
        assumed.append(Assumption(name="layout.micro_batch", value="1", why="the smallest step that runs"))
    layout = Layout(
        dp=dp, sharding=sharding, shard_degree=choice.shard_degree, sequence_parallel=choice.sequence_parallel,
        schedule=choice.schedule or "1f1b", stage_layers=choice.stage_layers, micro_batch=micro_batch, recompute=recompute, **given,
    )  # fmt: skip
    return layout, tuple(assumed)


def with_accumulation(job: TrainingJob, layout: Layout) -> TrainingJob:
    """The job with as many micro-batches per step as its global batch needs on this layout."""
    steps = max(1, job.global_batch // (layout.dp * layout.micro_batch))
    return replace(job, accumulation=max(job.accumulation, steps))


def serving_split(
    model: ModelShape, job: ServingJob, *, gpus: int, gpus_per_node: int, device_bytes: float
) -> tuple[ServingJob, tuple[Assumption, ...]]:
    """A serving job spread over `gpus`: the narrowest replica whose weights leave room, and as many as there are.

    Tensor parallel inside a machine; only where a whole machine is too small, pipeline stages over several.
    """
    if job.gpus > 1 or gpus == 1:
        replicas = max(1, gpus // job.gpus)
        return replace(job, replicas=max(job.replicas, replicas)), ()
    tp = narrowest_tensor_parallel(model, job, limit=min(gpus, gpus_per_node), device_bytes=device_bytes)
    pp = _fewest_stages(model, replace(job, tp=tp), limit=gpus // tp, device_bytes=device_bytes)
    replicas = max(1, gpus // (tp * pp))
    spare = gpus - tp * pp * replicas
    why = "the fewest GPUs whose weights leave room for a cache; the others serve as replicas"
    why += f", {spare} spare" if spare else ""
    chosen = {"tp": tp, "pp": pp, "replicas": replicas}
    return replace(job, tp=tp, pp=pp, replicas=replicas), tuple(
        Assumption(name=f"serving.{name}", value=str(value), why=why)
        for name, value in chosen.items()
        if name != "pp" or pp > 1
    )


def narrowest_tensor_parallel(model: ModelShape, job: ServingJob, *, limit: int, device_bytes: float) -> int:
    """The smallest legal degree up to `limit` whose weights fit, or the largest legal one where none does."""
    legal = legal_tensor_parallel(model, most=max(1, limit), form=stored_format(model, job)) or (1,)
    for degree in legal:
        if minimum_bytes(model, replace(job, tp=degree)) <= WEIGHTS_SHARE * device_bytes:
            return degree
    return legal[-1]


def _fewest_stages(model: ModelShape, job: ServingJob, *, limit: int, device_bytes: float) -> int:
    """The fewest pipeline stages whose weights fit; one where no number up to `limit` helps."""
    for stages in range(1, min(limit, len(model.layers)) + 1):
        if minimum_bytes(model, replace(job, pp=stages)) <= WEIGHTS_SHARE * device_bytes:
            return stages
    return 1
