"""`outgrow explain`."""

from __future__ import annotations

import click

from outgrow.cli.common import emit, json_option


@click.command("explain")
@click.argument("term", nargs=-1, required=True)
@json_option
def command(term: tuple[str, ...], as_json: bool) -> int:
    """What a word means here, and how the number behind it is computed."""
    from outgrow import app

    emit(app.explain(" ".join(term)), as_json=as_json)
    return 0
