"""Versions of libraries that fail, or behave otherwise, for a training job."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.catalog import packaged
from outgrow.layout import Layout
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob, version_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that is known of a version and applies to a job."""

    library: str
    version: str
    message: str
    hint: str
    source: str


def notices(model: ModelShape, job: TrainingJob, layout: Layout) -> tuple[Notice, ...]:
    """What is known of the versions that a job names."""
    found = []
    for entry in packaged.table("compatibility")["notice"]:
        version = job.version(entry["library"])
        if version is None or not _inside(version, entry["versions"]):
            continue
        if "sharding" in entry and (layout.sharding not in entry["sharding"] or layout.shards == 1):
            continue
        if "tied" in entry and model.tied is not entry["tied"]:
            continue
        if "base" in entry and (job.base_format is None or job.base_format.method != entry["base"]):
            continue
        found.append(
            Notice(
                library=entry["library"], version=".".join(map(str, version)), message=entry["message"],
                hint=entry["hint"], source=entry["source"],
            )
        )  # fmt: skip
    return tuple(found)


def _inside(version: tuple[int, ...], wanted: str) -> bool:
    """ ">=2.13" and "<0.43.2" are what the entries use; missing parts count as 0."""
    sign = wanted.rstrip("0123456789.")
    limit = version_numbers(wanted[len(sign) :])
    width = max(len(version), len(limit))
    have, bound = (part + (0,) * (width - len(part)) for part in (version, limit))
    return have >= bound if sign == ">=" else have < bound
