"""Settings of the command line: `training.global_batch=1024`, a dotted path and a value as YAML writes it."""

from __future__ import annotations

from typing import Final

from outgrow.errors import Problem
from outgrow.specfile.fields import Slot, slots_of, spellings_of
from outgrow.specfile.nodes import Node, read_nodes
from outgrow.specfile.text import step
from outgrow.specfile.tree import settle_keys

OVERRIDE: Final = "--set"
"""What stands where a file's name would, in faults of an override."""
_MOST_STEPS: Final = 20
_LONGEST: Final = 64 * 1024


def split_override(text: str, problems: list[Problem]) -> tuple[tuple[str, ...], Node] | None:
    """A `path=value` of the command line as steps and a node; None where it is none."""
    path, equals, value = text.partition("=")
    steps = tuple(part.strip() for part in path.split("."))
    problem: Problem | None = None
    if not equals or not all(steps):
        problem = Problem(
            path=step("", path),
            message="must be path=value",
            file=OVERRIDE,
            hint="such as training.global_batch=1024",
        )
    elif len(steps) > _MOST_STEPS or len(text) > _LONGEST:
        problem = Problem(path=step("", path), message="is too long", file=OVERRIDE)
    if problem is not None:
        problems.append(problem)
        return None
    node, found = read_nodes(value, file=OVERRIDE, numbered=False)
    where = ".".join(step("", part) for part in steps)
    for fault in found:
        inner = f"{where}.{fault.path}" if fault.path else where
        problems.append(
            Problem(
                path=inner, message=fault.message, value=fault.value, has_value=fault.has_value,
                hint=fault.hint, file=OVERRIDE,
            )
        )  # fmt: skip
    if node is None and found:
        return None
    return steps, node or Node(kind="scalar", file=OVERRIDE, line=None)


def override(root: Node, cls: type, steps: tuple[str, ...], value: Node, problems: list[Problem]) -> None:
    """Set the value at a path of a tree whose keys are settled. Validation tells about unknown keys."""
    node, path = root, ""
    inside: type | None = cls
    for index, part in enumerate(steps):
        path = step(path, part)
        last = index == len(steps) - 1
        if node.kind == "list":
            if not (part.isascii() and part.isdigit() and len(part) < 8 and int(part) < len(node.items)):
                message = f"is not one of the {len(node.items)} entries, which count from 0"
                problems.append(Problem(path=path, message=message, file=OVERRIDE))
                return
            number = int(part)
            if last:
                value.key = part
                node.items[number] = value
                break
            node = node.items[number]
            continue
        slot: Slot | None = None
        name = part
        if inside is not None:
            name = spellings_of(inside).get(part, part)
            slot = slots_of(inside).get(name)
        inside = None if slot is None else slot.block or (slot.item.block if slot.item is not None else None)
        if last:
            value.key = part
            node.entries[name] = value
            break
        child = node.entries.get(name)
        if child is None or (child.kind == "scalar" and child.value is None and not child.faulty):
            child = Node(kind="map", file=OVERRIDE, line=None, key=part)
            node.entries[name] = child
        elif child.kind == "scalar":
            message = f"is a single value, so that {steps[index + 1]} cannot be set in it"
            problems.append(Problem(path=path, message=message, file=OVERRIDE))
            return
        node = child
    if inside is not None:
        for one in value.items if value.kind == "list" else (value,):
            settle_keys(one, inside, problems, path)
