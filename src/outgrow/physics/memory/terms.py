"""What a memory answer is made of: named terms, the moment of the peak, and three numbers that are kept apart.

allocated   bytes that tensors occupy (torch.cuda.max_memory_allocated)
reserved    bytes that the caching allocator holds: allocated plus what fragmentation keeps it from reusing
device      what the driver reports (nvidia-smi): reserved plus context, communicators and library workspaces
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outgrow.evidence import Quantity

TermKind = Literal["state", "activation", "transient", "cache", "overhead"]
Phase = Literal["forward", "loss", "backward", "optimizer", "evaluation", "serving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a memory total."""

    name: str
    bytes: float
    kind: TermKind
    source: str
    """The formula, with its numbers, or the measurement that it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The memory of one rank at its peak."""

    stage: int
    phase: Phase
    """The moment at which the peak is reached."""
    terms: tuple[Term, ...]
    """What is alive at that moment; they sum to `allocated`, overheads to the rest of `device`."""
    allocated: Quantity
    reserved: Quantity
    device: Quantity
    needed: Quantity
    """Device bytes without which the step fails: idle cache can be given back, the rest cannot."""
    host_bytes: float = 0.0
    """Host memory per rank that offloading and paging need."""
    phases: tuple[tuple[Phase, float], ...] = ()
    """Allocated bytes at the peak of every phase."""

    @property
    def needed_bytes(self) -> float:
        return self.needed.value

    def bytes_of(self, kind: TermKind) -> float:
        """Sum of the terms of a kind."""
        return sum(t.bytes for t in self.terms if t.kind == kind)
