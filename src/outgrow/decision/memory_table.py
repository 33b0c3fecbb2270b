"""The memory table that guides print, computed; and what guides claim, held against it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.cluster.cluster import Cluster
from outgrow.decision.sizing import smallest_training
from outgrow.layout import Layout
from outgrow.physics.memory.serving import serving_memory
from outgrow.physics.memory.training import training_memory, worst
from outgrow.planning.feasible import valid_tensor_parallel
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob

SEQUENCE = 4096
METHODS: tuple[tuple[str, str, TrainingJob | ServingJob], ...] = (
    ("serve", "bf16", ServingJob(weights="bf16", max_model_len=SEQUENCE)),
    ("serve", "fp8", ServingJob(weights="fp8", max_model_len=SEQUENCE)),
    ("serve", "4-bit", ServingJob(weights="awq", max_model_len=SEQUENCE)),
    ("full", "mixed", TrainingJob(method="full", precision="mixed", sequence_length=SEQUENCE)),
    ("full", "bf16", TrainingJob(method="full", precision="bf16", sequence_length=SEQUENCE)),
    ("LoRA", "bf16", TrainingJob(method="lora", precision="bf16", sequence_length=SEQUENCE)),
    ("QLoRA", "nf4", TrainingJob(method="qlora", precision="bf16", sequence_length=SEQUENCE)),
)
SIZES = ("llama-3.2-1b", "llama-3.1-8b", "qwen2.5-14b", "qwen3-32b", "llama-3.1-70b", "llama-3.1-405b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model by one method."""

    model: str
    parameters: int
    method: str
    precision: str
    bytes: float
    """What one GPU would need to do it alone: weights and one request's cache, or one training step."""
    gpus: int | None
    """Fewest GPUs of this kind; None = more than 65,536, or more than one node where serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What guides say, and whether the numbers agree."""

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Cells of all models and methods on one device, with the claims."""

    device: str
    capacity_bytes: float
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]


def memory_table(models: list[ModelShape], cluster: Cluster) -> MemoryTable:
    """Compute the table for some models on one kind of device."""
    cells = [
        _cell(model, method, precision, job, cluster)
        for model in models
        for method, precision, job in METHODS
    ]
    return MemoryTable(
        device=cluster.device.title, capacity_bytes=cluster.device.torch_memory.value, cells=tuple(cells), claims=tuple(_claims(cells, cluster)),
    )  # fmt: skip


def _cell(
    model: ModelShape, method: str, precision: str, job: TrainingJob | ServingJob, cluster: Cluster
) -> Cell:
    capacity = cluster.device.torch_memory.value
    gpus: int | None
    if isinstance(job, ServingJob):
        alone = serving_memory(model, replace(job, max_sequences=256), device_bytes=1e15)
        used = sum(t.bytes for t in alone.terms if t.kind != "cache" and t.name != "left free by the engine")
        size = used + alone.cost.sequence_bytes(SEQUENCE)
        gpus = next(
            (tp for tp in valid_tensor_parallel(model, most=cluster.gpus_per_node)
             if cluster.gpus_per_node % tp == 0 and serving_memory(model, replace(job, tp=tp, max_sequences=256), device_bytes=capacity).starts),
            None,
        )  # fmt: skip
    else:
        size = worst(training_memory(model, job, Layout(recompute="full"))).needed_bytes
        place = smallest_training(model, job, cluster, Layout(recompute="full"), capacity=capacity)
        gpus = None if place is None else place.gpus
    return Cell(
        model=model.name,
        parameters=model.parameters,
        method=method,
        precision=precision,
        bytes=size,
        gpus=gpus,
    )


def _claims(cells: list[Cell], cluster: Cluster) -> list[Claim]:
    def find(low: float, high: float, method: str, precision: str) -> Cell | None:
        return next(
            (
                c
                for c in cells
                if low <= c.parameters <= high and (c.method, c.precision) == (method, precision)
            ),
            None,
        )

    device, node = cluster.device.title, cluster.gpus_per_node
    claims = []
    small = find(7e9, 9e9, "full", "mixed")
    if small is not None:
        weights = 2 * small.parameters
        claims.append(
            Claim(
                text="training needs the weights plus 20 to 40 %",
                holds=small.bytes < 1.4 * weights,
                evidence=f"{small.model}: {small.bytes / weights:.1f} times the 16-bit weights in mixed precision, {_ratio(find(7e9, 9e9, 'full', 'bf16'))} all in bf16, {_ratio(find(7e9, 9e9, 'LoRA', 'bf16'))} with LoRA",
            )
        )
        serve = find(7e9, 9e9, "serve", "bf16")
        if serve is not None:
            claims.append(
                Claim(
                    text="inference needs half of what training needs",
                    holds=0.4 < serve.bytes / small.bytes < 0.6,
                    evidence=f"{small.model}: {serve.bytes / small.bytes:.2f} of it before more cache is asked for",
                )
            )
    seventy, eight_bit = find(65e9, 75e9, "serve", "bf16"), find(65e9, 75e9, "serve", "fp8")
    if seventy is not None and eight_bit is not None:
        claims.append(
            Claim(
                text="70B needs more than one GPU in 16 bits",
                holds=seventy.gpus != 1,
                evidence=f"{_count(seventy.gpus, node)} × {device}",
            )
        )
        claims.append(
            Claim(
                text="70B needs a cluster",
                holds=eight_bit.gpus is None or eight_bit.gpus > node,
                evidence=f"in 8 bits {_count(eight_bit.gpus, node)} × {device}",
            )
        )
    large, eight = find(400e9, 410e9, "QLoRA", "nf4"), find(400e9, 410e9, "serve", "fp8")
    if large is not None and eight is not None:
        claims.append(
            Claim(
                text="405B needs a cluster of machines at any precision",
                holds=(large.gpus or 10**6) > node and (eight.gpus or 10**6) > node,
                evidence=f"QLoRA on {_count(large.gpus, node)}, fp8 serving on {_count(eight.gpus, node)} of the {node} GPUs of one machine",
            )
        )
    return claims


def _count(gpus: int | None, node: int) -> str:
    return f"more than {node}" if gpus is None else str(gpus)


def _ratio(cell: Cell | None) -> str:
    return "-" if cell is None else f"{cell.bytes / (2 * cell.parameters):.1f}"
