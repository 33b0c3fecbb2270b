"""A fabric: what carries bytes between devices or between nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from outgrow.cluster.figure import Figure

FabricKind = Literal[
    "nvlink",
    "nvlink-bridge",
    "nvlink-c2c",
    "xgmi",
    "scale-up-roce",
    "pcie",
    "cpu",
    "infiniband",
    "roce",
    "efa",
    "tcpx",
    "tcpxo",
    "tcp",
]
FABRIC_KINDS: tuple[str, ...] = get_args(FabricKind)
_RDMA = frozenset({"infiniband", "roce", "efa"})
_INSIDE = frozenset({"nvlink", "nvlink-bridge", "nvlink-c2c", "xgmi", "scale-up-roce", "pcie", "cpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """One kind of wire. Rates are B/s per direction: of one device inside a node, of one NIC between them."""

    name: str
    title: str
    kind: FabricKind
    aliases: tuple[str, ...] = ()
    loose_aliases: tuple[str, ...] = ()
    bandwidth: Figure
    """B/s per direction on the wire."""
    nccl_bandwidth: Figure | None = None
    """B/s that NCCL's own model counts for it, where that differs from the wire."""
    latency: Figure | None = None
    """Seconds for the smallest message, where somebody published it."""
    nccl_ll_latency: Figure | None = None
    """Seconds per hop with NCCL's LL protocol, from its tuning table."""
    nccl_ll128_latency: Figure | None = None
    nccl_simple_latency: Figure | None = None
    efficiency: Figure | None = None
    """Achieved share of the wire for large messages; can exceed 1 where switches reduce (NVLS)."""
    efficiency_note: str = ""
    variants: tuple[tuple[str, Figure], ...] = ()
    """Bandwidth (B/s) by variant, where one name covers several: CPU generations for the CPU interconnect."""
    traps: tuple[str, ...] = ()
    overlay: bool = False

    @property
    def bytes_per_second(self) -> float:
        """Wire rate per direction and port."""
        return self.bandwidth.value

    @property
    def achieved_bytes_per_second(self) -> float:
        """Wire rate times the middle of the achieved efficiency; the wire rate where none was published."""
        return self.bandwidth.value * (1.0 if self.efficiency is None else self.efficiency.value)

    @property
    def is_rdma(self) -> bool:
        """NICs read and write memory without the kernel's network stack."""
        return self.kind in _RDMA

    @property
    def is_inside_node(self) -> bool:
        """It joins devices of one node (or of one rack-scale NVLink domain), not NICs."""
        return self.kind in _INSIDE
