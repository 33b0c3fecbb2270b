"""Cases that practitioners met, asked of the product: which answers are right, and which are not yet.

    python scripts/field_cases.py             evaluate all, print the score and every failed expectation
    python scripts/field_cases.py a001 b057   evaluate some
    python scripts/field_cases.py --write     write validation/cases/README.md

The facts are validation/data/field_cases.csv; the questions and what their answers must say are
validation/cases/*.toml, explained in the README that this script writes.
"""

from __future__ import annotations

import ast
import csv
import importlib
import json
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from outgrow import app, catalog, specfile
from outgrow.cluster.device import Device
from outgrow.errors import OutgrowError
from outgrow.layout import Layout
from outgrow.physics.compute import training_tokens_per_second
from outgrow.physics.memory.kv import CacheCost, Pool, cache_cost, pool
from outgrow.physics.memory.moments import Moment, stage_moments
from outgrow.physics.memory.parameters import RankParameters, rank_parameters
from outgrow.physics.memory.serving import ServingMemory, serving_memory
from outgrow.physics.memory.states import States, training_states
from outgrow.planning.feasible import Violation, valid_tensor_parallel, violations
from outgrow.report.result import Result
from outgrow.units import GB, GIB
from outgrow.workload.model import ModelShape
from outgrow.workload.quantization import weight_format

