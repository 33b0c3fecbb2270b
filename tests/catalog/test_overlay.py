"""A user's own folder wins, says so, and is checked as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from outgrow import catalog
from outgrow.errors import InputError, UnknownNameError

DEVICE = """
name = "{name}"
title = "Mine"
vendor = "nvidia"
aliases = ["my-card"]
compute_capability = "9.0"
[figures]
memory = {{ value = 80, unit = "GiB", kind = "datasheet", source = "me" }}
memory_bandwidth = {{ value = 1, unit = "TB/s", kind = "measured", source = "me", note = "copy" }}
[peaks]
bf16 = {{ value = 500, unit = "TFLOP/s", kind = "measured", source = "me", low = 400 }}
[sources]
me = {{ ref = "my own bench", date = "2026-01" }}
"""


@pytest.fixture(autouse=True)
def _packaged_again() -> Iterator[None]:
    yield
    catalog.use_overlay(None)


def put(folder: Path, place: str, text: str) -> Path:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_an_overlay_entry_wins_and_says_so(tmp_path: Path) -> None:
    put(tmp_path, "devices/h100-sxm.toml", DEVICE.format(name="h100-sxm"))
    put(tmp_path, "README.md", "mine")
    assert catalog.device("h100").memory_bandwidth.value == 3.35e12
    catalog.use_overlay(tmp_path)
    device = catalog.device("my-card")
    assert device is catalog.device("h100-sxm")
    assert device.overlay
    assert catalog.is_overlay("device", "h100-sxm")
    assert device.memory_bandwidth.value == 1e12
    assert device.memory_bandwidth.source == "my own bench"
    assert device.peaks.bf16 is not None
    assert device.peaks.bf16.low == 4e14
    assert catalog.target("hgx-h100").overlay
    assert not catalog.target("hgx-h200").overlay
    catalog.use_overlay(None)
    assert not catalog.device("h100-sxm").overlay


def test_an_overlay_adds(tmp_path: Path) -> None:
    put(tmp_path, "devices/new-card.toml", DEVICE.format(name="new-card"))
    put(
        tmp_path,
        "models/my-model.json",
        json.dumps({"name": "my-model", "aliases": ["mm"], "config": {"a": 1}}),
    )
    catalog.use_overlay(tmp_path)
    assert "new-card" in catalog.names("device")
    assert "h100-sxm" in catalog.names("device")
    assert catalog.model_config("mm") == {"a": 1}
    catalog.model_config("mm")["a"] = 2
    assert catalog.model_config("mm") == {"a": 1}
    catalog.use_overlay(None)
    with pytest.raises(UnknownNameError):
        catalog.device("new-card")


def test_all_faults_of_all_files_are_listed_with_file_and_path(tmp_path: Path) -> None:
    broken = (
        DEVICE.format(name="other")
        .replace('vendor = "nvidia"', 'vendor = "nvida"\ncolour = "red"\nmig_slices = -1')
        .replace("value = 80", 'value = "80"')
        .replace('unit = "TB/s"', 'unit = "TB"')
        .replace("low = 400", "low = 600")
        .replace('kind = "measured", source = "me", note', 'kind = "guessed", source = "you", note')
    )
    file = put(tmp_path, "devices/bad.toml", broken)
    put(tmp_path, "devices/worse.toml", "name = [")
    put(
        tmp_path,
        "nodes/lost.toml",
        'name = "lost"\ntitle = "L"\ndevice = "h100-smx"\ngpus = 8\nlink_fabric = "nvlink-9"\n'
        '[sources]\na = { ref = "b" }',
    )
    put(tmp_path, "models/m.json", "[1]")
    put(tmp_path, "device/typo.toml", "")
    put(tmp_path, "devices/No.TXT", "")
    before = catalog.names("device")
    with pytest.raises(InputError) as error:
        catalog.use_overlay(tmp_path)
    found = {(Path(p.file).name, p.path) for p in error.value.problems}
    assert found >= {
        ("bad.toml", "name"),
        ("bad.toml", "vendor"),
        ("bad.toml", "colour"),
        ("bad.toml", "mig_slices"),
        ("bad.toml", "figures.memory.value"),
        ("bad.toml", "figures.memory_bandwidth.unit"),
        ("bad.toml", "figures.memory_bandwidth.kind"),
        ("bad.toml", "figures.memory_bandwidth.source"),
        ("bad.toml", "peaks.bf16.value"),
        ("worse.toml", ""),
        ("lost.toml", "device"),
        ("lost.toml", "link_fabric"),
        ("m.json", ""),
        ("device", ""),
        ("No.TXT", ""),
    }
    assert any("did you mean nvidia?" in p.hint for p in error.value.problems)
    assert any("h100-sxm" in p.hint for p in error.value.problems)
    assert str(file) in str(error.value)
    assert catalog.names("device") == before


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("value = 80", "value = -80", "figures.memory.value"),
        ("value = 80", "value = inf", "figures.memory.value"),
        ("value = 80", "value = true", "figures.memory.value"),
        ("value = 80, ", "", "figures.memory.value"),
        ("value = 80, ", "value = 80, extra = 1, ", "figures.memory.extra"),
        ('title = "Mine"', "", "title"),
        ('compute_capability = "9.0"', "", "compute_capability"),
        ('compute_capability = "9.0"', 'compute_capability = "nine"', "compute_capability"),
        ('aliases = ["my-card"]', 'aliases = "my-card"', "aliases"),
        ("bf16 =", "bf61 =", "peaks.bf61"),
        ('me = { ref = "my own bench", date = "2026-01" }', "", "sources"),
        ("memory = {", "memroy = {", "figures.memroy"),
        ("[figures]", "link_domain = 2.5\n[figures]", "link_domain"),
        ("[figures]", "unified_memory = 1\n[figures]", "unified_memory"),
        ("[figures]", 'link_fabric = "NV Link"\n[figures]', "link_fabric"),
    ],
)
def test_single_faults(tmp_path: Path, old: str, new: str, path: str) -> None:
    text = DEVICE.format(name="bad")
    assert old in text
    put(tmp_path, "devices/bad.toml", text.replace(old, new))
    with pytest.raises(InputError) as error:
        catalog.use_overlay(tmp_path)
    assert path in [p.path for p in error.value.problems]


def test_an_overlay_that_is_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        catalog.use_overlay(tmp_path / "nowhere")


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "devices/big.toml", "#" * 4_100_000)
    with pytest.raises(InputError, match="at most"):
        catalog.use_overlay(tmp_path)
