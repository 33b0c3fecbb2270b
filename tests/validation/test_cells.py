"""Cells of published tables as people write them; what cannot be read is told."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrow.units import GB, GIB, MIB
from outgrow.validation import cells, kv, memory
from outgrow.validation.cells import Unanswerable

DATA = Path(__file__).parents[2] / "validation" / "data"
ROW = {
    "id": "r1", "source": "example.org/bench", "framework": "homegrown", "task": "full-ft", "mem_def": "GiB RESERVED",
    "model": "llama3-8b", "seq_len": "4096", "gpu": "H100 80GB", "gpus": "8", "dp": "8", "tp": "1", "pp": "1", "cp": "1",
    "zero_or_fsdp": "ZeRO-3", "micro_batch": "2", "global_batch": "16", "precision": "bf16", "recompute": "none",
    "optimizer": "AdamW", "peak_mem_gb": "60", "note": "",
}  # fmt: skip


def predicted(**changes: str) -> float:
    first = memory.predict_row(ROW | changes)[0]
    assert first.predicted is not None, first.reason
    return first.predicted


def reason(**changes: str) -> str:
    return memory.predict_row(ROW | changes)[0].reason


@pytest.mark.parametrize(
    ("column", "spellings"),
    [
        (
            "zero_or_fsdp",
            ("ZeRO-3", "zero3", "ZeRO 3", "DeepSpeed ZeRO stage 3", "fsdp", "FSDP2", "HSDP", "FULL_SHARD"),
        ),
        ("zero_or_fsdp", ("none", "DDP", "no", "None")),
        ("zero_or_fsdp", ("ZeRO-1 (distributed optimizer)", "zero1", "distributed optimizer")),
        ("recompute", ("full", "Full", "True", "yes", "on", "gradient checkpointing", "uniform")),
        ("recompute", ("none", "None", "false", "off", "no", "none (config default)")),
        ("task", ("full-ft", "Full", "SFT", "full fine-tuning", "finetune")),
        ("task", ("lora", "LoRA", "PEFT LoRA")),
        ("task", ("qlora", "QLoRA", "lora 4-bit")),
        ("optimizer", ("AdamW8bit", "adamw_8bit", "8-bit AdamW", "bnb adamw")),
        ("optimizer", ("AdamW", "Adam", "adamw_torch_fused")),
        ("precision", ("bf16", "bfloat16", "BF16 mixed")),
        ("precision", ("fp32", "float32", "FP32")),
        ("seq_len", ("4096", "4,096", "4k", " 4K ")),
    ],
)
def test_spellings_of_one_thing_mean_one_thing(column: str, spellings: tuple[str, ...]) -> None:
    assert len({predicted(**{column: text}) for text in spellings}) == 1


def test_what_differs_differs() -> None:
    assert predicted(recompute="full") < predicted(recompute="selective") < predicted(recompute="none")
    assert predicted(optimizer="SGD") < predicted(optimizer="Lion") < predicted(optimizer="AdamW")
    assert predicted(optimizer="AdamW8bit") < predicted(optimizer="AdamW")
    assert predicted(task="qlora") < predicted(task="lora") < predicted(task="full-ft")
    assert (
        predicted(zero_or_fsdp="ZeRO-3") < predicted(zero_or_fsdp="ZeRO-1") < predicted(zero_or_fsdp="none")
    )
    assert predicted(seq_len="2k") < predicted() < predicted(seq_len="8k")
    assert predicted(precision="bf16") < predicted(precision="fp32")
    assert (
        predicted(model="llama3-8b truncated to 8 layers")
        < predicted(model="llama3-8b truncated to 16 layers")
        < predicted()
    )
    assert predicted(zero_or_fsdp="ZeRO-3 + CPU offload") < predicted()


@pytest.mark.parametrize(
    ("column", "text", "told"),
    [
        ("task", "frobnicate", "task"), ("task", "", "task is not stated"), ("optimizer", "quux", "optimizer"),
        ("zero_or_fsdp", "magic", "zero_or_fsdp"), ("recompute", "perhaps", "recompute"), ("precision", "q17", "precision"),
        ("seq_len", "long", "seq_len"), ("gpus", "8x", "gpus"), ("gpus", "0", "gpus"), ("gpus", "7", "gpus 7"),
        ("tp", "3", "tp 3"), ("ep", "3", "ep 3"), ("layers", "40", "layers 40"), ("hidden", "2048", "hidden 2048"),
        ("peak_mem_gb", "~60", "peak_mem_gb"), ("peak_mem_gb", "-1", "peak_mem_gb"), ("peak_mem_gb", "nan", "peak_mem_gb"),
        ("peak_mem_gb", "60 GB", "peak_mem_gb"), ("model", "foo-7b", "foo-7b"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_and_counted(column: str, text: str, told: str) -> None:
    outcomes = memory.predict_row(ROW | {column: text})
    assert [o.quantity for o in outcomes] == ["reserved_bytes", "fits"]
    assert all(o.predicted is None and told in o.reason for o in outcomes)


def test_a_row_beats_its_recipe() -> None:
    peft = ROW | {
        "source": "huggingface/peft README.md",
        "gpus": "1",
        "dp": "1",
        "task": "lora",
        "zero_or_fsdp": "none",
        "seq_len": "",
        "global_batch": "",
    }

    def of(**changes: str) -> float:
        return memory.predict_row(peft | changes)[0].predicted or 0.0

    assert of(micro_batch="1") < of(micro_batch="8") == of(micro_batch="") < of(micro_batch="32")


def test_more_gpus_never_need_more_each() -> None:
    fms = ROW | {
        "source": "foundation-model-stack/fms-acceleration a100.csv",
        "task": "lora",
        "seq_len": "",
        "global_batch": "",
        "dp": "",
        "zero_or_fsdp": "FSDP",
    }
    sizes = [
        memory.predict_row(fms | {"gpus": str(n)})[0].predicted or 0.0
        for n in (2, 4, 8, 12, 16, 20, 32, 64, 128)
    ]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("definition", "quantity", "unit"),
    [
        ("GiB RESERVED", "reserved_bytes", GIB), ("gib reserved", "reserved_bytes", GIB), ("max_memory_reserved (GiB)", "reserved_bytes", GIB),
        ("GB = 2^30 reserved", "reserved_bytes", GIB), ("GB=1e9; max RESERVED", "reserved_bytes", GB), ("MiB allocated", "allocated_bytes", MIB),
        ("nvidia-smi GiB", "device_bytes", GIB), ("GPU memory used, GB", "device_bytes", GB), ("GiB peak ACTIVE", "allocated_bytes", GIB),
        ("bytes, max_memory_allocated", "allocated_bytes", 1.0),
        ("GB=1e9 peak torch ALLOCATED; nvidia-smi figure in note (gives the allocated->device gap)", "allocated_bytes", GB),
        ("max_memory_usage as logged (unit presumed GB; allocated vs reserved not stated in repo)", "reserved_bytes", GIB),
    ],
)  # fmt: skip
def test_definitions_name_what_was_measured_and_its_unit(definition: str, quantity: str, unit: float) -> None:
    assert cells.quantity(definition) == quantity
    assert cells.unit(definition) == unit


@given(st.dictionaries(st.sampled_from(sorted(ROW)), st.text(max_size=30), max_size=4))
def test_no_text_breaks_a_row(changes: dict[str, str]) -> None:
    for outcome in memory.predict_row(ROW | changes | {"id": "x"}):
        assert outcome.predicted is not None or outcome.reason


KV = {"id": "k1", "source": "s", "model": "Qwen2.5-7B", "gpu": "H100 80GB", "gpus": "1", "tp": "1", "engine": "vLLM 0.8.5", "kv_unit": "GPU blocks",
      "kv_blocks_or_tokens": "60000", "kv_gib_per_gpu": "52", "gpu_memory_utilization": "0.9", "note": ""}  # fmt: skip


@given(st.dictionaries(st.sampled_from(sorted(KV)), st.text(max_size=30), max_size=4))
def test_no_text_breaks_a_ledger(changes: dict[str, str]) -> None:
    for outcome in kv.predict_row(KV | changes | {"id": "x"}):
        assert outcome.predicted is not None or outcome.reason


@pytest.mark.parametrize(
    ("column", "text", "told"),
    [
        ("gpu_memory_utilization", "1.5", "share"), ("gpu_memory_utilization", "0.9.1", "share"), ("gpu_memory_utilization", ".", "share"),
        ("kv_unit", "GiB", "kv_unit"), ("engine", "llama.cpp", "engine"), ("kv_precision", "strange", "kv_precision"),
        ("weights_precision", "strange", "weights_precision"), ("tp", "3", "do not divide"), ("kv_blocks_or_tokens", "many", "kv_blocks"),
    ],
)  # fmt: skip
def test_a_ledger_that_cannot_be_read_is_told(column: str, text: str, told: str) -> None:
    outcomes = kv.predict_row(KV | {column: text})
    assert all(told in o.reason for o in outcomes if o.predicted is None)
    assert any(o.predicted is None and o.quantity in ("kv_capacity", "kv_bytes_per_token") for o in outcomes)


def test_shares_and_formats_of_ledgers() -> None:
    assert kv.share({"u": "90%"}, "u") == 0.9 == kv.share({"u": "0.9 (mem_fraction_static)"}, "u")
    assert kv.cache_of("INT8") == "fp8"
    assert kv.weights_of("GPTQ") == "gptq"
    assert kv.job_of(KV | {"gpus": "8", "tp": ""}, {}).tp == 8
    with pytest.raises(Unanswerable):
        kv.engine_of("TGI")


def test_every_published_row_can_be_read() -> None:
    with (DATA / "training.csv").open(encoding="utf-8", newline="") as file:
        rows = [{k: v.strip() for k, v in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        if row["peak_mem_gb"]:
            cells.task(row["task"]), cells.sharding(row["zero_or_fsdp"]), cells.recompute(row["recompute"])
            cells.optimizer(row["optimizer"]), cells.precision(row["precision"])


@pytest.mark.parametrize(
    "column",
    ["weights_gib_per_gpu", "activation_peak_gib", "non_torch_gib", "kv_gib_per_gpu", "gpu_total_gib"],
)
def test_a_term_of_a_ledger_that_cannot_be_read_is_told(column: str) -> None:
    printed = {"weights_gib_per_gpu": "14.3", "activation_peak_gib": "1.2", "non_torch_gib": "0.1"}
    outcomes = kv.predict_row(KV | printed | {column: "n/a"})
    assert any(column in o.reason and o.predicted is None for o in outcomes)
    if column == "non_torch_gib":  # the capacity from the inputs alone does not need it
        assert any(o.quantity == "kv_capacity" and o.predicted is not None for o in outcomes)
