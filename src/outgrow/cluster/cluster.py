"""A cluster: some nodes of one kind and what joins them. One node, or one device, is a cluster too."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outgrow.cluster.device import Device
from outgrow.cluster.fabric import Fabric
from outgrow.cluster.node import Node
from outgrow.errors import InputError, Problem
from outgrow.evidence import Assumption

MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`nodes` equal machines. Everything it names is resolved: no lookup is needed to compute with it."""

    device: Device
    node: Node
    nodes: int = 1
    link: Fabric | None = None
    """Direct links between devices; None = PCIe only."""
    pcie: Fabric | None = None
    """The host link, and the path between devices that direct links do not join."""
    host: Fabric | None = None
    """What joins a device to host memory: PCIe, or NVLink-C2C on Grace parts."""
    fabric: Fabric | None = None
    """Between nodes of this kind; None where it is not known."""
    region: str = ""
    tenancy: str = ""
    """"dedicated", "shared", ...; "" = not said."""
    assumed: tuple[Assumption, ...] = ()
    """What a short name left open, and how it was read."""

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.nodes <= MOST_NODES:
            problems.append(
                Problem(
                    path="nodes", message=f"must be 1 to {MOST_NODES:,}", value=self.nodes, has_value=True
                )
            )
        if self.node.device != self.device.name:
            message = f"is made of {self.node.device}, not of {self.device.name}"
            problems.append(Problem(path="node", message=message, value=self.node.name, has_value=True))
        if problems:
            raise InputError("This is not a cluster.", problems=problems)

    @property
    def name(self) -> str:
        """Short name for people: "4 x HGX H100" or the node's title alone."""
        return self.node.title if self.nodes == 1 else f"{self.nodes} × {self.node.title}"

    @property
    def gpus(self) -> int:
        """Devices in all nodes together."""
        return self.nodes * self.node.gpus

    @property
    def gpus_per_node(self) -> int:
        """Devices in one node."""
        return self.node.gpus

    @property
    def gpus_per_link_domain(self) -> int:
        """Devices that direct links join: at most all of them; 1 where there are no direct links."""
        return 1 if self.link is None else min(self.node.link_domain, self.gpus)

    @property
    def intra(self) -> Fabric | None:
        """The fastest fabric between devices of one node."""
        return self.link or self.pcie

    @property
    def network_bytes_per_second(self) -> float:
        """B/s per direction out of one node, all GPU NICs together."""
        return self.node.network_bytes_per_second

    @property
    def overlay(self) -> bool:
        """Some part of it comes from the user's overlay folder."""
        parts = (self.device, self.node, self.link, self.pcie, self.host, self.fabric)
        return any(part.overlay for part in parts if part is not None)

    def resized(self, nodes: int) -> Cluster:
        """The same with another number of nodes."""
        return replace(self, nodes=nodes)
