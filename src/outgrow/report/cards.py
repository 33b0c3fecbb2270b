"""What is shown of one model."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.physics.memory.kv import CacheCost, cache_cost
from outgrow.planning.feasible import valid_tensor_parallel
from outgrow.workload.model import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model's counts, and what a layout must divide."""

    model: ModelShape
    cost: CacheCost
    valid_tensor_parallel: tuple[int, ...]

    @classmethod
    def of(cls, model: ModelShape) -> ModelCard:
        """The card of a model."""
        return cls(model=model, cost=cache_cost(model), valid_tensor_parallel=valid_tensor_parallel(model))
