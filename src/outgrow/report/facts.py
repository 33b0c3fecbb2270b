"""Figures of a device, a node or a fabric, for people and for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from outgrow.cluster.figure import Figure
from outgrow.units import GIGA, TERA, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure."""

    name: str
    text: str
    kind: str
    source: str
    figure: Figure | None = None


def _text(figure: Figure) -> str:
    value, unit = figure.value, figure.unit
    if unit == "B":
        return format_bytes(value)
    if unit == "B/s":
        return f"{value / GIGA:,.6g} GB/s"
    if unit in ("FLOP/s", "OP/s"):
        return f"{value / TERA:,.6g} T{unit}"
    if unit == "s":
        return f"{value * 1e6:,.3g} µs"
    if unit == "fraction":
        return f"{value * 100:.3g} %"
    return f"{value:,.6g} {unit}"


def facts(value: Any, prefix: str = "") -> Iterator[Fact]:
    """Every figure and every plain field of an entry, in its order."""
    for field in fields(value):
        item = getattr(value, field.name)
        name = f"{prefix}{field.name}".replace("_", " ")
        if item is None or field.name in ("name", "title", "aliases", "loose_aliases", "traps", "overlay"):
            continue
        if isinstance(item, Figure):
            yield Fact(name=name, text=_text(item), kind=item.kind, source=item.source, figure=item)
        elif is_dataclass(item):
            yield from facts(item, prefix=f"{field.name} ")
        elif isinstance(item, tuple):
            if item and all(isinstance(x, tuple) and isinstance(x[-1], Figure) for x in item):
                for variant, figure in item:
                    yield Fact(
                        name=f"{name} {variant}",
                        text=_text(figure),
                        kind=figure.kind,
                        source=figure.source,
                        figure=figure,
                    )
            elif item and not any(is_dataclass(x) for x in item):
                yield Fact(name=name, text=", ".join(map(str, item)), kind="", source="")
        elif item != "" and item is not False:
            yield Fact(name=name, text="yes" if item is True else str(item), kind="", source="")
