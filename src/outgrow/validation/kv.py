"""Predict what inference engines printed at start: bytes per token, capacity of the cache, refusals to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outgrow import catalog
from outgrow.errors import OutgrowError, UnknownNameError
from outgrow.layout import Layout
from outgrow.physics.memory.engines import latent_alignment, version_of
from outgrow.physics.memory.kv import cache_cost
from outgrow.physics.memory.serving import ServingMemory, serving_memory
from outgrow.planning.feasible import violations
from outgrow.units import GIB
from outgrow.validation.cells import Unanswerable, number, whole
from outgrow.validation.memory import device_of
from outgrow.validation.rows import Row, recipe_for
from outgrow.validation.summary import Outcome
from outgrow.workload.model import ModelShape
from outgrow.workload.quantization import weight_format
from outgrow.workload.serving import CACHE_BYTES, ServingJob

COLUMNS = ("id", "model", "gpu", "engine", "kv_blocks_or_tokens", "kv_unit")
VLLM_BLOCK = 16
REFUSED = re.compile(r"fail|\boom\b|refus|no room|does not (start|fit)", re.IGNORECASE)
_PRINTED = ("weights", "activation_peak", "non_torch", "cuda_graph")


def predict_rows(rows: list[Row]) -> list[Outcome]:
    """Outcomes of every ledger."""
    outcomes: list[Outcome] = []
    for row in rows:
        outcomes += predict_row(row)
    return outcomes


def predict_row(row: Row) -> list[Outcome]:
    """Bytes per token, capacity from the inputs alone, capacity with the printed terms, and whether it starts."""
    group = row.get("engine", "").split(" ")[0]
    refused = bool(REFUSED.search(row.get("kv_unit", "")))

    def unanswered(quantity: str, measured: float | None, error: Exception) -> Outcome:
        reason = str(error).splitlines()[0]
        return Outcome(
            id=row["id"], quantity=quantity, predicted=None, measured=measured, reason=reason, group=group
        )

    try:
        tokens = measured_tokens(row)
        wanted = {} if refused else _wanted(row, tokens)
    except Unanswerable as error:
        return [unanswered(quantity, None, error) for quantity in ("kv_capacity", "fits")]
    outcomes: list[Outcome] = []
    try:
        recipe = recipe_for(row)
        model = model_named(str(recipe.model.get("like") or row["model"]))
        job = _as_stored(job_of(row, recipe.job), model)
        wrong = [
            v for v in violations(model, Layout(tp=job.tp, sequence_parallel=False)) if v.severity == "error"
        ]
        if wrong:
            raise Unanswerable(wrong[0].what)
        if "kv_bytes_per_token" in wanted:  # a property of the model: no device is needed
            outcomes.append(_bytes_per_token(row, wanted.pop("kv_bytes_per_token"), model, job, group))
        device = device_bytes(row)
        predicted = serving_memory(model, job, device_bytes=device, is_a100="A100" in row.get("gpu", ""))
        for quantity in list(wanted):  # what is answered leaves, so that one bad cell costs one answer
            answer = _outcome(
                row,
                quantity,
                wanted[quantity],
                predicted,
                model,
                job,
                device,
                by_tokens=tokens is not None,
                group=group,
            )
            outcomes.append(answer)
            del wanted[quantity]
    except (Unanswerable, OutgrowError) as error:
        left = [unanswered(quantity, value, error) for quantity, value in wanted.items()]
        return [*outcomes, *left, unanswered("fits", float(not refused), error)]
    fits = Outcome(
        id=row["id"],
        quantity="fits",
        predicted=float(predicted.starts),
        measured=float(not refused),
        group=group,
    )
    return [*outcomes, fits]


def _wanted(row: Row, tokens: float | None) -> dict[str, float]:
    """What a ledger states of its cache."""
    size = (number(row, "kv_gib_per_gpu") or 0.0) * GIB
    found: dict[str, float] = {}
    if tokens and size > 0:
        found["kv_bytes_per_token"] = size / tokens
    if tokens or size:
        found["kv_capacity"] = tokens or size
        if all(number(row, column) is not None for column in ("weights_gib_per_gpu", "activation_peak_gib")):
            found["kv_capacity_from_log"] = found["kv_capacity"]
    return found


def _as_stored(job: ServingJob, model: ModelShape) -> ServingJob:
    """Where row and checkpoint name formats of one width, the checkpoint says more: which tensors, which groups."""
    same = (
        job.weights is not None
        and model.weights is not None
        and weight_format(job.weights).bits == model.weights.bits
    )
    return replace(job, weights=None) if same else job


def _bytes_per_token(row: Row, value: float, model: ModelShape, job: ServingJob, group: str) -> Outcome:
    aligned = latent_alignment(job)
    cost = cache_cost(model, tp=job.tp, cache_bytes=CACHE_BYTES[job.cache], latent_alignment=aligned)
    if cost.state_per_sequence:
        # Engines print the tokens of a hybrid pool by a rule of their own: the quotient is no property of the model.
        reason = "hybrid cache: what the engine prints as tokens is not divided by bytes per token"
        return Outcome(
            id=row["id"],
            quantity="kv_bytes_per_token",
            predicted=None,
            measured=value,
            reason=reason,
            group=group,
        )
    answer = cost.charged_per_token
    return Outcome(
        id=row["id"],
        quantity="kv_bytes_per_token",
        predicted=answer,
        measured=value,
        low=answer * 0.995,
        high=answer * 1.005,
        group=group,
    )


def model_named(text: str) -> ModelShape:
    """The model that a row means: its name, or the first name of the catalogue inside of its description."""
    words = [
        text,
        text.split(" (", maxsplit=1)[0],
        *re.findall(r"\(([^)]*)\)", text),
        *re.findall(r"[\w.-]+", text),
    ]
    for word in words:
        try:
            return catalog.model(word.removesuffix(" class").strip())
        except UnknownNameError:
            continue
    raise Unanswerable(f"the model {text!r} is not in the catalogue")


def _outcome(
    row: Row, quantity: str, value: float, predicted: ServingMemory, model: ModelShape, job: ServingJob, device: float, *,
    by_tokens: bool, group: str,
) -> Outcome:  # fmt: skip
    ledger = predicted
    if quantity == "kv_capacity_from_log":
        printed = {
            name: number(row, f"{name}_gib" if name != "weights" else "weights_gib_per_gpu")
            for name in _PRINTED
        }
        terms: dict[str, Any] = {
            "weights_bytes": (printed["weights"] or 0) * GIB, "activation_bytes": (printed["activation_peak"] or 0) * GIB,
            "non_torch_bytes": (printed["non_torch"] or 0) * GIB, "graph_bytes": 0.0,
        }  # fmt: skip
        ledger = serving_memory(
            model, replace(job, **terms), device_bytes=device, is_a100="A100" in row.get("gpu", "")
        )
    answer = float(reported_tokens(row, ledger)) if by_tokens else ledger.cache_bytes
    low, high = interval(ledger, answer)
    note = "; ".join(f"{t.name} {t.bytes / GIB:.2f}" for t in ledger.terms)
    return Outcome(
        id=row["id"],
        quantity=quantity,
        predicted=answer,
        measured=value,
        low=low,
        high=high,
        group=group,
        note=note,
    )


def interval(memory: ServingMemory, value: float) -> tuple[float, float]:
    """Bounds of a capacity: what the terms before it may be off by, over what is left."""
    slack = memory.uncertainty_bytes
    share = slack / max(memory.cache_bytes, slack)
    return value * (1 - min(share, 0.9)), value * (1 + share)


def reported_tokens(row: Mapping[str, str], memory: ServingMemory) -> int:
    """Tokens as the engine prints them: recent versions print concurrency x length for hybrid caches."""
    version = version_of(row.get("engine"))
    if len(memory.pool.groups) > 1 and version is not None and version >= (0, 21):
        return int(memory.sequences(memory.context_length) * memory.context_length)
    return memory.cache_tokens


def measured_tokens(row: Mapping[str, str]) -> float | None:
    """Tokens that the engine printed, or None where it printed bytes alone."""
    count = number(row, "kv_blocks_or_tokens")
    if not count:
        return None
    unit = row.get("kv_unit", "").lower()
    if "block" in unit:
        return count * VLLM_BLOCK
    if "token" in unit:
        return count
    raise Unanswerable(f"kv_unit {row.get('kv_unit', '')[:40]!r} is neither tokens nor blocks")


def device_bytes(row: Mapping[str, str]) -> float:
    """What the framework sees of one GPU: as printed, else from the catalogue."""
    total = number(row, "gpu_total_gib")
    if total:
        return total * GIB
    device = device_of(row)
    size = re.search(r"(\d+) ?GB class", row.get("gpu", ""))
    if device is None and size:
        # A class of devices: AMD's report all of their memory, NVIDIA's all but what the driver keeps.
        return float(size[1]) * GIB * (1.0 if "AMD" in row["gpu"] else 0.99)
    if device is None:
        raise Unanswerable(f"the GPU {row.get('gpu', '')!r} is not known")
    return float(device.torch_memory_bytes)


def job_of(row: Mapping[str, str], extra: Mapping[str, Any]) -> ServingJob:
    """The serving job of a row: its columns, and what its note quotes of the command line."""
    engine = row.get("engine", "")
    note = f"{row.get('note', '')} {row.get('concurrency_or_qps', '')}".replace("_", "-")
    kind = engine_of(engine)
    pp, replicas = whole(row, "pp") or 1, whole(row, "dp_or_replicas") or 1
    tp = whole(row, "tp") or max(1, (whole(row, "gpus") or 1) // (pp * replicas))
    settings: dict[str, Any] = {
        "engine": kind, "engine_version": engine, "tp": tp, "pp": pp,
        "weights": weights_of(row.get("weights_precision", "")), "max_model_len": whole(row, "max_model_len"),
        "enforce_eager": "enforce-eager" in note, "cache": cache_of(row.get("kv_precision", "") or _quoted_cache(note)),
    }  # fmt: skip
    fraction = share(row, "gpu_memory_utilization")
    if "cpu-offload" in note:
        raise Unanswerable("weights are offloaded to the host by an amount that is not stated")
    experts = whole(row, "ep") or (whole(row, "dp_or_replicas") if "+EP" in row.get("note", "") else None)
    if experts:
        settings["ep"] = experts
    if fraction is not None:
        settings["memory_fraction"] = fraction
    for flag, name in (
        ("max-num-seqs", "max_sequences"),
        ("max-num-batched-tokens", "max_batched_tokens"),
        ("block-size", "block_tokens"),
    ):
        found = re.search(rf"{flag}[ =]+(\d+)", note)
        if found:
            settings[name] = int(found[1])
    return ServingJob(**(settings | dict(extra)))


def engine_of(text: str) -> str:
    """The engine that a row names."""
    for pattern, name in (("sglang", "sglang"), (r"tensorrt|trt.?llm", "tensorrt-llm"), ("vllm", "vllm")):
        if re.search(pattern, text, re.IGNORECASE):
            return name
    raise Unanswerable(f"engine {text[:40]!r} is not modelled")


def share(row: Mapping[str, str], column: str) -> float | None:
    """A share of a GPU: "0.9", "90%", "0.88 (mem_fraction_static)"; None where the cell is empty."""
    text = row.get(column, "").strip()
    if not text:
        return None
    found = re.match(r"(\d*\.?\d+)(?![\d.])\s*(%?)", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value <= 1:
        raise Unanswerable(f"{column} {text[:40]!r} is not a share of a GPU")
    return value


def _quoted_cache(note: str) -> str:
    found = re.search(r"kv-cache-dtype[ =]+(\w+)", note)
    return found[1] if found else ""


def weights_of(text: str) -> str | None:
    """The weight format that a row names; None = as the checkpoint is stored."""
    lowered = text.lower().strip()
    for pattern, name in (
        (r"q4_k_m", "q4_k_m"), (r"q5_k_m", "q5_k_m"), (r"q6_k", "q6_k"), (r"q8_0", "q8_0"), (r"nvfp4", "nvfp4"), (r"mxfp4", "mxfp4"),
        (r"fp8/fp4|fp4/fp8|fp4", "nvfp4"), (r"gptq", "gptq"), (r"w4a16|awq|int4", "awq"), (r"4-?bit|nf4|bnb", "nf4"),
        (r"w8a8|int8", "int8"), (r"fp8|8-?bit", "fp8"), (r"bf16|fp16|bfloat16|float16", "bf16"), (r"fp32|float32", "fp32"),
    ):  # fmt: skip
        if re.search(pattern, lowered):
            return name
    if lowered:
        raise Unanswerable(f"weights_precision {text[:40]!r} is not known")
    return None


def cache_of(text: str) -> str:
    """The cache format that a row names, by its width."""
    lowered = text.lower().strip()
    for pattern, name in (
        (r"fp4|int4|4-?bit|q4", "fp4"), (r"fp8|int8|8-?bit|q8|e4m3|e5m2", "fp8"), (r"16|auto|half|^$", "auto"),
    ):  # fmt: skip
        if re.search(pattern, lowered):
            return name
    raise Unanswerable(f"kv_precision {text[:40]!r} is not known")
