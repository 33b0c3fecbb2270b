"""A workload: a model, one job on it, and what surrounds it: growth, teams, availability, sensitivity, budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from outgrow.errors import InputError, Problem
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob

DataClass = Literal["public", "internal", "confidential", "regulated"]
Operations = Literal["none", "some", "platform-team"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the workload changes until `months` from now. Factors multiply today's values; 1 = unchanged."""

    months: int = 6
    traffic: float = 1.0
    """Requests per second."""
    context: float = 1.0
    """Longest context and mean prompt."""
    parameters: float = 1.0
    """Size of the model."""
    tokens: float = 1.0
    """Tokens of a training run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """One group of people that needs GPUs."""

    name: str
    gpus: int = 1
    """GPUs that it uses when it works."""
    hours_per_week: float = 40.0
    production: bool = False
    """It serves users: it must not wait behind experiments."""
    isolated: bool = False
    """Its data may not share a machine with another team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """What happens when a GPU fails."""

    target: float | None = None
    """Share of time that the service must answer, such as 0.999; None = a restart is acceptable."""
    reload_seconds: float = 300.0
    """Time until a replacement serves: provisioning, loading weights, warming up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What the data is and where it may be."""

    data_class: DataClass = "internal"
    regimes: tuple[str, ...] = ()
    """Rules that apply, such as dora, ss2/21, eu-ai-act, iso27001."""
    regions: tuple[str, ...] = ()
    """Regions where data, weights and logs may be; empty = anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent, and how fast results are needed."""

    per_month: float | None = None
    """Money per month."""
    currency: str = "USD"
    deadline_seconds: float | None = None
    """Longest acceptable time of one training run."""
    runs_per_month: float | None = None
    operations: Operations = "some"
    """Who can operate machines: nobody, somebody beside other work, a platform team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """Degrees of parallelism that are given; None = chosen."""

    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sharding: Literal["none", "zero1", "zero2", "zero3"] | None = None
    shard_degree: int | None = None
    sequence_parallel: bool = True
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"] | None = None
    stage_layers: tuple[int, ...] | None = None
    micro_batch: int | None = None
    recompute: Literal["none", "selective", "full"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What someone wants to do. Exactly one of `training` and `serving`."""

    model: str
    """A name of the catalogue, a path to a config.json or its folder."""
    training: TrainingJob | None = None
    serving: ServingJob | None = None
    layout: LayoutChoice = field(default_factory=LayoutChoice)
    growth: Growth = field(default_factory=Growth)
    sharing: tuple[Team, ...] = ()
    availability: Availability = field(default_factory=Availability)
    sensitivity: Sensitivity = field(default_factory=Sensitivity)
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        if (self.training is None) == (self.serving is None):
            found = "neither" if self.training is None else "both"
            problem = Problem(
                path="", message=f"give exactly one of `training:` and `serving:`; {found} is given"
            )
            raise InputError("This is not a workload.", problems=[problem])
