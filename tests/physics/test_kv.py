"""The key-value cache: bytes per token against engine logs, copies, windows, states, and the arithmetic of pages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.physics.memory.kv import Group, Pool, cache_cost, layer_cache_bytes, pool
from outgrow.units import GIB
from outgrow.workload.mixers import LatentAttention, Mamba, SelfAttention
from outgrow.workload.model import Layer, ModelShape

from .shapes import known, models, side_by_side

FIXED = settings(derandomize=True, deadline=None, max_examples=100)


@pytest.mark.parametrize(
    ("name", "tp", "per_token"),
    [
        # keys and values x layers x heads of this GPU x width x 2 B
        ("llama-3.1-8b", 1, 2 * 32 * 8 * 128 * 2),
        ("llama-3.1-70b", 8, 2 * 80 * 1 * 128 * 2),
        ("qwen3-235b-a22b", 4, 2 * 94 * 1 * 128 * 2),
        # Four key-value heads: on eight GPUs each holds one, as on four.
        ("qwen3-235b-a22b", 8, 2 * 94 * 1 * 128 * 2),
        ("qwen3-30b-a3b", 1, 2 * 48 * 4 * 128 * 2),
        ("gpt-oss-120b", 1, 2 * 36 * 8 * 64 * 2),
        # A latent of 512 and 64 rotated elements, whatever the number of GPUs.
        ("deepseek-v3", 1, 61 * (512 + 64) * 2),
        ("deepseek-v3", 8, 61 * (512 + 64) * 2),
        ("deepseek-v3", 16, 61 * (512 + 64) * 2),
        # 12 of 48 layers attend, 2 heads of 256.
        ("qwen3-next-80b-a3b", 1, 2 * 12 * 2 * 256 * 2),
        # Multi-query: one head for all.
        ("falcon-7b", 1, 2 * 32 * 1 * 64 * 2),
        ("mamba-2.8b", 1, 0),
    ],
)
def test_bytes_per_token(name: str, tp: int, per_token: int) -> None:
    cost = cache_cost(known(name), tp=tp)
    assert cost.charged_per_token == per_token
    assert cache_cost(known(name), tp=tp, cache_bytes=1.0).charged_per_token == per_token / 2


@pytest.mark.parametrize(
    ("name", "tp", "size", "reported"),
    [
        ("llama-3.1-8b", 1, 2.89 * GIB, 23_648),
        ("qwen3-235b-a22b", 4, 2 * 8.23 * GIB, 367_404),
        ("qwen3-30b-a3b", 1, 152.88 * GIB, 1_669_816),
        # Layers of two kinds: pages of the wider kind for all of them.
        ("gpt-oss-120b", 1, 5.38 * GIB, 78_384),
        ("gemma-4-31b", 1, 24.54 * GIB, 26_800),
    ],
)
def test_what_start_logs_print(name: str, tp: int, size: float, reported: int) -> None:
    # Logs round sizes to 0.01 GiB.
    found = pool(known(name), size, tp=tp, cache_bytes=2.0, block_tokens=16).tokens
    assert found == pytest.approx(reported, rel=0.005 * GIB / size + 0.0005)


def test_numbers_that_people_remember() -> None:
    assert cache_cost(known("llama-3.1-8b")).charged_per_token == 128 * 1024
    assert cache_cost(known("qwen3-235b-a22b"), tp=4).charged_per_token == 48_128
    assert cache_cost(known("gpt-oss-120b")).charged_per_token == 73_728
    assert cache_cost(known("qwen3-30b-a3b")).charged_per_token == 98_304
    assert cache_cost(known("deepseek-v3")).charged_per_token == 70_272


def test_windows_stop_growing() -> None:
    # gpt-oss-20b: 24 layers, every second one looks back 128 tokens; 8 heads of 64.
    cost = cache_cost(known("gpt-oss-20b"))
    layer = 2 * 8 * 64 * 2
    assert cost.window == 128
    assert cost.full_per_token == cost.windowed_per_token == 12 * layer
    assert cost.sequence_bytes(100) == 24 * layer * 100
    assert cost.sequence_bytes(10_000) == 12 * layer * (10_000 + 128)
    assert cost.sequence_bytes(10_000, hybrid=False) == 24 * layer * 10_000


def test_recurrent_states_are_fixed() -> None:
    # Qwen3-Next: 36 layers of 32 value heads of 128 x 128 in fp32, and three columns of a convolution over
    # queries and keys of 16 heads and values of 32, in 16 bits.
    cost = cache_cost(known("qwen3-next-80b-a3b"))
    state = 36 * (32 * 128 * 128 * 4 + (2 * 16 + 32) * 128 * 3 * 2)
    assert cost.state_per_sequence == state
    assert cost.sequence_bytes(1000) == state + 24_576 * 1000
    assert cache_cost(known("qwen3-next-80b-a3b"), tp=4).state_per_sequence == state / 4
    # Mamba 2.8B: 64 layers, 5120 channels x 16 states in fp32, and three columns of 5120 in 16 bits.
    assert cache_cost(known("mamba-2.8b")).state_per_sequence == 64 * (5120 * 16 * 4 + 5120 * 3 * 2)


def test_attention_beside_a_state_space_keeps_both() -> None:
    # Four layers: two key-value heads of 64, and 16 heads of 64 x 64 in fp32 with three columns of 1024 + 2 x 64.
    cost = cache_cost(side_by_side())
    assert cost.charged_per_token == 4 * 2 * 2 * 64 * 2
    assert cost.state_per_sequence == 4 * (16 * 64 * 64 * 4 + 3 * 1152 * 2)


def test_cross_attention_is_charged_beside_the_text() -> None:
    # Llama 3.2 11B vision: 40 layers, of which 8 attend to the image; 8 heads of 128.
    cost = cache_cost(known("llama-3.2-11b-vision"))
    assert cost.charged_per_token == 40 * 2 * 8 * 128 * 2
    assert cost.cross_per_image_token == 8 * 2 * 8 * 128 * 2


def test_layers_that_keep_nothing() -> None:
    shared = SelfAttention(heads=8, kv_heads=2, head_dim=64, shares_kv=True)
    encoder = SelfAttention(heads=8, kv_heads=8, head_dim=64, causal=False)
    for mixer in (shared, encoder, Mamba(version=2, inner=128, state=16, conv_kernel=4)):
        assert layer_cache_bytes(Layer(mixer=mixer, ffn=None, norm_parameters=0), 1, 2.0) == 0


def test_values_of_another_width() -> None:
    mixer = SelfAttention(heads=8, kv_heads=4, head_dim=192, value_head_dim=128)
    layer = Layer(mixer=mixer, ffn=None, norm_parameters=0)
    assert layer_cache_bytes(layer, 1, 2.0) == 4 * (192 + 128) * 2
    assert layer_cache_bytes(layer, 4, 1.0) == 192 + 128
    assert layer_cache_bytes(layer, 8, 1.0) == 192 + 128


def test_a_latent_may_be_padded() -> None:
    # 1152 B rounded up to 256: five times 256 (vLLM 0.7.2 to 0.7.3).
    mixer = LatentAttention(
        heads=16,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        value_head_dim=128,
    )
    layer = Layer(mixer=mixer, ffn=None, norm_parameters=0)
    assert layer_cache_bytes(layer, 1, 2.0, latent_alignment=256) == 1280
    assert layer_cache_bytes(layer, 1, 2.0) == 1152


@FIXED
@given(model=models(), tp=st.sampled_from((1, 2, 4, 8)))
def test_stages_add_up_and_ranks_never_cache_more(model: ModelShape, tp: int) -> None:
    whole = cache_cost(model, tp=tp)
    half = len(model.layers) // 2
    parts = [
        cache_cost(model, tp=tp, layers=tuple(range(half))),
        cache_cost(model, tp=tp, layers=tuple(range(half, len(model.layers)))),
    ]
    assert sum(p.charged_per_token for p in parts) == pytest.approx(whole.charged_per_token)
    assert sum(p.state_per_sequence for p in parts) == pytest.approx(whole.state_per_sequence)
    wider = cache_cost(model, tp=2 * tp)
    assert wider.charged_per_token <= whole.charged_per_token
    # Copies only ever make a replica's ranks together hold more.
    assert 2 * wider.charged_per_token >= whole.charged_per_token * (1 - 1e-12)


@FIXED
@given(model=models(), tokens=st.integers(1, 200_000))
def test_a_sequence_never_shrinks(model: ModelShape, tokens: int) -> None:
    cost = cache_cost(model)
    assert cost.sequence_bytes(tokens) <= cost.sequence_bytes(tokens + 1)
    assert cost.sequence_bytes(tokens) <= cost.sequence_bytes(tokens, hybrid=False) * (1 + 1e-12)
    assert cost.sequence_bytes(tokens) >= cost.full_per_token * tokens


# pages


@FIXED
@given(
    model=models(), size=st.floats(0, 1e12), tp=st.sampled_from((1, 2, 8)), block=st.sampled_from((1, 16, 64)),
    hybrid=st.booleans(), slack=st.sampled_from((0, 2048)), tokens=st.integers(1, 200_000),
)  # fmt: skip
def test_pages_are_never_given_away_twice(
    model: ModelShape, size: float, tp: int, block: int, hybrid: bool, slack: int, tokens: int
) -> None:
    p = pool(model, size, tp=tp, cache_bytes=2.0, block_tokens=block, hybrid=hybrid, window_slack=slack)
    assert p.pages >= 0
    assert p.pages * p.page_bytes * p.group_layers <= size * (1 + 1e-12)
    if not p.groups:
        assert p.pages == 0
        return
    assert int(p.sequences(tokens)) * p.pages_of(tokens) <= p.pages
    assert p.pages_of(tokens) <= p.pages_of(tokens + 1)
    assert p.pages_of(tokens) >= len(p.groups)
    for group in p.groups:
        if group.kind == "attention":
            assert group.page_tokens >= block
            assert group.page_tokens % block == 0
    # Twice the bytes are at least twice the pages.
    double = pool(
        model, 2 * size, tp=tp, cache_bytes=2.0, block_tokens=block, hybrid=hybrid, window_slack=slack
    )
    assert double.pages >= 2 * p.pages
    # Every layer is in a group.
    layers = sum(
        1 for x in model.layers if cache_cost(model, layers=(model.layers.index(x),)).sequence_bytes(1)
    )
    assert len(p.groups) * p.group_layers >= layers


def test_a_uniform_model_has_one_group() -> None:
    # 1 GiB of Llama-3.1-8B: 2 MiB per block of 16 tokens over 32 layers: 512 blocks.
    p = pool(known("llama-3.1-8b"), GIB, tp=1, cache_bytes=2.0, block_tokens=16)
    assert (p.page_bytes, p.group_layers, len(p.groups)) == (16 * 4096, 32, 1)
    assert p.pages == 512
    assert p.tokens == 512 * 16
    assert p.pages_of(1) == p.pages_of(16) == 1
    assert p.pages_of(17) == 2
    assert p.sequences(1600) == 5.12


def test_windows_and_full_layers_share_pages() -> None:
    # gpt-oss-20b: two groups of 12 layers. A sequence of 10,000 takes 625 pages, and 8 + 1 of the window of 128.
    p = pool(known("gpt-oss-20b"), GIB, tp=1, cache_bytes=2.0, block_tokens=16)
    assert sorted(g.window for g in p.groups) == [0, 128]
    assert p.group_layers == 12
    assert p.pages_of(10_000) == 625 + 9
    assert p.pages_of(100) == 7 + 7
    flat = pool(known("gpt-oss-20b"), GIB, tp=1, cache_bytes=2.0, block_tokens=16, hybrid=False)
    assert flat.sequences(10_000) < p.sequences(10_000)


def test_a_page_holds_a_recurrent_state() -> None:
    # Qwen3-Next: a state of 2,146,304 B; a token of one attention layer takes 2048 B: 1048 tokens, 1056 in blocks.
    p = pool(known("qwen3-next-80b-a3b"), 10 * GIB, tp=1, cache_bytes=2.0, block_tokens=16)
    assert p.page_bytes == 1056 * 2048
    assert {g.kind for g in p.groups} == {"attention", "state"}
    assert sum(1 for g in p.groups if g.kind == "state") == 3
    # A short request takes a page of attention and one of every group of states.
    assert p.pages_of(1) == 4
    assert p.pages_of(1057) == 5


def test_an_empty_pool() -> None:
    empty = Pool(
        bytes=0, page_bytes=4096, group_layers=2, groups=(Group(kind="attention", window=0, page_tokens=16),), window_slack=0
    )  # fmt: skip
    assert (empty.pages, empty.tokens, empty.sequences(1)) == (0, 0, 0)


def test_attention_beside_a_state_space_takes_pages_of_both_kinds() -> None:
    division = pool(side_by_side(), GIB, tp=1, cache_bytes=2.0, block_tokens=16)
    assert {group.kind for group in division.groups} == {"attention", "state"}
    assert division.pages_of(1) == len(division.groups)
