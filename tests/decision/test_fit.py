"""Does it fit: one verdict, its limits and its levers, each held against the memory that it speaks of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.cluster.device import Device
from outgrow.cluster.figure import Figure
from outgrow.decision.fit import Fit, FitVerdict, fit_serving, fit_training, largest
from outgrow.decision.levers import training_levers
from outgrow.layout import Layout
from outgrow.physics.memory.serving import serving_memory
from outgrow.physics.memory.training import training_memory, worst
from outgrow.units import GIB
from outgrow.workload.serving import ServingJob, Traffic
from outgrow.workload.training import Lora, TrainingJob

FIXED = settings(derandomize=True, deadline=None, max_examples=25)
ORDER: tuple[FitVerdict, ...] = ("does-not-fit", "barely-not", "fits-barely", "fits")
MODELS = ("llama-3.2-1b", "qwen2.5-7b", "qwen3-30b-a3b", "gpt2")
SIZED: dict[str, Any] = {"max_batched_tokens": 8192, "max_sequences": 256, "max_model_len": 8192}
H100 = catalog.device("h100-sxm")


def sized(size: float, device: Device = H100) -> Device:
    """The same device with another amount of memory."""
    return replace(device, framework_memory=Figure(value=size, unit="B", kind="measured", source="test"))


def jobs() -> st.SearchStrategy[TrainingJob]:
    return st.builds(
        TrainingJob,
        method=st.sampled_from(("full", "lora", "qlora")),
        precision=st.sampled_from(("bf16", "mixed", "fp32-sharded", "autocast", "mixed-fp32-grad")),
        sequence_length=st.sampled_from((512, 4096)),
        optimizer=st.sampled_from(("adamw", "adamw-8bit", "sgd")),
        loss=st.sampled_from(("plain", "chunked", "fused")),
        lora=st.sampled_from((Lora(), Lora(rank=64, targets=("all",)))),
    )


def layouts() -> st.SearchStrategy[Layout]:
    return st.builds(
        Layout,
        dp=st.sampled_from((1, 8)),
        sharding=st.sampled_from(("none", "zero2", "zero3")),
        micro_batch=st.sampled_from((1, 4)),
        recompute=st.sampled_from(("none", "full")),
    )


# the search


@FIXED
@given(limit=st.integers(0, 5000), most=st.integers(1, 3000))
def test_the_largest_is_the_largest(limit: int, most: int) -> None:
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= limit

    found = largest(fits, most)
    assert found == (min(limit, most) if limit else None)
    # It is asked about nothing that is not there, and logarithmically often.
    assert all(1 <= n <= most for n in asked)
    assert len(asked) <= 2 * most.bit_length() + 2


# training


@FIXED
@given(name=st.sampled_from(MODELS), job=jobs(), layout=layouts(), size=st.floats(8, 200))
def test_a_fit_agrees_with_the_memory(name: str, job: TrainingJob, layout: Layout, size: float) -> None:
    model, device = catalog.model(name), sized(size * GIB)
    fit = fit_training(model, job, layout, device)
    peak = worst(training_memory(model, job, layout, capacity_bytes=size * GIB))
    assert fit.needed.value == peak.needed_bytes
    assert fit.fits == (peak.needed_bytes <= size * GIB)
    assert fit.free_bytes == pytest.approx(size * GIB - peak.needed_bytes)
    assert fit.capacity.value == size * GIB
    assert fit == fit_training(model, job, layout, device)
    for limit in fit.limits:
        if limit.value is None:
            assert not fit.fits
            continue

        def needs(value: int, name: str = limit.name) -> float:
            if name == "micro-batch":
                return worst(training_memory(model, job, replace(layout, micro_batch=value))).needed_bytes
            return worst(training_memory(model, replace(job, sequence_length=value), layout)).needed_bytes

        step = 1 if limit.name == "micro-batch" else 2 * layout.cp
        assert needs(limit.value) <= size * GIB
        assert needs(limit.value + step) > size * GIB


@settings(FIXED, max_examples=12)
@given(name=st.sampled_from(MODELS), job=jobs(), layout=layouts())
def test_more_memory_never_fits_less(name: str, job: TrainingJob, layout: Layout) -> None:
    model = catalog.model(name)
    found = [fit_training(model, job, layout, sized(s * GIB)) for s in (6, 24, 96, 384)]
    ranks = [ORDER.index(f.verdict) for f in found]
    assert ranks == sorted(ranks)
    for name_of in ("micro-batch", "sequence length"):
        values = [next(x.value for x in f.limits if x.name == name_of) or 0 for f in found]
        assert values == sorted(values)


@FIXED
@given(name=st.sampled_from(MODELS), job=jobs(), layout=layouts(), size=st.floats(8, 200))
def test_levers_save_what_they_say(name: str, job: TrainingJob, layout: Layout, size: float) -> None:
    fit = fit_training(catalog.model(name), job, layout, sized(size * GIB))
    for lever in fit.levers:
        assert 0 < lever.saves_bytes < fit.needed.value
        assert lever.then_fits == (fit.needed.value - lever.saves_bytes <= size * GIB)
        assert lever.name
        assert lever.setting
        assert lever.cost
    savings = [lever.saves_bytes for lever in fit.levers]
    assert savings == sorted(savings, reverse=True)
    if fit.fits:
        assert all(lever.then_fits for lever in fit.levers)


def apply(job: TrainingJob, layout: Layout, setting: str) -> tuple[TrainingJob, Layout]:
    """What --set with a lever's own words does."""
    path, _, text = setting.partition("=")
    where, _, key = path.partition(".")
    value: Any = text
    if text.isdigit():
        value = int(text)
    elif text == "true":
        value = True
    elif text.startswith("["):
        value = tuple(text.strip("[]").split(","))
    if where == "training":
        return replace(job, **{key: value}), layout
    return job, replace(layout, **{key: value})


