"""Parameters of a rank: what is split adds up to the model, what is copied is known by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.layout import Layout
from outgrow.physics.memory.parameters import (
    distinct_weights,
    lora_parameters,
    lora_targets,
    mixer_shard,
    rank_parameters,
)
from outgrow.workload.mixers import LatentAttention, SelfAttention
from outgrow.workload.model import MixtureOfExperts, ModelShape

from .shapes import DEGREES, decoder, known, models

FIXED = settings(derandomize=True, deadline=None, max_examples=80)

LLAMA_BLOCK = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
"""q and o, k and v, and three feed-forward matrices of Llama-3.1-8B."""
LLAMA_TABLE = 128_256 * 4096


def copied(model: ModelShape, stage: tuple[int, ...]) -> float:
    """Parameters inside of blocks that every tensor-parallel rank holds whole."""
    total = 0
    for index in stage:
        layer = model.layers[index]
        for mixer in (layer.mixer, layer.cross_attention):
            if isinstance(mixer, SelfAttention):
                total += mixer.qk_norm_parameters
            elif isinstance(mixer, LatentAttention):
                # The projections down to the latents, which all heads share.
                low = mixer.kv_lora_rank + mixer.qk_rope_head_dim + (mixer.q_lora_rank or 0)
                total += model.hidden * low
        if isinstance(layer.ffn, MixtureOfExperts):
            total += layer.ffn.latent_projections(model.hidden)
    return total


def unique(model: ModelShape, layout: Layout) -> float:
    """All ranks of one replica together, copies counted once."""
    total = 0.0
    for stage, indices in enumerate(layout.chunks(len(model.layers))):
        rank = rank_parameters(model, layout, stage)
        whole = copied(model, indices)
        split = rank.blocks - whole + rank.embedding + rank.head
        total += split * layout.tp + whole + rank.vectors + rank.towers
        total += rank.experts * layout.ep * layout.expert_tp
    return total


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama-3.1-8b", Layout()),
        ("llama-3.1-8b", Layout(tp=8)),
        ("llama-3.1-8b", Layout(tp=2, pp=4)),
        ("llama-3.1-405b", Layout(tp=8, pp=9)),
        ("qwen3-8b", Layout(tp=8)),
        ("qwen3-8b", Layout(tp=4, pp=6)),
        ("mixtral-8x7b", Layout(dp=8, ep=8)),
        ("mixtral-8x7b", Layout(dp=4, ep=4, tp=2)),
        ("mixtral-8x7b", Layout(tp=8, ep=8)),
        ("mixtral-8x7b", Layout(dp=2, ep=4, tp=4, pp=2)),
        ("deepseek-v3", Layout(tp=8)),
        ("deepseek-v3", Layout(dp=64, ep=64, pp=16)),
        ("deepseek-v3", Layout(dp=8, ep=8, tp=2, pp=4)),
        ("gpt-oss-120b", Layout(dp=2, ep=2, tp=8)),
        ("qwen2.5-vl-7b", Layout(tp=4)),
    ],
)
def test_ranks_add_up_to_the_model(name: str, layout: Layout) -> None:
    model = known(name)
    # Norms of latents are small beside their projections: a millionth.
    assert unique(model, layout) == pytest.approx(model.parameters, rel=3e-6)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-0.6b", "gemma-3-1b"])
def test_a_tied_table_is_held_twice_by_a_pipeline(name: str) -> None:
    model = known(name)
    assert model.tied
    assert unique(model, Layout(pp=2)) == pytest.approx(model.parameters + model.vocab * model.hidden)
    assert unique(model, Layout()) == pytest.approx(model.parameters)
    assert rank_parameters(model, Layout(pp=2), 1).extra_head_copy
    assert not rank_parameters(model, Layout(), 0).extra_head_copy


def test_llama_by_hand() -> None:
    rank = rank_parameters(known("llama-3.1-8b"), Layout())
    assert rank.blocks == 32 * LLAMA_BLOCK == 6_979_321_856
    assert rank.embedding == rank.head == LLAMA_TABLE == 525_336_576
    assert rank.vectors == 65 * 4096
    assert rank.experts == rank.towers == 0
    assert rank.total == rank.dense == 8_030_261_248
    assert rank.layer == LLAMA_BLOCK + 2 * 4096
    split = rank_parameters(known("llama-3.1-8b"), Layout(tp=4, pp=2), 1)
    assert split.blocks == 16 * LLAMA_BLOCK / 4
    assert split.embedding == 0
    assert split.head == LLAMA_TABLE / 4
    assert split.vectors == 33 * 4096


def test_mixtral_experts_by_hand() -> None:
    model = known("mixtral-8x7b")
    expert = 3 * 4096 * 14336
    assert rank_parameters(model, Layout()).experts == 32 * 8 * expert
    assert rank_parameters(model, Layout(dp=8, ep=8)).experts == 32 * expert
    # ep inside of data parallelism: tensor ranks split an expert as well; ep over tensor ranks: they do not.
    assert rank_parameters(model, Layout(dp=4, tp=2, ep=4)).experts == 32 * 2 * expert / 2
    assert rank_parameters(model, Layout(tp=8, ep=8)).experts == 32 * expert
    assert rank_parameters(model, Layout()).vectors == 65 * 4096 + 32 * 8 * 4096


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    mixer = SelfAttention(heads=32, kv_heads=4, head_dim=128)
    q_and_o, kv = 2 * 4096 * 4096, 2 * 4096 * 512
    assert mixer_shard(mixer, 4096, 4) == q_and_o / 4 + kv / 4
    assert mixer_shard(mixer, 4096, 8) == q_and_o / 8 + kv / 4
    assert mixer_shard(mixer, 4096, 32) == q_and_o / 32 + kv / 4


def test_latents_are_copied() -> None:
    # DeepSeek-V3: 7168 to 1536 for queries, to 512 + 64 for keys and values; the rest is by head.
    mixer = next(x.mixer for x in known("deepseek-v3").layers if isinstance(x.mixer, LatentAttention))
    down = 7168 * (1536 + 512 + 64)
    heads = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert mixer.parameters(7168) == down + heads + 1536 + 512
    assert mixer_shard(mixer, 7168, 8) == pytest.approx(down + heads / 8, abs=2048)


@FIXED
@given(model=models(), pp=st.sampled_from((1, 2)), wider=st.sampled_from((2, 4, 8)))
def test_more_tensor_parallelism_never_holds_more(model: ModelShape, pp: int, wider: int) -> None:
    for stage in range(pp):
        narrow = rank_parameters(model, Layout(tp=1, pp=pp), stage)
        half = rank_parameters(model, Layout(tp=wider // 2, pp=pp), stage)
        wide = rank_parameters(model, Layout(tp=wider, pp=pp), stage)
        assert wide.total <= half.total * (1 + 1e-12) <= narrow.total * (1 + 2e-12)
        # It can at best be divided evenly.
        assert wide.total >= narrow.total / wider * (1 - 1e-12)


@FIXED
@given(model=models(), tp=DEGREES, pp=st.sampled_from((1, 2, 4)))
def test_parts_are_sane(model: ModelShape, tp: int, pp: int) -> None:
    pp = min(pp, len(model.layers))
    layout = Layout(tp=tp, pp=pp)
    for stage in range(pp):
        rank = rank_parameters(model, layout, stage)
        parts = (rank.blocks, rank.experts, rank.vectors, rank.embedding, rank.head, rank.towers)
        assert all(part >= 0 for part in parts)
        assert rank.mixers <= rank.blocks * (1 + 1e-9)
        assert rank.layer_experts <= rank.layer <= rank.total * (1 + 1e-9)
        assert 0 <= distinct_weights(model, layout, stage) <= rank.total * (1 + 1e-9)


@FIXED
@given(model=models(), extra=st.integers(1, 3))
def test_more_layers_never_hold_less(model: ModelShape, extra: int) -> None:
    deeper = replace(model, layers=(*model.layers, *model.layers[-extra:]))
    assert rank_parameters(deeper, Layout()).total > rank_parameters(model, Layout()).total


# adapters


@pytest.mark.parametrize(
    ("name", "rank", "targets", "count"),
    [
        # Per layer: q 16 (4096 + 4096), k and v 16 (4096 + 1024) each, o as q.
        ("llama-3.1-8b", 16, ("q", "k", "v", "o"), 32 * 16 * (8192 + 5120 + 5120 + 8192)),
        ("llama-3.1-8b", 16, ("q_proj", "v_proj"), 32 * 16 * (8192 + 5120)),
        # and gate, up and down 16 (4096 + 14336) each.
        ("llama-3.1-8b", 16, ("all-linear",), 32 * 16 * (8192 + 5120 + 5120 + 8192 + 3 * 18432)),
        ("llama-3.1-70b", 8, ("all",), 80 * 8 * (2 * 16384 + 2 * 9216 + 3 * 36864)),
        # One adapter on the fused projection, 4096 to 4096 + 2 x 1024.
        ("llama-3.1-8b", 32, ("qkv",), 32 * 32 * (4096 + 6144)),
    ],
)
def test_adapters_by_hand(name: str, rank: int, targets: tuple[str, ...], count: int) -> None:
    model = known(name)
    assert lora_parameters(model, tuple(range(len(model.layers))), rank, lora_targets(targets)) == count


def test_the_adapter_that_papers_print() -> None:
    model = known("llama-3.1-8b")
    assert lora_parameters(model, tuple(range(32)), 16, lora_targets(("q", "k", "v", "o"))) == 13_631_488
    assert lora_parameters(model, tuple(range(32)), 16, lora_targets(("all",))) == 41_943_040


def test_dora_adds_one_magnitude_per_output() -> None:
    model = decoder()
    plain = lora_parameters(model, (0,), 4, lora_targets(("q", "k")))
    assert lora_parameters(model, (0,), 4, lora_targets(("q", "k")), dora=True) == plain + 512 + 128
