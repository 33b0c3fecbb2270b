"""The catalogue's files: found, read once, checked. The overlay comes first and marks what it gives."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from outgrow.catalog import checkpoints, packaged
from outgrow.catalog.entries import SLUG, read_device, read_fabric, read_node
from outgrow.catalog.lookup import How, Index
from outgrow.cluster.device import Device
from outgrow.cluster.fabric import Fabric
from outgrow.cluster.node import Node
from outgrow.errors import InputError, OutgrowError, Problem

FOLDERS: Final = {"device": "devices", "fabric": "fabrics", "node": "nodes", "model": "models"}
_READERS: Final = {"device": read_device, "fabric": read_fabric, "node": read_node}
_MOST_BYTES: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: where it is, and whether the overlay gave it."""

    slug: str
    place: Traversable
    file: str
    """Name for messages."""
    overlay: bool


@dataclass(slots=True)
class Library:
    """The packaged files under an optional overlay. What was read is kept: files do not change meanwhile."""

    roots: tuple[tuple[Traversable, bool], ...]
    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)
    tables: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    values: dict[tuple[str, str], Device | Fabric | Node] = field(default_factory=dict)
    indexes: dict[str, Index] = field(default_factory=dict)

    def listing(self, kind: str) -> dict[str, Entry]:
        """Every entry of a kind by slug; the overlay's hide the packaged ones of the same name."""
        if kind not in self.entries:
            found: dict[str, Entry] = {}
            suffix = ".json" if kind == "model" else ".toml"
            for root, overlay in reversed(self.roots):
                folder = root.joinpath(FOLDERS[kind])
                if not folder.is_dir():
                    continue
                for place in sorted(folder.iterdir(), key=lambda x: x.name):
                    slug = place.name.removesuffix(suffix)
                    if place.name.endswith(suffix) and SLUG.match(slug):
                        file = str(place) if overlay else f"{FOLDERS[kind]}/{place.name}"
                        found[slug] = Entry(slug, place, file, overlay)
            self.entries[kind] = dict(sorted(found.items()))
        return self.entries[kind]

    def table(self, kind: str, slug: str) -> Mapping[str, Any]:
        """The parsed file. Raises `InputError` where it cannot be parsed."""
        if (kind, slug) not in self.tables:
            entry = self.listing(kind)[slug]
            try:
                self.tables[kind, slug] = _parse(_text(entry), kind)
            except (ValueError, RecursionError, OSError) as error:
                raise InputError(
                    "Cannot read a catalogue file.", problems=[_unreadable(entry, error)]
                ) from None
        return self.tables[kind, slug]

    def value(self, kind: str, slug: str) -> Device | Fabric | Node:
        """The entry as a value. Raises `InputError` with every fault of its file."""
        if (kind, slug) not in self.values:
            problems: list[Problem] = []
            entry = self.listing(kind)[slug]
            value = _READERS[kind](
                self.table(kind, slug), file=entry.file, overlay=entry.overlay, problems=problems
            )
            if value is None:
                raise InputError("A catalogue file is wrong.", problems=problems)
            self.values[kind, slug] = value
        return self.values[kind, slug]

    def index(self, kind: str) -> Index:
        """Every name of a kind. Files that cannot be parsed are left out: `check` tells about them."""
        if kind not in self.indexes:
            index = Index(kind)
            for slug, entry in self.listing(kind).items():
                try:
                    head = _parse(_text(entry), kind) if kind == "model" else _parse_head(_text(entry))
                except (ValueError, RecursionError, OSError):
                    continue
                aliases = _texts(head.get("aliases"))
                title = head.get("title")
                if kind == "model":
                    self.tables[kind, slug] = head
                    aliases += _texts([head.get("hub_id")])
                index.add(
                    slug, title if isinstance(title, str) else "", aliases, _texts(head.get("loose_aliases"))
                )
            self.indexes[kind] = index
        return self.indexes[kind]

    def find(self, kind: str, text: str) -> tuple[str, How] | None:
        """The slug that a text means. A slug is found without reading any other file."""
        slug = text.strip().lower() if isinstance(text, str) else ""
        if SLUG.match(slug) and slug in self.listing(kind):
            return slug, "name"
        found = self.index(kind).find(text)
        if found is None and kind == "model" and (parts := checkpoints.split(text)) is not None:
            return self.find(kind, parts[0])
        return found

    def suffix(self, text: str) -> str | None:
        """The weight format that a model's name states beside what its entry's config says."""
        parts = checkpoints.split(text)
        if parts is None:
            return None
        slug = self.slug("model", text)
        own = _texts([slug, self.table("model", slug).get("hub_id")])
        return None if text.strip().lower() in (name.lower() for name in own) else parts[1]

    def slug(self, kind: str, text: str) -> str:
        """As `find`, but an unknown name is an `UnknownNameError` with the nearest names."""
        found = self.find(kind, text)
        if found is None:
            raise self.index(kind).unknown(text)
        return found[0]

    def check(self, *, overlay_only: bool = False) -> list[Problem]:
        """Read everything; every fault of every file, and every name that leads nowhere."""
        problems: list[Problem] = []
        for kind in FOLDERS:
            for slug, entry in self.listing(kind).items():
                if overlay_only and not entry.overlay:
                    continue
                try:
                    if kind == "model":
                        problems += _check_model(self.table(kind, slug), entry)
                    else:
                        problems += self._check_references(self.value(kind, slug), entry)
                except OutgrowError as error:
                    problems += error.problems
        return problems

    def _check_references(self, value: Device | Fabric | Node, entry: Entry) -> list[Problem]:
        wanted: list[tuple[str, str, str | None]] = []
        if isinstance(value, Device):
            wanted = [("link_fabric", "fabric", value.link_fabric), ("usual_node", "node", value.usual_node)]
            wanted.append(("host_fabric", "fabric", value.host_fabric))
        elif isinstance(value, Node):
            wanted = [
                (key, "fabric", getattr(value, key)) for key in ("link_fabric", "pcie_fabric", "fabric")
            ]
            wanted.append(("device", "device", value.device))
        return [
            Problem(
                path=path, message=f"no {kind} has this name", value=slug, has_value=True, file=entry.file,
                hint=self.index(kind).unknown(slug).hint,
            )
            for path, kind, slug in wanted
            if slug is not None and slug not in self.listing(kind)
        ]  # fmt: skip


