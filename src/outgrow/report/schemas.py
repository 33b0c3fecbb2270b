"""JSON Schemas of the answers: the promise that `--json` keeps. New keys may come, none changes."""

from __future__ import annotations

from typing import Any

from outgrow.report.json import SCHEMA_VERSION

STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _bytes(*names: str) -> dict[str, dict[str, Any]]:
    return {f"{name}_bytes{end}": INTEGER for name in names for end in ("", "_low", "_high")}


_QUANTITY = _object(value=NUMBER, unit=STRING, low=NUMBER, high=NUMBER, source=STRING)
_SUMMARY = _object(
    n=INTEGER,
    answered=INTEGER,
    median_ape=_maybe(NUMBER),
    p90_ape=_maybe(NUMBER),
    bias=_maybe(NUMBER),
    coverage=_maybe(NUMBER),
)
_SCALE = {"enum": ["single-gpu", "one-node", "cluster"]}

RESULTS: dict[str, dict[str, Any]] = {
    "fit": _object(
        model=STRING, parameters_total=INTEGER, device=STRING, gpus=INTEGER, job={"enum": ["training", "serving"]}, layout=STRING,
        verdict={"enum": ["fits", "fits-barely", "barely-not", "does-not-fit", "illegal"]}, fits=BOOLEAN,
        **_bytes("capacity", "needed", "allocated", "reserved", "device"), free_bytes=INTEGER, host_bytes=INTEGER, peak_phase=STRING, peak_stage=INTEGER,
        terms=_list(_object(name=STRING, kind=STRING, bytes=INTEGER, share=NUMBER, source=STRING)),
        limits=_list(_object(name=STRING, value=_maybe(INTEGER), unit=STRING, note=STRING)),
        levers=_list(_object(name=STRING, setting=STRING, saves_bytes=INTEGER, cost=STRING, then_fits=BOOLEAN, gpus=INTEGER)),
        violations=_list(_object(severity=STRING, what=STRING, legal=STRING, silent=BOOLEAN)),
        cache_tokens=_maybe(INTEGER), cache_bytes_per_token=_maybe(NUMBER), context_tokens=_maybe(INTEGER), concurrent_requests=_maybe(NUMBER),
    ),
    "decide": _object(
        model=STRING, device=STRING, verdict=_SCALE, tenancy={"enum": ["shared", "private"]}, gpus=_maybe(INTEGER), nodes=_maybe(INTEGER), impossible=_list(STRING),
        confidence={"enum": ["high", "medium", "low"]}, deciding=_list(STRING),
        answers=_list(_object(question=STRING, title=STRING, scale=_SCALE, gpus=_maybe(INTEGER), impossible=BOOLEAN, private=BOOLEAN, applies=BOOLEAN, text=STRING, how=STRING,
                              rule_of_thumb=_maybe(STRING), confidence=STRING, quantities={"type": "object", "additionalProperties": _QUANTITY})),
        flips=_list(_object(change=STRING, then=STRING)),
        horizon=_maybe(_object(months=INTEGER, verdict=_SCALE, gpus=INTEGER, outgrown_in_months=_maybe(NUMBER), text=STRING)),
    ),
    "table": _object(
        device=STRING, capacity_bytes=INTEGER,
        cells=_list(_object(model=STRING, parameters_total=INTEGER, method=STRING, precision=STRING, needed_bytes=INTEGER, gpus=_maybe(INTEGER))),
        claims=_list(_object(claim=STRING, holds=BOOLEAN, evidence=STRING)),
    ),
    "catalog": {
        "anyOf": [
            _object(kind={"const": "model"}, name=STRING, family=STRING, parameters_total=INTEGER, parameters_active=INTEGER,
                    parameters_by_class={"type": "object", "additionalProperties": INTEGER}, parameters_mtp=INTEGER, layers=INTEGER, encoder_layers=INTEGER, kv_bytes_per_token_full_context=NUMBER,
                    kv_bytes_per_token_windowed=NUMBER, kv_bytes_per_token_cross_attention=NUMBER, window_tokens=_maybe(INTEGER), hidden=INTEGER,
                    vocabulary=INTEGER, query_heads=INTEGER, kv_heads=INTEGER, experts=INTEGER, tied=BOOLEAN, kv_bytes_per_token=NUMBER,
                    state_bytes_per_sequence=NUMBER, valid_tensor_parallel=_list(INTEGER), context_tokens=_maybe(INTEGER), dtype=STRING,
                    weight_format=_maybe(STRING), assumed=_list(STRING), source=STRING),
            _object(kind={"enum": ["device", "node", "fabric"]}, name=STRING, title=STRING, aliases=_list(STRING),
                    figures={"type": "object", "additionalProperties": _object(value=NUMBER, low=NUMBER, high=NUMBER, kind=STRING, source=STRING, date=_maybe(STRING))},
                    facts={"type": "object", "additionalProperties": STRING}, traps=_list(STRING), overlay=BOOLEAN),
        ]
    },
    "catalog-list": _object(kind=STRING, names=_list(_object(name=STRING, title=STRING))),
    "explain": _object(term=STRING, title=STRING, text=STRING, see=_list(STRING)),
    "validate": _object(
        kind=STRING, summary=_SUMMARY, quantities={"type": "object", "additionalProperties": _SUMMARY}, by=STRING,
        groups={"type": "object", "additionalProperties": _SUMMARY},
        fits=_object(failed=INTEGER, failed_said_not_to_fit=INTEGER, succeeded=INTEGER, succeeded_said_not_to_fit=INTEGER),
        rows=_list(_object(id=STRING, quantity=STRING, predicted=_maybe({"type": ["number", "boolean"]}), measured={"type": ["number", "boolean"]},
                           low=_maybe(NUMBER), high=_maybe(NUMBER), error=_maybe(NUMBER), reason=_maybe(STRING))),
    ),
}  # fmt: skip


def answer_schema(kind: str) -> dict[str, Any]:
    """The schema of one kind of answer, envelope included."""
    envelope = _object(
        schema={"const": f"outgrow.{kind}/{SCHEMA_VERSION}"}, outgrow=STRING, inputs_sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"},
        assumed=_list(_object(name=STRING, value=STRING, why=STRING)), result=RESULTS[kind], next=_maybe(STRING),
        findings=_list(_object(severity={"enum": ["info", "warning", "error"]}, code=STRING, message=STRING, hint=STRING)),
        sources=_list(_object(kind=STRING, ref=STRING, date=_maybe(STRING))),
    )  # fmt: skip
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"outgrow {kind}", **envelope}
