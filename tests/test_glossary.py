"""The glossary: complete, readable in 80 columns, and true. Every number that it states is computed again here."""

from __future__ import annotations

import ast
import operator
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import outgrow
from outgrow import app, catalog
from outgrow.catalog.targets import target
from outgrow.decision.questions import GPU_HOURS_BETWEEN_FAILURES, HOURS_PER_YEAR, PLANNED_SHARE
from outgrow.decision.sizing import replica
from outgrow.errors import UnknownNameError
from outgrow.layout import Layout
from outgrow.physics import compute
from outgrow.physics.memory import (
    activations,
    engines,
    kv,
    loss,
    moments,
    overhead,
    parameters,
    serving,
    states,
)
from outgrow.physics.memory import training as step
from outgrow.planning.feasible import valid_tensor_parallel, violations
from outgrow.planning.usual import with_accumulation
from outgrow.report.lines import WIDTH
from outgrow.report.text import plain
from outgrow.units import GB, GIB, KIB, MIB, TERA, TIB
from outgrow.workload.quantization import FORMATS
from outgrow.workload.serving import ServingJob, Traffic
from outgrow.workload.training import PRECISIONS, TrainingJob

SOURCE = Path(outgrow.__file__).parent
ENTRIES: dict[str, dict[str, Any]] = tomllib.loads(
    resources.files("outgrow.catalog").joinpath("data/glossary.toml").read_text(encoding="utf-8")
)
REQUIRED: list[str] = """
allocated reserved device-memory needed allocator-gap idle-cache context communicators bytes-per-parameter bf16 mixed
mixed-fp32-grad fp32-sharded autocast fp8 gradients master optimizer-states paged-optimizer optimizer-in-backward
activations recompute logits loss plain chunked fused parallel lora qlora frozen-base dequantised-weights
gathered-parameters fsdp zero1 zero2 zero3 zero-3 hsdp tensor-parallel sequence-parallel pipeline context-parallel
expert-parallel micro-batch global-batch in-flight kv kv-cache gqa kv-bytes-per-token mla sliding-window hybrid-cache
state cross-attention block page memory-fraction max-batched-tokens max-sequences activation-peak sampler cuda-graphs
weight-format mxfp4 nvfp4 nf4 awq gib usable-memory interval coverage leave-one-source-out host-memory mfu roofline
saturation ttft tpot availability moe active-parameters tied mtp rule-of-thumb
""".split()  # noqa: SIM905 (a paragraph reads better than ninety lines)


# ---- form


def key(text: str) -> str:
    """A term as `explain` looks it up."""
    return re.sub(r"[\s_]+", "-", text.strip().lower())


@pytest.mark.parametrize("term", REQUIRED)
def test_the_terms_that_people_ask_for_are_there(term: str) -> None:
    assert app.explain(term).value.text


@pytest.mark.parametrize("term", ENTRIES)
def test_an_entry_is_complete(term: str) -> None:
    entry = ENTRIES[term]
    assert set(entry) == {"title", "text", "aliases", "see"}
    assert term == key(term)
    assert len(entry["text"].strip().split("\n\n")) >= 3, (
        "what it is, how it is computed, what people get wrong"
    )
    assert entry["aliases"]
    assert not re.search(r"[\t\\]", entry["text"])


@pytest.mark.parametrize("term", ENTRIES)
def test_references_lead_somewhere(term: str) -> None:
    see = ENTRIES[term]["see"]
    assert see
    assert len(set(see)) == len(see)
    for other in see:
        assert other in ENTRIES
        assert other != term
    named = re.findall(r"outgrow explain ([\w-]+)", ENTRIES[term]["text"])
    assert all(name in ENTRIES for name in named)


def test_aliases_are_unique_and_reachable() -> None:
    seen: dict[str, str] = {}
    for term, entry in ENTRIES.items():
        for name in (term, *entry["aliases"]):
            assert name == key(name), f"{name!r} can never match what is typed"
            assert name not in seen, f"{name!r} means {seen[name]} and {term}"
            seen[name] = term


