"""Bounds of every number of a workload, checked in one place so that impossible physics is refused with its value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from outgrow.errors import Problem

# Field: lowest, highest. A field whose name means two things is listed with its class.
BOUNDS: dict[str, tuple[float, float]] = {
    "sequence_length": (1, 1e9), "global_batch": (1, 1e9), "accumulation": (1, 1e8), "mean_length": (1, 1e9),
    "loss_chunks": (1, 1e6), "rank": (1, 1e6), "dropout": (0, 1), "tokens": (1, 1e18), "expert_load": (1, 1e3),
    "recomputed_ahead": (0, 8), "gather_ahead": (1, 1e4), "evaluation_samples": (0, 1e9), "rollout_fraction": (0, 0.99), "base_bytes": (0.25, 8), "residual_bytes": (1, 8), "parameter_bytes": (0.25, 8), "embedding_bytes": (0.25, 8),
    "months": (0, 120), "traffic": (0.01, 1e6), "context": (0.01, 1e6), "parameters": (0, 1e15), "Growth.parameters": (0.01, 1e6), "Growth.tokens": (0.01, 1e6), "gpus": (1, 1e6),
    "hours_per_week": (0, 168), "target": (0, 1), "reload_seconds": (0, 1e7), "per_month": (0, 1e12),
    "deadline_seconds": (1, 1e10), "runs_per_month": (0, 1e6), "memory_fraction": (0.05, 1), "max_model_len": (1, 1e9),
    "max_batched_tokens": (1, 1e9), "max_sequences": (1, 1e7), "block_tokens": (1, 1e5), "images_per_prompt": (0, 1e4),
    "image_tokens": (1, 1e7), "speculative_tokens": (0, 1e3), "lora_adapters": (0, 1e5), "lora_rank": (1, 1e5),
    "weights_bytes": (0, 1e15), "activation_bytes": (0, 1e15), "non_torch_bytes": (0, 1e15), "graph_bytes": (0, 1e15),
    "requests_per_second": (0, 1e7), "concurrency": (1, 1e7), "input_tokens": (1, 1e9), "output_tokens": (1, 1e9),
    "peak_factor": (1, 1e4), "ttft_seconds": (1e-6, 1e6), "tpot_seconds": (1e-6, 1e6), "tp": (1, 1e6), "pp": (1, 1e6),
    "dp": (1, 1e6), "cp": (1, 1e6), "ep": (1, 1e6), "vpp": (1, 1e4), "replicas": (1, 1e6), "micro_batch": (1, 1e6),
    "shard_degree": (1, 1e6),
}  # fmt: skip


def bounds_of(owner: type, field: str) -> tuple[float, float] | None:
    """Lowest and highest value of a field, or None where any number is possible."""
    return BOUNDS.get(f"{owner.__name__}.{field}", BOUNDS.get(field))


def problems_of(value: object, path: str = "") -> Iterator[Problem]:
    """Every number in a tree of dataclasses that is out of its bounds."""
    if not is_dataclass(value) or isinstance(value, type):
        return
    for field in fields(value):
        item: Any = getattr(value, field.name)
        where = f"{path}.{field.name}" if path else field.name
        if isinstance(item, tuple):
            for index, part in enumerate(item):
                yield from problems_of(part, f"{where}.{index}")
        elif is_dataclass(item):
            yield from problems_of(item, where)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            low, high = bounds_of(type(value), field.name) or (-math.inf, math.inf)
            if not (math.isfinite(item) and low <= item <= high):
                wanted = f"between {low:g} and {high:g}" if math.isfinite(low) else "a finite number"
                yield Problem(path=where, message=f"must be {wanted}", value=item, has_value=True)
