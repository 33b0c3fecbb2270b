"""`outgrow catalog`."""

from __future__ import annotations

import click

from outgrow.cli.common import emit, json_option


class _Kind(click.Choice[str]):
    """A kind of entry, in the singular or the plural."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        singular = value.removesuffix("s")
        return super().convert(singular if singular in self.choices else value, param, ctx)


@click.group("catalog")
def command() -> None:
    """What is known of models, devices, nodes and fabrics, with kind and source of every figure."""


@command.command("list")
@click.argument("kind", type=_Kind(["model", "device", "node", "fabric"]))
@json_option
def listing(kind: str, as_json: bool) -> int:
    """Names of one kind."""
    from outgrow import app

    emit(app.listing(kind), as_json=as_json)
    return 0


@command.command("show")
@click.argument("name", metavar="NAME|CONFIG")
@json_option
def show(name: str, as_json: bool) -> int:
    """One model (by name, or its config.json), device, node or fabric."""
    from outgrow import app

    emit(app.show(name), as_json=as_json)
    return 0
