"""What would save memory, ranked by what it saves, each with what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from outgrow.cluster.device import Device
from outgrow.layout import Layout
from outgrow.physics.memory.serving import ServingMemory
from outgrow.physics.memory.training import training_memory, worst
from outgrow.planning.feasible import legal_tensor_parallel
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob

SMALLEST_WORTH = 0.01
"""Levers that save less than this share of the peak are not told."""
SHORT_REQUEST = 2048
"""Tokens of the one request that a cache must hold where no context is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One change."""

    name: str
    setting: str
    """What to pass to --set."""
    saves_bytes: float
    """Per GPU, this change alone."""
    cost: str
    then_fits: bool
    gpus: int = 1
    """GPUs of one replica with the change, where it takes more of them."""


def training_levers(
    model: ModelShape, job: TrainingJob, layout: Layout, capacity: float
) -> tuple[Lever, ...]:
    """Levers of a training job, largest saving first."""
    base = worst(training_memory(model, job, layout, capacity_bytes=capacity))
    candidates: list[tuple[str, str, str, TrainingJob, Layout]] = []

    def offer(
        name: str, setting: str, cost: str, changed: TrainingJob | None = None, plan: Layout | None = None
    ) -> None:
        candidates.append((name, setting, cost, changed or job, plan or layout))

    if layout.recompute != "full":
        offer(
            "recompute activations",
            "layout.recompute=full",
            "about a third more compute per step",
            plan=replace(layout, recompute="full"),
        )
    if layout.micro_batch > 1:
        offer(
            "micro-batch of 1",
            "layout.micro_batch=1",
            "smaller matrix products; accumulate to keep the batch",
            plan=replace(layout, micro_batch=1),
        )
    if job.loss in ("plain", "plain-shifted"):
        offer(
            "chunked loss",
            "training.loss=chunked",
            "a few percent of speed at most",
            replace(job, loss="chunked"),
        )
        offer(
            "fused linear loss",
            "training.loss=fused",
            "needs its kernel; often faster",
            replace(job, loss="fused"),
        )
    if job.sequence_length >= 1024:
        offer(
            "half the sequence",
            f"training.sequence_length={job.sequence_length // 2}",
            "longer samples are cut",
            replace(job, sequence_length=job.sequence_length // 2),
        )
    if job.trains_all:
        _full_tuning_levers(job, offer)
    elif job.method in ("lora", "dora") and job.base_format is None:
        offer(
            "4-bit base (QLoRA)",
            "training.method=qlora",
            "20 to 55 % slower in published runs, small loss of quality",
            replace(job, method="qlora"),
        )
    if job.objective == "dpo" and job.trains_all and not job.reference_precomputed:
        offer(
            "reference log-probabilities beforehand",
            "training.reference_precomputed=true",
            "one pass over the data before training",
            replace(job, reference_precomputed=True),
        )
    if job.evaluation_samples:
        offer(
            "metric batch by batch",
            "training.evaluation_samples=0",
            "the metric must be one that adds up",
            replace(job, evaluation_samples=0),
        )
    if "activations" not in job.offload:
        offer(
            "activations to the host",
            "training.offload=[activations]",
            "PCIe traffic; hidden where compute is long enough",
            replace(job, offload=(*job.offload, "activations")),
        )
    if layout.dp > 1 and layout.sharding != "zero3":
        offer(
            "shard everything (FSDP, ZeRO-3)",
            "layout.sharding=zero3",
            "parameters are gathered twice per step",
            plan=replace(layout, sharding="zero3"),
        )
    levers = []
    for name, setting, cost, changed, plan in candidates:
        peak = worst(training_memory(model, changed, plan, capacity_bytes=capacity))
        saved = base.needed_bytes - peak.needed_bytes
        if saved > SMALLEST_WORTH * base.needed_bytes:
            levers.append(
                Lever(
                    name=name,
                    setting=setting,
                    saves_bytes=saved,
                    cost=cost,
                    then_fits=peak.needed_bytes <= capacity,
                )
            )
    return tuple(sorted(levers, key=lambda lever: (-lever.saves_bytes, lever.name)))


def _full_tuning_levers(job: TrainingJob, offer: Callable[..., None]) -> None:
    offer(
        "LoRA instead of all parameters",
        "training.method=lora",
        "adapts less than full fine-tuning",
        replace(job, method="lora", lora=job.lora),
    )
    offer(
        "QLoRA instead of all parameters",
        "training.method=qlora",
        "adapts less; slower steps",
        replace(job, method="qlora", lora=job.lora),
    )
    if not job.optimizer.endswith("8bit") and job.optimizer == "adamw":
        offer(
            "8-bit optimizer",
            "training.optimizer=adamw-8bit",
            "rarely any",
            replace(job, optimizer="adamw-8bit"),
        )
        offer(
            "paged 8-bit optimizer",
            "training.optimizer=paged-adamw-8bit",
            "pages over PCIe when memory is short",
            replace(job, optimizer="paged-adamw-8bit"),
        )
    if job.regime.master or job.regime.parameter > 2:
        offer(
            "all states in bf16",
            "training.precision=bf16",
            "small updates are rounded away: watch the loss",
            replace(job, precision="bf16"),
        )
    if not job.optimizer_in_backward and job.accumulation == 1:
        offer(
            "optimizer step in the backward pass",
            "training.optimizer_in_backward=true",
            "no gradient accumulation, no global clipping",
            replace(job, optimizer_in_backward=True),
        )
    if "optimizer" not in job.offload:
        offer(
            "optimizer on the host",
            "training.offload=[optimizer]",
            "host RAM and slower steps: the update runs on the CPU",
            replace(job, offload=(*job.offload, "optimizer")),
        )


def serving_levers(
    model: ModelShape,
    job: ServingJob,
    memory: Callable[[ServingJob], ServingMemory],
    base: ServingMemory,
    device: Device,
) -> tuple[Lever, ...]:
    """Levers of a serving job: what more of the GPU becomes cache."""
    candidates: list[tuple[str, str, str, ServingJob]] = []
    if not base.weight_format.is_quantised:
        if device.supports_fp8:
            candidates.append(
                (
                    "weights in fp8",
                    "serving.weights=fp8",
                    "small loss of quality; faster on this GPU",
                    replace(job, weights="fp8"),
                )
            )
        else:
            candidates.append(
                (
                    "weights in int8",
                    "serving.weights=int8",
                    "small loss of quality",
                    replace(job, weights="int8"),
                )
            )
        candidates.append(
            (
                "weights in 4 bits (AWQ)",
                "serving.weights=awq",
                "some loss of quality; slower at large batches",
                replace(job, weights="awq"),
            )
        )
    # The cache is converted where it is read: storing it in fp8 asks for less than multiplying in fp8.
    if job.cache == "auto" and device.stores_fp8:
        candidates.append(
            (
                "cache in fp8",
                "serving.cache=fp8",
                "small loss of quality; about 9 % slower in one published run",
                replace(job, cache="fp8"),
            )
        )
    if base.budget.max_sequences > 256:
        candidates.append(
            (
                "fewer sequences at once",
                "serving.max_sequences=256",
                "less throughput at very many short requests",
                replace(job, max_sequences=256),
            )
        )
    if base.budget.fraction_of == "total" and base.budget.memory_fraction < 0.95:
        candidates.append(
            (
                "use 95 % of the memory",
                "serving.memory_fraction=0.95",
                "less room for other processes and for spikes",
                replace(job, memory_fraction=0.95),
            )
        )
    wider = [
        d
        for d in legal_tensor_parallel(model, most=16, form=base.weight_format)
        if d > job.tp and d % job.tp == 0
    ]
    if wider:
        candidates.append(
            (
                f"tensor parallel over {wider[0]}",
                f"serving.tp={wider[0]}",
                f"{wider[0]} GPUs per replica, two all-reduces per layer",
                replace(job, tp=wider[0]),
            )
        )
    levers = []
    for name, setting, cost, changed in candidates:
        answer = memory(changed)
        # A cache in a narrower format, or split wider, is worth the tokens that it adds, in bytes of today's.
        worth = answer.cache_bytes
        if answer.cost.charged_per_token:
            worth *= base.cost.charged_per_token / answer.cost.charged_per_token
        saved = worth - base.cache_bytes
        if saved > SMALLEST_WORTH * base.device_bytes:
            levers.append(
                Lever(
                    name=name,
                    setting=setting,
                    saves_bytes=saved,
                    cost=cost,
                    then_fits=answer.starts if job.max_model_len else answer.sequences(SHORT_REQUEST) >= 1,
                    gpus=changed.tp * changed.pp if changed.tp != job.tp else 1,
                )
            )
    return tuple(sorted(levers, key=lambda lever: (-lever.saves_bytes, lever.name)))
