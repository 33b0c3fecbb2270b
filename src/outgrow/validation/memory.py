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
from outgrow.physics.memory.terms import Breakdown
from outgrow.physics.memory.training import training_memory, worst
from outgrow.units import GIB
from outgrow.validation import cells
from outgrow.validation.cells import Unanswerable, positive, whole
from outgrow.validation.rows import Recipe, Row, recipe_for
from outgrow.validation.summary import Outcome
from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape
from outgrow.workload.training import Lora, TrainingJob

COLUMNS = ("id", "source", "model", "gpu", "gpus", "peak_mem_gb", "mem_def")


OUT_OF_MEMORY = re.compile(r"RUN FAILED|\bOOM\b|out of memory", re.IGNORECASE)
SMI = re.compile(r"nvidia-smi reserved (\d*\.?\d+) GiB")
# A row's fp8, by what the rest of its recipe computes in.
FP8_OF = {"mixed-fp32-grad": "fp8", "fp32-sharded": "fp8-sharded"}


def predict_rows(rows: list[Row]) -> list[Outcome]:
    """Outcomes of every measured memory figure, and of every run that is known to have failed for memory."""
    outcomes: list[Outcome] = []
    for row in rows:
        outcomes += predict_row(row)
    return outcomes


def failed(row: Mapping[str, str]) -> bool:
    """Whether the run ended for lack of memory."""
    return bool(OUT_OF_MEMORY.search(row.get("note", ""))) and not row.get("peak_mem_gb")


def predict_row(row: Row) -> list[Outcome]:
    """Outcomes of one row; a row without a memory figure has none."""
    smi = SMI.search(row.get("note", ""))
    did_fail = failed(row)
    if not row.get("peak_mem_gb") and not did_fail and not smi:
        return []
    group = source_group(row)

    def outcome(quantity: str, measured: float | None, **more: Any) -> Outcome:
        return Outcome(id=row["id"], quantity=quantity, measured=measured, group=group, **more)

    wanted: list[tuple[str, float | None]] = []
    reason = ""
    try:
        measured = positive(row, "peak_mem_gb")
        if measured is not None:
            definition = row.get("mem_def", "")
            wanted.append((cells.quantity(definition), measured * cells.unit(definition)))
    except Unanswerable as error:
        wanted.append((cells.quantity(row.get("mem_def", "")), None))
        reason = str(error)
    if smi and not did_fail:
        wanted.append(("device_bytes", float(smi[1]) * GIB))
    fits = float(not did_fail)
    try:
        if reason:
            raise Unanswerable(reason)
        breakdown = predict(row)
    except (Unanswerable, OutgrowError) as error:
        why = "; ".join(str(error).splitlines()[:2])
        unanswered = [outcome(name, value, predicted=None, reason=why) for name, value in wanted]
        return [*unanswered, outcome("fits", fits, predicted=None, reason=why)]
    totals = {
        "allocated_bytes": breakdown.allocated,
        "reserved_bytes": breakdown.reserved,
        "device_bytes": breakdown.device,
    }
    note = f"peak in {breakdown.phase}"
    outcomes = [
        outcome(
            name, value, predicted=totals[name].value, low=totals[name].low, high=totals[name].high, note=note
        )
        for name, value in wanted
    ]
    device = device_of(row)
    if device is None:
        return [
            *outcomes,
            outcome("fits", fits, predicted=None, reason=f"gpu {row.get('gpu', '')!r} is not known"),
        ]
    return [
        *outcomes,
        outcome("fits", fits, predicted=float(breakdown.needed_bytes <= device.torch_memory_bytes)),
    ]


def source_group(row: Mapping[str, str]) -> str:
    """The source of a row, without its line or file: what is left out at a time when intervals are earned."""
    return row.get("source", "").split(" ")[0]


def device_of(row: Mapping[str, str]) -> Device | None:
    """The GPU of a row, or None where its name is not in the catalogue."""
    text = re.sub(r"\(.*", "", row.get("gpu", "")).strip()
    for name in (row.get("gpu", ""), text):
        try:
            return catalog.device(name)
        except OutgrowError:
            continue
    return None


