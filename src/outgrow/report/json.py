"""Results as JSON: one document, keys carry their units, unknown is null; keys may be added, none changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from outgrow.evidence import Quantity
from outgrow.report.result import Result
from outgrow.version import VERSION

SCHEMA_VERSION = 1


def document(result: Result[Any]) -> dict[str, Any]:
    """The envelope around a result."""
    return {
        "schema": f"outgrow.{_SCHEMAS.get(result.kind, result.kind)}/{SCHEMA_VERSION}",
        "outgrow": VERSION,
        "inputs_sha256": result.inputs_sha256,
        "assumed": [{"name": a.name, "value": a.value, "why": a.why} for a in result.assumed],
        "result": _clean(_BUILDERS[result.kind](result)),
        "findings": [
            {"severity": f.severity, "code": f.code, "message": f.message, "hint": f.hint}
            for f in result.findings
        ],
        "sources": [{"kind": s.kind, "ref": s.ref, "date": s.date or None} for s in result.sources],
        "next": result.next or None,
    }


_SCHEMAS = {
    "model": "catalog",
    "device": "catalog",
    "node": "catalog",
    "fabric": "catalog",
    "catalog-list": "catalog-list",
}


def _clean(value: Any) -> Any:
    """Numbers that JSON cannot say become null; whole floats become integers."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def _bytes(name: str, q: Quantity) -> dict[str, Any]:
    return {
        f"{name}_bytes": round(q.value),
        f"{name}_bytes_low": round(q.low),
        f"{name}_bytes_high": round(q.high),
    }


def _quantity(q: Quantity) -> dict[str, Any]:
    return {"value": q.value, "unit": q.unit, "low": q.low, "high": q.high, "source": q.source}


def _fit(result: Result[Any]) -> dict[str, Any]:
    value, fit = result.value, result.value.fit
    capacity = fit.capacity.value
    return {
        "model": value.model.name,
        "parameters_total": value.model.parameters,
        "device": value.cluster.device.name,
        "gpus": value.cluster.gpus,
        "job": "training" if value.workload.training is not None else "serving",
        "layout": str(value.layout),
        "verdict": fit.verdict,
        "fits": fit.fits,
        **_bytes("capacity", fit.capacity), **_bytes("needed", fit.needed), **_bytes("allocated", fit.allocated),
        **_bytes("reserved", fit.reserved), **_bytes("device", fit.device),
        "free_bytes": round(fit.free_bytes),
        "host_bytes": round(fit.host_bytes),
        "peak_phase": fit.phase,
        "peak_stage": fit.stage,
        "terms": [{"name": t.name, "kind": t.kind, "bytes": round(t.bytes), "share": t.bytes / capacity, "source": t.source} for t in fit.terms],
        "limits": [{"name": x.name, "value": x.value, "unit": x.unit, "note": x.note} for x in fit.limits],
        "levers": [{"name": x.name, "setting": x.setting, "saves_bytes": round(x.saves_bytes), "cost": x.cost, "then_fits": x.then_fits, "gpus": x.gpus} for x in fit.levers],
        "violations": [{"severity": v.severity, "what": v.what, "legal": v.legal, "silent": v.silent} for v in fit.violations],
        "cache_tokens": fit.cache_tokens,
        "cache_bytes_per_token": fit.cache_bytes_per_token,
        "context_tokens": fit.context_length,
        "concurrent_requests": fit.concurrency,
    }  # fmt: skip


def _decide(result: Result[Any]) -> dict[str, Any]:
    value, v = result.value, result.value.verdict
    horizon = v.horizon
    return {
        "model": value.model.name,
        "device": value.cluster.device.name,
        "verdict": v.scale,
        "tenancy": v.tenancy,
        "gpus": None if v.impossible else v.gpus,
        "nodes": None if v.impossible else v.nodes,
        "impossible": list(v.impossible),
        "confidence": v.confidence,
        "deciding": list(v.deciding),
        "answers": [
            {"question": a.question, "title": a.title, "scale": a.scale, "gpus": None if a.impossible else a.gpus, "impossible": a.impossible, "private": a.private, "applies": a.applies, "text": a.text,
             "how": a.how, "rule_of_thumb": a.rule_of_thumb or None, "confidence": a.confidence,
             "quantities": {name: _quantity(q) for name, q in a.quantities}}
            for a in v.answers
        ],
        "flips": [{"change": f.change, "then": f.then} for f in v.flips],
        "horizon": None if horizon is None else {"months": horizon.months, "verdict": horizon.scale, "gpus": horizon.gpus, "outgrown_in_months": horizon.outgrown_in_months, "text": horizon.text},
    }  # fmt: skip