@FIXED
@given(name=st.sampled_from(MODELS), job=jobs(), layout=layouts())
def test_setting_a_lever_saves_what_it_says(name: str, job: TrainingJob, layout: Layout) -> None:
    model = catalog.model(name)
    before = worst(training_memory(model, job, layout)).needed_bytes
    for lever in training_levers(model, job, layout, H100.torch_memory.value):
        changed, plan = apply(job, layout, lever.setting)
        after = worst(training_memory(model, changed, plan)).needed_bytes
        assert before - after == pytest.approx(lever.saves_bytes), lever.setting


def test_levers_by_hand() -> None:
    # Llama-3.1-8B in mixed precision on 80 GB: 16 B per parameter are 128 GB; 8-bit moments save 8 - 2.03 of them.
    fit = fit_training(catalog.model("llama-3.1-8b"), TrainingJob(), Layout(recompute="full"), H100)
    assert fit.verdict == "does-not-fit"
    saved = {lever.setting: lever for lever in fit.levers}
    assert saved["training.optimizer=adamw-8bit"].saves_bytes == pytest.approx((8 - 2.03125) * 8_030_261_248)
    assert saved["training.method=lora"].then_fits
    assert saved["training.method=qlora"].then_fits
    assert saved["training.method=qlora"].saves_bytes > saved["training.method=lora"].saves_bytes


@pytest.mark.parametrize(
    ("name", "method", "device", "fits"),
    [
        ("llama-3.1-8b", "qlora", "rtx-4090", True),
        ("llama-3.1-8b", "full", "h100-sxm", False),
        ("llama-3.1-70b", "qlora", "h100-sxm", True),
        ("llama-3.1-70b", "lora", "h100-sxm", False),
        ("llama-3.2-1b", "full", "h100-sxm", True),
    ],
)
def test_what_everyone_knows(name: str, method: str, device: str, fits: bool) -> None:
    job = TrainingJob(
        method=method, precision="bf16" if method != "full" else "mixed", loss="fused", sequence_length=1024
    )  # type: ignore[arg-type]
    fit = fit_training(catalog.model(name), job, Layout(recompute="full"), catalog.device(device))
    assert fit.fits == fits


def test_an_illegal_layout_is_illegal_however_small() -> None:
    fit = fit_training(catalog.model("gpt2"), TrainingJob(), Layout(tp=5), H100)
    assert fit.verdict == "illegal"
    assert not fit.fits
    assert any(v.severity == "error" for v in fit.violations)


@pytest.mark.parametrize("stages", [(12, 13), (10, 10), (0, 12)])
def test_stages_that_do_not_add_up_are_an_answer_and_no_crash(stages: tuple[int, int]) -> None:
    fit = fit_training(catalog.model("gpt2"), TrainingJob(), Layout(pp=2, stage_layers=stages), H100)
    assert fit.verdict == ("illegal" if sum(stages) != 12 else fit.verdict)


