"""`outgrow validate`."""

from __future__ import annotations

from pathlib import Path

import click

from outgrow.cli.common import emit, json_option


@click.command("validate")
@click.argument("kind", type=click.Choice(["memory", "kv"]))
@click.argument("file")  # no click.Path: it lets a NUL through as a ValueError
@click.option(
    "--by",
    default=None,
    metavar="COLUMN",
    help="Group the errors by a column of the file.  [default: source]",
)
@json_option
def command(kind: str, file: str, by: str | None, as_json: bool) -> int:
    """Predict each row of FILE from its inputs alone and tell the errors.

    The files in validation/data show the columns.
    """
    from outgrow import app

    emit(app.validate(kind, Path(file), by=by), as_json=as_json)
    return 0
