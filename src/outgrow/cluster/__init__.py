"""The nouns of the hardware: devices, fabrics, nodes and clusters. Plain data; `catalog` fills it."""

from __future__ import annotations

from outgrow.cluster.cluster import Cluster
from outgrow.cluster.device import DTYPES, Device, Peaks
from outgrow.cluster.fabric import Fabric
from outgrow.cluster.figure import Figure
from outgrow.cluster.node import Node

__all__ = ["DTYPES", "Cluster", "Device", "Fabric", "Figure", "Node", "Peaks"]
