"""Have you outgrown one GPU? Decide it for a real workload on real hardware, with evidence and an error bar.

>>> import outgrow
>>> answer = outgrow.fit("llama-3.1-8b", on="h100-sxm")
>>> answer.value.fit.verdict
'fits'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outgrow import version

if TYPE_CHECKING:
    from outgrow.app import decide, explain, fit, memory_table, show, validate

__version__ = version.VERSION
__all__ = ["__version__", "decide", "explain", "fit", "memory_table", "show", "validate"]

# Importing the package must cost nothing: the operations are fetched when they are first used.


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        return getattr(importlib.import_module("outgrow.app"), name)
    raise AttributeError(f"module 'outgrow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
