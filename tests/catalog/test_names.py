"""Names as people type them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.catalog.lookup import Index, model_key
from outgrow.errors import EXIT_INPUT, EXIT_MISSING, InputError, OutgrowError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100-sxm", "h100-sxm"),
        ("H100_SXM", "h100-sxm"),
        ("h100 sxm5 80gb", "h100-sxm"),
        ("H100SXM5", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100-SXM5-80GB", "h100-sxm"),
        ("h100-80g", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("a100-80g", "a100-sxm-80gb"),
        ("a100-40g", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("rtx4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("rtx4090-24g", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("l4", "l4"),
        ("a800-80g", "a800-sxm-80gb"),
        ("NVIDIA H200", "h200-sxm"),
        ("Tesla T4", "t4"),
        ("v100-32g", "v100-sxm2-32gb"),
        ("AMD Instinct MI300X 192GB HBM3", "mi300x"),
        ("B300 SXM6 AC", "b300-sxm"),
        ("gh200-96g", "gh200-96gb"),
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("H100 96GB HBM2e 500W", "h100-96gb-hbm2e"),
        ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "b200-sxm"),
        ("titanrtx-24g", "titan-rtx"),
        ("GB10 (DGX Spark)", "gb10"),
    ],
)
def test_spellings(text: str, name: str) -> None:
    assert catalog.device(text).name == name


@pytest.mark.parametrize("kind", ["device", "node", "fabric"])
def test_every_name_and_alias_means_its_own_entry(kind: str) -> None:
    get = {"device": catalog.device, "node": catalog.node, "fabric": catalog.fabric}[kind]
    for name in catalog.names(kind):
        entry = get(name)
        for alias in (name, name.upper(), name.replace("-", " "), *entry.aliases):
            assert get(alias).name == name, alias


def test_a_loose_name_says_how_it_was_read() -> None:
    assert catalog.explain_name("device", "h100") == "h100 read as NVIDIA H100 SXM5 80 GB"
    assert catalog.explain_name("device", "a100") == "a100 read as NVIDIA A100 SXM4 80 GB"
    assert catalog.explain_name("device", "h100-80gb") is not None
    assert catalog.explain_name("device", "h100-sxm") is None
    assert catalog.explain_name("devices", "NVIDIA H100 80GB HBM3") is None
    with pytest.raises(UnknownNameError):
        catalog.explain_name("device", "zzz")


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        ("rtx 6000", ["rtx-6000-ada", "quadro-rtx-6000", "rtx-pro-6000"]),
        ("v100", ["v100-sxm2-16gb", "v100-sxm2-32gb"]),
    ],
)
def test_an_ambiguous_name_lists_its_meanings(text: str, meanings: list[str]) -> None:
    with pytest.raises(InputError) as error:
        catalog.device(text)
    assert error.value.exit_code == EXIT_INPUT
    assert all(meaning in error.value.hint for meaning in meanings)


@pytest.mark.parametrize(
    ("text", "near"), [("h10-sxm", "h100-sxm"), ("a100-smx-80gb", "a100-sxm-80gb"), ("rtx-4009", "rtx-4090")]
)
def test_did_you_mean(text: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        catalog.device(text)
    assert error.value.exit_code == EXIT_MISSING
    assert "did you mean" in error.value.hint
    assert near in error.value.hint


def test_nothing_near_says_where_to_look() -> None:
    with pytest.raises(UnknownNameError) as error:
        catalog.node("qqqqqqqqqqqqqqqqqqqqqqq")
    assert "list nodes" in error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "../../../etc/passwd",
        "..",
        "/etc/passwd",
        "h100-sxm.toml",
        "h100-sxm/../t4",
        "",
        "\x00",
        "x" * 100_000,
    ],
)
def test_no_name_reaches_outside_of_the_catalogue(text: str) -> None:
    with pytest.raises(OutgrowError):
        catalog.device(text)


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(UnknownNameError):
        catalog.names("gadgets")


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["device", "node", "fabric", "model"]))
def test_any_text_is_an_answer_or_an_outgrow_error(text: str, kind: str) -> None:
    with suppress(OutgrowError):
        catalog.explain_name(kind, text)
    catalog.search(text, kind)


def test_every_model_name_and_alias_means_its_own_model() -> None:
    for name in catalog.names("model"):
        entry = catalog.model_entry(name)
        for alias in (name, name.upper(), *entry.get("aliases", []), entry["hub_id"] or name):
            assert catalog.model_entry(alias)["name"] == name, alias


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("facebook/opt-1.3b", "opt1_3b"),
        ("OPT 13B", "opt13b"),
        ("a_b_1_2", "ab1_2"),
        ("x.y", "xy"),
        ("_1_", "1"),
    ],
)
def test_model_keys_keep_decimal_points(text: str, key: str) -> None:
    assert model_key(text) == key


def test_an_instruct_name_is_read_as_its_base() -> None:
    index = Index("model")
    index.add("big-7b", "Big 7B", ["org/Big-7B"], [])
    assert index.find("org/Big-7B-Instruct") == ("big-7b", "loose")
    assert index.find("big-7b") == ("big-7b", "alias")
    assert index.find("big-8b") is None


@pytest.mark.parametrize(
    ("name", "entry", "form"),
    [
        ("qwen3-32b-fp8", "qwen3-32b", "fp8-block"),
        ("Qwen/Qwen3-14B-AWQ", "qwen3-14b", "awq"),
        ("nvidia/Qwen3-32B-NVFP4", "qwen3-32b", "nvfp4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b", "fp8"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2", "fp8-block"),
        ("kimi-k2-thinking", "kimi-k2-thinking", "int4"),
        ("llama-3.1-8b", "llama-3.1-8b", None),
    ],
)
def test_the_suffix_of_a_name_says_how_its_weights_are_stored(
    name: str, entry: str, form: str | None
) -> None:
    shape = catalog.model(name)
    assert shape.name == entry
    assert (shape.weights.name if shape.weights else None) == form
    plain = catalog.model(entry)
    assert shape.parameters == plain.parameters
    if plain.weights != shape.weights:
        assert f"its weights stored as {form.split('-')[0] if form else ''}" in (
            catalog.explain_name("model", name) or ""
        )


def test_no_alias_hides_a_weight_format() -> None:
    """Every alias whose name states a format resolves to a shape that has one."""
    marks = ("fp8", "fp4", "awq", "gptq", "int4")
    stated = [
        alias
        for name in catalog.names("model")
        for alias in catalog.model_entry(name)["aliases"]
        if any(mark in alias.lower() for mark in marks)
    ]
    assert len(stated) > 15
    for alias in stated:
        assert catalog.model(alias).weights is not None, alias
