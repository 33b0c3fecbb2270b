"""Models by name and by config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outgrow import catalog
from outgrow.errors import EXIT_MISSING, ConfigError, UnknownNameError
from outgrow.specfile import load_model
from outgrow.specfile.json_lines import scan


@pytest.fixture
def config() -> dict[str, Any]:
    return catalog.model_config("llama-3.1-8b")


def faults(error: ConfigError) -> list[str]:
    return [f"{p.file}:{p.line}: {p.path}: {p.message}" for p in error.problems]


def test_names_and_hub_ids() -> None:
    assert load_model("llama-3.1-8b", {}) == catalog.model("llama-3.1-8b")
    assert load_model("meta-llama/Llama-3.1-8B").name == "llama-3.1-8b"
    loose = load_model("llama-3.1-8b-instruct")
    assert loose.parameters == catalog.model("llama-3.1-8b").parameters


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_model("lama-3.1-8b")
    assert caught.value.exit_code == EXIT_MISSING
    assert "did you mean llama-3.1-8b" in caught.value.hint
    assert "give the path of its config.json" in caught.value.hint
    with pytest.raises(UnknownNameError, match=r"give the path of its config\.json"):
        load_model("somebody/zzzzzzzz")


def test_files_and_folders(tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "other.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(config).encode())
    monkeypatch.chdir(tmp_path)
    expected = catalog.model("llama-3.1-8b").parameters
    for ref in (str(folder), "my-model", "./my-model", "my-model/config.json", "other.json"):
        assert load_model(ref).parameters == expected
    assert load_model("my-model").name == "my-model"
    assert load_model("other.json").name == "other"
    assert load_model("my-model").source == "my-model/config.json"


def test_what_is_on_the_disk_wins(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "llama-3.1-8b"
    folder.mkdir()
    assert load_model("llama-3.1-8b") == catalog.model("llama-3.1-8b")  # no config.json in it
    config["num_hidden_layers"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    assert len(load_model("llama-3.1-8b").layers) == 2
    assert load_model("llama-3.1-8b", files=False) == catalog.model("llama-3.1-8b")


@pytest.mark.parametrize("ref", ["", "  ", "x" * 10_000])
def test_no_name(ref: str) -> None:
    with pytest.raises(ConfigError, match="names no model"):
        load_model(ref)


@pytest.mark.parametrize(
    "ref", ["./missing", "missing.json", "/no/such", "~nobody-of-this-name/x", "./a\0b", "/dev/zero"]
)
def test_paths_that_lead_nowhere(ref: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_model(ref)
    assert len(caught.value.problems) == 1


def test_nothing_on_the_disk_is_touched() -> None:
    with pytest.raises(UnknownNameError):
        load_model("./missing", files=False)


# -- overrides


def test_overrides(tmp_path: Path, config: dict[str, Any]) -> None:
    assert len(load_model("llama-3.1-8b", {"num_hidden_layers": 40}).layers) == 40
    before = json.dumps(catalog.model_config("llama-3.1-8b"))
    load_model("llama-3.1-8b", {"hidden_size": 8192})
    assert json.dumps(catalog.model_config("llama-3.1-8b")) == before
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"like": "llama", **config}))
    assert len(load_model(str(path), {"num_hidden_layers": 3, "tie_word_embeddings": True}).layers) == 3


def test_an_override_of_a_key_of_the_file_that_memory_does_not_read(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "rope_theta": 1e4, "rope_scaling": {"factor": 8}}))
    overrides = {"rope_theta": 1e6, "rope_scaling.factor": 4}
    assert load_model(str(path), overrides).parameters == load_model(str(path)).parameters


def test_faults_of_overrides() -> None:
    with pytest.raises(ConfigError) as caught:
        load_model("llama-3.1-8b", {"num_hiden_layers": 3, "zzz.y": 1})
    assert faults(caught.value) == [
        "--set:None: model.num_hiden_layers: would change nothing: this architecture has no such key",
        "--set:None: model.zzz.y: would change nothing: this architecture has no such key",
    ]
    assert "did you mean num_hidden_layers" in caught.value.problems[0].hint
    with pytest.raises(ConfigError) as caught:
        load_model("llama-3.1-8b", {"num_hidden_layers": "many"})
    assert faults(caught.value) == ["--set:None: model.num_hidden_layers: must be a whole number"]
    with pytest.raises(ConfigError, match="hidden_size is not a mapping"):
        load_model("llama-3.1-8b", {"hidden_size.x": 3})


# -- lines


def test_faults_have_lines(tmp_path: Path, config: dict[str, Any]) -> None:
    config.update(hidden_size="4096", vocab_size=[1])
    path = tmp_path / "config.json"
    text = json.dumps(config, indent=2)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_model(str(path))
    lines = text.split("\n")
    found = {problem.path: problem for problem in caught.value.problems}
    for key in ("hidden_size", "vocab_size"):
        assert found[key].file == str(path)
        assert f'"{key}"' in lines[(found[key].line or 0) - 1]


def test_a_missing_key_has_no_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n"hidden_size": 64}')
    with pytest.raises(ConfigError) as caught:
        load_model(str(path))
    assert faults(caught.value) == [
        f"{path}:None: model_type: is missing; understood so far: hidden_size = 64"
    ]


def test_lines_of_nested_things() -> None:
    text = '{\n "a": {\n  "b": [1,\n   {"c": "x\\"y,:{"}]},\n "d": "\\u0041", "e": []}\n'
    lines = scan(text, file="f").lines
    assert lines == {"": 1, "a": 2, "a.b": 3, "a.b.0": 3, "a.b.1": 4, "a.b.1.c": 4, "d": 5, "e": 5}


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (8 * 1024**2 + 1))
    with pytest.raises(ConfigError, match="larger than 8 MiB"):
        load_model(str(path))


def test_very_deep(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a":' * 200_000)
    with pytest.raises(ConfigError, match="nested more than 50 deep"):
        load_model(str(path))
