"""Each row of the collected hardware table has its counterpart, with the same figures."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from outgrow import catalog
from outgrow.cluster.figure import Figure
from outgrow.units import GB, GIB, GIGA, MIB, TB, TERA

TABLE = Path(__file__).parents[3] / "shared" / "hardware.csv"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not TABLE.is_file(), reason="the collected hardware table is not here"),
]

DEVICES = {
    "V100-SXM2 16/32GB": ["v100-sxm2-16gb", "v100-sxm2-32gb"],
    "T4": ["t4"],
    "A10": ["a10"],
    "A10G": ["a10g"],
    "L4": ["l4"],
    "L40S": ["l40s"],
    "A100-PCIe 40GB": ["a100-pcie-40gb"],
    "A100-PCIe 80GB": ["a100-pcie-80gb"],
    "A100-SXM4 40GB": ["a100-sxm-40gb"],
    "A100-SXM4 80GB": ["a100-sxm-80gb"],
    "H100-PCIe": ["h100-pcie"],
    "H100-SXM5": ["h100-sxm"],
    "H100-NVL": ["h100-nvl"],
    "H200-SXM": ["h200-sxm"],
    "H200-NVL": ["h200-nvl"],
    "GH200": ["gh200-96gb", "gh200-144gb"],
    "B200-SXM": ["b200-sxm"],
    "B300-SXM": ["b300-sxm"],
    "GB200 (per GPU)": ["gb200"],
    "GB300 (per GPU)": ["gb300"],
    "RTX 3090": ["rtx-3090"],
    "RTX 4090": ["rtx-4090"],
    "RTX 5090": ["rtx-5090"],
    "RTX A6000": ["rtx-a6000"],
    "RTX 6000 Ada": ["rtx-6000-ada"],
    "RTX PRO 6000 Blackwell (server)": ["rtx-pro-6000"],
    "A30": ["a30"],
    "MI250X": ["mi250x"],
    "MI300X": ["mi300x"],
    "MI325X": ["mi325x"],
    "MI355X": ["mi355x"],
    "Gaudi2": ["gaudi2"],
    "Gaudi3": ["gaudi3"],
}
FABRICS = {
    "NVLink 2 (V100, 6 links)": "nvlink-2",
    "NVLink 3 (A100, 12 links)": "nvlink-3",
    "NVLink 4 (H100/H200, 18 links)": "nvlink-4",
    "NVLink 5 (B200/B300/GB200, 18 links)": "nvlink-5",
    "NVLink bridge (A100 pair)": "nvlink-bridge-a100",
    "NVSwitch (gen1-4)": "nvswitch",
    "PCIe 3.0 x16": "pcie-3",
    "PCIe 4.0 x16": "pcie-4",
    "PCIe 5.0 x16": "pcie-5",
    "PCIe 6.0 x16": "pcie-6",
    "CPU interconnect (UPI/xGMI) as seen by NCCL": "cpu-interconnect",
    "InfiniBand EDR 100": "ib-edr",
    "InfiniBand HDR 200": "ib-hdr",
    "InfiniBand NDR 400": "ib-ndr",
    "InfiniBand XDR 800": "ib-xdr",
    "RoCE v2 100": "roce-100",
    "RoCE v2 200": "roce-200",
    "RoCE v2 400": "roce-400",
    "RoCE v2 800 / Spectrum-X": "roce-800",
    "EFA v1 (p4d/p4de 4x100)": "efa-v1",
    "EFA v2 (p5/p5e 32x100)": "efa-v2",
    "EFA v3 (p5en 16x200)": "efa-v3",
    "EFA v4 (p6-b200 8x400)": "efa-v4",
    "GCP GPUDirect-TCPX (A3 High 4x200)": "gcp-tcpx",
    "GCP GPUDirect-TCPXO (A3 Mega 8x200)": "gcp-tcpxo",
    "TCP 10 GbE": "tcp-10gbe",
    "TCP 25 GbE": "tcp-25gbe",
    "TCP 100 GbE": "tcp-100gbe",
    "EFA 1x100 without GPUDirect (g7e)": "efa-no-gdr",
}
NODES = {
    "DGX A100 (80GB)": ["dgx-a100-80gb"],
    "DGX H100": ["dgx-h100"],
    "DGX H200": ["dgx-h200"],
    "DGX B200": ["dgx-b200"],
    "DGX B300": ["dgx-b300"],
    "GB200 NVL72": ["gb200-nvl72"],
    "OCI BM.GPU4.8 / A100-v2.8 / B4.8": ["oci-bm-gpu-b4-8", "oci-bm-gpu-a100-v2-8"],
    "Hyperstack-like H100 SXM VM": ["vm-h100-sxm-ethernet"],
    "Hyperstack-like H100 PCIe + NVLink bridge VM": ["vm-h100-pcie-nvlink"],
    "8x RTX 4090 box": ["rtx-4090-box"],
    "DGX Spark pair": ["dgx-spark"],
}


def rows(kind: str) -> dict[str, dict[str, str]]:
    if not TABLE.is_file():
        return {}
    with TABLE.open(encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file) if row["kind"] == kind}


def numbers(text: str) -> list[float]:
    """The figures of a cell: what stands in parentheses is talk."""
    return [float(x) for x in re.findall(r"\d+(?:\.\d+)?", re.sub(r"\(.*?\)", "", text or ""))]


def agrees(figure: Figure | None, wanted: list[float], unit: float, tolerance: float = 0.005) -> bool:
    """The figure is one of the cell's numbers, or its spread holds one of them."""
    if figure is None:
        return not wanted
    low, high = figure.lowest / unit * (1 - tolerance), figure.highest / unit * (1 + tolerance)
    return any(low <= number <= high for number in wanted)


