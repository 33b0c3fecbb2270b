"""What a dataclass of the core looks like from a file: its keys, their friendlier spellings, their units."""

from __future__ import annotations

import math
import re
import types
from dataclasses import MISSING, dataclass, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from outgrow.units import parse_bytes, parse_count, parse_seconds
from outgrow.workload.quantization import ALIASES, FORMATS
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import PRECISIONS, Lora, TrainingJob
from outgrow.workload.workload import Growth

Unit = Literal["", "seconds", "bytes", "count", "factor", "share"]
Kind = Literal["block", "list", "choice", "int", "float", "bool", "text"]

# Bytes of one element: plain numbers such as 2 or 0.5, not amounts of memory.
_PER_ELEMENT: Final = frozenset({"base_bytes", "parameter_bytes", "embedding_bytes"})
_COUNTS: Final = frozenset({"tokens", "parameters"})
_SHARES: Final = frozenset({"target", "memory_fraction", "dropout"})
_FACTOR: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*[x×]\s*\Z")

LORA_TARGETS: Final = (
    "q", "k", "v", "o", "qkv", "gate", "up", "down", "all",
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    "query", "key", "value", "dense", "mlp", "attention", "all-linear",
)  # fmt: skip
"""Short names, and the spellings of other libraries that the memory model reads too."""
# Texts of the core that only a table there says the values of.
_TABLES: Final[dict[tuple[type, str], tuple[str, ...]]] = {
    (TrainingJob, "precision"): tuple(PRECISIONS),
    (TrainingJob, "base"): tuple(FORMATS),
    (ServingJob, "weights"): tuple(FORMATS),
}
FORMAT_KEYS: Final = frozenset({(TrainingJob, "base"), (ServingJob, "weights")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One key: what may stand there."""

    name: str
    kind: Kind
    optional: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    """Every value, where they are few and named."""
    is_format: bool = False
    """The choices are weight formats, which have aliases."""
    unit: Unit = ""
    block: type | None = None
    item: Slot | None = None
    """What a list holds."""

    @property
    def wanted(self) -> str:
        """What it must be, for a message."""
        if self.choices:
            return "must be one of " + ", ".join(self.choices)
        noun = {
            "block": "a mapping of keys", "list": "a list", "int": "a whole number", "float": "a number",
            "bool": "true or false", "text": "a text", "choice": "a text",
        }[self.kind]  # fmt: skip
        return f"must be {noun}"


@lru_cache(maxsize=64)
def slots_of(cls: type) -> dict[str, Slot]:
    """Every key of a dataclass, in its order."""
    hints = get_type_hints(cls)
    slots = {}
    for field in fields(cls):
        required = field.default is MISSING and field.default_factory is MISSING
        slots[field.name] = _slot(cls, field.name, hints[field.name], required=required)
    return slots


@lru_cache(maxsize=64)
def spellings_of(cls: type) -> dict[str, str]:
    """The keys of a dataclass without their unit, where that is free: `deadline` for `deadline_seconds`."""
    slots = slots_of(cls)
    short = {
        name.removesuffix("_" + slot.unit): name
        for name, slot in slots.items()
        if slot.unit in ("seconds", "bytes")
    }
    return {spelling: name for spelling, name in short.items() if spelling not in slots}


def _slot(cls: type, name: str, hint: Any, *, required: bool = False) -> Slot:
    optional = False
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not types.NoneType]
        optional, hint = len(parts) < len(get_args(hint)), parts[0]
    if is_dataclass(hint) and isinstance(hint, type):
        return Slot(name=name, kind="block", optional=optional, required=required, block=hint)
    if get_origin(hint) is tuple:
        item = _slot(cls, name, get_args(hint)[0])
        return Slot(name=name, kind="list", optional=optional, required=required, item=item)
    choices = get_args(hint) if get_origin(hint) is Literal else _TABLES.get((cls, name), ())
    if (cls, name) == (Lora, "targets"):
        choices = LORA_TARGETS
    if choices:
        is_format = (cls, name) in FORMAT_KEYS
        return Slot(
            name=name,
            kind="choice",
            optional=optional,
            required=required,
            choices=choices,
            is_format=is_format,
        )
    kinds: dict[Any, Kind] = {int: "int", float: "float", bool: "bool", str: "text"}
    kind = kinds[hint]
    return Slot(name=name, kind=kind, optional=optional, required=required, unit=_unit(cls, name, kind))


def _unit(cls: type, name: str, kind: Kind) -> Unit:
    if kind not in ("int", "float") or name in _PER_ELEMENT:
        return ""
    if cls is Growth:
        return "" if name == "months" else "factor"
    if name in _SHARES:
        return "share"
    if name in _COUNTS:
        return "count"
    return "seconds" if name.endswith("_seconds") else "bytes" if name.endswith("_bytes") else ""


def read_number(slot: Slot, text: str) -> float | int:
    """A number with its unit: "5 days", "14.9 GiB", "15T", "4x", "99.9 %". Raises `ValueError`."""
    value: float | int
    if slot.unit == "seconds":
        value = parse_seconds(text)
    elif slot.unit == "bytes":
        value = parse_bytes(text)
    elif slot.unit == "count":
        value = parse_count(text)
    elif slot.unit == "factor" and (match := _FACTOR.match(text)) is not None:
        value = float(match[1])
    elif slot.unit == "share" and len(text) <= 64 and text.rstrip().endswith("%"):
        try:  # decimal, so that 99.9 % is 0.999 and not 0.9990000000000001
            value = float(Decimal(text.rstrip()[:-1].strip()) / 100)
        except InvalidOperation:
            raise ValueError("is not a number") from None
    else:
        raise ValueError(slot.wanted)
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def canonical_format(text: str) -> str | None:
    """The name of a weight format under which the core's table has it; None where it has none."""
    key = text.strip().lower()
    key = ALIASES.get(key, key)
    return key if key in FORMATS else None
