"""Legal or not: every violation at once, each with the nearest legal values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.layout import Layout
from outgrow.planning.feasible import Violation, valid_tensor_parallel, violations
from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape
from outgrow.workload.quantization import FORMATS
from outgrow.workload.training import TrainingJob

FIXED = settings(derandomize=True, deadline=None, max_examples=120)


def llama(**changes: Any) -> ModelShape:
    config: dict[str, Any] = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14_336, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    return resolve(config | changes, name="llama")


def errors(model: ModelShape, layout: Layout, **more: Any) -> list[Violation]:
    return [v for v in violations(model, layout, **more) if v.severity == "error"]


def only(model: ModelShape, layout: Layout, **more: Any) -> Violation:
    found = errors(model, layout, **more)
    assert len(found) == 1, found
    return found[0]


# heads and widths


@pytest.mark.parametrize(
    ("heads", "tp", "legal"),
    [(52, 3, "tp = 2 or 4"), (28, 8, "tp = 7 or 14"), (25, 4, "tp = 1 or 5"), (32, 3, "tp = 2 or 4"), (64, 100, "tp = 64")],
)  # fmt: skip
def test_query_heads(heads: int, tp: int, legal: str) -> None:
    model = llama(
        num_attention_heads=heads, num_key_value_heads=heads, intermediate_size=tp * 128, vocab_size=tp * 1000
    )
    found = next(v for v in errors(model, Layout(tp=tp)) if "query heads" in v.what)
    assert str(heads) in found.what
    assert f"tp = {tp}" in found.what
    assert found.legal == legal


def test_key_value_heads_may_be_copied_but_not_cut() -> None:
    model = llama(num_key_value_heads=2, vocab_size=128_000)
    found = violations(model, Layout(tp=4))
    assert [v.severity for v in found] == ["info"]
    assert "2 key-value heads are copied" in found[0].what
    assert found[0].legal.startswith("tp <= 2")
    # 24 query and 6 key-value heads on 4: neither 6 / 4 nor 4 / 6 is whole. 3 and 6 are.
    cut = only(llama(num_attention_heads=24, num_key_value_heads=6), Layout(tp=4))
    assert "6 key-value heads can be neither split nor copied" in cut.what
    assert cut.legal == "tp = 3 or 6"


def test_heads_beside_a_state_space_must_divide_too() -> None:
    model = llama(
        model_type="falcon_h1", mamba_d_ssm=1024, mamba_d_state=64, mamba_d_head=64, mamba_n_heads=16, mamba_n_groups=1,
        mamba_d_conv=4, num_attention_heads=12, num_key_value_heads=12,
    )  # fmt: skip
    assert any("12" in v.what and "heads" in v.what for v in errors(model, Layout(tp=8)))


def test_a_latent_is_copied() -> None:
    found = violations(catalog.model("deepseek-v3"), Layout(tp=8, dp=32, ep=32))
    assert [v.severity for v in found] == ["info"]
    assert "latent cache is copied" in found[0].what


def test_feed_forward_width() -> None:
    found = only(llama(intermediate_size=14_332), Layout(tp=8))
    assert "14,332" in found.what
    # 14,332 = 4 x 3583.
    assert found.legal == "tp = 4 or 3583"


def test_vocabulary_is_padded_and_said_so() -> None:
    found = violations(llama(vocab_size=50_257), Layout(tp=8))
    assert [v.severity for v in found] == ["info"]
    assert "50,264" in found[0].what


@pytest.mark.parametrize(
    ("width", "heads", "tp", "part", "legal"),
    [
        # Llama-2-7B in AWQ: 11,008 = 86 x 128. 11,008 / 4 = 21.5 groups; 2 and no more divide 86 and the heads.
        (11_008, 32, 4, "2,752", "tp = 2"),
        # Qwen2.5-VL-72B in AWQ: 29,568 = 231 x 128: 14,784 is 115.5 tiles.
        (29_568, 64, 2, "14,784", "tp = 1"),
    ],
)
def test_groups_and_tiles_of_four_bit_formats(width: int, heads: int, tp: int, part: str, legal: str) -> None:
    model = llama(intermediate_size=width, num_attention_heads=heads, num_key_value_heads=heads)
    found = only(model, Layout(tp=tp), form=FORMATS["awq"])
    assert part in found.what
    assert "group 128" in found.what
    assert found.legal.split(",")[0] == legal
    # 2,752 and 14,784 are multiples of 64.
    assert "group 64" in found.legal
    assert not errors(model, Layout(tp=tp), form=FORMATS["fp8"])
    assert not errors(model, Layout(tp=1), form=FORMATS["awq"])


# experts


def test_experts() -> None:
    model = catalog.model("mixtral-8x7b")
    found = only(model, Layout(dp=6, ep=3))
    assert "8 experts" in found.what
    assert found.legal == "ep = 2 or 4"
    assert not errors(model, Layout(dp=8, ep=8))
    assert only(llama(), Layout(dp=2, ep=2)).legal == "ep = 1"


# stages


def test_eighty_layers_on_sixteen_by_two_are_built_as_sixty_four() -> None:
    found = only(llama(num_hidden_layers=80), Layout(pp=16, vpp=2))
    assert found.silent
    assert "build 64 layers" in found.what
    # 80 / (pp x 2) is whole for pp = 10 and for pp = 20; 16 itself is what is wrong.
    assert found.legal.startswith("pp = 10 or 20,")


def test_forty_six_layers_on_four_stages() -> None:
    found = only(llama(num_hidden_layers=46), Layout(pp=4))
    assert found.silent
    assert found.legal == "pp = 2 or 23, or uneven stages: stage_layers = [12, 12, 11, 11]"
    assert not errors(llama(num_hidden_layers=46), Layout(pp=4, stage_layers=(12, 12, 11, 11)))


def test_stages_that_do_not_hold_the_model() -> None:
    found = only(llama(), Layout(pp=2, stage_layers=(16, 15)))
    assert found.silent
    assert "31 layers and the model has 32" in found.what
    # A last-stage setting with one stage is a model of one layer, and frameworks say nothing.
    assert only(llama(), Layout(stage_layers=(1,))).silent


def test_more_chunks_than_layers() -> None:
    assert only(llama(num_hidden_layers=4), Layout(pp=8)).legal == "pp x vpp <= 4"


@FIXED
@given(layers=st.integers(1, 100), pp=st.integers(1, 16), vpp=st.integers(1, 4))
def test_the_stages_that_are_offered_are_legal(layers: int, pp: int, vpp: int) -> None:
    vpp = vpp if pp > 1 else 1
    model = llama()
    model = replace(model, layers=model.layers[:1] * layers)
    found = errors(model, Layout(pp=pp, vpp=vpp))
    assert bool(found) == (layers % (pp * vpp) != 0)
    if not found or layers < pp * vpp:
        return
    text = found[0].legal.split(",")[0].removeprefix("pp = ")
    for offered in text.split(" or "):
        if offered != "none":
            assert layers % (int(offered) * vpp) == 0


# batches and sequences


def test_a_batch_that_is_no_product() -> None:
    found = only(llama(), Layout(dp=8, micro_batch=4), global_batch=100)
    assert found.silent
    # 8 x 4 = 32: 96 or 128.
    assert "global batch 96 or 128" in found.legal


@FIXED
@given(dp=st.integers(1, 16), micro=st.integers(1, 8), batch=st.integers(1, 300))
def test_the_batches_that_are_offered_are_legal(dp: int, micro: int, batch: int) -> None:
    found = errors(llama(), Layout(dp=dp, micro_batch=micro), global_batch=batch)
    assert bool(found) == (batch % (dp * micro) != 0)
    if not found:
        return
    batches, _, micros = found[0].legal.removeprefix("global batch ").partition(", or micro-batch ")
    for text in batches.split(" or "):
        offered = int(text.replace(",", ""))
        assert offered > 0
        assert offered % (dp * micro) == 0
    for text in micros.split(" or ") if micros else ():
        assert batch % (dp * int(text)) == 0


def test_a_sequence_is_cut_into_twice_as_many_pieces_as_ranks() -> None:
    found = only(llama(), Layout(cp=4), job=TrainingJob(sequence_length=4100))
    assert "2 x cp = 8" in found.what
    assert "multiple of 8" in found.legal
    assert not errors(llama(), Layout(cp=4), job=TrainingJob(sequence_length=4096))


# devices


@pytest.mark.parametrize(
    ("device", "asked", "bad"),
    [
        ("a100-sxm-80gb", "fp8", True), ("v100-sxm2-32gb", "bf16", True), ("t4", "bf16", True), ("h100-sxm", "fp8", False),
        ("l40s", "fp8", False), ("a100-sxm-80gb", "bf16", False), ("mi300x", "fp8", False),
    ],
)  # fmt: skip
def test_formats_that_a_device_cannot_multiply(device: str, asked: str, bad: bool) -> None:
    found = violations(llama(), Layout(), device=catalog.device(device), **{asked: True})
    assert bool(found) == bad
    # Without bf16 frameworks take fp16 and go on; without fp8 units they refuse.
    assert all(v.severity == ("warning" if asked == "bf16" else "error") for v in found)
    if bad:
        assert asked in found[0].what
        assert catalog.device(device).title in found[0].what


def test_eight_bit_weights_on_an_a100_are_a_warning() -> None:
    found = violations(llama(), Layout(), device=catalog.device("a100-sxm-80gb"), form=FORMATS["fp8"])
    assert [v.severity for v in found] == ["warning"]


# all at once


def test_every_violation_at_once_worst_first() -> None:
    model = llama(
        num_attention_heads=28, num_key_value_heads=4, intermediate_size=18_940, num_hidden_layers=46
    )
    layout = Layout(dp=3, tp=8, pp=4, cp=2, ep=3, micro_batch=2)
    found = violations(
        model, layout, device=catalog.device("v100-sxm2-32gb"), job=TrainingJob(sequence_length=4097), global_batch=32,
        fp8=True, bf16=True,
    )  # fmt: skip
    text = "\n".join(v.what for v in found)
    for part in (
        "28 query heads",
        "18,940",
        "no experts",
        "46 layers",
        "4,097",
        "batch of 32",
        "fp8",
        "bf16",
    ):
        assert part in text
    ranks = [("error", "warning", "info").index(v.severity) for v in found]
    assert ranks == sorted(ranks)
    assert all(v.legal for v in found)


MODELS = (
    "llama-3.1-8b",
    "qwen2.5-7b",
    "mixtral-8x7b",
    "deepseek-v3",
    "qwen3-next-80b-a3b",
    "mamba-2.8b",
    "gpt2",
    "gpt-oss-20b",
    "falcon-7b",
)


@FIXED
@given(name=st.sampled_from(MODELS), tp=st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16)), most=st.integers(1, 64))
def test_offered_degrees_divide_the_heads(name: str, tp: int, most: int) -> None:
    model = catalog.model(name)
    legal = valid_tensor_parallel(model, most=most)
    assert legal[0] == 1
    assert all(1 <= d <= most for d in legal)
    if model.heads:
        assert legal == tuple(d for d in range(1, most + 1) if model.heads % d == 0)
    heads = [v for v in errors(model, Layout(tp=tp)) if "query heads" in v.what]
    assert bool(heads) == (bool(model.heads) and not model.uses_latent_attention and model.heads % tp != 0)


@pytest.mark.parametrize("name", MODELS)
def test_one_gpu_is_always_legal(name: str) -> None:
    assert violations(catalog.model(name), Layout()) == ()