def test_every_row_has_a_counterpart() -> None:
    assert set(rows("gpu")) == set(DEVICES)
    assert set(rows("fabric")) == set(FABRICS)
    assert len(rows("node")) == 37
    for name in rows("node"):
        for slug in NODES.get(name, [name]):
            assert catalog.node(slug)


@pytest.mark.parametrize("name", sorted(DEVICES))
def test_device_figures(name: str) -> None:
    row = rows("gpu")[name]
    for slug in DEVICES[name]:
        device = catalog.device(slug)
        card = device.devices_per_card
        assert agrees(device.memory, numbers(row["memory_gb"]), GIB / card)
        assert agrees(device.memory_bandwidth, numbers(row["mem_bw_gb_s"]), GB / card)
        peaks = device.peaks
        for dtype in ("bf16", "fp16", "tf32", "fp8", "fp4"):
            cell = row[f"{dtype}_dense_tflops"]
            wanted = [] if cell.startswith("none") else numbers(cell)
            if wanted or cell.startswith("none"):
                assert agrees(getattr(peaks, dtype), wanted, TERA / card), (slug, dtype)
        cell = row["int8_dense_tops"]
        if cell:
            assert agrees(peaks.int8, [] if cell.startswith("no") else numbers(cell), TERA / card), (
                slug,
                "int8",
            )
        assert agrees(device.tdp, numbers(row["tdp_w"].replace("-", " ")), 1 / card) or slug.startswith(
            "gh200"
        )
        assert bool(device.mig_slices) == row["mig"].startswith("yes")
        assert device.supports_fp8 == row["fp8"].startswith("yes")
        assert str(device.pcie_generation) in row["pcie"]
        link = numbers(row["link_gb_s_per_direction"])
        if link:
            assert agrees(device.link_bandwidth, link, GB / card)
        mib = re.findall(r"\d{5,6}", row["memory_gib_nvidia_smi"])
        if mib:
            assert agrees(device.driver_memory, [float(x) for x in mib], MIB) or slug == "gh200-144gb"


@pytest.mark.parametrize("name", sorted(FABRICS))
def test_fabric_figures(name: str) -> None:
    row, fabric = rows("fabric")[name], catalog.fabric(FABRICS[name])
    cell = re.sub(r"NCCL.*", "", row["link_gb_s_per_direction"])
    wanted = numbers(row["link_gb_s_per_direction"] if fabric.variants else cell)
    if not wanted:  # "as NVLink"
        assert fabric.name == "nvswitch"
        return
    assert agrees(fabric.bandwidth, wanted, GB, tolerance=0.01)
    counted = re.search(r"NCCL (?:uses|counts) ([\d.]+)", row["link_gb_s_per_direction"])
    if counted:
        assert agrees(fabric.nccl_bandwidth, [float(counted[1])], GB)


@pytest.mark.parametrize("name", sorted(rows("node")))
def test_node_figures(name: str) -> None:
    row = rows("node")[name]
    for slug in NODES.get(name, [name]):
        node = catalog.node(slug)
        gpus = re.match(r"(\d+)x", row["gpus"])
        assert gpus is not None
        assert node.gpus == int(gpus[1]) or slug in ("gb200-nvl72", "dgx-spark")
        ports = re.search(r"(\d+)x([\d/]+)", row["nics"])
        if ports:
            assert node.nics == int(ports[1])
            assert agrees(node.nic_bandwidth, [float(x) for x in ports[2].split("/")], GIGA / 8)
        ram = numbers(row["ram_gb"])
        if ram and "TB" not in row["ram_gb"]:
            assert agrees(node.ram, ram, GB) or agrees(node.ram, ram, GIB)
        nvme = re.match(r"(?:(\d+)x)?([\d.]+)$", row["local_nvme_tb"])
        if nvme:
            assert agrees(node.nvme, [float(nvme[1] or 1) * float(nvme[2])], TB)
        cpus = numbers(row["vcpu"].replace("-", " "))
        if cpus and "x" not in row["vcpu"]:
            assert agrees(node.cpus, cpus, 1)
