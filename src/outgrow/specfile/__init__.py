"""Files that people write: workloads and clusters in YAML, models as config.json, `--set path=value`.

Everything here reads what nobody vouches for. Sizes are bounded, nothing is constructed from tags, and every
fault of a file is told at once with its line, its path, its value and what to do about it.
"""

from __future__ import annotations

from typing import Any, Literal

from outgrow.specfile.cluster import cluster_of, load_cluster
from outgrow.specfile.model import load_model
from outgrow.specfile.workload import Loaded, load_workload

__all__ = ["Loaded", "cluster_of", "json_schema", "load_cluster", "load_model", "load_workload"]


def json_schema(kind: Literal["workload", "cluster"]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a file of this kind."""
    from outgrow.specfile import schema

    return schema.json_schema(kind)
