"""How wrong is this tool on measured runs: read rows, predict each from its inputs alone, tell the errors."""

from __future__ import annotations

from outgrow.validation.rows import Row, read_rows
from outgrow.validation.summary import Outcome, Summary, summarise

__all__ = ["Outcome", "Row", "Summary", "read_rows", "summarise"]
