"""The form of a judgement: one answer per question, each with its numbers and how they came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outgrow.evidence import Quantity

Scale = Literal["single-gpu", "one-node", "cluster"]
SCALES: tuple[Scale, ...] = ("single-gpu", "one-node", "cluster")
Tenancy = Literal["shared", "private"]
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question, answered."""

    question: str
    """Slug: fits, fast-enough, traffic, latency, sharing, downtime, sensitivity, operations."""
    title: str
    scale: Scale
    """The smallest scale that this question allows."""
    text: str
    """One line for people, with the number that decides."""
    how: str
    """How it was computed."""
    gpus: int = 1
    """Fewest GPUs that satisfy this question."""
    private: bool = False
    """It asks for machines that nobody else uses."""
    quantities: tuple[tuple[str, Quantity], ...] = ()
    rule_of_thumb: str = ""
    """What guides say here, where the numbers say otherwise."""
    confidence: Confidence = "medium"
    applies: bool = True
    impossible: bool = False
    """No number of GPUs of this kind satisfies it as it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One change that would change the verdict."""

    change: str
    then: str


def scale_of(gpus: int, gpus_per_node: int) -> Scale:
    """The scale that a number of GPUs means."""
    if gpus <= 1:
        return "single-gpu"
    return "one-node" if gpus <= gpus_per_node else "cluster"


def widest(scales: list[Scale]) -> Scale:
    """The largest scale of several."""
    return max(scales, key=SCALES.index) if scales else "single-gpu"
