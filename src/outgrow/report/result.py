"""What an operation returns: a value with its inputs, assumptions, findings and sources, and its three views."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outgrow.evidence import Assumption, Finding, Source

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T]):
    """An answer. `value` is the core's own value; text, HTML and JSON are views of it."""

    kind: str
    """fit, decide, table, catalog, validate, explain."""
    value: T
    inputs: Mapping[str, Any]
    assumed: tuple[Assumption, ...] = ()
    findings: tuple[Finding, ...] = ()
    sources: tuple[Source, ...] = ()
    next: str = ""
    """The command that most people would run now."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of this answer."""
        from outgrow.report.json import document

        return document(self)

    @property
    def inputs_sha256(self) -> str:
        """Hash of the inputs: equal inputs, equal answer."""
        text = json.dumps(self.inputs, sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __rich__(self) -> Any:
        from outgrow.report.text import render

        return render(self)

    def __str__(self) -> str:
        from outgrow.report.text import plain

        return plain(self)

    def _repr_html_(self) -> str:
        from outgrow.report.html import fragment

        return fragment(self)
