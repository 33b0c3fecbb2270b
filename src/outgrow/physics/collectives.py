"""What ranks of one replica say to each other, and how long a ring all-reduce takes.

The ring of NCCL: 2 (n - 1) steps, each of a hop's latency and 1/n of the message. Trees, switches that reduce (NVLS)
and engines' own kernels for small messages are faster: the answer is on the safe side there.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.cluster.fabric import Fabric
from outgrow.workload.model import ModelShape

ACTIVATION_BYTES = 2
"""Activations travel in 16 bits."""
LAUNCH_SECONDS = 6.6e-6
"""Time of a ring before its first byte with the LL protocol (NVIDIA/nccl src/graph/tuning.cc, base latencies)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Messages of one forward pass of a replica."""

    operations: int
    bytes: float
    """Of all messages together, each counted once at its full size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Seconds, with the range that the achieved efficiency of the wire spans."""

    value: float
    low: float
    high: float


def tensor_traffic(model: ModelShape, tokens: float, tp: int) -> Traffic:
    """All-reduces of tensor parallelism: the output of each mixer and of each feed-forward block."""
    if tp == 1:
        return Traffic(operations=0, bytes=0.0)
    reduces = sum((layer.mixer is not None) + (layer.ffn is not None) for layer in model.layers)
    return Traffic(operations=reduces, bytes=reduces * tokens * model.hidden * ACTIVATION_BYTES)


def pipeline_traffic(model: ModelShape, tokens: float, pp: int) -> Traffic:
    """Hand-overs of pipeline stages: the residual stream, once per boundary."""
    return Traffic(operations=pp - 1, bytes=(pp - 1) * tokens * model.hidden * ACTIVATION_BYTES)


def all_reduce_seconds(traffic: Traffic, ranks: int, link: Fabric) -> Duration:
    """Time of all all-reduces of `traffic` over `ranks` that `link` joins."""
    if ranks == 1 or not traffic.operations:
        return Duration(value=0.0, low=0.0, high=0.0)
    hop = link.nccl_ll_latency or link.latency
    start = LAUNCH_SECONDS + 2 * (ranks - 1) * (hop.value if hop is not None else 0.0)
    moved = 2 * (ranks - 1) / ranks * traffic.bytes
    achieved = link.efficiency
    shares = (1.0, 1.0, 1.0) if achieved is None else (achieved.value, achieved.highest, achieved.lowest)
    value, low, high = (
        traffic.operations * start + moved / (link.bytes_per_second * share) for share in shares
    )
    return Duration(value=value, low=low, high=high)
