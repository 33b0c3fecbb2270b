"""What commands share: options, and printing an answer as text or as one JSON document."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document and nothing else.")(
        function
    )


def set_option(function: F) -> F:
    """`--set`, any number of times."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="PATH=VALUE",
        help="Set one value, such as training.sequence_length=8192. Repeatable.",
    )(function)


def for_option(function: F) -> F:
    """`--for`."""
    choice = click.Choice(["serving", "training", "lora", "qlora"])
    return click.option(
        "--for", "job", type=choice, help="What to do with a model that is given by name.  [default: serving]"
    )(function)


def emit(result: Any, *, as_json: bool) -> None:
    """Print an answer on stdout."""
    if as_json:
        import json

        click.echo(json.dumps(result.to_dict(), indent=2, ensure_ascii=False))
        return
    unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    if (
        unicode
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    ):
        from rich.console import Console

        Console(width=80, highlight=False, soft_wrap=True).print(result)
        return
    from outgrow.report.text import plain

    click.echo(plain(result, ascii_only=not unicode), nl=False)