ROOT = Path(__file__).resolve().parents[1]
FACTS = ROOT / "validation" / "data" / "field_cases.csv"
CASES = ROOT / "validation" / "cases"
README = CASES / "README.md"
AREAS = {"a": "training and fine-tuning memory", "b": "serving", "d": "legality, names and configurations"}
Status = Literal["right", "wrong", "not-answered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: the questions, and what must be true of their answers."""

    id: str
    status: Status
    """What the product does today: a case that turns right must be marked so, or the tests fail."""
    asks: Mapping[str, Mapping[str, Any]]
    expect: tuple[str, ...]
    note: str = ""
    """What the facts leave open and how it was filled in."""
    reason: str = ""
    """Why the answer is not right."""
    needs: str = ""
    """What would make it right."""


def facts() -> dict[str, dict[str, str]]:
    """The facts by id."""
    with FACTS.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def cases() -> dict[str, Case]:
    """All cases by id, in the order of the facts."""
    found: dict[str, Case] = {}
    for area in AREAS:
        table = tomllib.loads((CASES / f"{area}.toml").read_text(encoding="utf-8"))
        for name, entry in table.items():
            found[name] = Case(
                id=name, status=entry.get("status", "right"), asks=entry["ask"], expect=tuple(entry["expect"]),
                note=entry.get("note", ""), reason=entry.get("reason", ""), needs=entry.get("needs", ""),
            )  # fmt: skip
    return {name: found[name] for name in sorted(found)}


# -- questions: every one goes through a public function of the package


def _model(
    ref: str | Mapping[str, Any],
    overrides: Mapping[str, object] | None = None,
    *,
    index_total: int | None = None,
) -> ModelShape:
    """A model by name, or by the keys of its config.json with the total that the index beside it claims."""
    if isinstance(ref, str):
        return specfile.load_model(ref, overrides or {})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(ref), encoding="utf-8")
        if index_total is not None:
            index = {"metadata": {"total_parameters": index_total}, "weight_map": {}}
            (Path(folder) / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        return specfile.load_model(folder, overrides or {})


def _serving(ask: Mapping[str, Any]) -> Any:
    text = f"model: {ask['model']}\nserving: {{}}\n"
    return specfile.load_workload(None, text, overrides=ask.get("set", [])).workload.serving


def _training(ask: Mapping[str, Any]) -> Any:
    text = f"model: {ask['model']}\ntraining: {{}}\n"
    return specfile.load_workload(None, text, overrides=ask.get("set", [])).workload.training


def _layout(ask: Mapping[str, Any]) -> Layout:
    given = dict(ask.get("layout", {}))
    if "stage_layers" in given:
        given["stage_layers"] = tuple(given["stage_layers"])
    return Layout(**given)


def _ask_fit(ask: Mapping[str, Any]) -> SimpleNamespace:
    return _view(app.fit(ask["what"], on=ask["on"], job=ask.get("job"), overrides=ask.get("set", [])))


def _view(result: Result[Any]) -> SimpleNamespace:
    """What expectations name, out of the value of a fit."""
    value = result.value
    fit, workload = value.fit, value.workload
    terms: Counter[str] = Counter()
    for term in fit.terms:
        terms[term.name] += term.bytes
    return SimpleNamespace(
        result=result, fit=fit, fits=fit.fits, verdict=fit.verdict, needed=fit.needed, allocated=fit.allocated,
        reserved=fit.reserved, device=fit.device, capacity=fit.capacity.value, host=fit.host_bytes,
        host_all=fit.host_bytes * value.layout.gpus, terms=terms, free=fit.free_bytes, layout=value.layout,
        model=value.model, cluster=value.cluster, training=workload.training, serving=workload.serving,
        limits={limit.name: limit.value for limit in fit.limits}, levers={lever.setting: lever for lever in fit.levers},
        errors=[v for v in fit.violations if v.severity == "error"], tokens=fit.cache_tokens,
        per_token=fit.cache_bytes_per_token, assumed={a.name: a.value for a in result.assumed},
        findings={f.code: f for f in result.findings},
    )  # fmt: skip


def _ask_decide(ask: Mapping[str, Any]) -> SimpleNamespace:
    result = app.decide(ask["what"], on=ask["on"], job=ask.get("job"), overrides=ask.get("set", []))
    verdict = result.value.verdict
    return SimpleNamespace(
        result=result, verdict=verdict, scale=verdict.scale, gpus=verdict.gpus, nodes=verdict.nodes,
        answers={a.question: a for a in verdict.answers},
    )  # fmt: skip


def _ask_model(ask: Mapping[str, Any]) -> SimpleNamespace:
    shape = _model(ask.get("config") or ask["model"], ask.get("override"), index_total=ask.get("index_total"))
    return SimpleNamespace(
        shape=shape, parameters=shape.parameters, hidden=shape.hidden, assumed=shape.assumed,
        legal_tp=valid_tensor_parallel(shape, most=64),
    )  # fmt: skip


def _ask_show(ask: Mapping[str, Any]) -> Any:
    return app.show(ask["what"]).value


def _ask_check(ask: Mapping[str, Any]) -> tuple[Violation, ...]:
    device = catalog.device(ask["device"]) if "device" in ask else None
    return violations(
        _model(ask["model"], ask.get("override")), _layout(ask), device=device, fp8=ask.get("fp8", False),
        form=weight_format(ask["weights"]) if "weights" in ask else None,
        bf16=ask.get("bf16", False),
    )  # fmt: skip


def _ask_serve(ask: Mapping[str, Any]) -> ServingMemory:
    seen = ask["device_gib"] * GIB if "device_gib" in ask else catalog.device(ask["on"]).torch_memory.value
    return serving_memory(_model(ask["model"]), _serving(ask), device_bytes=seen)


def _ask_cache(ask: Mapping[str, Any]) -> CacheCost:
    return cache_cost(_model(ask["model"]), tp=ask.get("tp", 1))


def _ask_pool(ask: Mapping[str, Any]) -> Pool:
    return pool(
        _model(ask["model"]), ask["gib"] * GIB, tp=ask.get("tp", 1), cache_bytes=2.0,
        block_tokens=ask.get("block_tokens", 16), hybrid=ask.get("hybrid", True), window_slack=ask.get("batched_tokens", 0),
    )  # fmt: skip


def _ask_states(ask: Mapping[str, Any]) -> States:
    return training_states(_model(ask["model"]), _training(ask), _layout(ask))


def _ask_moments(ask: Mapping[str, Any]) -> list[Moment]:
    """Every candidate for the peak of the first stage, not only the one that is."""
    return stage_moments(_model(ask["model"]), _training(ask), _layout(ask), 0)


def _ask_rank(ask: Mapping[str, Any]) -> RankParameters:
    return rank_parameters(_model(ask["model"]), _layout(ask), ask.get("stage", 0))


def _ask_device(ask: Mapping[str, Any]) -> Device:
    return catalog.device(ask["name"])


def _ask_speed(ask: Mapping[str, Any]) -> float:
    band = training_tokens_per_second(
        _model(ask["model"]), _training(ask), catalog.device(ask["device"]), ask.get("gpus", 1)
    )
    if band is None:
        raise LookupError("the device has no published peak")
    return band.value


def _ask_function(ask: Mapping[str, Any]) -> Any:
    """Any public function, by "module:name"; arguments that name a model, a device or a cluster are looked up."""
    module, _, name = str(ask["of"]).partition(":")
    arguments = dict(ask.get("with", {}))
    for key, look in (("model", _model), ("device", catalog.device), ("cluster", specfile.cluster_of)):
        if key in arguments:
            arguments[key] = look(arguments[key])
    for key, read in (("serving", _serving), ("training", _training)):
        if key in arguments:
            arguments["job"] = read({"model": "llama-3.1-8b", "set": arguments.pop(key)})
    return getattr(importlib.import_module(module), name)(**arguments)


CALLS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "fit": _ask_fit, "decide": _ask_decide, "model": _ask_model, "show": _ask_show, "check": _ask_check,
    "serve": _ask_serve, "cache": _ask_cache, "pool": _ask_pool, "states": _ask_states, "moments": _ask_moments, "rank": _ask_rank,
    "device": _ask_device, "speed": _ask_speed, "function": _ask_function,
}  # fmt: skip


