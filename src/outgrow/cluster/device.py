"""A device: one accelerator as a framework sees it, one rank's worth of silicon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from outgrow.cluster.figure import Figure
from outgrow.units import GIB, format_percent

Vendor = Literal["nvidia", "amd", "intel", "google"]
VENDORS: tuple[str, ...] = get_args(Vendor)

DTYPES: Final = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

RESERVED: Final = 0.6 * GIB
"""What CUDA keeps back of the total that the driver's table reports, where nobody published a measurement.

Over the devices of the catalogue that have both numbers it lies between `RESERVED_LOW` and `RESERVED_HIGH`,
and it does not grow with the memory: a share of the total would be wrong on small cards or on large ones.
"""
RESERVED_LOW: Final = 0.01 * GIB
RESERVED_HIGH: Final = 1.1 * GIB
DRIVER_SHARE: Final = 0.98
"""The driver's total over the nominal memory, where the driver's is unknown: 0.93 to 1 over the catalogue."""
DRIVER_SHARE_LOW: Final = 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Dense peak rates in FLOP/s (OP/s for int8), fp32 accumulation, no sparsity. None = no hardware path."""

    bf16: Figure | None = None
    fp16: Figure | None = None
    tf32: Figure | None = None
    fp32: Figure | None = None
    """Vector units, not tensor cores."""
    fp8: Figure | None = None
    fp4: Figure | None = None
    int8: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator. Bandwidths are per direction; peaks are dense."""

    name: str
    """Slug: the file's name."""
    title: str
    vendor: Vendor
    aliases: tuple[str, ...] = ()
    loose_aliases: tuple[str, ...] = ()
    """Names that leave something open ("h100"): accepted, and said to have been read as this device."""
    memory: Figure
    """Bytes. Nominal, with the vendor's "GB" read as GiB: memory chips come in binary sizes."""
    driver_memory: Figure | None = None
    """Bytes that the driver's own table (nvidia-smi, amd-smi) reports as total."""
    framework_memory: Figure | None = None
    """Bytes that `torch.cuda.get_device_properties().total_memory` was seen to report."""
    memory_bandwidth: Figure
    """B/s."""
    peaks: Peaks
    compute_capability: str | None = None
    """"9.0" for Hopper; None for devices that are not NVIDIA's."""
    nvlink_generation: int | None = None
    link_fabric: str | None = None
    """Fabric that joins these devices directly (NVLink, xGMI); None = PCIe only."""
    link_bandwidth: Figure | None = None
    """B/s per direction of one device to all its peers together."""
    link_pair_bandwidth: Figure | None = None
    """B/s per direction to one single peer, where that is less than to all: meshes without a switch."""
    link_domain: int = 1
    """How many devices such links join in the usual build: 8 behind NVSwitch, 2 on a bridge, 1 = none."""
    pcie_generation: int | None = None
    pcie_lanes: int = 16
    host_fabric: str | None = None
    """Fabric to the host where it is not PCIe: NVLink-C2C on Grace parts."""
    tdp: Figure | None = None
    """W."""
    mig_slices: int = 0
    """How many MIG instances it can be cut into at most; 0 = no MIG."""
    devices_per_card: int = 1
    """How many such devices one card holds: 2 for the MI250X, whose every figure here is for one half."""
    unified_memory: bool = False
    """The memory is the host's too: the operating system and the page cache take their part of it."""
    usual_node: str | None = None
    """The node that the device usually comes in."""
    traps: tuple[str, ...] = ()
    overlay: bool = False
    """The entry comes from the user's overlay folder, not from the packaged catalogue."""

    @property
    def memory_bytes(self) -> int:
        """Nominal memory."""
        return round(self.memory.value)

    @property
    def usable_memory_bytes(self) -> int | None:
        """What the driver reports; None where unknown."""
        return None if self.driver_memory is None else round(self.driver_memory.value)

    @property
    def torch_memory(self) -> Figure:
        """What a framework can see, with its spread.

        Measured where somebody published it, else the driver's total less what CUDA keeps back.
        """
        if self.framework_memory is not None:
            return self.framework_memory
        known = self.driver_memory or self.memory
        value, low, high = known.value, known.lowest, known.highest
        origin = f"driver total less about {RESERVED / GIB:.1f} GiB; {known.source}"
        if self.driver_memory is None:
            low, value = low * DRIVER_SHARE_LOW, value * DRIVER_SHARE
            origin = f"{format_percent(DRIVER_SHARE, digits=0)} of nominal less about {RESERVED / GIB:.1f} GiB; {known.source}"
        kept = (RESERVED_LOW, RESERVED, RESERVED_HIGH) if self.vendor == "nvidia" else (0.0, 0.0, RESERVED)
        return Figure(
            value=value - kept[1],
            low=low - kept[2],
            high=high - kept[0],
            unit="B",
            kind="estimated",
            source=origin,
            date=known.date,
        )

    @property
    def torch_memory_bytes(self) -> int:
        """What a framework can see of the device when nothing else runs on it."""
        return round(self.torch_memory.value)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability as numbers that compare: (9, 0)."""
        if self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    def peak(self, dtype: str) -> float | None:
        """Dense peak in FLOP/s for one of `DTYPES`; None = the device has no such path."""
        figure: Figure | None = getattr(self.peaks, dtype) if dtype in DTYPES else None
        return None if figure is None else figure.value

    @property
    def is_a100(self) -> bool:
        """An A100 of any form: engines give it the defaults of smaller devices."""
        return "a100" in self.name

    @property
    def supports_fp8(self) -> bool:
        """It computes in fp8: compute capability 8.9 and later, or a stated fp8 peak elsewhere."""
        return self.capability >= (8, 9) if self.capability else self.peaks.fp8 is not None

    @property
    def stores_fp8(self) -> bool:
        """Kernels read a cache in fp8: compute capability 8.0 and later, or a stated fp8 peak elsewhere."""
        return self.capability >= (8, 0) if self.capability else self.peaks.fp8 is not None

    @property
    def supports_bf16(self) -> bool:
        """It computes in bf16: compute capability 8.0 and later, or a stated bf16 peak elsewhere."""
        return self.capability >= (8, 0) if self.capability else self.peaks.bf16 is not None

    @property
    def supports_flash_attention_2(self) -> bool:
        """FlashAttention 2: compute capability 8.0 and later, and AMD's CDNA through its own kernels."""
        return self.capability >= (8, 0) if self.capability else self.vendor == "amd"

    @property
    def supports_mig(self) -> bool:
        """It can be cut into hardware instances."""
        return self.mig_slices > 0

    @property
    def pcie_fabric(self) -> str | None:
        """Slug of the PCIe generation that it is attached with."""
        return None if self.pcie_generation is None else f"pcie-{self.pcie_generation}"