def _model(result: Result[Any]) -> dict[str, Any]:
    card = result.value
    model, cost = card.model, card.cost
    return {
        "kind": "model", "name": model.name, "family": model.family,
        "parameters_total": model.parameters, "parameters_active": model.active_parameters,
        "parameters_by_class": {kind.value: count for kind, count in model.by_class().items()},
        "parameters_mtp": model.mtp_parameters,
        "layers": len(model.layers), "encoder_layers": len(model.encoder), "hidden": model.hidden, "vocabulary": model.vocab,
        "query_heads": model.heads, "kv_heads": model.kv_heads, "experts": model.experts, "tied": model.tied,
        "kv_bytes_per_token": cost.charged_per_token, "kv_bytes_per_token_full_context": cost.full_per_token,
        "kv_bytes_per_token_cross_attention": cost.cross_per_image_token, "kv_bytes_per_token_windowed": cost.windowed_per_token, "window_tokens": cost.window or None,
        "state_bytes_per_sequence": cost.state_per_sequence, "valid_tensor_parallel": list(card.valid_tensor_parallel),
        "context_tokens": model.max_positions, "dtype": model.dtype, "weight_format": model.weights.name if model.weights is not None else None,
        "assumed": list(model.assumed), "source": model.source,
    }  # fmt: skip


_UNITS = {
    "B": "bytes",
    "B/s": "bytes_per_second",
    "FLOP/s": "flop_per_second",
    "OP/s": "op_per_second",
    "W": "watts",
    "s": "seconds",
}


def _entry(result: Result[Any]) -> dict[str, Any]:
    from outgrow.report.facts import facts

    value = result.value
    figures: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for fact in facts(value):
        key = fact.name.replace(" ", "_")
        if fact.figure is None:
            plain[key] = fact.text
            continue
        f = fact.figure
        suffix = _UNITS.get(f.unit, f.unit)
        figures[f"{key}_{suffix}"] = {
            "value": f.value,
            "low": f.lowest,
            "high": f.highest,
            "kind": f.kind,
            "source": f.source,
            "date": f.date or None,
        }
    return {
        "kind": result.kind,
        "name": value.name,
        "title": value.title,
        "aliases": list(value.aliases),
        "figures": figures,
        "facts": plain,
        "traps": list(value.traps),
        "overlay": value.overlay,
    }


def _listing(result: Result[Any]) -> dict[str, Any]:
    return {"kind": result.value.kind, "names": [{"name": n, "title": t} for n, t in result.value.names]}


def _explain(result: Result[Any]) -> dict[str, Any]:
    v = result.value
    return {"term": v.term, "title": v.title, "text": v.text, "see": list(v.see)}


def _summary(s: Any) -> dict[str, Any]:
    return {
        "n": s.n,
        "answered": s.answered,
        "median_ape": s.median_ape,
        "p90_ape": s.p90_ape,
        "bias": s.bias,
        "coverage": s.coverage,
    }


def _validate(result: Result[Any]) -> dict[str, Any]:
    v = result.value
    c = v.verdicts

    def row(o: Any) -> dict[str, Any]:
        fits = o.quantity == "fits"
        return {
            "id": o.id, "quantity": o.quantity, "predicted": bool(o.predicted) if fits and o.predicted is not None else o.predicted,
            "measured": bool(o.measured) if fits else o.measured, "low": o.low, "high": o.high, "error": o.error, "reason": o.reason or None,
        }  # fmt: skip

    return {
        "kind": v.kind,
        "summary": _summary(v.summary),
        "quantities": {name: _summary(s) for name, s in v.quantities.items()},
        "by": v.by,
        "groups": {name: _summary(s) for name, s in v.groups.items()},
        "fits": {
            "failed": c.failed,
            "failed_said_not_to_fit": c.failed_said_no,
            "succeeded": c.succeeded,
            "succeeded_said_not_to_fit": c.succeeded_said_no,
        },
        "rows": [row(o) for o in v.outcomes],
    }


def _table(result: Result[Any]) -> dict[str, Any]:
    from outgrow.report.table import document as table_document

    return table_document(result.value)


_BUILDERS: dict[str, Callable[[Result[Any]], dict[str, Any]]] = {
    "fit": _fit, "decide": _decide, "model": _model, "device": _entry, "node": _entry, "fabric": _entry,
    "catalog-list": _listing, "explain": _explain, "validate": _validate, "table": _table,
}  # fmt: skip
