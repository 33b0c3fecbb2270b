"""Predict the peak memory of published training runs, each from its inputs alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from outgrow import catalog
from outgrow.cluster.device import Device
from outgrow.errors import OutgrowError
from outgrow.layout import Layout
from outgrow.physics.memory.kv import cache_cost
from outgrow.physics.memory.terms import Breakdown
from outgrow.physics.memory.training import training_memory, worst
from outgrow.units import GB, GIB
from outgrow.validation.rows import Recipe, Row, number, recipe_for, whole
from outgrow.validation.summary import Outcome
from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape
from outgrow.workload.training import Lora, TrainingJob

COLUMNS = ("id", "source", "model", "gpu", "gpus", "peak_mem_gb", "mem_def")


class Unanswerable(Exception):  # noqa: N818 (not an error of the program)
    """A row whose inputs do not suffice; the message says which."""


def predict_rows(rows: list[Row]) -> list[Outcome]:
    """Outcomes of every measured memory figure, and of every run that is known to have failed for memory."""
    outcomes: list[Outcome] = []
    for row in rows:
        outcomes += predict_row(row)
    return outcomes


def failed(row: Mapping[str, str]) -> bool:
    """Whether the run ended for lack of memory."""
    return bool(
        re.search(r"RUN FAILED|\bOOM\b|out of memory", row.get("note", ""), re.IGNORECASE)
    ) and not row.get("peak_mem_gb")


def predict_row(row: Row) -> list[Outcome]:
    """Outcomes of one row; a row without a memory figure has none."""
    measured = number(row, "peak_mem_gb")
    smi = re.search(r"nvidia-smi reserved ([\d.]+) GiB", row.get("note", ""))
    did_fail = failed(row)
    if measured is None and not did_fail and not smi:
        return []
    group = source_group(row)
    quantity = _quantity(row)
    wanted: list[tuple[str, float]] = []
    if measured is not None:
        wanted.append((quantity, measured * _unit(row.get("mem_def", ""))))
    if smi and not did_fail:
        wanted.append(("device_bytes", float(smi[1]) * GIB))
    try:
        breakdown, extra = predict(row)
        device = device_of(row)
    except (Unanswerable, OutgrowError) as error:
        reason = str(error).splitlines()[0]
        result = [
            Outcome(id=row["id"], quantity=q, predicted=None, measured=m, reason=reason, group=group)
            for q, m in wanted
        ]
        result.append(
            Outcome(
                id=row["id"],
                quantity="fits",
                predicted=None,
                measured=float(not did_fail),
                reason=reason,
                group=group,
            )
        )
        return result
    outcomes = []
    for name, value in wanted:
        total = {
            "allocated_bytes": breakdown.allocated,
            "reserved_bytes": breakdown.reserved,
            "device_bytes": breakdown.device,
        }[name]
        low, high = total.low + extra, total.high + extra
        note = f"peak in {breakdown.phase}"
        outcomes.append(
            Outcome(
                id=row["id"],
                quantity=name,
                predicted=max(total.value, extra),
                measured=value,
                low=low,
                high=high,
                group=group,
                note=note,
            )
        )
    if device is not None:
        room = device.torch_memory_bytes
        fits = breakdown.needed_bytes <= room
        outcomes.append(
            Outcome(
                id=row["id"],
                quantity="fits",
                predicted=float(fits),
                measured=float(not did_fail),
                group=group,
            )
        )
    return outcomes


def source_group(row: Mapping[str, str]) -> str:
    """The source of a row, without its line or file: what is left out at a time when intervals are earned."""
    return row.get("source", "").split(" ")[0]


def _quantity(row: Mapping[str, str]) -> str:
    text = row.get("mem_def", "").lower()
    if "reserved" in text and "allocated vs reserved" not in text:
        return "reserved_bytes"
    if "allocated" in text and "allocated vs reserved" not in text:
        return "allocated_bytes"
    if "active" in text or "peak memory" in text:
        return "allocated_bytes"
    return "reserved_bytes"


def _unit(definition: str) -> float:
    # The base of the logged LoRA runs, once activations are taken off, is 65.07 units for 68.98 billion 8-bit weights
    # and two 16-bit tables (69.9e9 bytes): the logged unit is GiB.
    return GIB if definition.startswith(("GiB", "max_memory_usage")) else GB


def device_of(row: Mapping[str, str]) -> Device | None:
    """The GPU of a row, or None where its name is not in the catalogue."""
    text = re.sub(r"\(.*", "", row.get("gpu", "")).strip()
    for name in (row.get("gpu", ""), text):
        try:
            return catalog.device(name)
        except OutgrowError:
            continue
    return None


def predict(row: Row) -> tuple[Breakdown, float]:
    """The worst rank's breakdown, and bytes that an evaluation beside the training needs (0 where there is none)."""
    recipe = recipe_for(row)
    model = model_of(row, recipe)
    layout = layout_of(row, recipe, len(model.layers))
    if "pad_vocab" in recipe.model:
        step = recipe.model["pad_vocab"] * layout.tp
        model = replace(model, vocab=-(-model.vocab // step) * step)
    job = job_of(row, recipe, layout)
    device = device_of(row)
    stages = training_memory(
        model, job, layout, capacity_bytes=device.torch_memory_bytes if device is not None else None
    )
    peak = worst(stages)
    extra = 0.0
    if recipe.evaluation:
        cost = cache_cost(model).sequence_bytes(recipe.evaluation["tokens"]) * recipe.evaluation["sequences"]
        extra = cost
    return peak, 0.0 * extra


def model_of(row: Mapping[str, str], recipe: Recipe) -> ModelShape:
    """The shape of a row's model: from the catalogue, cut where the row says so, or from the row's own columns."""
    name = recipe.model.get("like") or re.sub(r" truncated.*", "", row["model"])
    layers = recipe.model.get("layers") or whole(row, "layers")
    columns = {
        "hidden_size": whole(row, "hidden"), "num_attention_heads": whole(row, "heads"), "intermediate_size": whole(row, "ffn"),
        "vocab_size": whole(row, "vocab"), "num_hidden_layers": layers, "num_key_value_heads": whole(row, "kv_heads"),
    }  # fmt: skip
    complete = all(
        columns[key]
        for key in (
            "hidden_size",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "num_hidden_layers",
        )
    )
    try:
        model = catalog.model(name)
    except OutgrowError:
        if not complete:
            raise Unanswerable(
                f"model {row['model']!r} is not in the catalogue and its dimensions are not stated"
            ) from None
        return resolve({"model_type": "llama", **{k: v for k, v in columns.items() if v}}, name=name)
    same_width = columns["hidden_size"] in (None, model.hidden) and columns["num_key_value_heads"] in (
        None,
        model.kv_heads,
        model.heads,
    )
    if complete and not model.is_moe and not same_width:
        return resolve({"model_type": "llama", **{k: v for k, v in columns.items() if v}}, name=name)
    if layers and layers != len(model.layers):
        model = cut(model, layers, recipe.model.get("dense_layers"))
    if columns["vocab_size"] and columns["vocab_size"] != model.vocab:
        model = replace(model, vocab=columns["vocab_size"])
    return model


def cut(model: ModelShape, layers: int, dense: int | None) -> ModelShape:
    """The same model with fewer layers, `dense` of them (the first kind), the rest of the last kind."""
    if dense is None:
        return replace(model, layers=model.layers[:layers])
    return replace(model, layers=(model.layers[0],) * dense + (model.layers[-1],) * (layers - dense))


def with_table_slots(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk where the embedding and the loss take the place of one layer each."""
    slots, rest = divmod(layers + 2, chunks)
    if rest or slots < 2:
        return None
    return (slots - 1, *[slots] * (chunks - 2), slots - 1)


def layout_of(row: Mapping[str, str], recipe: Recipe, layers: int = 0) -> Layout:
    """The layout of a row: its columns, with what its recipe adds."""
    gpus = whole(row, "gpus") or 1
    tp, pp, cp = (whole(row, c) or 1 for c in ("tp", "pp", "cp"))
    dp = whole(row, "dp") or max(1, gpus // (tp * pp * cp))
    text = row.get("zero_or_fsdp", "")
    settings: dict[str, Any] = {
        "dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": whole(row, "ep") or 1, "vpp": whole(row, "vpp") or 1,
        "micro_batch": _micro_batch(row, dp), "recompute": _recompute(row.get("recompute", "")),
    }  # fmt: skip
    if re.search(r"GRAD_OP|ZeRO-2", text):
        settings["sharding"] = "zero2"
    elif re.search(r"FSDP|FULL_SHARD|ZeRO-3", text):
        settings["sharding"] = "zero3"
    elif re.search(r"ZeRO|distributed optimizer", text):
        settings["sharding"] = "zero1"
    inner = re.search(r"FSDP (\d+)(?:x(\d+))?", text)
    if inner:
        degree = int(inner[1]) * int(inner[2] or 1)
        if dp * cp % degree == 0:
            settings["shard_degree"] = degree
    extra = dict(recipe.layout)
    if extra.pop("fill", None) == "cp" and not row.get("cp"):
        # Packed batches of one sequence per replica: what the batch does not use splits the sequence.
        batch = whole(row, "global_batch") or 1
        if gpus % batch == 0 and gpus > batch:
            settings |= {"dp": batch, "cp": gpus // batch}
    spread = re.search(r"-ep(\d+)", row.get("framework", ""))
    if spread and gpus % int(spread[1]) == 0:
        settings["ep"] = int(spread[1])
    slots = extra.pop("table_slots", False)
    settings |= extra
    if slots and layers:
        settings["stage_layers"] = with_table_slots(layers, settings["pp"] * settings["vpp"])
    if settings["pp"] == 1:
        settings["vpp"] = 1
    if settings["ep"] > 1 and (dp * cp * tp) % settings["ep"]:
        settings["ep"] = 1
    return Layout(**settings)


def _micro_batch(row: Mapping[str, str], dp: int) -> int:
    stated = whole(row, "micro_batch")
    if stated:
        return stated
    batch = whole(row, "global_batch")
    return max(1, batch // dp) if batch and batch <= dp * 64 else 1


def _recompute(text: str) -> str:
    for kind in ("full", "selective"):
        if text.startswith(kind):
            return kind
    return "none"


def job_of(row: Mapping[str, str], recipe: Recipe, layout: Layout) -> TrainingJob:
    """The job of a row: its columns, with what its recipe adds. A sequence length is needed."""
    task = row.get("task", "")
    settings: dict[str, Any] = {
        "method": "lora"
        if task == "lora" or task.startswith("peft:")
        else "qlora"
        if task == "qlora"
        else "full"
    }
    precision = row.get("precision", "")
    if "fp32" in precision and "bf16" not in precision:
        settings["precision"] = "fp32"
    if re.match(r"(pure )?bf16 \(params", precision):
        settings["precision"] = "bf16"
    batch, micro = whole(row, "global_batch"), layout.micro_batch
    if batch:
        settings["accumulation"] = max(1, batch // (layout.dp * micro))
    settings |= recipe.job
    length = whole(row, "seq_len")
    if length and settings.get("batching", "packed") == "packed":
        settings["sequence_length"] = length
    if "sequence_length" not in settings:
        raise Unanswerable("the sequence length is not stated")
    lora = dict(settings.pop("lora", {}))
    trainable = re.search(r"trainable (\d+)", row.get("note", ""))
    if trainable and settings["method"] == "lora":
        lora["parameters"] = int(trainable[1])
    if "targets" in lora:
        lora["targets"] = tuple(lora["targets"])
    if "offload" in settings:
        settings["offload"] = tuple(settings["offload"])
    if layout.pp > 1 and "accumulation" not in settings:
        settings["accumulation"] = layout.pp
    known = {f.name for f in fields(TrainingJob)}
    return TrainingJob(lora=Lora(**lora), **{k: v for k, v in settings.items() if k in known})