@pytest.mark.parametrize("term", ENTRIES)
def test_it_fits_80_columns(term: str) -> None:
    text = plain(app.explain(term))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith(ENTRIES[term]["title"] + "\n")
    text.encode("ascii")


def test_what_people_type_is_understood() -> None:
    for typed in ("KV cache", "kv_cache", " kv ", "Zero 3", "8-bit Adam", "GQA", "Context, communication"):
        assert app.explain(typed).value.term in ENTRIES
    with pytest.raises(UnknownNameError, match="No entry explains") as caught:
        app.explain("kv-cahce")
    assert "kv-cache" in str(caught.value)


# ---- every name that an answer prints


def _printed_terms() -> set[str]:
    """Names of all memory terms, read from the code that makes them."""
    names = set()
    for path in (SOURCE / "physics" / "memory").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in ("Term", "_term"):
                continue
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
            names |= {str(name.value) for name in given if isinstance(name, ast.Constant)}
    return names


def test_every_memory_term_is_explained() -> None:
    names = _printed_terms()
    assert {"weights", "activation peak", "KV cache", "gathered parameters", "allocator gap"} <= names
    missing = []
    for name in sorted(names):
        try:
            app.explain(name)
        except UnknownNameError:
            missing.append(name)
    assert not missing


def test_every_hint_of_the_code_is_explained() -> None:
    for path in SOURCE.rglob("*.py"):
        for term in re.findall(r"outgrow explain ([a-z][\w-]+)", path.read_text(encoding="utf-8")):
            assert app.explain(term).value.text, f"{path.name}: {term}"


def test_every_regime_format_and_loss_is_explained() -> None:
    for name in (*PRECISIONS, *FORMATS):
        if not name.startswith(("q4", "q5", "q6", "q8", "bnb")):
            assert app.explain(name).value.term in ("regimes", "weight-format", "four-bit")
    for name in loss_names():
        assert app.explain(name).value.term == "loss"


def loss_names() -> tuple[str, ...]:
    from typing import get_args

    from outgrow.workload.training import Loss

    return get_args(Loss)


# ---- arithmetic: every "numbers = number unit" of a formula


_SCALES = {
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "GB": GB, "%": 0.01, "ms": 1e-3,
}  # fmt: skip
_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATORS[type(sign)](_value(left), _value(right))
    raise ValueError(ast.dump(node))


