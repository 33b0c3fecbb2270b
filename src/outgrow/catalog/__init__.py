"""Facts are files: devices, fabrics, nodes and models by name, under the user's overlay.

catalog.device("h100")           a Device, or an UnknownNameError with the nearest names
catalog.target("4xhgx-h100")     a Cluster
catalog.model("llama-3.1-8b")    a ModelShape
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from outgrow.catalog import checkpoints, packaged
from outgrow.catalog.load import FOLDERS, library, use_overlay
from outgrow.catalog.targets import target
from outgrow.cluster.device import Device
from outgrow.cluster.fabric import Fabric
from outgrow.cluster.node import Node
from outgrow.errors import InputError, Problem, UnknownNameError

if TYPE_CHECKING:
    from outgrow.workload.model import ModelShape

__all__ = [
    "Hit",
    "check",
    "device",
    "explain_name",
    "fabric",
    "glossary",
    "is_overlay",
    "model",
    "model_config",
    "model_entry",
    "names",
    "node",
    "search",
    "target",
    "use_overlay",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One entry that a search found."""

    kind: str
    name: str
    title: str


def device(name: str) -> Device:
    """The accelerator that a name means."""
    files = library()
    return cast("Device", files.value("device", files.slug("device", name)))


def node(name: str) -> Node:
    """The machine that a name means."""
    files = library()
    return cast("Node", files.value("node", files.slug("node", name)))


def fabric(name: str) -> Fabric:
    """The fabric that a name means."""
    files = library()
    return cast("Fabric", files.value("fabric", files.slug("fabric", name)))


def model_entry(name: str) -> dict[str, Any]:
    """The model's file as it is: name, hub_id, aliases, source, parameters, config. A copy."""
    files = library()
    return copy.deepcopy(dict(files.table("model", files.slug("model", name))))


def model_config(name: str) -> dict[str, Any]:
    """The `config.json` of a shipped model. A copy: overrides may be written into it."""
    entry = model_entry(name)
    config = entry.get("config")
    if not isinstance(config, dict):
        problem = Problem(
            path="config", message="must be the object of a config.json", file=f"models/{name}.json"
        )
        raise InputError("A catalogue file is wrong.", problems=[problem])
    suffix = library().suffix(name)
    if suffix is not None:
        config["quantization_config"] = checkpoints.quantization_config(suffix)
    return config


def model(name: str) -> ModelShape:
    """The shape of a shipped model."""
    from outgrow.workload.hf_config import resolve

    entry = model_entry(name)
    slug = library().slug("model", name)
    return resolve(
        model_config(name), name=slug, source=str(entry.get("source") or entry.get("hub_id") or "")
    )


def glossary() -> dict[str, Any]:
    """Every word that is explained: title, text, aliases, see."""
    return packaged.table("glossary")


def names(kind: str) -> tuple[str, ...]:
    """Every name of a kind (device, fabric, node, model), sorted."""
    return tuple(library().listing(_kind(kind)))


def explain_name(kind: str, text: str) -> str | None:
    """What was read into a name that leaves something open ("h100 read as NVIDIA H100 SXM5"), or None."""
    files, kind = library(), _kind(kind)
    found = files.find(kind, text)
    if found is None:
        raise files.index(kind).unknown(text)
    slug, how = found
    suffix = files.suffix(text) if kind == "model" else None
    if how != "loose" and suffix is None:
        return None
    stored = "" if suffix is None else f", its weights stored as {suffix}"
    return f"{text.strip()} read as {files.index(kind).titles.get(slug) or slug}{stored}"


def is_overlay(kind: str, name: str) -> bool:
    """The entry that a name means comes from the user's overlay folder."""
    files, kind = library(), _kind(kind)
    return files.listing(kind)[files.slug(kind, name)].overlay


def search(text: str, kind: str | None = None) -> tuple[Hit, ...]:
    """Entries whose name, title or aliases hold every word of a text."""
    files = library()
    words = text.lower().split()
    hits = []
    for one in FOLDERS if kind is None else (_kind(kind),):
        index = files.index(one)
        spellings: dict[str, list[str]] = {}
        for spelling, slug in index.spelled.items():
            spellings.setdefault(slug, []).append(spelling)
        for slug, title in index.titles.items():
            text_of = " ".join((slug, title.lower(), *spellings.get(slug, ())))
            if all(word in text_of for word in words):
                hits.append(Hit(kind=one, name=slug, title=title))
    return tuple(hits)


def check() -> list[Problem]:
    """Every fault of every file in use; empty where all is well."""
    return library().check()


def _kind(text: str) -> str:
    kind = text.lower().removesuffix("s")
    if kind not in FOLDERS:
        raise UnknownNameError(
            f"The catalogue has no {text!r}.", hint="it has " + ", ".join(FOLDERS.values())
        )
    return kind
