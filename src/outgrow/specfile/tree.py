"""From a tree of nodes to plain data under the core's own key names, with a map back to the lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from outgrow.errors import Problem
from outgrow.specfile.fields import Slot, canonical_format, read_number, slots_of, spellings_of
from outgrow.specfile.nodes import Node
from outgrow.specfile.text import did_you_mean, step
from outgrow.workload.quantization import ALIASES

Location = tuple[str | int, ...]

_MOST_HINTS: Final = 50
_LARGEST_WHOLE: Final = 1e18
_THOUSANDS: Final = re.compile(r"[0-9]{1,6}[kK]\Z")


@dataclass(slots=True)
class Reading:
    """What came out of a tree: data, faults, and where everything stood."""

    data: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    places: dict[Location, tuple[str, Node]] = field(default_factory=dict)
    """By the core's key names: the path as it was written, and the node."""
    told: set[Location] = field(default_factory=set)
    """Left out of the data because a fault of theirs has been told."""

    def near(self, word: str, known: Iterable[str]) -> str:
        """A did-you-mean, for the first faults: comparing words is slow, and nobody reads on."""
        return did_you_mean(word, known) if len(self.problems) < _MOST_HINTS else ""

    def is_told(self, at: Location) -> bool:
        """A fault of this, or of what holds it, has been told."""
        return any(at[:length] in self.told for length in range(len(at), 0, -1))

    def fault(self, at: Location, message: str, *, hint: str = "", has_value: bool = True) -> None:
        """Note a fault of something that is here."""
        path, node = self.places[at]
        self.problems.append(
            Problem(
                path=path, message=message, hint=hint, file=node.file, line=node.line,
                has_value=has_value and node.kind == "scalar", value=node.value,
            )
        )  # fmt: skip
        self.told.add(at)


# -- keys


def settle_keys(node: Node, cls: type, problems: list[Problem], path: str = "") -> None:
    """Rename friendlier spellings to the core's names, in place and all the way down."""
    if node.kind != "map":
        return
    spellings, slots = spellings_of(cls), slots_of(cls)
    settled: dict[str, Node] = {}
    for key, child in node.entries.items():
        name = spellings.get(key, key)
        where = step(path, key)
        if name in settled:
            message = f"says the same as {settled[name].key}: give one of them"
            problems.append(Problem(path=where, message=message, file=child.file, line=child.line))
            continue
        settled[name] = child
        slot = slots.get(name)
        if slot is not None and slot.block is not None:
            settle_keys(child, slot.block, problems, where)
        elif slot is not None and slot.item is not None and slot.item.block is not None:
            for item in child.items:
                settle_keys(item, slot.item.block, problems, step(where, item.key))
    node.entries = settled


# -- values


def read_tree(root: Node, cls: type) -> Reading:
    """The data of a tree, ready for validation against a dataclass."""
    reading = Reading(places={(): ("", root)})
    reading.data = _mapping(root, cls, (), "", reading)
    return reading


def _mapping(node: Node, cls: type, at: Location, path: str, reading: Reading) -> dict[str, object]:
    slots = slots_of(cls)
    data: dict[str, object] = {}
    for name, child in node.entries.items():
        where = (*at, name)
        reading.places[where] = (step(path, child.key), child)
        slot = slots.get(name)
        if child.faulty:
            reading.told.add(where)
        elif slot is None:
            data[name] = None
        else:
            value = _value(child, slot, where, reading)
            if where not in reading.told:
                data[name] = value
    return data