def _text(entry: Entry) -> str:
    data = entry.place.read_bytes()
    if len(data) > _MOST_BYTES:
        raise ValueError(f"has {len(data):,} bytes; a catalogue file is at most {_MOST_BYTES:,}")
    return data.decode("utf-8")


def _parse(text: str, kind: str) -> Mapping[str, Any]:
    table = json.loads(text) if kind == "model" else tomllib.loads(text)
    if not isinstance(table, dict):
        raise ValueError("must be one object with names as keys")
    return table


def _parse_head(text: str) -> Mapping[str, Any]:
    # Names stand before the first table; parsing only them makes an index of all files cheap.
    head, *rest = text.split("\n[", 1)
    try:
        return tomllib.loads(head)
    except tomllib.TOMLDecodeError:
        return tomllib.loads(text) if rest else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(x for x in value if isinstance(x, str)) if isinstance(value, list) else ()


def _unreadable(entry: Entry, error: Exception) -> Problem:
    return Problem(path="", message=f"cannot be read: {error}", file=entry.file)


def _check_model(table: Mapping[str, Any], entry: Entry) -> list[Problem]:
    problems = []
    if table.get("name") != entry.slug:
        message = f"must be the name of the file, {entry.slug}"
        problems.append(
            Problem(path="name", message=message, value=table.get("name"), has_value=True, file=entry.file)
        )
    if not isinstance(table.get("config"), dict):
        problems.append(
            Problem(path="config", message="must be the object of a config.json", file=entry.file)
        )
    return problems


_current: list[Library] = []


def library() -> Library:
    """The library in use."""
    if not _current:
        _current.append(Library(roots=((packaged.folder(), False),)))
    return _current[0]


def use_overlay(path: str | Path | None) -> None:
    """Put a folder of the user's own entries before the packaged ones; None takes it away.

    The folder holds devices/, fabrics/, nodes/ (TOML) and models/ (JSON), any of them. Everything in it is
    read now: raises `InputError` with every fault of every file, and then nothing changes.
    """
    if path is None:
        _current[:] = [Library(roots=((packaged.folder(), False),))]
        return
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"The overlay {str(path)!r} is not a folder.")
    candidate = Library(roots=((folder, True), (packaged.folder(), False)))
    problems = [*_stray(folder), *candidate.check(overlay_only=True)]
    if problems:
        raise InputError("The overlay of the catalogue has faults.", problems=problems)
    _current[:] = [candidate]


def _stray(folder: Path) -> list[Problem]:
    """Files that nothing would read: a misspelt folder must not be silent."""
    problems = []
    known = ", ".join(f"{name}/" for name in FOLDERS.values())
    for place in sorted(folder.iterdir()):
        if place.name.startswith(".") or place.name.lower().startswith("readme"):
            continue
        if place.name not in FOLDERS.values() or not place.is_dir():
            problems.append(Problem(path="", message=f"is not one of {known}", file=str(place)))
            continue
        suffix = ".json" if place.name == "models" else ".toml"
        for inner in sorted(place.iterdir()):
            stem = inner.name.removesuffix(suffix)
            if not inner.name.startswith(".") and not (inner.name.endswith(suffix) and SLUG.match(stem)):
                message = f"is not read: files here are called like a-name{suffix}"
                problems.append(Problem(path="", message=message, file=str(inner)))
    return problems
