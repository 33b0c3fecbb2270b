"""Layouts: rank arithmetic, stages, micro-batches in flight, and every fault at once."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.errors import LayoutError
from outgrow.layout import Layout, Schedule, divisors, nearest

FIXED = settings(derandomize=True, deadline=None, max_examples=120)
DEGREE = st.integers(min_value=1, max_value=6)


def faults(**degrees: object) -> dict[str, str]:
    """The faults of a layout: message and hint by path."""
    with pytest.raises(LayoutError) as caught:
        Layout(**degrees)  # type: ignore[arg-type]
    return {p.path: f"{p.message} {p.hint}" for p in caught.value.problems}


# ranks


@FIXED
@given(tp=DEGREE, cp=DEGREE, dp=DEGREE, pp=DEGREE)
def test_ranks_and_coordinates_are_a_bijection(tp: int, cp: int, dp: int, pp: int) -> None:
    layout = Layout(tp=tp, cp=cp, dp=dp, pp=pp)
    assert layout.gpus == tp * cp * dp * pp
    seen = set()
    for rank in range(layout.gpus):
        where = layout.coordinates(rank)
        assert 0 <= where["tp"] < tp
        assert 0 <= where["cp"] < cp
        assert 0 <= where["dp"] < dp
        assert 0 <= where["pp"] < pp
        assert layout.rank(**where) == rank
        seen.add(tuple(where.values()))
    assert len(seen) == layout.gpus


def test_order_of_ranks_by_hand() -> None:
    # tp fastest, then cp, dp, pp: peers of tensor parallelism are neighbours.
    layout = Layout(tp=2, cp=2, dp=3, pp=2)
    assert layout.rank(tp=1) == 1
    assert layout.rank(cp=1) == 2
    assert layout.rank(dp=1) == 4
    assert layout.rank(pp=1) == 12
    assert layout.coordinates(23) == {"tp": 1, "cp": 1, "dp": 2, "pp": 1}


# stages


@FIXED
@given(
    layers=st.integers(0, 130), pp=st.integers(1, 12), vpp=st.integers(1, 4), data=st.data(), given_=st.booleans()
)  # fmt: skip
def test_stages_hold_every_layer_once(
    layers: int, pp: int, vpp: int, data: st.DataObject, given_: bool
) -> None:
    vpp = vpp if pp > 1 else 1
    parts = pp * vpp
    stage_layers = None
    if given_:
        cuts = sorted(data.draw(st.lists(st.integers(0, layers), min_size=parts - 1, max_size=parts - 1)))
        stage_layers = tuple(b - a for a, b in pairwise([0, *cuts, layers]))
    layout = Layout(pp=pp, vpp=vpp, stage_layers=stage_layers)
    stages = layout.chunks(layers)
    assert len(stages) == pp
    assert sorted(i for stage in stages for i in stage) == list(range(layers))
    assert all(list(stage) == sorted(stage) for stage in stages)
    if stage_layers is None:
        sizes = [len(stage) for stage in stages]
        # Even to one layer per chunk.
        assert max(sizes) - min(sizes) <= vpp


def test_stages_by_hand() -> None:
    assert Layout(pp=4).chunks(46) == (
        tuple(range(12)), tuple(range(12, 24)), tuple(range(24, 35)), tuple(range(35, 46)),
    )  # fmt: skip
    # Interleaved: stage 0 holds the first and the third run of two layers.
    assert Layout(pp=2, vpp=2).chunks(8) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert Layout(pp=2, stage_layers=(1, 3)).chunks(4) == ((0,), (1, 2, 3))


# micro-batches in flight


@FIXED
@given(
    pp=st.integers(1, 16), vpp=st.integers(1, 4), mb=st.integers(1, 64),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"]),
)  # fmt: skip
def test_in_flight_is_between_one_and_all(pp: int, vpp: int, mb: int, schedule: Schedule) -> None:
    layout = Layout(pp=pp, vpp=vpp if pp > 1 else 1, schedule=schedule)
    held = [layout.in_flight(stage, mb) for stage in range(pp)]
    assert all(1 <= x <= mb for x in held)
    # Nobody holds more than the first stage, which waits longest for its gradients.
    assert held == sorted(held, reverse=True)
    assert all(layout.in_flight(s, mb) <= layout.in_flight(s, mb + 1) for s in range(pp))


@pytest.mark.parametrize(("pp", "mb", "held"), [(4, 8, [4, 3, 2, 1]), (4, 2, [2, 2, 2, 1]), (1, 8, [1])])
def test_1f1b_holds_as_many_as_stages_remain(pp: int, mb: int, held: list[int]) -> None:
    layout = Layout(pp=pp)
    assert [layout.in_flight(s, mb) for s in range(pp)] == held


def test_gpipe_holds_all() -> None:
    assert Layout(pp=4, schedule="gpipe").in_flight(3, 32) == 32


def test_interleaving_holds_more_than_1f1b_and_less_than_twice() -> None:
    # Megatron's warm-up: 2 (p - s - 1) + (v - 1) p forward chunks, and the one at work; v chunks are one micro-batch.
    p, v = 8, 4
    layout = Layout(pp=p, vpp=v, schedule="interleaved")
    assert layout.in_flight(0, 64) == pytest.approx((2 * 7 + 3 * 8 + 1) / 4)
    assert layout.in_flight(7, 64) == pytest.approx((0 + 3 * 8 + 1) / 4)
    assert p <= layout.in_flight(0, 64) < 2 * p


def test_one_chunk_per_stage_is_not_interleaved() -> None:
    # With v = 1 the schedule has nothing to interleave and is 1F1B, whatever it is called.
    layout = Layout(pp=8, schedule="interleaved")
    assert [layout.in_flight(s, 64) for s in range(8)] == [8, 7, 6, 5, 4, 3, 2, 1]


# legality


def test_all_faults_are_listed_at_once() -> None:
    found = faults(dp=0, tp=-1, pp=True, vpp=1.5, cp=10**9, micro_batch=0)
    assert set(found) == {"dp", "tp", "pp", "vpp", "cp", "micro_batch"}
    found = faults(dp=4, cp=3, ep=5, shard_degree=5, vpp=2, stage_layers=(3,))
    assert set(found) == {"ep", "shard_degree", "vpp", "stage_layers"}


def test_hints_name_the_nearest_legal_values() -> None:
    # Divisors of 4 x 3 = 12 around 5.
    assert "nearest legal: 4 or 6" in faults(dp=4, cp=3, ep=5)["ep"]
    assert "nearest legal: 4 or 6" in faults(dp=4, cp=3, shard_degree=5)["shard_degree"]
    assert "nearest legal: 12" in faults(dp=4, cp=3, ep=100)["ep"]
    assert "nearest legal: 1" in faults(dp=4, shard_degree=0)["shard_degree"]


@pytest.mark.parametrize("stages", [(), (4,), (4, 4, 4), (5, -1)])
def test_stage_layers_must_name_every_chunk(stages: tuple[int, ...]) -> None:
    assert "2 chunks" in faults(pp=2, stage_layers=stages)["stage_layers"]


@FIXED
@given(
    dp=st.integers(1, 12), cp=st.integers(1, 6), tp=st.integers(1, 6), ep=st.integers(1, 40),
    degree=st.none() | st.integers(1, 40),
)  # fmt: skip
def test_a_layout_is_legal_exactly_if_it_divides(
    dp: int, cp: int, tp: int, ep: int, degree: int | None
) -> None:
    legal = (dp * cp * tp) % ep == 0 and (degree is None or (dp * cp) % degree == 0)
    try:
        layout = Layout(dp=dp, cp=cp, tp=tp, ep=ep, shard_degree=degree, sharding="zero3")
    except LayoutError:
        assert not legal
        return
    assert legal
    assert layout.shards == (degree or dp * cp)
    assert layout.expert_shards >= 1
    if degree is None:
        # Experts, the ranks that split one, and the shards of a part use up all ranks of a stage.
        assert layout.expert_shards * ep * layout.expert_tp == dp * cp * tp


@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3"])
def test_shards(sharding: str) -> None:
    assert Layout(dp=4, cp=2, sharding=sharding).shards == 8  # type: ignore[arg-type]
    assert Layout(dp=4, cp=2).shards == 1
    assert Layout(dp=4, cp=2, sharding=sharding, shard_degree=2).shards == 2  # type: ignore[arg-type]


# helpers


@FIXED
@given(st.integers(1, 3000))
def test_divisors(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


@FIXED
@given(st.integers(1, 200), st.lists(st.integers(1, 200), max_size=8))
def test_nearest_is_among_the_legal(value: int, legal: list[int]) -> None:
    legal = sorted(set(legal))
    text = nearest(value, legal)
    if not legal:
        assert text == "none"
        return
    shown = [int(x) for x in text.split(" or ")]
    assert set(shown) <= set(legal)
    best = min(abs(x - value) for x in legal)
    assert math.isclose(min(abs(x - value) for x in shown), best)
    assert shown == [value] if value in legal else value not in shown


def test_text_names_what_differs_from_one() -> None:
    layout = Layout(dp=8, tp=4, sharding="zero3", shard_degree=4, recompute="full")
    assert str(layout) == "dp8 tp4 pp1 zero3/4 mb1 recompute-full"
