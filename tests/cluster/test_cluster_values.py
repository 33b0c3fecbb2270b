"""Devices, fabrics, nodes and clusters as values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from outgrow.cluster import Cluster, Device, Fabric, Figure, Node, Peaks
from outgrow.cluster.device import RESERVED
from outgrow.errors import InputError
from outgrow.units import GIB


def figure(value: float, unit: str = "B", **more: float) -> Figure:
    return Figure(value=value, unit=unit, kind="estimated", source="test", **more)


def a_device(**changes: object) -> Device:
    base = Device(
        name="x1",
        title="X1",
        vendor="nvidia",
        memory=figure(80 * GIB),
        memory_bandwidth=figure(3e12, "B/s"),
        peaks=Peaks(bf16=figure(1e15, "FLOP/s")),
        compute_capability="9.0",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def a_node(**changes: object) -> Node:
    return replace(Node(name="n", title="N", device="x1", gpus=8), **changes)  # type: ignore[arg-type]


def a_fabric(kind: str, **changes: object) -> Fabric:
    base = Fabric(name="f", title="F", kind=kind, bandwidth=figure(50e9, "B/s"))  # type: ignore[arg-type]
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_figure_holds_its_spread() -> None:
    assert figure(2.0).lowest == 2.0 == figure(2.0).highest
    assert figure(2.0, low=1.0, high=3.0).lowest == 1.0
    with pytest.raises(ValueError, match="does not hold"):
        figure(2.0, low=2.5)
    with pytest.raises(ValueError, match="does not hold"):
        figure(2.0, high=1.5)


def test_values_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        a_device().title = "Y"  # type: ignore[misc]
    assert hash(a_device()) == hash(a_device())


def test_framework_memory_is_measured_first_then_driver_then_nominal() -> None:
    measured = a_device(framework_memory=figure(79 * GIB), driver_memory=figure(79.6 * GIB))
    driver = a_device(driver_memory=figure(79.6 * GIB))
    nominal = a_device()
    assert measured.torch_memory_bytes == 79 * GIB
    assert driver.torch_memory_bytes == round(79.6 * GIB - RESERVED)
    assert driver.torch_memory.kind == "estimated"
    assert nominal.torch_memory_bytes < driver.torch_memory_bytes
    spread = nominal.torch_memory
    assert spread.lowest < 79 * GIB < spread.highest <= nominal.memory_bytes
    assert nominal.usable_memory_bytes is None
    assert driver.usable_memory_bytes == round(79.6 * GIB)


@pytest.mark.parametrize(
    ("capability", "fp8", "bf16", "flash"),
    [
        ("7.5", False, False, False),
        ("8.0", False, True, True),
        ("8.6", False, True, True),
        ("8.9", True, True, True),
        ("9.0", True, True, True),
        ("12.1", True, True, True),
    ],
)
def test_what_a_compute_capability_supports(capability: str, fp8: bool, bf16: bool, flash: bool) -> None:
    device = a_device(compute_capability=capability)
    assert (device.supports_fp8, device.supports_bf16, device.supports_flash_attention_2) == (
        fp8,
        bf16,
        flash,
    )


def test_what_others_support_follows_their_peaks() -> None:
    device = a_device(vendor="amd", compute_capability=None)
    assert device.supports_bf16
    assert not device.supports_fp8
    assert device.capability is None
    assert device.supports_flash_attention_2
    assert not replace(device, vendor="intel").supports_flash_attention_2


def test_peak_by_dtype() -> None:
    device = a_device()
    assert device.peak("bf16") == 1e15
    assert device.peak("fp4") is None
    assert device.peak("__class__") is None


def test_fabric_kinds() -> None:
    assert a_fabric("infiniband").is_rdma
    assert not a_fabric("tcp").is_rdma
    assert a_fabric("nvlink").is_inside_node
    assert not a_fabric("efa").is_inside_node
    assert a_fabric("tcp").achieved_bytes_per_second == 50e9
    assert a_fabric("tcp", efficiency=figure(0.5, "fraction")).achieved_bytes_per_second == 25e9


def test_a_cluster_counts() -> None:
    node = a_node(link_fabric="f", link_domain=8, nics=8, nic_bandwidth=figure(50e9, "B/s"))
    cluster = Cluster(device=a_device(), node=node, nodes=4, link=a_fabric("nvlink"))
    assert (cluster.gpus, cluster.gpus_per_node, cluster.gpus_per_link_domain) == (32, 8, 8)
    assert cluster.network_bytes_per_second == 400e9
    assert cluster.resized(2).gpus == 16
    assert cluster.name == "4 × N"
    assert not cluster.overlay
    assert replace(cluster, node=replace(node, overlay=True)).overlay


def test_links_that_span_nodes_reach_no_further_than_the_cluster() -> None:
    node = a_node(gpus=4, link_domain=72)
    assert node.spans_nodes
    cluster = Cluster(device=a_device(), node=node, nodes=2, link=a_fabric("nvlink"))
    assert cluster.gpus_per_link_domain == 8
    assert replace(cluster, link=None).gpus_per_link_domain == 1


def test_a_cluster_lists_all_its_faults() -> None:
    with pytest.raises(InputError) as error:
        Cluster(device=a_device(), node=a_node(device="y2"), nodes=0)
    assert [p.path for p in error.value.problems] == ["nodes", "node"]
