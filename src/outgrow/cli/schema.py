"""`outgrow schema`."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument(
    "kind",
    type=click.Choice(
        ["workload", "cluster", "fit", "decide", "table", "catalog", "catalog-list", "validate", "explain"]
    ),
)
def command(kind: str) -> int:
    """The JSON Schema of a file (workload, cluster) or of an answer (--json)."""
    from outgrow import app

    click.echo(json.dumps(app.schema(kind), indent=2, ensure_ascii=False))
    return 0
