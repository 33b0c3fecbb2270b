"""A layout: how a job is spread over GPUs, what each rank holds, and whether it is legal in itself.

Rank order is tp fastest, then cp, dp, pp slowest: tensor-parallel peers are neighbours on one node, pipeline
stages are far apart. Expert parallelism folds into the data and context ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outgrow.errors import LayoutError, Problem
from outgrow.workload.serving import ServingJob

Sharding = Literal["none", "zero1", "zero2", "zero3"]
Recompute = Literal["none", "selective", "full"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"]
Axis = Literal["tp", "cp", "dp", "pp"]

LARGEST_DEGREE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of parallelism and what is kept where. Raises `LayoutError` with every fault."""

    dp: int = 1
    """Data-parallel replicas."""
    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages."""
    vpp: int = 1
    """Chunks of the model on each pipeline stage (interleaved schedules)."""
    cp: int = 1
    """Context-parallel ranks: the sequence is split over them."""
    ep: int = 1
    """Expert-parallel ranks, taken out of dp x cp (x tp where experts are not split by tensor parallelism)."""
    sharding: Sharding = "none"
    """zero1: optimizer states; zero2: and gradients; zero3: and parameters (FSDP)."""
    shard_degree: int | None = None
    """Ranks over which states are sharded; None = dp x cp. Smaller = hybrid sharding (HSDP)."""
    sequence_parallel: bool = True
    """With tp > 1: norms and residuals are split along the sequence as well."""
    schedule: Schedule = "1f1b"
    stage_layers: tuple[int, ...] | None = None
    """Layers of each pipeline stage; None = even, the first stages taking what is left over."""
    micro_batch: int = 1
    """Sequences of one micro-batch, per data-parallel replica."""
    recompute: Recompute = "none"
    """Activations that are computed again in the backward pass instead of kept."""

    def __post_init__(self) -> None:
        problems = []
        for name in ("dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_DEGREE:
                problems.append(
                    Problem(
                        path=name,
                        message=f"must be a whole number from 1 to {LARGEST_DEGREE:,}",
                        value=value,
                        has_value=True,
                    )
                )
        if not problems:
            problems += self._relations()
        if problems:
            raise LayoutError("This layout is not legal.", problems=problems)

    def _relations(self) -> list[Problem]:
        problems = []
        if (self.dp * self.cp) % self.ep and (self.dp * self.cp * self.tp) % self.ep:
            ranks = self.dp * self.cp * self.tp
            legal = [d for d in range(1, 4097) if ranks % d == 0]
            problems.append(
                Problem(
                    path="ep",
                    message=f"expert parallelism must divide dp x cp x tp = {self.dp * self.cp * self.tp}",
                    value=self.ep,
                    has_value=True,
                    hint=f"nearest legal: {nearest(self.ep, legal)}",
                )
            )
        if self.shard_degree is not None and (
            self.shard_degree < 1 or (self.dp * self.cp) % self.shard_degree
        ):
            problems.append(
                Problem(
                    path="shard_degree",
                    message=f"must divide dp x cp = {self.dp * self.cp}",
                    value=self.shard_degree,
                    has_value=True,
                    hint=f"nearest legal: {nearest(self.shard_degree, divisors(self.dp * self.cp))}",
                )
            )
        if self.vpp > 1 and self.pp == 1:
            problems.append(
                Problem(path="vpp", message="needs pipeline stages: pp is 1", value=self.vpp, has_value=True)
            )
        if self.stage_layers is not None and (
            len(self.stage_layers) != self.pp * self.vpp or min(self.stage_layers, default=0) < 0
        ):
            problems.append(
                Problem(
                    path="stage_layers",
                    message=f"must list the layers of each of the {self.pp * self.vpp} chunks (pp x vpp)",
                    value=list(self.stage_layers),
                    has_value=True,
                    hint="leave it out for even stages; with pp = 1 there is only one stage",
                )
            )
        return problems

    @property
    def gpus(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def expert_tp(self) -> int:
        """Tensor-parallel ranks that split one expert: tp where ep fits into dp x cp, else 1."""
        return self.tp if (self.dp * self.cp) % self.ep == 0 else 1

    @property
    def shards(self) -> int:
        """Ranks over which sharded states of dense weights are spread."""
        if self.sharding == "none":
            return 1
        return self.shard_degree or self.dp * self.cp

    @property
    def expert_shards(self) -> int:
        """Ranks over which sharded states of expert weights are spread: replicas of one expert group."""
        if self.sharding == "none":
            return 1
        replicas = (self.shard_degree or self.dp * self.cp) * (self.tp // self.expert_tp)
        return max(1, replicas // self.ep)

    def rank(self, *, tp: int = 0, cp: int = 0, dp: int = 0, pp: int = 0) -> int:
        """The global rank at these coordinates."""
        return ((pp * self.dp + dp) * self.cp + cp) * self.tp + tp

    def coordinates(self, rank: int) -> dict[Axis, int]:
        """The inverse of `rank`."""
        rest, tp = divmod(rank, self.tp)
        rest, cp = divmod(rest, self.cp)
        pp, dp = divmod(rest, self.dp)
        return {"tp": tp, "cp": cp, "dp": dp, "pp": pp}

    def chunks(self, layers: int) -> tuple[tuple[int, ...], ...]:
        """Layer indices of each pipeline stage, in order; a stage with vpp chunks holds several runs of layers."""
        counts = self.stage_layers
        if counts is None:
            parts = self.pp * self.vpp
            counts = tuple(layers // parts + (1 if i < layers % parts else 0) for i in range(parts))
        stages: list[list[int]] = [[] for _ in range(self.pp)]
        start = 0
        for index, count in enumerate(counts):
            stages[index % self.pp].extend(range(start, start + count))
            start += count
        return tuple(tuple(stage) for stage in stages)

    def in_flight(self, stage: int, micro_batches: int) -> float:
        """Micro-batches whose activations a stage holds at once, at most.

        Sources: GPipe (arXiv 1811.06965); 1F1B and interleaving (arXiv 2104.04473); zero bubble ZB-H1 keeps the
        1F1B peak (arXiv 2401.10241); DualPipe holds pp + 1 on two half-models (DeepSeek-V3 report).
        """
        if self.pp == 1:
            return 1.0
        if self.schedule == "gpipe":
            return float(micro_batches)
        if self.schedule == "dualpipe":
            return float(min(micro_batches, self.pp + 1))
        if self.vpp > 1:
            chunks = 2 * (self.pp - stage - 1) + (self.vpp - 1) * self.pp + 1
            return min(float(micro_batches), chunks / self.vpp)
        return float(min(micro_batches, self.pp - stage))

    def __str__(self) -> str:
        parts = [f"dp{self.dp}", f"tp{self.tp}", f"pp{self.pp}"]
        parts += [
            f"{name}{value}"
            for name, value in (("vpp", self.vpp), ("cp", self.cp), ("ep", self.ep))
            if value > 1
        ]
        if self.sharding != "none":
            parts.append(self.sharding + (f"/{self.shard_degree}" if self.shard_degree else ""))
        return " ".join([*parts, f"mb{self.micro_batch}", f"recompute-{self.recompute}"])


def divisors(n: int) -> list[int]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def nearest(value: int, legal: list[int]) -> str:
    """The legal values just below and just above, for a hint."""
    below = [d for d in legal if d <= value]
    above = [d for d in legal if d >= value]
    return " or ".join(dict.fromkeys(str(d) for d in (*below[-1:], *above[:1]))) or "none"


def replica_layout(job: ServingJob) -> Layout:
    """Where the parts of one serving replica lie.

    With fewer expert ranks than tensor ranks each expert is split as well, so that the experts take 1/tp of their
    size on each GPU however they are spread; with more, attention is data-parallel over the rest.
    """
    ep = job.ep if job.ep >= job.tp else 1
    return Layout(dp=max(1, ep // job.tp), tp=job.tp, pp=job.pp, ep=ep, sequence_parallel=False)