def _evaluate(text: str) -> float:
    """An expression in the glossary's spelling: x is times, commas group digits, units scale or are only words."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"\bx\b", "*", text)
    for unit, scale in _SCALES.items():
        text = re.sub(rf"(?<=\d) {unit}(?![A-Za-z])", f" * {scale}", text)
    text = re.sub(r"\b[A-Za-z][A-Za-z-]*\b", "", text)
    return _value(ast.parse(text.strip(), mode="eval").body)


def _formulas(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("    "):
            yield from (line.strip() for line in paragraph.splitlines())


def _calculations(term: str) -> list[tuple[str, str]]:
    """(expression, stated result) of every line that is arithmetic."""
    found = []
    for line in _formulas(ENTRIES[term]["text"]):
        part = re.split(r"\s{2,}|: ", line)[-1]
        if " = " not in part:
            continue
        left, _, right = part.rpartition(" = ")
        is_number = re.fullmatch(r"[\d.,]+ \w+", left)
        if re.search(r"\d", left) and (is_number or re.search(r" [x/+-] ", left)):
            found.append((left, right))
    return found


ARITHMETIC = [(term, *pair) for term in ENTRIES for pair in _calculations(term)]


@pytest.mark.parametrize(("term", "expression", "stated"), ARITHMETIC)
def test_the_arithmetic_is_right(term: str, expression: str, stated: str) -> None:
    match = re.fullmatch(r"([\d.,]+) ?(\S+)?", stated)
    assert match, f"{stated!r} is not a number with a unit"
    digits = len(match[1].partition(".")[2])
    result = _evaluate(expression) / _SCALES.get(match[2] or "", 1.0)
    assert f"{result:,.{digits}f}" == match[1]


def test_formulas_are_found() -> None:
    assert len(ARITHMETIC) > 70
    assert {term for term, _, _ in ARITHMETIC} <= set(ENTRIES)
    assert all(any(True for _ in _formulas(entry["text"])) for entry in ENTRIES.values()), "one formula each"


# ---- claims: the same numbers, from the product


LLAMA, SEVENTY = "llama-3.1-8b", "llama-3.1-70b"
M = catalog.model
FULL = TrainingJob()
ONE = Layout()
H100 = catalog.device("h100-sxm")


def _per_parameter(name: str) -> float:
    regime = PRECISIONS[name]
    return regime.parameter + regime.gradient + regime.master + 2 * regime.state


def _states(job: TrainingJob = FULL, layout: Layout = ONE, model: str = LLAMA) -> states.States:
    return states.training_states(M(model), job, layout)


def _all_states(layout: Layout) -> float:
    s = _states(FULL, layout)
    return s.parameter_bytes + s.gradient_bytes + s.master_bytes + s.moment_bytes


def _logits(name: str, tp: int = 1) -> float:
    return max(loss.loss_bytes(M(LLAMA), replace(FULL, loss=name), Layout(tp=tp), 4096))  # type: ignore[arg-type]


def _moment_terms(job: TrainingJob, layout: Layout, name: str) -> float:
    """The largest that a term becomes at any moment of a step."""
    found = moments.stage_moments(M(LLAMA), job, layout, 0)
    return max(t.bytes for moment in found for t in moment.terms if t.name == name)


def _layer(model: str = LLAMA) -> float:
    return sum(parameters.layer_parameters(M(model).layers[0], M(model).hidden, ONE))


def _kept(layout: Layout, model: str = LLAMA) -> float:
    shape = M(model)
    return activations.layer_activations(shape.layers[0], shape, FULL, layout).kept


def _serving(**settings: Any) -> serving.ServingMemory:
    return serving.serving_memory(M(LLAMA), ServingJob(**settings), device_bytes=H100.torch_memory.value)


def _served(name: str, **settings: Any) -> float:
    return next(t.bytes for t in _serving(**settings).terms if t.name == name)


def _cache(model: str, tp: int = 1) -> kv.CacheCost:
    return kv.cache_cost(M(model), tp=tp)


def _pages(tokens: int) -> int:
    return kv.pool(M(LLAMA), GIB, tp=1, cache_bytes=2, block_tokens=16).pages_of(tokens)


def _width(name: str) -> float:
    return FORMATS[name].bytes_per_element


def _scaled(value: float, unit: str) -> float:
    return value / _SCALES.get(unit, 1.0)


def _sampler(sequences: int) -> float:
    return engines.FUSED_SAMPLER * sequences * M(LLAMA).vocab


Number = Callable[[], float]
CLAIMS: list[tuple[str, Number, str]] = [
    ("allocated", lambda: _all_states(ONE), "119.7 GiB"),
    ("communicators", lambda: overhead.communicators(Layout(dp=8, tp=4, pp=2)), "3"),
    ("usable-memory", lambda: H100.memory.value, "80.0 GiB"),
    ("usable-memory", lambda: H100.driver_memory.value if H100.driver_memory else 0, "79.6 GiB"),
    ("usable-memory", lambda: H100.torch_memory.value, "79.2 GiB"),
    ("gib", lambda: GIB, "1,073,741,824 B"),
    ("gib", lambda: _served("weights"), "14.96 GiB"),
    ("gib", lambda: _served("weights"), "16.06 GB"),
    ("parameters", lambda: M(LLAMA).parameters, "8,030,261,248"),
    ("parameters", _layer, "218,112,000"),
    ("parameters", lambda: _states(PRECISION("mixed")).parameter_bytes, "15.0 GiB"),
    ("weights", lambda: _served("weights"), "14.96 GiB"),
    ("weights", lambda: _served("weights", weights="fp8"), "8.46 GiB"),
    ("bytes-per-parameter", lambda: _per_parameter("bf16"), "8 B"),
    ("bytes-per-parameter", lambda: _per_parameter("mixed"), "16 B"),
    ("bytes-per-parameter", lambda: _per_parameter("mixed-fp32-grad"), "18 B"),
    ("bytes-per-parameter", lambda: _all_states(ONE), "119.7 GiB"),
    *[("regimes", (lambda n=name: _per_parameter(n)), f"{_per_parameter(name):g} B") for name in PRECISIONS],
    ("gradients", lambda: _states().gradient_bytes, "15.0 GiB"),
    ("master", lambda: _states().master_bytes, "29.9 GiB"),
    ("master", lambda: _states(layout=Layout(dp=8, sharding="zero1")).master_bytes, "3.7 GiB"),
    ("optimizer-states", lambda: _states().moment_bytes, "59.8 GiB"),
    ("optimizer-states", lambda: _states(TrainingJob(optimizer="adamw-8bit")).moment_bytes, "15.2 GiB"),
    ("optimizer-temporaries", lambda: _moment_terms(replace(FULL, optimizer_foreach=True), ONE, "optimizer temporaries"), "29.9 GiB"),
    ("paged-optimizer", lambda: _states(TrainingJob(optimizer="paged-adamw-8bit")).host_bytes, "15.2 GiB"),
    ("optimizer-in-backward", lambda: _moment_terms(replace(FULL, optimizer_in_backward=True), ONE, "gradients"), "0.4 GiB"),
    ("optimizer-in-backward", lambda: _states().gradient_bytes, "15.0 GiB"),
    ("other-models", lambda: _states(TrainingJob(objective="dpo")).reference_bytes, "15.0 GiB"),
    ("activations", lambda: 4096 * 32 * _kept(Layout(recompute="full")), "1.0 GiB"),
    ("recompute", lambda: _kept(Layout(recompute="full")), "8,192 B"),
    ("recompute", lambda: 8 / 6 - 1, "33 %"),
    ("logits", lambda: _logits("plain"), "5.9 GiB"),
    ("loss", lambda: _logits("plain"), "5.9 GiB"),
    ("loss", lambda: _logits("chunked"), "2.3 GiB"),
    ("loss", lambda: _logits("parallel", 8), "0.4 GiB"),
    ("loss", lambda: _logits("fused"), "0.2 GiB"),
    ("packing", lambda: moments.micro_batch_tokens(TrainingJob(batching="unpadded", mean_length=1024), Layout(micro_batch=4)), "7,168 tokens"),
    ("lora", lambda: _states(TrainingJob(method="lora")).trained, "13,631,488"),
    ("lora", lambda: _states(TrainingJob(method="lora")).adapter_bytes, "52 MiB"),
    ("qlora", lambda: _states(TrainingJob(method="qlora")).frozen_bytes, "5.6 GiB"),
    ("qlora", lambda: _states(TrainingJob(method="lora")).frozen_bytes, "15.0 GiB"),
    ("frozen-base", lambda: _states(TrainingJob(method="lora"), model=SEVENTY).frozen_bytes, "131.4 GiB"),
    ("frozen-base", lambda: _states(TrainingJob(method="qlora"), model=SEVENTY).frozen_bytes, "39.8 GiB"),
    ("dequantised-weights", lambda: _moment_terms(TrainingJob(method="qlora"), ONE, "dequantised weights"), "112 MiB"),
    *[("fsdp", (lambda s=name: _all_states(Layout(dp=8, sharding=s)) / M(LLAMA).parameters), stated)
      for name, stated in (("none", "16 B"), ("zero1", "5.5 B"), ("zero2", "3.75 B"), ("zero3", "2 B"))],
    ("gathered-parameters", lambda: _moment_terms(FULL, Layout(dp=8, sharding="zero3"), "gathered parameters"), "2.8 GiB"),
    ("tensor-parallel", lambda: _cache(SEVENTY).charged_per_token, "320 KiB"),
    ("tensor-parallel", lambda: _cache(SEVENTY, 8).charged_per_token, "40 KiB"),
    ("tensor-parallel", lambda: _cache(SEVENTY, 16).charged_per_token, "40 KiB"),
    ("sequence-parallel", lambda: _kept(Layout(tp=8, sequence_parallel=False, recompute="full"), SEVENTY), "16,384 B"),
    ("sequence-parallel", lambda: _kept(Layout(tp=8, recompute="full"), SEVENTY), "2,048 B"),
    ("pipeline", lambda: len(Layout(pp=4).chunks(len(M(SEVENTY).layers))[0]), "20"),
    ("context-parallel", lambda: moments.micro_batch_tokens(TrainingJob(sequence_length=131072), Layout(cp=8)), "16,384 tokens"),
    ("expert-parallel", lambda: parameters.rank_parameters(M("deepseek-v3"), Layout(dp=8, ep=8)).experts, "81,738,596,352"),
    ("micro-batch", lambda: moments.micro_batch_tokens(FULL, Layout(micro_batch=2)), "8,192 tokens"),
    ("global-batch", lambda: 8 * with_accumulation(TrainingJob(global_batch=64), Layout(dp=8)).accumulation, "64"),
    ("in-flight", lambda: Layout(pp=4).in_flight(0, 100), "4"),
    ("in-flight", lambda: Layout(pp=4, vpp=2).in_flight(0, 100), "5.5"),
    ("host-memory", lambda: _states(TrainingJob(offload=("optimizer",))).host_bytes, "119.7 GiB"),
    ("kv-cache", lambda: 10 * GIB / _cache(LLAMA).charged_per_token, "81,920 tokens"),
    ("kv-cache", lambda: kv.pool(M(LLAMA), 10 * GIB, tp=1, cache_bytes=2, block_tokens=16).sequences(4096), "20"),
    ("kv-bytes-per-token", lambda: _cache(LLAMA).charged_per_token, "131,072 B"),
    ("mla", lambda: _cache("kimi-k2").charged_per_token, "70,272 B"),
    ("mla", lambda: _cache("kimi-k2", 8).charged_per_token, "70,272 B"),
    ("sliding-window", lambda: _cache("gemma-3-27b").sequence_bytes(32768), "2.9 GiB"),
    ("sliding-window", lambda: _cache("gemma-3-27b").sequence_bytes(32768, hybrid=False), "15.5 GiB"),
    ("hybrid-cache", lambda: _cache("gpt-oss-120b").sequence_bytes(8192, hybrid=False), "576.0 MiB"),
    ("hybrid-cache", lambda: _cache("gpt-oss-120b").sequence_bytes(8192), "292.5 MiB"),
    ("state", lambda: _cache("qwen3-next-80b-a3b").state_per_sequence, "77,266,944 B"),
    ("cross-attention", lambda: _cache("llama-3.2-11b-vision").cross_per_image_token, "32 KiB"),
    ("cross-attention", lambda: _cache("llama-3.2-11b-vision").charged_per_token, "160 KiB"),
    ("block", lambda: _pages(4097) * 16, "4,112 tokens"),
    ("memory-fraction", lambda: _served("left free by the engine"), "6.3 GiB"),
    ("max-batched-tokens", lambda: serving.ACTIVATION * 8192 * (serving._layer_width(M(LLAMA).layers[0].ffn, 4096, 1) + 3 * 4096), "864 MiB"),
    ("max-sequences", lambda: _sampler(1024), "1.96 GiB"),
    ("max-sequences", lambda: _sampler(256), "0.49 GiB"),
    ("activation-peak", lambda: _served("activation peak"), "2.07 GiB"),
    *[("weight-format", (lambda n=name: _width(n)), stated)
      for name, stated in (("fp8", "1.0000 B"), ("int8", "1.0000 B"), ("fp8-block", "1.0002 B"), ("awq", "0.5195 B"), ("gptq", "0.5195 B"),
                           ("nf4", "0.5625 B"), ("mxfp4", "0.5312 B"), ("nvfp4", "0.5625 B"))],
    *[("four-bit", (lambda n=name: 8 * _width(n)), stated)
      for name, stated in (("nf4", "4.5 bits"), ("nf4-double", "4.127 bits"), ("awq", "4.15625 bits"), ("gptq", "4.15625 bits"),
                           ("int4", "4.5 bits"), ("mxfp4", "4.25 bits"), ("nvfp4", "4.5 bits"))],
    ("mfu", lambda: compute.training_flops_per_token(M(LLAMA), TrainingJob(sequence_length=8192)), "51,471,998,976"),
    ("mfu", lambda: 5762 * compute.training_flops_per_token(M(LLAMA), TrainingJob(sequence_length=8192)) / (compute.peak_flops(H100) or 1), "30.0 %"),
    ("roofline", lambda: _served("weights") / H100.memory_bandwidth.value, "4.8 ms"),
    ("ttft", lambda: compute.forward_flops_per_token(M(LLAMA), 1200), "15,324,422,144"),
    ("ttft", lambda: 1200 * compute.forward_flops_per_token(M(LLAMA), 1200) / (compute.peak_flops(H100) or 1), "18.6 ms"),
    ("tpot", lambda: (_served("weights") + 64 * _cache(LLAMA).sequence_bytes(2048)) / H100.memory_bandwidth.value, "9.9 ms"),
    ("saturation", lambda: 1 / (0.040 + 300 * 0.030 / 300), "14.3"),
    ("saturation", lambda: PLANNED_SHARE, "70 %"),
    ("availability", lambda: 16384 * 54 * 24 / 419, "50,677"),
    ("availability", lambda: GPU_HOURS_BETWEEN_FAILURES.value, "50,000 hours"),
    ("availability", lambda: 1 - 300 / 3600 / GPU_HOURS_BETWEEN_FAILURES.value, "99.9998 %"),
    ("availability", lambda: HOURS_PER_YEAR * 0.001, "8.8 hours"),
    ("moe", lambda: M("deepseek-v3").parameters * _width("fp8"), "624.9 GiB"),
    ("moe", lambda: 2 * M("deepseek-v3").active_parameters, "75,104,565,248"),
    ("tied", lambda: M("llama-3.2-1b").embedding_parameters, "262,668,288"),
    ("tied", lambda: parameters.rank_parameters(M("llama-3.2-1b"), Layout(pp=2), 1).head, "262,668,288"),
    ("tied", lambda: M("llama-3.2-1b").embedding_parameters / M("llama-3.2-1b").parameters, "21.3 %"),
    ("mtp", lambda: M("deepseek-v3").mtp_parameters, "11,610,067,968"),
    ("mtp", lambda: M("deepseek-v3").mtp_parameters + M("deepseek-v3").parameters, "682,636,472,320"),
    ("rule-of-thumb", lambda: _per_parameter("mixed") / 2, "8"),
    ("rule-of-thumb", lambda: serving.weights_on_rank(parameters.rank_parameters(M(SEVENTY), ONE), FORMATS["fp8"]), "67.7 GiB"),
]  # fmt: skip


def PRECISION(name: str) -> TrainingJob:  # noqa: N802 (reads as a constructor in the table above)
    return TrainingJob(precision=name)


@pytest.mark.parametrize(("term", "number", "stated"), CLAIMS, ids=[f"{t}: {s}" for t, _, s in CLAIMS])
def test_what_is_stated_is_what_the_product_computes(term: str, number: Number, stated: str) -> None:
    digits, _, unit = stated.partition(" ")
    value = _scaled(number(), unit)
    assert f"{value:,.{len(digits.partition('.')[2])}f}" == digits
    text = " ".join(ENTRIES[term]["text"].split())
    assert re.search(rf"(?<![\d.,]){re.escape(stated)}(?![\d]|,\d|\.\d)", text), (
        f"{term} does not state {stated}"
    )


@pytest.mark.parametrize(("term", "expression", "stated"), ARITHMETIC)
def test_every_result_is_held_against_the_product(term: str, expression: str, stated: str) -> None:
    assert stated in {claim for name, _, claim in CLAIMS if name == term}


# ---- claims without a number


def _breakdown(**settings: Any) -> Any:
    return step.training_memory(M(LLAMA), TrainingJob(method="lora", **settings), ONE)[0]


def _of(breakdown: Any, name: str) -> float:
    return sum(t.bytes for t in breakdown.terms if t.name == name)


def test_three_totals_are_the_sums_that_the_entries_say() -> None:
    b = _breakdown()
    gap, idle = _of(b, "allocator gap"), _of(b, "idle cache")
    outside = _of(b, "context") + _of(b, "communicators")
    named = sum(t.bytes for t in b.terms if t.kind != "overhead")
    assert b.allocated.value == pytest.approx(named)
    assert b.reserved.value == pytest.approx(named + gap + idle)
    assert b.device.value == pytest.approx(named + gap + idle + outside)
    assert b.needed_bytes == pytest.approx(named + gap + outside)
    varying = _breakdown(batching="padded")
    assert varying.needed_bytes == pytest.approx(b.needed_bytes)


def test_gap_and_idle_cache_behave_as_told() -> None:
    packed, padded = _breakdown(), _breakdown(batching="padded")
    assert _of(padded, "allocator gap") > 3 * _of(packed, "allocator gap")
    assert _of(packed, "allocator gap") < 0.1 * packed.allocated.value
    assert _of(packed, "idle cache") > 0
    assert _of(_breakdown(expandable_segments=True), "idle cache") == 0
    assert 0.5 * GIB < _of(packed, "context") < 2 * GIB


def test_divisibility_is_told_with_legal_values() -> None:
    assert valid_tensor_parallel(M(LLAMA)) == (1, 2, 4, 8, 16)
    found = violations(M(LLAMA), Layout(tp=3))
    assert any("32 query heads" in v.what and v.severity == "error" for v in found)


def test_engine_defaults_are_those_that_the_entries_state() -> None:
    large, small = H100.torch_memory.value, catalog.device("rtx-4090").torch_memory.value

    def budget(size: float = large, **settings: Any) -> engines.EngineBudget:
        return engines.engine_budget(
            ServingJob(**settings), device_bytes=size, is_a100=False, context_length=8192, multimodal=False
        )

    assert (budget().max_batched_tokens, budget(small).max_batched_tokens) == (8192, 2048)
    assert (budget().max_sequences, budget(small).max_sequences) == (1024, 256)
    assert budget(engine_version="0.20.0").memory_fraction == 0.9
    assert budget(engine_version="0.21.0").memory_fraction == 0.92
    blocks = {e: budget(engine=e).block_tokens for e in ("vllm", "tensorrt-llm", "sglang")}
    assert blocks == {"vllm": 16, "tensorrt-llm": 32, "sglang": 1}
    assert [budget(engine=e).fraction_of for e in blocks] == ["total", "remaining", "available"]
    assert budget(enforce_eager=True).graph_bytes == 0 < budget().graph_bytes
    assert budget(engine_version="0.20.0").graph_bytes == 0
    assert engines.SORTING_SAMPLER > 2 * engines.FUSED_SAMPLER


def test_saturation_is_the_formula_of_its_entry() -> None:
    job = ServingJob(traffic=Traffic(input_tokens=1200, output_tokens=300))
    found = replica(M(LLAMA), job, catalog.target("h100-sxm"), tp=1)
    assert found is not None
    expected = 1 / (found.prefill.value + 300 * found.tpot.value / found.concurrency)
    assert found.saturation.value == pytest.approx(expected)
    assert found.concurrency <= found.memory.budget.max_sequences


def test_one_node_of_the_table_is_as_told() -> None:
    cells = {
        (c.method, c.precision): c.gpus
        for c in app.memory_table([SEVENTY]).value.cells
    }  # fmt: skip
    assert (cells["serve", "fp8"], cells["serve", "bf16"]) == (1, 2)
    assert target("h100-sxm").device.peak("bf16") == 989 * TERA