# serving


def serve(name: str, size: float, **changes: Any) -> Fit:
    return fit_serving(catalog.model(name), ServingJob(**(SIZED | changes)), sized(size))


@FIXED
@given(
    name=st.sampled_from((*MODELS, "deepseek-v2-lite", "qwen3-next-80b-a3b", "mamba-2.8b")), size=st.floats(8, 300),
    cache=st.sampled_from(("auto", "fp8")),
)  # fmt: skip
def test_a_serving_fit_agrees_with_the_memory(name: str, size: float, cache: str) -> None:
    model = catalog.model(name)
    job = ServingJob(cache=cache, **SIZED)  # type: ignore[arg-type]
    fit = fit_serving(model, job, sized(size * GIB))
    memory = serving_memory(model, job, device_bytes=size * GIB)
    assert fit.cache_tokens == memory.cache_tokens
    assert fit.terms == memory.terms
    if fit.fits:
        assert memory.starts
    longest = next(x.value for x in fit.limits if x.name == "context of one request")
    if longest is not None:
        assert memory.sequences(longest) >= 1
        if longest != model.max_positions and longest < 1 << 24:
            assert memory.sequences(longest + 1) < 1
    for lever in fit.levers:
        assert lever.saves_bytes > 0
        assert lever.setting.startswith("serving.")
        assert lever.cost


@FIXED
@given(name=st.sampled_from(MODELS), engine=st.sampled_from(("vllm", "sglang", "tensorrt-llm")))
def test_more_memory_never_serves_less(name: str, engine: str) -> None:
    found = [serve(name, s * GIB, engine=engine, memory_fraction=0.9) for s in (6, 12, 24, 48, 96, 192)]
    ranks = [ORDER.index(f.verdict) for f in found]
    assert ranks == sorted(ranks)
    assert [f.cache_tokens for f in found] == sorted(f.cache_tokens or 0 for f in found)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_verdict_knows_what_its_engine_takes_a_fraction_of(engine: str) -> None:
    # TensorRT-LLM takes 90 % of what weights leave, and starts where weights fill more than 90 % of the device.
    model = catalog.model("llama-3.1-8b")
    given_numbers = {
        "weights_bytes": 74 * GIB,
        "non_torch_bytes": 0.5 * GIB,
        "activation_bytes": 0.5 * GIB,
        "graph_bytes": 0.0,
    }
    job = ServingJob(engine=engine, memory_fraction=0.9, **SIZED, **given_numbers)  # type: ignore[arg-type]
    memory = serving_memory(model, job, device_bytes=80 * GIB)
    fit = fit_serving(model, job, sized(80 * GIB))
    assert memory.starts == (engine == "tensorrt-llm")
    assert fit.fits == memory.starts


def test_traffic_sets_how_many_fit_at_once() -> None:
    short = serve("llama-3.1-8b", 80 * GIB, traffic=Traffic(input_tokens=100, output_tokens=100))
    long = serve("llama-3.1-8b", 80 * GIB, traffic=Traffic(input_tokens=1000, output_tokens=1000))
    assert short.concurrency is not None
    assert long.concurrency is not None
    # 200 tokens are 13 blocks of 16, 2000 are 125.
    assert short.concurrency / long.concurrency == pytest.approx(125 / 13)


@pytest.mark.parametrize(
    ("name", "changes", "device", "fits"),
    [
        ("llama-3.1-70b", {}, "h100-sxm", False),
        ("llama-3.1-70b", {"weights": "awq"}, "h100-sxm", True),
        ("llama-3.1-70b", {"tp": 4}, "h100-sxm", True),
        ("llama-3.1-8b", {}, "rtx-4090", True),
        ("gpt-oss-120b", {}, "h100-sxm", True),
        ("deepseek-v3", {"tp": 8}, "h100-sxm", False),
        ("deepseek-v3", {"tp": 8}, "h200-sxm", True),
    ],
)
def test_what_everyone_serves(name: str, changes: dict[str, Any], device: str, fits: bool) -> None:
    job = ServingJob(max_model_len=4096, max_batched_tokens=4096, max_sequences=64, **changes)
    assert fit_serving(catalog.model(name), job, catalog.device(device)).fits == fits