def _value(node: Node, slot: Slot, at: Location, reading: Reading) -> object:
    path = reading.places[at][0]
    empty = node.kind == "scalar" and node.value is None
    if empty and slot.optional and (node.raw or slot.block is None):
        return None
    if slot.block is not None:
        # A block with nothing under it is a block of defaults, as YAML's authors mean it.
        if empty or node.kind == "map":
            return _mapping(node, slot.block, at, path, reading)
        return _wrong(node, slot, at, reading, hint=f"its keys: {_some(slots_of(slot.block))}")
    if slot.item is not None:
        if node.kind != "list":
            return _wrong(
                node, slot, at, reading, hint=f"write [{node.raw}]" if node.raw and len(node.raw) < 40 else ""
            )
        items = []
        for number, child in enumerate(node.items):
            where = (*at, number)
            reading.places[where] = (step(path, child.key), child)
            value = None if child.faulty else _value(child, slot.item, where, reading)
            if child.faulty or where in reading.told:
                # Something must stand in for it, or what follows would be counted differently from the file.
                reading.told.add(where)
                value = _stand_in(slot.item)
            items.append(value)
        return items
    if empty:
        return _wrong(node, slot, at, reading, hint="give a value, or leave the key out for its default")
    if node.kind != "scalar":
        return _wrong(node, slot, at, reading)
    if slot.kind in ("int", "float"):
        return _number(node, slot, at, reading)
    if slot.choices and isinstance(node.value, str):
        value = canonical_format(node.value) if slot.is_format else node.value
        if value not in slot.choices:
            known = (*slot.choices, *ALIASES) if slot.is_format else slot.choices
            return _wrong(node, slot, at, reading, hint=reading.near(node.value, known))
        return value
    return node.value


def _stand_in(slot: Slot) -> object:
    if slot.block is not None:
        return {}
    if slot.choices:
        return slot.choices[0]
    return {"int": 1, "float": 1.0, "bool": False, "text": "?"}.get(slot.kind)


def _number(node: Node, slot: Slot, at: Location, reading: Reading) -> object:
    value = node.value
    if isinstance(value, str):
        try:
            value = read_number(slot, value)
        except (ValueError, OverflowError) as error:
            message = str(error) if isinstance(error, ValueError) else "must be a finite number"
            return _wrong(node, slot, at, reading, message=message)
    if slot.kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value) if abs(value) <= _LARGEST_WHOLE else value
    return value


def _wrong(
    node: Node, slot: Slot, at: Location, reading: Reading, *, message: str = "", hint: str = ""
) -> object:
    """Note the fault; nothing stands where the value would."""
    told = message or slot.wanted
    if node.kind != "scalar":
        told += f", and is {node.noun}"
    if slot.kind in ("int", "float") and node.kind == "scalar" and not hint and isinstance(node.value, str):
        hint = number_hint(slot, node.value)
    reading.fault(at, told, hint=hint)
    return None


def number_hint(slot: Slot, text: str) -> str:
    """What to write instead of a text that is not the number it should be."""
    plain = text.strip()
    if slot.unit == "" and _THOUSANDS.match(plain):
        thousands = int(plain[:-1])
        return f"{plain} can mean {thousands * 1000} or {thousands * 1024}: write the number out"
    examples = {
        "seconds": "write a number of seconds, or one with ms, s, min, h or days: 5 days",
        "bytes": "write a number of bytes, or one with GiB or GB: 14.9 GiB",
        "count": "write a number, or one with k, M, B or T: 15T",
        "factor": "write a factor: 4, or 4x",
        "share": "write a share from 0 to 1, or with %: 99.9%",
        "": "write a plain number",
    }
    return examples[slot.unit]


def _some(names: Mapping[str, object]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (", …" if len(listed) > 8 else "")


def unknown_key_hint(name: str, cls: type, root: type, reading: Reading) -> str:
    """What was probably meant by a key that is not here: another spelling, or another block."""
    if hint := reading.near(name, {**slots_of(cls), **spellings_of(cls)}):
        return hint
    homes = [
        path
        for path, block in blocks_of(root)
        if block is not cls and (name in slots_of(block) or name in spellings_of(block))
    ]
    if homes:
        return "it belongs in " + " or ".join(home or "the file's first level" for home in homes[:2])
    return f"its keys: {_some(slots_of(cls))}"


def blocks_of(root: type, path: str = "") -> list[tuple[str, type]]:
    """Every block of a dataclass, itself first, with its path."""
    found = [(path, root)]
    for name, slot in slots_of(root).items():
        block = slot.block or (slot.item.block if slot.item is not None else None)
        if block is not None:
            found += blocks_of(block, step(path, name))
    return found
