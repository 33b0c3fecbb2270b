"""From a parsed TOML table to a `Device`, a `Node` or a `Fabric`. Every fault is noted; none stops it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from outgrow import units
from outgrow.cluster.device import DTYPES, VENDORS, Device, Peaks, Vendor
from outgrow.cluster.fabric import FABRIC_KINDS, Fabric, FabricKind
from outgrow.cluster.figure import FIGURE_KINDS, Figure, FigureKind
from outgrow.cluster.node import Node
from outgrow.errors import Problem

SLUG: Final = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*\Z")
_CAPABILITY: Final = re.compile(r"[0-9]{1,2}\.[0-9]\Z")
_MOST: Final = 1e21

# Per dimension: the base unit, and what one of each accepted unit is in it.
_SIZE: Final = ("B", {u: units.parse_bytes(f"1 {u}") for u in ("MiB", "GiB", "TiB", "GB", "TB")})
_RATE: Final = ("B/s", {"GB/s": units.GB, "TB/s": units.TB, "Gb/s": units.GIGA / 8})
_COMPUTE: Final = ("FLOP/s", {"TFLOP/s": units.TERA, "PFLOP/s": 1000 * units.TERA})
_OPERATIONS: Final = ("OP/s", {"TOP/s": units.TERA})
_POWER: Final = ("W", {"W": 1})
_TIME: Final = ("s", {"us": units.parse_seconds("1 us"), "ms": units.parse_seconds("1 ms"), "s": 1})
_FRACTION: Final = ("fraction", {"fraction": 1})
_CPUS: Final = ("", {"vcpu": 1, "cores": 1, "threads": 1})

_Dimension = tuple[str, Mapping[str, float]]


def _closest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)


@dataclass(slots=True)
class Reader:
    """Reads keys of one table and notes what is wrong with them."""

    table: Mapping[str, Any]
    file: str
    problems: list[Problem]
    path: str = ""
    asked: list[str] = field(default_factory=list)

    def note(self, key: str, message: str, *, value: object = None, hint: str = "") -> None:
        """Note a fault of one key."""
        path = f"{self.path}.{key}" if self.path and key else self.path or key
        self.problems.append(
            Problem(
                path=path,
                message=message,
                value=value,
                has_value=value is not None,
                hint=hint,
                file=self.file,
            )
        )

    def take(self, key: str, *, required: bool = False) -> Any:
        """The raw value, None where absent."""
        self.asked.append(key)
        value = self.table.get(key)
        if value is None and required:
            self.note(key, "is missing")
        return value

    def text(self, key: str, *, required: bool = False) -> str:
        """A string; "" where absent or wrong."""
        value = self.take(key, required=required)
        if value is None:
            return ""
        if not isinstance(value, str) or not value.strip():
            self.note(key, "must be a text that is not empty", value=value)
            return ""
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(x, str) and x.strip() for x in value):
            self.note(key, "must be a list of texts that are not empty", value=value)
            return ()
        return tuple(value)

    def choice(self, key: str, options: Sequence[str]) -> str:
        """One of some words; the first of them where it is wrong, so that reading can go on."""
        value = self.text(key, required=True)
        if value and value not in options:
            self.note(key, "is not one of the known words", value=value, hint=_closest(value, options))
        return value if value in options else options[0]

    def slug(self, key: str, *, required: bool = False) -> str | None:
        """A name of another entry."""
        value = self.text(key, required=required)
        if value and not SLUG.match(value):
            self.note(key, "must be a name in lower case, with dashes", value=value)
        return value or None

    def integer(
        self, key: str, *, default: int | None = None, low: int = 0, high: int = 100_000
    ) -> int | None:
        """A whole number within bounds; the default where absent or wrong."""
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.note(key, f"must be a whole number from {low} to {high}", value=value)
            return default
        return value

    def boolean(self, key: str) -> bool:
        """true or false; false where absent."""
        value = self.take(key)
        if value is not None and not isinstance(value, bool):
            self.note(key, "must be true or false", value=value)
        return value is True

    def inner(self, key: str) -> Reader:
        """A table inside this one; an empty one where absent or wrong."""
        value = self.take(key)
        if value is not None and not isinstance(value, Mapping):
            self.note(key, "must be a table", value=value)
        path = f"{self.path}.{key}" if self.path else key
        return Reader(value if isinstance(value, Mapping) else {}, self.file, self.problems, path)

    def done(self) -> None:
        """Every key that nobody asked for is a fault: a misspelt figure must not vanish."""
        for key in self.table:
            if key not in self.asked:
                self.note(key, "is not a known key", hint=_closest(key, self.asked))


@dataclass(slots=True)
class Figures:
    """Reads figures whose sources are named in the entry's own `[sources]` table."""

    reader: Reader
    sources: Mapping[str, tuple[str, str]]

    def get(self, key: str, dimension: _Dimension) -> Figure | None:
        """One figure in the base unit of its dimension; None where absent or wrong."""
        faults = len(self.reader.problems)
        if self.reader.take(key) is None:
            return None
        one = self.reader.inner(key)
        base, factors = dimension
        unit = one.choice("unit", tuple(factors))
        kind = one.choice("kind", FIGURE_KINDS)
        numbers = {name: self._number(one, name) for name in ("value", "low", "high")}
        if numbers["value"] is None and "value" not in one.table:
            one.note("value", "is missing")
        origin = one.text("source", required=True)
        note = one.text("note")
        if origin and origin not in self.sources:
            one.note(
                "source", "is not in [sources]", value=origin, hint=_closest(origin, tuple(self.sources))
            )
        one.done()
        value = numbers["value"]
        if value is None or len(self.reader.problems) > faults:
            return None
        low, high = numbers["low"], numbers["high"]
        if (low is not None and low > value) or (high is not None and high < value):
            one.note("value", f"lies outside of its own low and high ({low} to {high})", value=value)
            return None
        ref, date = self.sources[origin]
        factor = factors[unit]
        return Figure(
            value=value * factor,
            low=None if low is None else low * factor,
            high=None if high is None else high * factor,
            unit=base or unit,
            kind=cast("FigureKind", kind),
            source=ref,
            date=date,
            note=note,
        )

    @staticmethod
    def _number(one: Reader, key: str) -> float | None:
        value = one.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            one.note(key, "must be a number", value=value)
            return None
        if not 0 < value < _MOST:
            one.note(key, "must be more than 0", value=value)
            return None
        return float(value)