def answer(ask: Mapping[str, Any]) -> Any:
    """The answer to one question; with `refused = true` the error that it must end in."""
    if not ask.get("refused"):
        return CALLS[ask["call"]](ask)
    try:
        CALLS[ask["call"]](ask)
    except OutgrowError as error:
        return error
    raise LookupError("was answered, and should have been refused")


# -- expectations


def near(value: float, wanted: float, within: float) -> bool:
    """`value` is within a share of `wanted`."""
    return abs(value - wanted) <= within * abs(wanted)


def between(value: float, low: float, high: float) -> bool:
    """`value` lies in a closed range."""
    return low <= value <= high


def holds(quantity: Any, value: float) -> bool:
    """A quantity's stated interval holds a measured value."""
    return bool(quantity.low <= value <= quantity.high)


def says(thing: Any, pattern: str) -> bool:
    """Some message in an answer matches a pattern, whatever its case."""
    return any(re.search(pattern, text, re.IGNORECASE) for text in _messages(thing))


def _messages(thing: Any) -> list[str]:
    if isinstance(thing, str):
        return [thing]
    if isinstance(thing, OutgrowError):
        return [str(thing)]
    if isinstance(thing, SimpleNamespace):
        told = [*_messages(thing.result.findings), *_messages(thing.result.assumed)]
        for name in ("fit", "verdict"):
            part = getattr(thing, name, None)
            for key in ("violations", "levers", "limits", "answers", "flips"):
                told += _messages(getattr(part, key, ()))
        return told
    if isinstance(thing, tuple | list):
        return [text for part in thing for text in _messages(part)]
    if is_dataclass(thing):
        # The texts of one message are read together, so that a pattern may span a fault and its hint.
        values = [getattr(thing, f.name) for f in fields(thing)]
        return ["; ".join(str(v) for v in values if isinstance(v, str | int | float))]
    return []


