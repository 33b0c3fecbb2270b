"""Python and the command line are two doors to the same rooms."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import outgrow
from cli.calls import ROOT, fresh
from outgrow.errors import InputError, OutgrowError, UnknownNameError
from outgrow.report.result import Result
from report.test_documents import KV

SFT = "examples/sft-70b.yaml"
CHAT = "examples/chat-8b.yaml"

DOORS: dict[str, tuple[Callable[[], Result[object]], str]] = {
    "fit": (lambda: outgrow.fit("llama-3.1-8b", on="h100-sxm"), "fit llama-3.1-8b --on h100-sxm"),
    "fit a job": (lambda: outgrow.fit("qwen3-8b", on="2xl40s", job="lora"), "fit qwen3-8b --on 2xl40s --for lora"),
    "fit with settings": (
        lambda: outgrow.fit("qwen3-8b", on="h100-sxm", job="training", overrides=["training.sequence_length=8192", "layout.recompute=full"]),
        "fit qwen3-8b --on h100-sxm --for training --set training.sequence_length=8192 --set layout.recompute=full",
    ),
    "fit a file": (lambda: outgrow.fit(SFT, on="examples/cluster-hgx.yaml"), f"fit {SFT} --on examples/cluster-hgx.yaml"),
    "decide": (lambda: outgrow.decide(CHAT), f"decide {CHAT}"),
    "decide on": (lambda: outgrow.decide(SFT, on="h200-sxm", overrides=["budget.deadline=2days"]), f"decide {SFT} --on h200-sxm --set budget.deadline=2days"),
    "decide a name": (lambda: outgrow.decide("qwen3-32b", job="qlora"), "decide qwen3-32b --for qlora"),
    "table": (outgrow.memory_table, "fit --table"),
    "table of one": (lambda: outgrow.memory_table(["qwen3-8b"], on="mi300x"), "fit qwen3-8b --table --on mi300x"),
    "show": (lambda: outgrow.show("mixtral-8x7b"), "catalog show mixtral-8x7b"),
    "show a device": (lambda: outgrow.show("h100-sxm"), "catalog show h100-sxm"),
    "explain": (lambda: outgrow.explain("mfu"), "explain mfu"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", DOORS)
def test_both_doors_give_the_same(name: str) -> None:
    call, argv = DOORS[name]
    result = call()
    answer = fresh(*argv.split(), "--json")
    assert answer.code == 0, answer.err
    assert result.to_dict() == answer.document
    assert str(result) == fresh(*argv.split()).out


def test_validate_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(KV, encoding="utf-8")
    assert (
        outgrow.validate("kv", path, by="gpu").to_dict()
        == fresh("validate", "kv", str(path), "--by", "gpu", "--json").document
    )


def test_paths_may_be_paths(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(KV, encoding="utf-8")
    assert outgrow.validate("kv", str(path)).to_dict() == outgrow.validate("kv", path).to_dict()  # type: ignore[arg-type]
    assert outgrow.fit(Path(SFT), on="hgx-h100").to_dict() == outgrow.fit(SFT, on="hgx-h100").to_dict()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DOORS)
def test_the_views_of_a_result(name: str) -> None:
    result = DOORS[name][0]()
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
    assert len(result.inputs_sha256) == 64
    html = result._repr_html_()
    assert html.startswith("<div")
    shown = io.StringIO()
    Console(file=shown, width=80, color_system=None).print(result)
    assert [line.rstrip() for line in shown.getvalue().rstrip().splitlines()] == str(
        result
    ).rstrip().splitlines()
    coloured = io.StringIO()
    Console(file=coloured, width=80, force_terminal=True, color_system="truecolor").print(result)
    assert "\x1b[" in coloured.getvalue()


def frozen(value: object, path: str, seen: set[int]) -> list[str]:
    """Paths of what could be changed in place, below a value."""
    if id(value) in seen or value is None or isinstance(value, str | int | float | bool | bytes):
        return []
    seen.add(id(value))
    found: list[str] = []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if not type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            found.append(f"{path}: {type(value).__name__} is not frozen")
        for field in dataclasses.fields(value):
            found += frozen(getattr(value, field.name), f"{path}.{field.name}", seen)
    elif isinstance(value, tuple | frozenset):
        for index, item in enumerate(value):
            found += frozen(item, f"{path}[{index}]", seen)
    elif isinstance(value, list | set | dict | bytearray):
        found.append(f"{path}: a {type(value).__name__}")
    return found


@pytest.mark.parametrize("name", DOORS)
def test_values_are_frozen(name: str) -> None:
    result = DOORS[name][0]()
    assert frozen(result.value, "value", set()) == []
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.kind = "other"  # type: ignore[misc]
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        result.anything = 1  # type: ignore[attr-defined]


def test_a_document_is_a_copy() -> None:
    result = outgrow.fit("llama-3.1-8b", on="h100-sxm")
    first = result.to_dict()
    first["result"].clear()
    first["assumed"].clear()
    assert result.to_dict()["result"]
    assert result.to_dict()["assumed"]


def test_the_error_tree() -> None:
    with pytest.raises(UnknownNameError, match="did you mean") as unknown:
        outgrow.fit("lama-3.1-8b", on="h100-sxm")
    assert unknown.value.exit_code == 3
    with pytest.raises(InputError) as wrong:
        outgrow.fit("llama-3.1-8b", on="h100-sxm", overrides=["serving.tp=two", "serving.nope=1"])
    assert wrong.value.exit_code == 2
    assert [p.path for p in wrong.value.problems] == ["serving.tp", "serving.nope"]
    assert isinstance(unknown.value, OutgrowError)
    with pytest.raises(OutgrowError):
        outgrow.validate("weather", Path("x.csv"))
    with pytest.raises(OutgrowError):
        outgrow.fit("llama-3.1-8b", on="h100-sxm", job="cooking")  # type: ignore[arg-type]


def test_the_docstring_of_the_package_is_true() -> None:
    import doctest

    assert doctest.testmod(outgrow).failed == 0


def test_faults_of_the_workload_and_of_the_target_are_told_together() -> None:
    with pytest.raises(OutgrowError) as found:
        outgrow.fit("lama-3.1-8", on="h10")
    assert "llama-3.1-8b" in str(found.value)
    assert "h100-sxm" in str(found.value)
    assert len(found.value.problems) == 2


def test_a_room_and_an_operation_do_not_share_a_name() -> None:
    """`outgrow.decide` must stay an operation whatever has been imported."""
    package = Path(outgrow.__file__).parent
    rooms = {
        p.stem for p in package.iterdir() if (p.suffix == ".py" or p.is_dir()) and not p.name.startswith("_")
    }
    assert rooms.isdisjoint(outgrow.__all__)


def test_a_cluster_file_in_the_place_of_a_workload_is_told() -> None:
    with pytest.raises(InputError, match="describes a cluster") as found:
        outgrow.fit("examples/cluster-hgx.yaml", on="h100-sxm")
    assert "--on" in found.value.hint
