"""Host memory that loading a checkpoint takes on one machine."""

from __future__ import annotations

from outgrow.workload.model import ModelShape

STORED_BYTES = 2
"""A checkpoint holds 16 bits per parameter."""
CAST_BYTES = 4
"""Trainers that keep fp32 master parameters cast what they load."""


def load_bytes(model: ModelShape, ranks: int, *, full_per_rank: bool, cast: bool = True) -> float:
    """Bytes of host RAM while `ranks` processes of one machine load a model.

    Each holds what is stored and its fp32 copy, unless rank 0 alone loads and the others receive their shards.
    """
    per_rank = (STORED_BYTES + (CAST_BYTES if cast else 0)) * float(model.parameters)
    return per_rank * (ranks if full_per_rank else 1)
