"""JSON Schemas of the files, for editors: words from the docstrings, bounds and units from the core."""

from __future__ import annotations

import copy
from typing import Any, Literal

from pydantic.json_schema import GenerateJsonSchema

from outgrow.specfile.check import adapter_of
from outgrow.specfile.cluster import ClusterFile
from outgrow.specfile.fields import Slot, slots_of, spellings_of
from outgrow.specfile.tree import blocks_of
from outgrow.workload.limits import bounds_of
from outgrow.workload.quantization import ALIASES
from outgrow.workload.workload import Workload

_UNIT_PATTERNS = {
    "seconds": (r"^\s*[0-9][0-9_.eE+-]*\s*(us|ms|s|sec|m|min|h|hours?|d|days?|w|weeks?)?\s*$", "5 days"),
    "bytes": (r"^\s*[0-9][0-9_.eE+-]*\s*([KMGTkmgt]i?)?[Bb]?\s*$", "14.9 GiB"),
    "count": (r"^\s*[0-9][0-9_.eE+-]*\s*[kKmMbBgGtT]?\s*$", "15T"),
    "factor": (r"^\s*[0-9]+(\.[0-9]+)?\s*[x×]\s*$", "4x"),
    "share": (r"^\s*[0-9.]+\s*%\s*$", "99.9%"),
}


def json_schema(kind: Literal["workload", "cluster"]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a file of this kind."""
    cls: type = {"workload": Workload, "cluster": ClusterFile}[kind]
    schema = adapter_of(cls).json_schema()
    definitions = schema.get("$defs", {})
    for block in {block.__name__: block for _, block in blocks_of(cls)}.values():
        _describe(schema if block is cls else definitions[block.__name__], block)
    if kind == "workload":
        schema["oneOf"] = [{"required": ["training"]}, {"required": ["serving"]}]
    else:
        schema["oneOf"] = [{"required": ["node"]}, {"required": ["device"]}]
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "title": f"outgrow {kind} file"}


def _describe(table: dict[str, Any], cls: type) -> None:
    properties = table["properties"]
    for slot in slots_of(cls).values():
        entry = properties[slot.name]
        entry.pop("title", None)
        if slot.block is not None and "$ref" in entry:  # a block may be empty: its keys have defaults
            properties[slot.name] = {"anyOf": [entry, {"type": "null"}]}
        _constrain(entry, cls, slot)
        if slot.item is not None:
            for place in (entry, *entry.get("anyOf", ())):
                if isinstance(place.get("items"), dict):
                    _constrain(place["items"], cls, slot.item)
    for spelling, name in spellings_of(cls).items():
        alias = copy.deepcopy(properties[name])
        alias["description"] = f"The same as {name}. {alias.get('description', '')}".strip()
        alias.pop("default", None)
        properties[spelling] = alias
    table.pop("title", None)


def _constrain(entry: dict[str, Any], owner: type, slot: Slot) -> None:
    places = [entry, *entry.get("anyOf", ())]
    for place in places:
        if place.get("type") == "string" and slot.choices and "enum" not in place:
            place["enum"] = [*slot.choices, *(ALIASES if slot.is_format else ())]
        bounds = bounds_of(owner, slot.name)
        if place.get("type") in ("number", "integer") and bounds is not None:
            place["minimum"], place["maximum"] = bounds
    if slot.unit:
        pattern, example = _UNIT_PATTERNS[slot.unit]
        numbers = entry.pop("anyOf", None)
        if numbers is None:
            keys = [key for key in ("type", "minimum", "maximum") if key in entry]
            numbers = [{key: entry.pop(key) for key in keys}]
        entry["anyOf"] = [*numbers, {"type": "string", "pattern": pattern, "examples": [example]}]