def _sources(reader: Reader) -> dict[str, tuple[str, str]]:
    inner = reader.inner("sources")
    found = {}
    for key in inner.table:
        one = inner.inner(key)
        found[key] = (one.text("ref", required=True), one.text("date"))
        one.done()
    if not found:
        reader.note("sources", "names no source")
    return found


def _needed(figures: Figures, key: str, dimension: _Dimension) -> Figure:
    figure = figures.get(key, dimension)
    if figure is not None:
        return figure
    if key not in figures.reader.table:
        figures.reader.note(key, "is missing")
    # A harmless stand-in: the entry is thrown away, but reading goes on to find its other faults.
    return Figure(value=1.0, unit=dimension[0], kind="estimated", source="stand-in")


def _head(reader: Reader) -> dict[str, Any]:
    name = reader.slug("name", required=True) or ""
    stem = reader.file.rsplit("/", 1)[-1].removesuffix(".toml")
    if name and name != stem:
        reader.note("name", f"must be the name of the file, {stem}", value=name)
    return {
        "name": name,
        "title": reader.text("title", required=True),
        "aliases": reader.texts("aliases"),
        "loose_aliases": reader.texts("loose_aliases"),
        "traps": reader.texts("traps"),
    }


def read_device(
    table: Mapping[str, Any], *, file: str, overlay: bool, problems: list[Problem]
) -> Device | None:
    """A device; None, with the faults noted, where the table is wrong."""
    before = len(problems)
    reader = Reader(table, file, problems)
    head = _head(reader)
    sources = _sources(reader)
    figures = Figures(reader.inner("figures"), sources)
    peaks = Figures(reader.inner("peaks"), sources)
    capability = reader.text("compute_capability")
    if capability and not _CAPABILITY.match(capability):
        reader.note("compute_capability", 'must look like "9.0"', value=capability)
    vendor = reader.choice("vendor", VENDORS)
    if vendor == "nvidia" and not capability:
        reader.note("compute_capability", "is missing: every NVIDIA device has one")
    peak = {dtype: peaks.get(dtype, _OPERATIONS if dtype == "int8" else _COMPUTE) for dtype in DTYPES}
    if not any(peak.values()):
        reader.note("peaks", "names no peak rate")
    device = {
        "vendor": cast("Vendor", vendor),
        "memory": _needed(figures, "memory", _SIZE),
        "driver_memory": figures.get("driver_memory", _SIZE),
        "framework_memory": figures.get("framework_memory", _SIZE),
        "memory_bandwidth": _needed(figures, "memory_bandwidth", _RATE),
        "peaks": Peaks(**peak),
        "compute_capability": capability or None,
        "nvlink_generation": reader.integer("nvlink_generation", low=1, high=9),
        "link_fabric": reader.slug("link_fabric"),
        "link_bandwidth": figures.get("link_bandwidth", _RATE),
        "link_pair_bandwidth": figures.get("link_pair_bandwidth", _RATE),
        "link_domain": reader.integer("link_domain", default=1, low=1),
        "pcie_generation": reader.integer("pcie_generation", low=1, high=9),
        "pcie_lanes": reader.integer("pcie_lanes", default=16, low=1, high=32),
        "host_fabric": reader.slug("host_fabric"),
        "tdp": figures.get("tdp", _POWER),
        "mig_slices": reader.integer("mig_slices", default=0, high=64),
        "devices_per_card": reader.integer("devices_per_card", default=1, low=1, high=16),
        "unified_memory": reader.boolean("unified_memory"),
        "usual_node": reader.slug("usual_node"),
    }
    for inner in (figures.reader, peaks.reader, reader):
        inner.done()
    if len(problems) > before:
        return None
    return Device(**head, **cast("dict[str, Any]", device), overlay=overlay)


