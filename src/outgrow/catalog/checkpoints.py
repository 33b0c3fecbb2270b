"""What the last part of a checkpoint's name says of its weights: qwen3-32b-fp8 is qwen3-32b, stored in fp8."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from outgrow.catalog import packaged

_ENDS: Final = (
    re.compile(r"[-_.]([a-z0-9]+[-_][a-z0-9]+)\Z"),
    re.compile(r"[-_.]([a-z0-9]+)\Z"),
)


def _suffixes() -> dict[str, dict[str, Any]]:
    suffixes: dict[str, dict[str, Any]] = packaged.table("checkpoints")["suffix"]
    return suffixes


def split(name: str) -> tuple[str, str] | None:
    """The name without its suffix, and the suffix; None where the name says nothing of its weights."""
    text = name.strip().lower()
    for end in _ENDS:
        found = end.search(text)
        if found is not None and (suffix := found[1].replace("_", "-")) in _suffixes():
            return name.strip()[: found.start()], suffix
    return None


def quantization_config(suffix: str) -> dict[str, Any]:
    """What the config.json of such a checkpoint states."""
    return copy.deepcopy(_suffixes()[suffix])
