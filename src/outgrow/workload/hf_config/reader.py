"""Reading an untrusted config dictionary: typed, bounded, every fault kept, every assumed default told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outgrow.errors import Problem

WIDEST = 10_000_000
"""No width, head count or vocabulary of a real model comes near this; larger values are typing errors."""
DEEPEST = 10_000


@dataclass(slots=True)
class Notes:
    """What reading found out, shared by a config and its nested parts."""

    problems: list[Problem] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


class Fields:
    """One dictionary of a config. A getter never raises: it notes the fault and returns a harmless value.

    `names` are alternative spellings of one key: the first that is present counts. A key that is absent is
    taken from `class_defaults` (what the model type's own class assumes when a key is not written), then from
    the getter's `default`; without either, its absence is a fault.
    """

    def __init__(
        self,
        raw: Mapping[str, object],
        notes: Notes,
        *,
        path: str = "",
        class_defaults: Mapping[str, object] | None = None,
    ) -> None:
        self.raw = raw
        self.notes = notes
        self.path = path
        self.class_defaults: Mapping[str, object] = class_defaults or {}

    # -- looking

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, *names: str) -> bool:
        """Whether the config itself (not its class) says something other than null."""
        return any(self.raw.get(name) is not None for name in names)

    def fault(self, name: str, message: str, *, hint: str = "", value: object = None) -> None:
        """Note a fault of one key."""
        has_value = value is not None or name in self.raw
        shown = value if value is not None else self.raw.get(name)
        found = Problem(path=self._at(name), message=message, value=shown, has_value=has_value, hint=hint)
        if found not in self.notes.problems:
            self.notes.problems.append(found)

    def _find(self, names: Sequence[str]) -> tuple[str, object]:
        for name in names:
            if self.raw.get(name) is not None:
                return name, self.raw[name]
        for name in names:
            if name not in self.raw and self.class_defaults.get(name) is not None:
                self.notes.assumed.append(
                    f"{self._at(name)} = {self.class_defaults[name]} (default of its model type)"
                )
                return name, self.class_defaults[name]
        return names[0], None

    # -- getters

    def integer(self, *names: str, default: int | None = None, low: int = 1, high: int = WIDEST) -> int:
        """A whole number within bounds; `default` where it is absent or null."""
        name, value = self._find(names)
        if value is None:
            if default is not None:
                return default
            self.fault(name, "is missing", hint=f"add it with --set model.{self._at(name)}=N")
            return max(low, 1)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(name, "must be a whole number", value=value)
            return max(low, 1)
        if not low <= value <= high:
            self.fault(name, f"must be between {low:,} and {high:,}", value=value)
            return max(low, 1)
        return value

    def optional(self, *names: str, low: int = 0, high: int = WIDEST) -> int | None:
        """A whole number, or None where it is absent or null."""
        return self.integer(*names, low=low, high=high) if self._find_quietly(names) is not None else None

    def _find_quietly(self, names: Sequence[str]) -> object:
        for name in names:
            if self.raw.get(name) is not None:
                return self.raw[name]
            if name not in self.raw and self.class_defaults.get(name) is not None:
                return self.class_defaults[name]
        return None

    def number(self, *names: str, default: float | None = None, low: float = 0.0, high: float = 1e9) -> float:
        """A finite number within bounds."""
        name, value = self._find(names)
        if value is None:
            if default is not None:
                return default
            self.fault(name, "is missing")
            return max(low, 1.0)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not low <= value <= high
        ):
            self.fault(name, f"must be a number between {low:g} and {high:g}", value=value)
            return max(low, 1.0)
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(name, "must be true or false", value=value)
            return default
        return value

    def text(self, *names: str, default: str = "") -> str:
        """A short string."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 10_000:
            self.fault(name, "must be a short text", value=value)
            return default
        return value

    def items(self, *names: str, length: int | None = None) -> list[object] | None:
        """A list (of `length`), or None where it is absent."""
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            self.fault(name, "must be a list", value=value)
            return None
        if length is not None and len(value) != length:
            self.fault(name, f"must have {length} entries, one per layer, and has {len(value)}")
            return None
        if len(value) > WIDEST:
            self.fault(name, "is too long")
            return None
        return list(value)

    def integers(
        self, *names: str, length: int | None = None, low: int = 0, high: int = WIDEST
    ) -> list[int] | None:
        """A list of whole numbers within bounds."""
        values = self.items(*names, length=length)
        if values is None:
            return None
        good = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and low <= v <= high]
        if len(good) != len(values):
            self.fault(names[0], f"must hold whole numbers between {low:,} and {high:,}")
            return None
        return good

    def child(self, *names: str, class_defaults: Mapping[str, object] | None = None) -> Fields | None:
        """A nested dictionary, or None where it is absent."""
        for name in names:
            value = self.raw.get(name)
            if value is None:
                continue
            if not isinstance(value, Mapping):
                self.fault(name, "must be a mapping", value=value)
                return None
            return Fields(value, self.notes, path=self._at(name), class_defaults=class_defaults)
        return None

    # -- what all families share

    def layer_count(self, *names: str) -> int:
        """Number of layers, bounded so that a typing error cannot fill the memory of this machine."""
        return self.integer(
            *(names or ("num_hidden_layers", "n_layer", "num_layers", "n_layers")), high=DEEPEST
        )

    def divided(self, whole: int, parts: int, *, key: str, what: str) -> int:
        """`whole / parts`, noting a fault where it does not come out even."""
        if parts <= 0 or whole % parts:
            self.fault(key, f"{what}: {whole:,} does not divide by {parts:,}")
            return max(1, whole // max(1, parts))
        return whole // parts
