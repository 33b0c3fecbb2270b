"""`outgrow decide`."""

from __future__ import annotations

from typing import Any

import click

from outgrow.cli.common import emit, for_option, json_option, set_option


@click.command("decide")
@click.argument("what", metavar="MODEL|WORKLOAD.yaml")
@click.option(
    "--on", default=None, metavar="TARGET", help="The device or machines to ask about.  [default: h100-sxm]"
)
@for_option
@set_option
@click.option("--check", is_flag=True, help="Exit with 1 where one GPU is not enough.")
@json_option
def command(
    what: str, on: str | None, job: Any, overrides: tuple[str, ...], check: bool, as_json: bool
) -> int:
    """One GPU, one node or a cluster; shared or private; today and in six months; and what would flip it."""
    from outgrow import app
    from outgrow.errors import EXIT_NO, EXIT_OK

    result = app.decide(what, on=on, job=job, overrides=overrides)
    emit(result, as_json=as_json)
    return EXIT_NO if check and result.value.verdict.scale != "single-gpu" else EXIT_OK