def predict(row: Row) -> Breakdown:
    """The worst rank's breakdown."""
    row = row | {"task": cells.task(row.get("task", ""))}
    recipe = recipe_for(row)
    model = model_of(row, recipe)
    layout = layout_of(row, recipe, model)
    if "pad_vocab" in recipe.model:
        step = recipe.model["pad_vocab"] * layout.tp
        model = replace(model, vocab=-(-model.vocab // step) * step)
    job = job_of(row, recipe, layout)
    device = device_of(row)
    capacity = device.torch_memory_bytes if device is not None else None
    return worst(training_memory(model, job, layout, capacity_bytes=capacity))


def model_of(row: Mapping[str, str], recipe: Recipe) -> ModelShape:
    """The shape of a row's model: from the catalogue, cut where the row says so, or from the row's own columns."""
    name = recipe.model.get("like") or re.sub(r" truncated.*", "", row["model"])
    stated = re.search(r"truncated to (\d+)", row["model"])
    layers = whole(row, "layers") or (int(stated[1]) if stated else None)
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
    if layers and layers > len(model.layers):
        raise Unanswerable(f"layers {layers}: {model.name} has {len(model.layers)}")
    if columns["hidden_size"] not in (None, model.hidden):
        raise Unanswerable(
            f"hidden {columns['hidden_size']}: {model.name} has {model.hidden}, and other dimensions are not stated"
        )
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


def layout_of(row: Mapping[str, str], recipe: Recipe, model: ModelShape) -> Layout:
    """The layout of a row: what it states, and what its recipe adds where it states nothing."""
    gpus = whole(row, "gpus") or 1
    tp, pp, cp = (whole(row, c) or 1 for c in ("tp", "pp", "cp"))
    if gpus % (tp * pp * cp):
        raise Unanswerable(f"gpus {gpus} is no multiple of tp {tp} x pp {pp} x cp {cp}")
    dp = gpus // (tp * pp * cp)
    told = whole(row, "dp")
    text = row.get("zero_or_fsdp", "")
    extra = dict(recipe.layout)
    fills = extra.pop("fill", None) == "cp" and not row.get("cp")
    if told is not None and told != dp and not fills:
        raise Unanswerable(f"gpus {gpus} is not dp {told} x tp {tp} x pp {pp} x cp {cp}")
    settings: dict[str, Any] = {
        "dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": whole(row, "ep") or 1, "vpp": whole(row, "vpp") or 1,
        "micro_batch": _shared_batch(row, dp), "recompute": "none",
    }  # fmt: skip
    inner = re.search(r"FSDP (\d+)(?:x(\d+))?", text, re.IGNORECASE)
    if inner:
        degree = int(inner[1]) * int(inner[2] or 1)
        if dp * cp % degree == 0:
            settings["shard_degree"] = degree
    if fills:
        # Packed batches of one sequence per replica: what the batch does not use splits the sequence.
        batch = whole(row, "global_batch") or 1
        if gpus % batch == 0 and gpus > batch:
            settings |= {"dp": batch, "cp": gpus // batch}
    spread = re.search(r"-ep(\d+)", row.get("framework", ""))
    if spread and gpus % int(spread[1]) == 0:
        settings["ep"] = int(spread[1])
    slots = extra.pop("table_slots", False)
    settings |= extra
    stated = {
        "micro_batch": whole(row, "micro_batch"),
        "recompute": cells.recompute(row.get("recompute", "")),
        "sharding": cells.sharding(text),
    }
    settings |= {name: value for name, value in stated.items() if value is not None}
    if slots:
        settings["stage_layers"] = with_table_slots(len(model.layers), settings["pp"] * settings["vpp"])
    if settings["pp"] == 1:
        settings["vpp"] = 1
    ranks = settings["dp"] * settings["cp"] * tp
    if settings["ep"] > 1 and (ranks % settings["ep"] or not model.is_moe):
        raise Unanswerable(
            f"ep {settings['ep']} does not divide dp x cp x tp = {ranks}, or the model has no experts"
        )
    return Layout(**settings)


def _shared_batch(row: Mapping[str, str], dp: int) -> int:
    """Sequences of one micro-batch where only the global batch is stated."""
    batch = whole(row, "global_batch")
    return max(1, batch // dp) if batch and batch <= dp * 64 else 1


def job_of(row: Mapping[str, str], recipe: Recipe, layout: Layout) -> TrainingJob:
    """The job of a row: what it states, and what its recipe adds. A sequence length and a task are needed."""
    task, told = row.get("task", ""), cells.precision(row.get("precision", ""))
    settings: dict[str, Any] = {}
    if told in ("fp32", "pure-bf16"):
        settings["precision"] = {"fp32": "fp32", "pure-bf16": "bf16"}[told]
    batch, micro = whole(row, "global_batch"), layout.micro_batch
    if batch:
        settings["accumulation"] = max(1, batch // (layout.dp * micro))
    settings |= recipe.job
    if task:
        named = "lora" if task.startswith("peft:") else task
        if not (named == "lora" and settings.get("method") == "dora"):  # the file says which adapter
            settings["method"] = named if named in ("lora", "qlora", "dora") else "full"
    elif "method" not in settings:
        raise Unanswerable("the task is not stated")
    _state_precision(settings, told, row.get("precision", ""))
    optimizer = cells.optimizer(row.get("optimizer", ""))
    if optimizer is not None:
        settings["optimizer"] = optimizer
    length = whole(row, "seq_len")
    if length is not None:
        # Where samples differ the row states their limit, and a declared constant the longest.
        packed = settings.get("batching", "packed") == "packed"
        settings["sequence_length"] = (
            length if packed else min(length, settings.get("sequence_length", length))
        )
    if "sequence_length" not in settings:
        raise Unanswerable("the sequence length is not stated")
    lora = dict(settings.pop("lora", {}))
    trainable = re.search(r"trainable (\d+)", row.get("note", ""))
    if trainable and settings["method"] == "lora":
        lora["parameters"] = int(trainable[1])
    if "targets" in lora:
        lora["targets"] = tuple(lora["targets"])
    if re.search(r"offload", row.get("zero_or_fsdp", ""), re.IGNORECASE) and "offload" not in settings:
        settings["offload"] = ("parameters", "optimizer")
    if "offload" in settings:
        settings["offload"] = tuple(settings["offload"])
    if layout.pp > 1 and "accumulation" not in settings:
        settings["accumulation"] = layout.pp
    known = {f.name for f in fields(TrainingJob)}
    return TrainingJob(lora=Lora(**lora), **{k: v for k, v in settings.items() if k in known})


def _state_precision(settings: dict[str, Any], told: str | None, text: str) -> None:
    """What a row says of its precision, over what its recipe says."""
    recipe = str(settings.get("precision", "mixed"))
    if told == "fp32" and recipe not in ("fp32-sharded",):
        settings["precision"] = "fp32"
    elif told == "fp8" and not recipe.startswith("fp8"):
        settings["precision"] = FP8_OF.get(recipe, "fp8")
    base = cells.base_format(text)
    if (
        base is not None
        and settings["method"] in ("lora", "qlora", "dora")
        and "base" not in settings
        and base != "fp8"
    ):
        settings["base"] = base
