"""Pictures as plain SVG strings: no script, no font, no fetch."""

from __future__ import annotations

from html import escape
from typing import Any

from outgrow.units import format_bytes

PALETTE = {
    "state": "#3b6fb5",
    "activation": "#e08e3c",
    "transient": "#b95fa0",
    "cache": "#3f9d6b",
    "overhead": "#98a2b3",
}
WIDTH, HEIGHT, MARGIN = 760, 96, 12


def memory_bar(fit: Any) -> str:
    """One GPU's memory as one stacked bar, the limit as a line."""
    capacity = fit.capacity.value
    total = sum(t.bytes for t in fit.terms)
    scale = (WIDTH - 2 * MARGIN) / max(capacity, total)
    x = float(MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" font-size="11">'
    ]
    parts.append(f"<title>{escape(f'{format_bytes(total)} of {format_bytes(capacity)}')}</title>")
    for index, term in enumerate(fit.terms):
        width = term.bytes * scale
        shade = 1.0 - 0.12 * (index % 3)
        label = f"{term.name} {format_bytes(term.bytes)}"
        parts.append(
            f'<rect x="{x:.1f}" y="30" width="{max(width, 0.5):.1f}" height="34" fill="{PALETTE[term.kind]}" fill-opacity="{shade:.2f}" stroke="#fff" stroke-width="0.7"><title>{escape(label)}</title></rect>'
        )
        if width > 7 * len(term.name):
            parts.append(
                f'<text x="{x + width / 2:.1f}" y="51" text-anchor="middle" fill="#fff">{escape(term.name)}</text>'
            )
        x += width
    low, high = (
        MARGIN + edge * scale for edge in (fit.needed.low, min(fit.needed.high, max(capacity, total)))
    )
    parts.append(
        f'<path d="M{low:.1f} 66v6M{low:.1f} 69H{high:.1f}M{high:.1f} 66v6" fill="none" stroke="#344054"><title>{escape(f"needed: {format_bytes(fit.needed.low)} to {format_bytes(fit.needed.high)}")}</title></path>'
    )
    limit = MARGIN + capacity * scale
    parts.append(
        f'<rect x="{MARGIN}" y="30" width="{capacity * scale:.1f}" height="34" fill="none" stroke="#344054"/>'
    )
    parts.append(
        f'<line x1="{limit:.1f}" y1="24" x2="{limit:.1f}" y2="70" stroke="#b42318" stroke-width="2"/>'
    )
    parts.append(
        f'<text x="{min(limit, WIDTH - MARGIN):.1f}" y="18" text-anchor="end" fill="#b42318">{escape(format_bytes(capacity))} usable</text>'
    )
    x = float(MARGIN)
    for kind, colour in PALETTE.items():
        size = sum(t.bytes for t in fit.terms if t.kind == kind)
        if size:
            text = f"{kind} {format_bytes(size)}"
            parts.append(
                f'<rect x="{x:.0f}" y="78" width="10" height="10" fill="{colour}"/><text x="{x + 14:.0f}" y="87" fill="#344054">{escape(text)}</text>'
            )
            x += 14 + 6.6 * len(text) + 14
    return "".join([*parts, "</svg>"])
