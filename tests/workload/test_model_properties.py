"""Parameter counts as a person would count them, and what must hold for every shape of the catalogue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.workload.hf_config import resolve
from outgrow.workload.limits import BOUNDS, problems_of
from outgrow.workload.mixers import LatentAttention, Mamba, SelfAttention, linear
from outgrow.workload.model import FeedForward, MixtureOfExperts, ModelShape, TensorClass
from outgrow.workload.quantization import ALIASES, FORMATS, weight_format
from outgrow.workload.serving import ServingJob, Traffic
from outgrow.workload.training import OPTIMIZER_MOMENTS, PRECISIONS, TrainingJob

FIXED = settings(derandomize=True, deadline=None, max_examples=100)
NAMES = catalog.names("model")
SMALL = st.integers(1, 64)


def llama(**changes: Any) -> ModelShape:
    config: dict[str, Any] = {
        "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "vocab_size": 1000,
        "max_position_embeddings": 512, "tie_word_embeddings": False,
    }  # fmt: skip
    return resolve(config | changes, name="llama")


@FIXED
@given(
    h=SMALL, heads=st.integers(1, 8), group=st.integers(1, 4), d=SMALL, i=SMALL, v=st.integers(2, 500),
    layers=st.integers(1, 6), tied=st.booleans(),
)  # fmt: skip
def test_a_llama_of_any_size_by_hand(
    h: int, heads: int, group: int, d: int, i: int, v: int, layers: int, tied: bool
) -> None:
    h *= heads * group
    model = llama(
        hidden_size=h, num_attention_heads=heads * group, num_key_value_heads=heads, head_dim=d, intermediate_size=i,
        vocab_size=v, num_hidden_layers=layers, tie_word_embeddings=tied,
    )  # fmt: skip
    block = 2 * h * heads * group * d + 2 * h * heads * d + 3 * h * i + 2 * h
    assert model.parameters == layers * block + (1 if tied else 2) * v * h + h
    assert model.active_parameters == model.parameters
    assert sum(model.by_class().values()) == model.parameters
    assert model.by_class()[TensorClass.NORM] == (2 * layers + 1) * h


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_is_sane(name: str) -> None:
    model = catalog.model(name)
    classes = model.by_class()
    assert all(count > 0 for count in classes.values())
    assert sum(classes.values()) == model.parameters
    assert 0 < model.active_parameters <= model.language_parameters <= model.parameters
    assert model.is_moe == (model.experts > 0)
    if not model.is_moe:
        assert model.active_parameters == model.language_parameters
    assert hash(model) == hash(catalog.model(name))
    for layer in {*model.layers, *model.encoder}:
        assert layer.parameters(model.hidden) == sum(layer.by_class(model.hidden).values()) > 0
        assert 0 < layer.active_parameters(model.hidden) <= layer.parameters(model.hidden)
        mixer = layer.mixer
        if mixer is not None:
            assert mixer.parameters(model.hidden) > 0
            assert mixer.cache_elements() >= 0
            assert mixer.state_elements() >= 0
            # Whatever lets positions see each other remembers something, unless it sees all at once or borrows.
            if not isinstance(mixer, SelfAttention):
                assert mixer.cache_elements() + mixer.state_elements() > 0


@FIXED
@given(name=st.sampled_from(NAMES))
def test_ties_remove_exactly_the_head(name: str) -> None:
    model = catalog.model(name)
    if not model.has_head:
        return
    tied, own = replace(model, tied=True), replace(model, tied=False)
    assert own.parameters - tied.parameters == model.vocab * model.hidden


@FIXED
@given(
    h=SMALL,
    e=st.integers(1, 32),
    k=st.integers(1, 32),
    i=SMALL,
    shared=st.integers(0, 64),
    gate=st.booleans(),
)
def test_experts_by_hand(h: int, e: int, k: int, i: int, shared: int, gate: bool) -> None:
    k = min(k, e)
    moe = MixtureOfExperts(experts=e, top_k=k, intermediate=i, shared_intermediate=shared, shared_gate=gate)
    extra = 3 * h * shared + (h if gate else 0) if shared else 0
    assert moe.parameters(h) == e * 3 * h * i + e * h + extra
    base = llama(hidden_size=4 * h, head_dim=h)
    layers = tuple(replace(x, ffn=moe) for x in base.layers)
    model = replace(base, layers=layers)
    assert model.parameters - model.active_parameters == 3 * (e - k) * 3 * 4 * h * i


@FIXED
@given(h=SMALL, i=SMALL, gated=st.booleans(), bias=st.booleans())
def test_feed_forward_by_hand(h: int, i: int, gated: bool, bias: bool) -> None:
    ffn = FeedForward(intermediate=i, gated=gated, bias=bias)
    ups = 2 if gated else 1
    assert ffn.parameters(h) == (ups + 1) * h * i + ((ups * i + h) if bias else 0)


def test_mixers_by_hand() -> None:
    assert linear(3, 5) == 15
    assert linear(3, 5, bias=True) == 20
    # Qwen2.5-7B: 28 heads of 128 on 3584, four key-value heads, biases on q, k and v.
    qwen = SelfAttention(heads=28, kv_heads=4, head_dim=128, q_bias=True, kv_bias=True)
    assert qwen.parameters(3584) == 2 * 3584 * 3584 + 2 * 3584 * 512 + 3584 + 2 * 512
    # DeepSeek-V3.
    latent = LatentAttention(
        heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        value_head_dim=128,
    )
    assert latent.parameters(7168) == (
        7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    )
    assert latent.cache_elements() == 576
    # Mamba-1, 2.8B: inner 5120, state 16, kernel 4, rank of dt 160.
    mamba = Mamba(version=1, inner=5120, state=16, conv_kernel=4, dt_rank=160)
    hand = (
        2560 * 10_240
        + 5120 * 4
        + 5120
        + 5120 * (160 + 32)
        + 160 * 5120
        + 5120
        + 5120 * 16
        + 5120
        + 5120 * 2560
    )
    assert mamba.parameters(2560) == hand


@FIXED
@given(heads=st.integers(1, 64), kv=st.integers(1, 64), d=SMALL, h=SMALL)
def test_sharing_keys_and_values_saves_them(heads: int, kv: int, d: int, h: int) -> None:
    own = SelfAttention(heads=heads, kv_heads=kv, head_dim=d)
    shared = replace(own, shares_kv=True)
    assert own.parameters(h) - shared.parameters(h) == 2 * h * kv * d
    assert own.parameters(h) - replace(own, value_is_key=True).parameters(h) == h * kv * d
    assert shared.cache_elements() == 0
    assert own.cache_elements() == 2 * kv * d


# formats


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16), ("fp8", 8), ("awq", 4.15625), ("nf4", 4.5), ("nf4-double", 4.126953125), ("mxfp4", 4.25), ("nvfp4", 4.5),
        ("int4", 4.5), ("fp8-block", 8.001953125), ("q4_k_m", 4.85),
    ],
)  # fmt: skip
def test_formats_with_their_scales(name: str, bits: float) -> None:
    assert weight_format(name).bytes_per_element * 8 == pytest.approx(bits)
    assert weight_format(f" {name.upper()} ") is FORMATS[name]


def test_formats_are_consistent() -> None:
    assert all(FORMATS[target].name == target for target in ALIASES.values())
    for name, form in FORMATS.items():
        assert form.name == name
        assert form.bytes_per_element >= form.bits / 8
        assert form.is_quantised == (form.bits < 16)
        assert bool(form.group) == bool(form.scale_bits)


# jobs


def test_regimes_are_consistent() -> None:
    for name, regime in PRECISIONS.items():
        assert regime.name == name
        assert regime.meaning
        # A master is what small updates go to: it exists exactly where parameters are too narrow for them, but for pure bf16.
        assert bool(regime.master) == (regime.parameter <= 2 and name != "bf16")
        assert regime.compute <= max(regime.parameter, 2)
        assert TrainingJob(precision=name).regime is regime
    assert set(OPTIMIZER_MOMENTS.values()) <= {0, 1, 2}


def test_the_base_of_an_adapter() -> None:
    assert TrainingJob().base_format is None
    assert TrainingJob(method="lora").base_format is None
    assert TrainingJob(method="qlora").base_format is FORMATS["nf4"]
    assert TrainingJob(method="qlora", base="nf4-double").base_format is FORMATS["nf4-double"]
    assert TrainingJob(method="full").trains_all
    assert not TrainingJob(method="qlora").trains_all


# bounds


@FIXED
@given(
    field=st.sampled_from(("sequence_length", "global_batch", "accumulation", "loss_chunks", "expert_load")),
    value=st.floats() | st.integers(-10, 10**20),
)  # fmt: skip
def test_impossible_numbers_are_named(field: str, value: float) -> None:
    low, high = BOUNDS[field]
    found = [p for p in problems_of(replace(TrainingJob(), **{field: value})) if p.path == field]
    assert bool(found) == (not low <= value <= high)
    assert all(p.value is value for p in found)


def test_bounds_reach_into_nested_values() -> None:
    job = ServingJob(tp=0, traffic=Traffic(requests_per_second=-1.0, input_tokens=0), memory_fraction=2.0)
    paths = {p.path for p in problems_of(job, "serving")}
    assert paths == {
        "serving.tp", "serving.memory_fraction", "serving.traffic.requests_per_second", "serving.traffic.input_tokens",
    }  # fmt: skip
    assert list(problems_of(TrainingJob())) == []
    assert list(problems_of(ServingJob())) == []


@pytest.mark.parametrize("model_type", ["falcon_h1"])
def test_attention_beside_a_state_space_is_both(model_type: str) -> None:
    model = resolve(
        {
            "model_type": model_type, "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 2048, "vocab_size": 32_000,
            "mamba_d_ssm": 1536, "mamba_d_state": 128, "mamba_d_head": 64, "mamba_n_heads": 24, "mamba_n_groups": 1,
            "mamba_d_conv": 4, "tie_word_embeddings": False,
        },
        name=model_type,
    )  # fmt: skip
    mixer = model.layers[0].mixer
    assert mixer is not None
    assert mixer.cache_elements() == 2 * 2 * 128
    # 24 heads of 64 x 128, and three columns of a convolution over 1536 + 2 x 128.
    assert mixer.state_elements() == 24 * 64 * 128 + 3 * (1536 + 256)
