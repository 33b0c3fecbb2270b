"""Workload files: what is read, in which spellings, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from outgrow.errors import EXIT_INPUT, OutgrowError, SpecError
from outgrow.physics.memory.parameters import LORA_ALIASES
from outgrow.specfile import json_schema, load_cluster, load_model, load_workload
from outgrow.specfile.fields import LORA_TARGETS, slots_of, spellings_of
from outgrow.specfile.nodes import read_nodes
from outgrow.specfile.tree import blocks_of
from outgrow.workload.limits import BOUNDS
from outgrow.workload.training import Optimizer
from outgrow.workload.workload import Workload

ROOT = Path(__file__).parent.parent
BROKEN = Path(__file__).parent / "data" / "broken"
# The parser in Python words these faults in its own way, or finds them elsewhere.
SYNTAX = {"malformed.yaml", "tab.yaml", "truncated.yaml"}


def load(text: str, *overrides: str) -> Workload:
    return load_workload(None, text, overrides=overrides).workload


def faults(text: str, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text, *overrides)
    assert caught.value.exit_code == EXIT_INPUT
    return [f"{p.line or p.file}: {p.path}: {p.message}" for p in caught.value.problems]


TRAINING = "model: llama-3.1-8b\ntraining:\n"
SERVING = "model: llama-3.1-8b\nserving:\n"


# -- examples


@pytest.mark.parametrize("name", ["sft-70b", "chat-8b", "qlora-70b"])
def test_examples_load(name: str) -> None:
    loaded = load_workload(ROOT / "examples" / f"{name}.yaml")
    assert load_model(loaded.workload.model).parameters > 1e9


def test_example_values() -> None:
    sft = load_workload(ROOT / "examples" / "sft-70b.yaml").workload
    assert sft.training is not None
    assert sft.training.tokens == 1e9
    assert sft.budget.deadline_seconds == 5 * 86400
    assert sft.growth.tokens == 3
    chat = load_workload(ROOT / "examples" / "chat-8b.yaml").workload
    assert chat.serving is not None
    assert chat.serving.traffic is not None
    assert chat.serving.traffic.requests_per_second == 6
    assert (chat.serving.targets.ttft_seconds, chat.serving.targets.tpot_seconds) == (0.5, 0.04)
    assert chat.availability.target == 0.999
    assert chat.growth.traffic == 4


def test_every_example_is_tested() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    assert names >= {"sft-70b", "chat-8b", "qlora-70b", "cluster-hgx"}


# -- spellings


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("tokens: 15T", "training.tokens", 15e12),
        ("tokens: 1_000_000", "training.tokens", 1e6),
        ("tokens: 1e9", "training.tokens", 1e9),
        ("tokens: null", "training.tokens", None),
        ("tokens:", "training.tokens", None),
        ("global_batch: 1e3", "training.global_batch", 1000),
        ("global_batch: 0x10", "training.global_batch", 16),
        ("global_batch: 8.0", "training.global_batch", 8),
        ("base: 4bit", "training.base", "awq"),
        ("base: NF4", "training.base", "nf4"),
        ("offload: [optimizer]", "training.offload", ("optimizer",)),
        ("lora: {parameters: 20M}", "training.lora.parameters", 20_000_000),
        ("lora: {dropout: 5%}", "training.lora.dropout", 0.05),
        ("ema: true", "training.ema", True),
    ],
)
def test_training_spellings(line: str, path: str, value: object) -> None:
    found: Any = load(f"{TRAINING}  {line}\n")
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value) or isinstance(value, float)


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("budget: {deadline: 36h}", "budget.deadline_seconds", 36 * 3600),
        ("budget: {deadline_seconds: 5 days}", "budget.deadline_seconds", 432000),
        ("budget: {deadline_seconds: 60}", "budget.deadline_seconds", 60),
        ("availability: {target: 99.9%}", "availability.target", 0.999),
        ("availability: {reload: 5 min}", "availability.reload_seconds", 300),
        ("growth: {traffic: 4x}", "growth.traffic", 4),
        ("growth: {traffic: 4 x}", "growth.traffic", 4),
        ("growth:", "growth.traffic", 1),
        ("serving: {weights_bytes: 14.9 GiB}", "serving.weights_bytes", round(14.9 * 1024**3)),
        ("serving: {activation: 1 GB}", "serving.activation_bytes", 10**9),
        ("sensitivity: {regions: [no, NO, on]}", "sensitivity.regions", ("no", "NO", "on")),
        ("sensitivity: {regions: [~x, 2024-01-01]}", "sensitivity.regions", ("~x", "2024-01-01")),
        ('serving: {engine_version: "0.11"}', "serving.engine_version", "0.11"),
        ("serving: {engine_version: 0.11.0}", "serving.engine_version", "0.11.0"),
        ("serving: {engine_version: !!str 0.11}", "serving.engine_version", "0.11"),
        ("layout: {stage_layers: [3, 5]}", "layout.stage_layers", (3, 5)),
    ],
)  # fmt: skip
def test_other_spellings(line: str, path: str, value: object) -> None:
    text = f"model: llama-3.1-8b\n{line}\n" + ("" if line.startswith("serving") else "serving:\n")
    found: Any = load(text)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_aliases_of_yaml_are_values_of_their_own() -> None:
    text = "model: m\nserving:\nsharing:\n  - &a {name: a, gpus: 2}\n  - *a\n"
    workload = load(text, "sharing.1.name=b", "sharing.1.gpus=3")
    assert [(t.name, t.gpus) for t in workload.sharing] == [("a", 2), ("b", 3)]


def test_byte_order_mark_and_windows_lines() -> None:
    assert load("\ufeffmodel: m\r\nserving:\r\n  tp: 2\r\n").model == "m"


def test_empty_block_is_a_block_of_defaults() -> None:
    assert load("model: m\ntraining:\n").training is not None
    assert load("model: m\ntraining: {}\n").training is not None
    assert load("model: m\ntraining: null\nserving: {}\n").training is None


# -- overrides


def test_overrides() -> None:
    loaded = load_workload(
        None,
        f"{TRAINING}  global_batch: 8\nbudget: {{deadline: 5 days}}\n",
        overrides=[
            "training.global_batch=1024",
            "training.lora.rank=8",
            "training.lora.targets=[q, v]",
            "budget.deadline_seconds=36h",
            "growth.traffic=4x",
            "model.num_hidden_layers=40",
            "model.text_config.hidden_size = 64",
            "model=llama-3.1-70b",
        ],
    )
    workload = loaded.workload
    assert workload.training is not None
    assert workload.training.global_batch == 1024
    assert (workload.training.lora.rank, workload.training.lora.targets) == (8, ("q", "v"))
    assert workload.budget.deadline_seconds == 36 * 3600
    assert workload.growth.traffic == 4
    assert workload.model == "llama-3.1-70b"
    assert loaded.model_overrides == {"num_hidden_layers": 40, "text_config.hidden_size": 64}


def test_overrides_alone_make_a_workload() -> None:
    loaded = load_workload(None, overrides=["model=llama-3.1-8b", "serving.tp=2"])
    assert loaded.workload.serving is not None
    assert loaded.workload.serving.tp == 2
    with pytest.raises(SpecError, match="model: is missing"):
        load_workload(None)


def test_later_overrides_win() -> None:
    workload = load(SERVING, "serving.tp=2", "serving.tp=4")
    assert workload.serving is not None
    assert workload.serving.tp == 4


def test_faults_of_overrides_and_file_together() -> None:
    assert faults(
        f"{TRAINING}  optimizer: adam\n",
        "training.global_bach=3",
        "training",
        "=3",
        "training..x=3",
        "training.optimizer.x=3",
        "budget.deadline=5 dayz",
        "sharing.0.name=a",
        "x" * 100_000 + "=1",
    ) == [
        f"3: training.optimizer: must be one of {', '.join(get_args(Optimizer))}",
        "--set: training: must be path=value",
        "--set: '': must be path=value",
        "--set: training..x: must be path=value",
        "--set: training.optimizer: is a single value, so that x cannot be set in it",
        "--set: " + "x" * 64 + "…: is too long",
        "--set: budget.deadline: unknown time unit 'dayz'; use ms, s, min, h or days",
        "--set: sharing: must be a list, and is a mapping",
        "--set: training.global_bach: is not a key of training",
    ]


def test_an_override_that_is_not_yaml() -> None:
    (fault,) = faults(TRAINING, "training.tokens=[1")
    assert fault.startswith("--set: training.tokens: is not YAML: ")


# -- what is told


def test_assumed_defaults() -> None:
    loaded = load_workload(None, f"{TRAINING}  method: lora\n  base: 8bit\n  global_batch: 4\n")
    assert {a.name: a.value for a in loaded.assumed} == {
        "training.sequence_length": "4096",
        "training.precision": "mixed",
        "training.optimizer": "adamw",
        "training.lora.rank": "16",
        "training.lora.targets": "[q, k, v, o]",
        "training.base": "int8",
    }
    loaded = load_workload(None, f"{SERVING}  traffic: {{requests_per_second: 1, input_tokens: 8}}\n")
    assert {a.name for a in loaded.assumed} == {
        "serving.engine",
        "serving.cache",
        "serving.traffic.output_tokens",
        "serving.traffic.peak_factor",
        "serving.traffic.arrivals",
    }


def test_path_of_a_model_counts_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("model: ./here\nserving:\n")
    assert load_workload(tmp_path / "w.yaml").workload.model == str(tmp_path / "here")
    assert load_workload(tmp_path / "w.yaml", overrides=["model=./there"]).workload.model == "./there"
    assert load_workload(Path("w.yaml"), "model: ./here\nserving:\n").workload.model == "./here"
    assert load_workload(tmp_path / "w.yaml", "model: /abs.json\nserving:\n").workload.model == "/abs.json"
    assert load_workload(tmp_path / "w.yaml", "model: owner/name\nserving:\n").workload.model == "owner/name"


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.yaml", Path("/dev/zero"), Path("a\0b"), Path("x" * 5000)):
        with pytest.raises(SpecError) as caught:
            load_workload(path)
        assert len(caught.value.problems) == 1
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (1024**2 + 1))
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        load_workload(big)


def test_lone_surrogate() -> None:
    assert faults("model: \ud800\n") == ["1: : holds half a character (a lone surrogate)"]


@pytest.mark.parametrize("value", ["''", '"  "'])
def test_model_without_a_name(value: str) -> None:
    assert faults(f"model: {value}\nserving:\n") == ["1: model: is empty"]


def test_bounds_have_lines() -> None:
    assert faults(f"{SERVING}  tp: 0\n  traffic:\n    peak_factor: 0.5\n") == [
        "3: serving.tp: must be between 1 and 1e+06",
        "5: serving.traffic.peak_factor: must be between 1 and 10000",
    ]


# -- broken files


def load_any(path: Path) -> object:
    if path.suffix == ".json":
        return load_model(str(path))
    return load_cluster(path) if path.name.startswith("cluster") else load_workload(path)


@pytest.mark.parametrize("name", sorted(p.name for p in BROKEN.iterdir() if p.suffix != ".txt"))
def test_broken_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in SYNTAX and not yaml.__with_libyaml__:
        pytest.skip("the parser in Python words it differently")
    monkeypatch.chdir(BROKEN)
    path = Path(name)
    with pytest.raises(OutgrowError) as caught:
        load_any(path)
    error = caught.value
    found = f"{type(error).__name__} (exit {error.exit_code})\n{error}\n"
    assert found == Path(f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(p.name for p in BROKEN.glob("*.yaml")))
def test_broken_files_with_the_parser_in_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outgrow.specfile.nodes._LOADER", yaml.SafeLoader)
    with pytest.raises(SpecError):
        load_any(BROKEN / name)


# -- the tables agree with the core


def test_lora_targets_are_those_of_the_memory_model() -> None:
    assert set(LORA_ALIASES) <= set(LORA_TARGETS)


def test_no_spelling_hides_a_key() -> None:
    for _, block in blocks_of(Workload):
        assert not set(spellings_of(block)) & set(slots_of(block))


def test_nodes_know_lines() -> None:
    root, problems = read_nodes("a:\n  b: [1,\n    2]\nc: x\n", file="f")
    assert root is not None
    assert not problems
    assert root.plain() == {"a": {"b": [1, 2]}, "c": "x"}
    assert root.entries["a"].entries["b"].items[1].line == 3
    assert root.entries["c"].line == 4


# -- schema


def test_schema_of_workloads() -> None:
    schema = json_schema("workload")
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for name, table in schema["$defs"].items():
        assert table["additionalProperties"] is False, name
        assert table["description"], name
    budget = schema["$defs"]["Budget"]["properties"]
    assert budget["deadline_seconds"]["description"] == "Longest acceptable time of one training run."
    assert {"deadline", "deadline_seconds"} <= set(budget)
    job = schema["$defs"]["TrainingJob"]["properties"]
    assert "mixed" in job["precision"]["enum"]
    assert job["global_batch"]["maximum"] == BOUNDS["global_batch"][1]
    assert job["tokens"]["anyOf"][-1]["type"] == "string"


def test_schema_of_clusters() -> None:
    schema = json_schema("cluster")
    assert set(schema["properties"]) == {
        "node",
        "nodes",
        "device",
        "gpus",
        "fabric",
        "nics",
        "region",
        "tenancy",
    }
    assert all("description" in entry for entry in schema["properties"].values())


def test_schemas_are_new_each_time() -> None:
    json_schema("workload")["$defs"].clear()
    assert json_schema("workload")["$defs"]