VOCABULARY: dict[str, Any] = {
    "near": near, "between": between, "holds": holds, "says": says, "GiB": float(GIB), "GB": float(GB),
    "abs": abs, "len": len, "min": min, "max": max, "sum": sum, "set": set, "any": any, "all": all,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a case."""

    case: Case
    failures: tuple[str, ...] = field(default=())

    @property
    def is_right(self) -> bool:
        return not self.failures


def evaluate(case: Case) -> Outcome:
    """Ask every question of a case and test every expectation."""
    answers: dict[str, Any] = {}
    failures = []
    for name, ask in case.asks.items():
        try:
            answers[name] = answer(ask)
        except Exception as error:
            failures.append(
                f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
    for text in case.expect:
        if not names_of(text) <= answers.keys():
            failures.append(f"not answered: {text}")
            continue
        try:
            # Expressions are part of this repository, as tests are.
            true = eval(text, {"__builtins__": {}, **VOCABULARY, **answers})  # noqa: S307
        except Exception as error:
            failures.append(f"{text}: {type(error).__name__}: {error}")
            continue
        if not true:
            failures.append(text)
    return Outcome(case=case, failures=tuple(failures))


def names_of(expectation: str) -> set[str]:
    """The answers that an expectation speaks of."""
    tree = ast.parse(expectation, mode="eval")
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - bound - VOCABULARY.keys()


# -- the README


INTRODUCTION = """\
# Field cases

{total} situations that practitioners reported in public and whose outcome is known, asked of Outgrow.
**{right} of {total} are answered right ({share:.0%}).**

The facts, with their links, are `../data/field_cases.csv`. Each case in `a.toml` (training memory), `b.toml`
(serving) and `d.toml` (legality and configurations) holds

- `ask`: questions, each a call of a public function with the inputs that the report names;
- `expect`: what the answers must say, as expressions over them, with the numbers of the report and a stated
  tolerance. `near(x, y, t)` is true within the share t of y, `holds(q, y)` where the stated interval of q holds y,
  `says(answer, pattern)` where one of its messages matches;
- `note`: what the report leaves open and how it was filled in;
- `status`: right, wrong (an answer that contradicts the report) or not-answered (nothing can be asked), the last
  two with a `reason` and what the answer `needs`. Both count against the score, and a test fails when one of them
  turns right without being marked so.

`python scripts/field_cases.py` prints every expectation that fails; `--write` writes this page.
"""


def readme() -> str:
    """The page: score, table, reasons. It depends on the cases alone, not on what a run finds."""
    known, given = cases(), facts()
    right = sum(1 for case in known.values() if case.status == "right")
    parts = [INTRODUCTION.format(total=len(known), right=right, share=right / len(known))]
    parts.append("| area | cases | right | wrong | not answered |\n|---|---|---|---|---|")
    for area, title in AREAS.items():
        tally = Counter(case.status for name, case in known.items() if given[name]["area"] == area)
        parts.append(
            f"| {title} | {tally.total()} | {tally['right']} | {tally['wrong']} | {tally['not-answered']} |"
        )
    parts.append(
        "\n| case | about | right answer | result | why not, and what it needs |\n|---|---|---|---|---|"
    )
    for name, case in known.items():
        row = given[name]
        why = f"{case.reason} Needs: {case.needs}" if case.status != "right" else ""
        cells = (_linked(row), row["feature"], row["right_answer"], case.status, why)
        parts.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def _linked(row: Mapping[str, str]) -> str:
    return f"[{row['id']}]({row['link']})" if row["link"].startswith("https://") else row["id"]


def main(arguments: list[str]) -> int:
    """Evaluate, or write the page."""
    if arguments == ["--write"]:
        README.write_text(readme(), encoding="utf-8")
        return 0
    known = cases()
    chosen = [known[name] for name in arguments] if arguments else list(known.values())
    outcomes = [evaluate(case) for case in chosen]
    for outcome in outcomes:
        if outcome.failures or outcome.case.status != "right":
            surprise = "" if outcome.is_right == (outcome.case.status == "right") else "  <- not as marked"
            print(f"{outcome.case.id} {outcome.case.status}{surprise}")
            for failure in outcome.failures:
                print(f"     {failure}")
    print(f"{sum(o.is_right for o in outcomes)} of {len(outcomes)} right")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
