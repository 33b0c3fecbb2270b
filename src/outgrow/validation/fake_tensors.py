"""The second oracle: steps of real model classes under fake tensors, counted by PyTorch (scripts/oracle).

Rows of validation/data/fake_tensor_memory.csv are turned into a model, a job and a layout, and predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from outgrow.layout import Layout
from outgrow.physics.memory.activations import layer_activations
from outgrow.physics.memory.moments import Moment, micro_batch_tokens, stage_moments
from outgrow.physics.memory.parameters import layer_parameters
from outgrow.validation.cells import number
from outgrow.validation.rows import Row
from outgrow.validation.summary import Outcome
from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape
from outgrow.workload.training import Lora, TrainingJob

COLUMNS = ("id", "family", "peak_step2_bytes", "activation_bytes_per_layer")
_PRECISION = {"bf16": "bf16", "autocast": "autocast", "fp32": "fp32", "fsdp_mixed": "fp32-sharded"}
_LOSS = {
    "plain": "plain",
    "plain_keep": "plain-shifted",
    "plain_noupcast": "plain-no-upcast",
    "chunked": "chunked",
    "fused": "fused",
}
_TYPES = {"gemma3": "gemma3_text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row as the product sees it."""

    model: ModelShape
    job: TrainingJob
    layout: Layout


def answerable(row: Mapping[str, str]) -> str:
    """Why a row has no counterpart here, or ""."""
    if row["recompute"] == "selective":
        return "keeps every matrix product: a policy that no shipped framework has"
    if row["loss"] == "chunked_recompute":
        return "chunks of logits are computed again: not one of the losses here"
    if "frozen" in row["id"]:
        return "frozen tables with trained blocks"
    if (_count(row, "tensor_parallel") or 1) > 1:
        return "tensor parallelism without splitting tables"
    return ""


def _count(row: Mapping[str, str], column: str) -> int:
    """A whole number; 0 where there is none of it."""
    return int(number(row, column) or 0)


def case_of(row: Mapping[str, str]) -> Case:
    """The model, job and layout of a row."""
    n = {
        key: _count(row, key)
        for key in (
            "hidden",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "intermediate",
            "vocab",
            "experts",
            "top_k",
            "batch",
            "seq",
        )
    }
    family = _TYPES.get(row["family"], row["family"])
    config: dict[str, Any] = {
        "model_type": family, "hidden_size": n["hidden"], "num_hidden_layers": n["layers"], "num_attention_heads": n["heads"],
        "num_key_value_heads": n["kv_heads"], "head_dim": n["head_dim"], "intermediate_size": n["intermediate"], "vocab_size": n["vocab"],
        "tie_word_embeddings": row["tied"] in ("True", "1", "true"),
    }  # fmt: skip
    if n["experts"]:
        config |= {
            "num_local_experts": n["experts"],
            "num_experts": n["experts"],
            "num_experts_per_tok": n["top_k"],
            "moe_intermediate_size": n["intermediate"],
        }
    if family == "gpt2":
        config |= {
            "n_embd": n["hidden"],
            "n_layer": n["layers"],
            "n_head": n["heads"],
            "n_inner": n["intermediate"],
            "n_positions": 4096,
        }
    if family == "gemma2":
        config |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if family == "gemma3_text":
        config |= {"sliding_window": 512 if "window512" in row["id"] else None, "layer_types": None}
    model = resolve({k: v for k, v in config.items() if v is not None}, name=row["id"])
    if row["attention"] == "eager":
        model = replace(model, attention_softcap=model.attention_softcap)
    lora = row["method"] == "lora"
    world = _count(row, "world") or 1
    targets = ("all",) if row["lora_targets"] == "all-linear" else tuple(row["lora_targets"])
    autocast = row["compute"].startswith("autocast")
    precision = _PRECISION[row["compute"].removesuffix("_bf16_base")]
    job = TrainingJob(
        objective="pretrain", method="lora" if lora else "full", sequence_length=n["seq"] or 1, batching="padded" if row["padded"] in ("True", "1") else "packed",
        precision="bf16" if lora and autocast else precision, optimizer="adamw" if row["optimizer"].startswith("adamw") else "sgd" if row["optimizer"] == "sgd" else "none",
        optimizer_foreach=row["optimizer"] in ("adamw_foreach", "adamw"), loss=_LOSS[row["loss"]],  # type: ignore[arg-type]
        attention="math" if row["attention"] == "eager" else "sdpa", dropout=float(row["dropout"] or 0),
        reshard=row["reshard"] not in ("False", "0"),
        lora=Lora(rank=_count(row, "lora_rank") or 16, targets=targets or ("q",), dropout=float(row["lora_dropout"] or 0),
                  parameter_bytes=4 if row["lora_dtype"] in ("fp32", "float32") else 2, autocast=autocast),
    )  # fmt: skip
    layout = Layout(
        dp=world if row["sharding"].startswith("fsdp") else 1, sharding="zero3" if row["sharding"].startswith("fsdp") and world > 1 else "none",
        micro_batch=n["batch"] or 1, recompute="full" if row["recompute"] == "full" else "none",
    )  # fmt: skip
    return Case(model=model, job=job, layout=layout)


def per_layer(case: Case) -> float:
    """Bytes that one layer keeps, casts of its weights included, as the rows count them."""
    layer = case.model.layers[len(case.model.layers) // 2]
    kept = layer_activations(layer, case.model, case.job, case.layout).kept * micro_batch_tokens(
        case.job, case.layout
    )
    if case.job.regime.autocast and case.job.trains_all:
        kept += case.job.regime.compute * layer_parameters(layer, case.model.hidden, case.layout)[0]
    return kept


def predict_rows(rows: list[Row]) -> list[Outcome]:
    """Outcomes of activations at the end of the forward pass, and of the peak of the second step."""
    outcomes = []
    for row in rows:
        reason = answerable(row)
        kept = float(row["activation_bytes_per_layer"])
        peak = float(row["peak_step2_bytes"])
        if reason:
            outcomes += [
                Outcome(
                    id=row["id"], quantity=q, predicted=None, measured=m, reason=reason, group=row["family"]
                )
                for q, m in (("activations", kept), ("peak", peak))
            ]
            continue
        case = case_of(row)
        moments = stage_moments(case.model, case.job, case.layout, 0)
        top = max(moments, key=lambda m: m.total)
        activations = per_layer(case)
        outcomes.append(
            Outcome(
                id=row["id"],
                quantity="activations",
                predicted=activations,
                measured=kept,
                group=row["family"],
            )
        )
        outcomes.append(
            Outcome(
                id=row["id"],
                quantity="peak",
                predicted=top.total,
                measured=peak,
                group=row["family"],
                note=_note(top, row),
            )
        )
    return outcomes


def _note(moment: Moment, row: Mapping[str, str]) -> str:
    return f"{moment.phase} here, {row['peak_step2_phase']} there"
