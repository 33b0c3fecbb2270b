"""The data that is packaged: its folder, and its tables that are not entries."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any


def folder() -> Traversable:
    """Where devices, fabrics, nodes and models lie."""
    return files("outgrow.catalog") / "data"


@lru_cache(maxsize=8)
def table(name: str) -> dict[str, Any]:
    """A packaged TOML table, parsed once. Not a copy: nobody may write into it."""
    return tomllib.loads((folder() / f"{name}.toml").read_text(encoding="utf-8"))
