"""A node: one machine with its accelerators, its links and its NICs."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.cluster.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: what one operating system boots on."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    loose_aliases: tuple[str, ...] = ()
    device: str
    """Slug of the device."""
    gpus: int
    link_fabric: str | None = None
    """Slug of the fabric that joins devices directly; None = only PCIe does."""
    link_domain: int = 1
    """How many devices the direct links join: the node's behind NVSwitch, 2 on bridges, 72 in an NVL72."""
    pcie_fabric: str | None = None
    """Slug of the link to the host, which also carries traffic where `link_fabric` does not reach."""
    fabric: str | None = None
    """Slug of the fabric between nodes of this kind; None = not known."""
    nics: int = 0
    """NICs for traffic between GPUs; storage and front-end ports are not among them."""
    nic_bandwidth: Figure | None = None
    """B/s per direction of one such NIC."""
    cpus: Figure | None = None
    """Count, in the unit it is sold in: `vcpu`, `cores` or `threads`."""
    ram: Figure | None = None
    """Bytes of host memory."""
    nvme: Figure | None = None
    """Bytes of local scratch storage."""
    traps: tuple[str, ...] = ()
    overlay: bool = False

    @property
    def intra_fabric(self) -> str | None:
        """Slug of the fastest fabric between devices of one node."""
        return self.link_fabric or self.pcie_fabric

    @property
    def spans_nodes(self) -> bool:
        """The direct links reach into other nodes (rack-scale NVLink)."""
        return self.link_domain > self.gpus

    @property
    def network_bytes_per_second(self) -> float:
        """B/s per direction of all GPU NICs together; 0 where there are none or they are not known."""
        return 0.0 if self.nic_bandwidth is None else self.nics * self.nic_bandwidth.value

    @property
    def ram_bytes(self) -> int | None:
        """Host memory; None where unknown."""
        return None if self.ram is None else round(self.ram.value)

    @property
    def nvme_bytes(self) -> int | None:
        """Local scratch storage; None where unknown."""
        return None if self.nvme is None else round(self.nvme.value)
