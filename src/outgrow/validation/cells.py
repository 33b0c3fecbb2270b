"""Cells of published tables, read as people write them. What cannot be read is told, never taken for a default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from outgrow.units import GB, GIB, KB, KIB, MB, MIB, TB, TIB

_NUMBER: Final = re.compile(
    r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+|\d+\.)(?:e[+-]?\d+)?)\s*([km]?)", re.IGNORECASE
)
_THOUSANDS: Final = {"": 1, "k": KIB, "m": MIB}
LARGEST: Final = 1e18


class Unanswerable(Exception):  # noqa: N818 (not an error of the program)
    """A row whose inputs do not suffice; the message says which."""


def _unread(column: str, text: str, wanted: str) -> Unanswerable:
    return Unanswerable(f"{column} {text[:40]!r} is not {wanted}")


def number(row: Mapping[str, str], column: str) -> float | None:
    """A number of a row; None where the cell is empty. "1,024" and "4k" (tokens: 4,096) are numbers."""
    text = row.get(column, "").strip()
    if not text:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise _unread(column, text, "a number")
    value = float(match[1].replace(",", "")) * _THOUSANDS[match[2].lower()]
    if not abs(value) < LARGEST:
        raise _unread(column, text, "a number of this world")
    return value


def whole(row: Mapping[str, str], column: str) -> int | None:
    """A positive whole number of a row; None where the cell is empty."""
    value = number(row, column)
    if value is None:
        return None
    if value < 1 or value != int(value):
        raise _unread(column, row[column], "a positive whole number")
    return int(value)


def positive(row: Mapping[str, str], column: str) -> float | None:
    """A positive number of a row; None where the cell is empty."""
    value = number(row, column)
    if value is not None and value <= 0:
        raise _unread(column, row[column], "a positive number")
    return value


def _first(text: str, column: str, words: tuple[tuple[str, str], ...], wanted: str) -> str:
    """The meaning of the first pattern that is found in a text."""
    for pattern, meaning in words:
        if re.search(pattern, text, re.IGNORECASE):
            return meaning
    raise _unread(column, text, wanted)


def task(text: str) -> str:
    """lora, qlora, dora, full-ft, pretrain, or the name of another adapter as "peft:NAME"; "" where nothing is said."""
    plain = text.strip().lower().replace("_", "-")
    if not plain:
        return ""
    if plain.startswith("peft:"):
        return "dora" if plain == "peft:dora" else plain
    words = (
        (r"qlora|q-lora|gptq.*lora|lora.*gptq|lora.*(4-?bit|nf4)|(4-?bit|nf4).*lora", "qlora"), (r"dora", "dora"),
        (r"lora|adapter|\bpeft\b", "lora"), (r"pre-?train", "pretrain"),
        (r"full|\bft\b|fine-?tun|\bsft\b|\bcpt\b|finetune", "full-ft"),
    )  # fmt: skip
    return _first(plain, "task", words, "a way of training that is known")


def sharding(text: str) -> str | None:
    """zero1, zero2, zero3 or none; None where the cell is empty."""
    if not text.strip():
        return None
    words = (
        (r"grad.?op|zero\W*(stage)?\W*2|\bos\+g\b", "zero2"), (r"fsdp|hsdp|full.?shard|hybrid.?shard|zero\W*(stage)?\W*3", "zero3"),
        (r"zero|distributed.?optim|\bos\b", "zero1"), (r"^\W*(none|no|off|ddp|false|0|replicated|no.?shard)\b", "none"),
    )  # fmt: skip
    return _first(text, "zero_or_fsdp", words, "a kind of sharding that is known")


def recompute(text: str) -> str | None:
    """full, selective or none; None where the cell is empty."""
    if not text.strip():
        return None
    words = (
        (r"^\W*(none|no|off|false|0|disabled)\b", "none"), (r"selective|\bsac\b", "selective"),
        (r"full|true|yes|^\W*on\b|^1$|checkpoint|uniform|block|enabled", "full"),
    )  # fmt: skip
    return _first(text, "recompute", words, "a kind of recomputation that is known")


def optimizer(text: str) -> str | None:
    """An optimizer of `TrainingJob`; None where the cell is empty."""
    if not text.strip():
        return None
    eight = re.search(r"8.?bit|bnb|int8", text, re.IGNORECASE)
    paged = re.search(r"paged", text, re.IGNORECASE)
    words = (
        (r"adafactor", "adafactor"), (r"lion", "lion"), (r"muon", "muon"),
        (r"sgd.*(momentum|0\.9)|momentum", "sgd-momentum"), (r"sgd", "sgd"), (r"adam|lora-?fa", "adamw"),
    )  # fmt: skip
    name = _first(text, "optimizer", words, "an optimizer that is known")
    if name == "adamw":
        return ("paged-" if paged else "") + name + ("-8bit" if eight else "")
    return f"{name}-8bit" if eight and name == "lion" else name


def precision(text: str) -> str | None:
    """pure-bf16, bf16, fp16, fp32 or fp8; None where the cell is empty or names a weight format alone."""
    if not text.strip():
        return None
    if re.match(r"\W*(pure )?bf(loat)?16 \(params|\W*pure", text, re.IGNORECASE):
        return "pure-bf16"
    words = (
        (r"fp8|float8|e4m3|mxfp8", "fp8"), (r"bf(loat)?16", "bf16"), (r"\b(fp|float|half)-?16|\bhalf\b|\bamp\b", "fp16"),
        (r"fp32|float32|\btf32\b|single", "fp32"), (r"nf4|gptq|awq|int4|int8|4-?bit|8-?bit|nvfp4|mixed", ""),
    )  # fmt: skip
    return _first(text, "precision", words, "a precision that is known") or None


def base_format(text: str) -> str | None:
    """The weight format of a frozen base that a precision names, or None."""
    for pattern, name in (
        ("gptq", "gptq"),
        ("awq", "awq"),
        ("nf4|4-?bit|bnb", "nf4"),
        ("int8|8-?bit", "bnb-int8"),
        ("fp8", "fp8"),
    ):
        if re.search(pattern, text, re.IGNORECASE):
            return name
    return None


def unit(definition: str) -> float:
    """Bytes of one unit of a memory figure. GB is 10^9 unless 2^30 is spelled out."""
    # The base of the logged LoRA runs of MLPerf, once activations are taken off, is 65.07 units for 68.98 billion
    # 8-bit weights and two 16-bit tables (69.9e9 bytes): the unit of `max_memory_usage` is GiB.
    if re.search(r"2\s*(\^|\*\*)\s*30|1024\s*(\^|\*\*)\s*3|max_memory_usage", definition):
        return GIB
    found = re.search(r"\b(bytes|[kmgt]i?b)\b", definition, re.IGNORECASE)
    units: dict[str, float] = {
        "bytes": 1.0,
        "mib": MIB,
        "mb": MB,
        "gib": GIB,
        "gb": GB,
        "kb": KB,
        "kib": KIB,
        "tb": TB,
        "tib": TIB,
    }
    return units[found[1].lower()] if found else GB


def quantity(definition: str) -> str:
    """allocated_bytes, reserved_bytes or device_bytes: which of the three a definition means."""
    text = definition.lower().split("nvidia-smi figure in note")[0]
    if "allocated vs reserved" in text:
        return "reserved_bytes"
    if "reserved" in text:
        return "reserved_bytes"
    if "allocated" in text or "active" in text:
        return "allocated_bytes"
    if re.search(r"nvidia-?smi|\bnvml\b|device|\bused\b|driver|rocm-smi", text):
        return "device_bytes"
    return "allocated_bytes" if "peak memory" in text else "reserved_bytes"