def read_fabric(
    table: Mapping[str, Any], *, file: str, overlay: bool, problems: list[Problem]
) -> Fabric | None:
    """A fabric; None, with the faults noted, where the table is wrong."""
    before = len(problems)
    reader = Reader(table, file, problems)
    head = _head(reader)
    sources = _sources(reader)
    figures = Figures(reader.inner("figures"), sources)
    variants = Figures(reader.inner("variants"), sources)
    fabric = {
        "kind": cast("FabricKind", reader.choice("kind", FABRIC_KINDS)),
        "bandwidth": _needed(figures, "bandwidth", _RATE),
        "nccl_bandwidth": figures.get("nccl_bandwidth", _RATE),
        "latency": figures.get("latency", _TIME),
        "nccl_ll_latency": figures.get("nccl_ll_latency", _TIME),
        "nccl_ll128_latency": figures.get("nccl_ll128_latency", _TIME),
        "nccl_simple_latency": figures.get("nccl_simple_latency", _TIME),
        "efficiency": figures.get("efficiency", _FRACTION),
        "efficiency_note": reader.text("efficiency_note"),
        "variants": tuple((k, v) for k in variants.reader.table if (v := variants.get(k, _RATE)) is not None),
    }
    for inner in (figures.reader, reader):
        inner.done()
    if len(problems) > before:
        return None
    return Fabric(**head, **cast("dict[str, Any]", fabric), overlay=overlay)


def read_node(table: Mapping[str, Any], *, file: str, overlay: bool, problems: list[Problem]) -> Node | None:
    """A node; None, with the faults noted, where the table is wrong."""
    before = len(problems)
    reader = Reader(table, file, problems)
    head = _head(reader)
    figures = Figures(reader.inner("figures"), _sources(reader))
    gpus = reader.integer("gpus", low=1, high=1024)
    if gpus is None and "gpus" not in table:
        reader.note("gpus", "is missing")
    node = {
        "device": reader.slug("device", required=True),
        "gpus": gpus,
        "link_fabric": reader.slug("link_fabric"),
        "link_domain": reader.integer("link_domain", default=1, low=1),
        "pcie_fabric": reader.slug("pcie_fabric"),
        "fabric": reader.slug("fabric"),
        "nics": reader.integer("nics", default=0, high=1024),
        "nic_bandwidth": figures.get("nic_bandwidth", _RATE),
        "cpus": figures.get("cpus", _CPUS),
        "ram": figures.get("ram", _SIZE),
        "nvme": figures.get("nvme", _SIZE),
    }
    if bool(node["nics"]) != bool(node["nic_bandwidth"]) and len(problems) == before:
        reader.note("nics", "NICs and their figures.nic_bandwidth go together: give both or neither")
    for inner in (figures.reader, reader):
        inner.done()
    if len(problems) > before:
        return None
    return Node(**head, **cast("dict[str, Any]", node), overlay=overlay)
