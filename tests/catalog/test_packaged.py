"""Every packaged file loads, and its figures can be true."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outgrow import catalog
from outgrow.cluster.device import DRIVER_SHARE_LOW, RESERVED_HIGH, RESERVED_LOW, Device
from outgrow.cluster.figure import Figure
from outgrow.units import GIB

DEVICES = catalog.names("device")
NODES = catalog.names("node")
FABRICS = catalog.names("fabric")


def figures_of(value: object) -> dict[str, Figure]:
    """Every figure of an entry by name, those of its peaks included."""
    found = {}
    for name in type(value).__dataclass_fields__:  # type: ignore[attr-defined]
        one = getattr(value, name)
        if isinstance(one, Figure):
            found[name] = one
        elif name == "peaks":
            found |= figures_of(one)
    return found


def test_all_files_are_right_and_all_references_lead_somewhere() -> None:
    assert catalog.check() == []


def test_there_are_as_many_as_there_should_be() -> None:
    assert len(DEVICES) >= 40
    assert len(FABRICS) >= 29
    assert len(NODES) >= 37


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_can_be_true(name: str) -> None:
    device = catalog.device(name)
    assert device.name == name
    figures = figures_of(device)
    assert all(f.source for f in figures.values())
    assert {figures["memory"].unit, figures["memory_bandwidth"].unit} == {"B", "B/s"}
    # The driver never shows more than the chips hold, and a framework no more than that.
    nominal = device.memory_bytes
    assert nominal % GIB == 0
    if device.usable_memory_bytes is not None:
        assert DRIVER_SHARE_LOW * nominal <= device.usable_memory_bytes <= nominal
    assert 0.85 * nominal < device.torch_memory_bytes <= nominal
    assert device.torch_memory.lowest > 0.8 * nominal
    assert 50e9 < device.memory_bandwidth.value < 20e12


@pytest.mark.parametrize("name", DEVICES)
def test_peaks_are_dense_and_in_order(name: str) -> None:
    device = catalog.device(name)
    tf32, bf16, fp16, fp8, fp4 = (device.peak(x) for x in ("tf32", "bf16", "fp16", "fp8", "fp4"))
    if bf16 and fp16 and name != "gaudi3":  # Gaudi3 computes fp16 at a quarter of bf16
        assert bf16 == fp16
    if tf32 and bf16:
        assert tf32 < bf16
    if fp8 and bf16:
        assert bf16 <= fp8 <= 4.1 * bf16
    if fp4 and fp8:
        assert fp8 < fp4
    assert device.supports_fp8 == (fp8 is not None)
    assert device.supports_bf16 == (bf16 is not None) or name == "jetson-orin-nx-16gb"


@pytest.mark.parametrize("name", DEVICES)
def test_links_of_a_device_agree_with_each_other(name: str) -> None:
    device = catalog.device(name)
    if device.link_fabric is None:
        assert device.link_domain == 1
        return
    assert device.link_domain > 1
    assert device.link_bandwidth is not None
    assert device.link_bandwidth.value == pytest.approx(
        catalog.fabric(device.link_fabric).bytes_per_second, rel=0.01
    )
    if device.link_pair_bandwidth is not None:
        assert device.link_pair_bandwidth.value < device.link_bandwidth.value
    if device.usual_node is not None:
        assert catalog.node(device.usual_node).device == name


def test_the_rule_for_reserved_memory_covers_what_was_measured() -> None:
    measured = [
        d
        for d in map(catalog.device, DEVICES)
        if d.vendor == "nvidia" and d.framework_memory and d.driver_memory
    ]
    assert len(measured) > 20
    for device in measured:
        assert device.framework_memory is not None
        assert device.driver_memory is not None
        kept = device.driver_memory.value - device.framework_memory.value
        assert RESERVED_LOW <= kept <= RESERVED_HIGH, device.name


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("h100-sxm", 79.1, 79.25),
        ("a100-sxm-80gb", 79.1, 79.35),
        ("h200-sxm", 139.7, 140.4),
        ("rtx-4090", 23.5, 23.65),
        ("rtx-3090", 23.55, 23.7),
        ("t4", 14.5, 14.75),
        ("l40s", 44.3, 44.41),
        ("a100-sxm-40gb", 39.38, 39.6),
        ("rtx-5090", 31.3, 31.5),
        ("b200-sxm", 178.3, 178.4),
        ("mi300x", 191.6, 192.0),
        ("h100-96gb-hbm2e", 94.5, 95.3),
    ],
)
def test_framework_memory_is_what_people_were_shown(name: str, low: float, high: float) -> None:
    assert low <= catalog.device(name).torch_memory_bytes / GIB <= high


@pytest.mark.parametrize("name", NODES)
def test_a_node_can_be_true(name: str) -> None:
    node = catalog.node(name)
    device = catalog.device(node.device)
    assert all(f.source for f in figures_of(node).values())
    assert (node.link_fabric is None) == (node.link_domain == 1)
    assert node.link_fabric is None or node.link_fabric == device.link_fabric
    assert node.intra_fabric is not None or node.gpus == 1
    if node.fabric is not None:
        assert not catalog.fabric(node.fabric).is_inside_node
        assert node.network_bytes_per_second > 0
    if node.ram_bytes is not None and not device.unified_memory:
        assert node.ram_bytes > 64 * GIB
    assert catalog.target(name).gpus == node.gpus


@pytest.mark.parametrize("name", FABRICS)
def test_a_fabric_can_be_true(name: str) -> None:
    fabric = catalog.fabric(name)
    assert all(f.source for f in figures_of(fabric).values())
    assert 1e9 < fabric.bytes_per_second < 2e12
    if fabric.latency is not None:
        assert 1e-7 < fabric.latency.value < 2e-3
    if fabric.efficiency is not None:
        assert 0.1 < fabric.efficiency.value <= 1.0
    if fabric.nccl_bandwidth is not None:
        assert fabric.nccl_bandwidth.value <= fabric.bytes_per_second


def test_entries_are_packaged_not_from_an_overlay() -> None:
    assert not any(catalog.is_overlay("device", name) for name in DEVICES)
    assert not catalog.device("h100-sxm").overlay


def test_one_device_is_loaded_without_reading_the_others() -> None:
    code = (
        "from time import perf_counter as t\n"
        "from outgrow import catalog\n"
        "a = t(); d = catalog.device('h100-sxm'); b = t()\n"
        "from outgrow.catalog.load import library\n"
        "assert library().indexes == {} and len(library().values) == 1\n"
        "print(b - a)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # 3 ms on an idle machine; the bound leaves room for a busy one.
    assert float(run.stdout) < 0.2


def test_search_finds_by_all_words() -> None:
    assert "h100-nvl" in {hit.name for hit in catalog.search("H100 94", kind="device")}
    assert {hit.kind for hit in catalog.search("h100")} >= {"device", "node"}
    assert catalog.search("no such thing") == ()


def test_a_card_of_two_devices_says_so() -> None:
    device: Device = catalog.device("mi250x")
    assert device.devices_per_card == 2
    assert device.memory_bytes == 64 * GIB
