"""A result as an HTML fragment, for notebooks. Everything is escaped; nothing is fetched."""

from __future__ import annotations

from html import escape
from typing import Any

from outgrow.report.result import Result
from outgrow.report.svg import memory_bar
from outgrow.report.text import lines

_STYLES = {
    "title": "font-weight:600",
    "good": "color:#1a7f37;font-weight:600",
    "bad": "color:#b42318;font-weight:600",
    "warn": "color:#9a6700;font-weight:600",
    "dim": "color:#667085",
    "code": "color:#175cd3",
    "plain": "",
}


def fragment(result: Result[Any]) -> str:
    """One element that stands alone."""
    rows = []
    for line in lines(result):
        text = escape(line.text.rstrip())
        style = _STYLES[line.role]
        rows.append(f'<span style="{style}">{text}</span>' if style else text)
    picture = memory_bar(result.value.fit) if result.kind == "fit" else ""
    return (
        f'<div class="outgrow">{picture}<pre style="line-height:1.35;font-size:13px">'
        + "\n".join(rows)
        + "</pre></div>"
    )
