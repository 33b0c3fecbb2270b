"""The memory table as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outgrow.decision.memory_table import METHODS, MemoryTable
from outgrow.report.lines import Line, wrapped
from outgrow.units import GIB, format_bytes, format_count


def lines(table: MemoryTable) -> Iterator[Line]:
    """One row per model, one column per method: memory of one GPU doing it alone, and the fewest GPUs."""
    yield Line(
        f"GiB for one GPU alone, and fewest {table.device} ({format_bytes(table.capacity_bytes)})", "title"
    )
    yield Line()
    heads = [f"{m}" for m, _, _ in METHODS]
    subs = [p for _, p, _ in METHODS]
    yield Line(f"{'':15}" + "".join(f"{h:>9}" for h in heads))
    yield Line(f"{'model':15}" + "".join(f"{s:>9}" for s in subs))
    for name in dict.fromkeys(c.model for c in table.cells):
        row = [c for c in table.cells if c.model == name]
        yield Line(f"{name[:15]:15}" + "".join(f"{c.bytes / GIB:>9,.0f}" for c in row))
        yield Line(
            f"{format_count(row[0].parameters):>15}" + "".join(f"{_gpus(c.gpus):>9}" for c in row), "dim"
        )
    yield Line()
    yield Line("What guides say", "title")
    for claim in table.claims:
        yield from wrapped(
            f"{'right' if claim.holds else 'WRONG'}: {claim.text}",
            indent="         ",
            first="  ",
            role="good" if claim.holds else "bad",
        )
        yield from wrapped(claim.evidence, indent="         ", role="dim")
    yield Line()
    yield from wrapped(
        "Training: one sequence of 4,096 tokens, every layer recomputed, all states sharded. Serving: weights, engine budget and one request of 4,096 tokens.",
        role="dim",
    )


def _gpus(count: int | None) -> str:
    return "> 1 node" if count is None else f"{count} GPU" + ("s" if count > 1 else "")


def document(table: MemoryTable) -> dict[str, Any]:
    """The table for JSON."""
    return {
        "device": table.device,
        "capacity_bytes": round(table.capacity_bytes),
        "cells": [
            {
                "model": c.model,
                "parameters_total": c.parameters,
                "method": c.method,
                "precision": c.precision,
                "needed_bytes": round(c.bytes),
                "gpus": c.gpus,
            }
            for c in table.cells
        ],
        "claims": [{"claim": c.text, "holds": c.holds, "evidence": c.evidence} for c in table.claims],
    }
