"""`outgrow fit`."""

from __future__ import annotations

from typing import Any

import click

from outgrow.cli.common import emit, for_option, json_option, set_option


@click.command("fit")
@click.argument("what", required=False, metavar="MODEL|WORKLOAD.yaml")
@click.option(
    "--on",
    default=None,
    metavar="TARGET",
    help="A device, a node, a count of either (4xhgx-h100), or a cluster file.  [default: h100-sxm]",
)
@for_option
@set_option
@click.option("--table", is_flag=True, help="The memory table of guides: sizes x method x precision.")
@click.option("--check", is_flag=True, help="Exit with 1 where it does not fit.")
@json_option
def command(
    what: str | None,
    on: str | None,
    job: Any,
    overrides: tuple[str, ...],
    table: bool,
    check: bool,
    as_json: bool,
) -> int:
    """Does it fit, what fills the memory, what still fits, what would help.

    MODEL is a name of the catalogue, a config.json or its folder.
    """
    from outgrow import app
    from outgrow.errors import EXIT_NO, EXIT_OK

    on = "h100-sxm" if on is None else on
    if table:
        if job or overrides or check:
            raise click.UsageError("--table takes a model and --on, not --for, --set or --check.")
        emit(app.memory_table([what] if what else [], on=on), as_json=as_json)
        return EXIT_OK
    if what is None:
        raise click.UsageError(
            "Say which model or workload file. For example: outgrow fit llama-3.1-8b --on h100-sxm"
        )
    result = app.fit(what, on=on, job=job, overrides=overrides)
    emit(result, as_json=as_json)
    return EXIT_NO if check and not result.value.fit.fits else EXIT_OK
