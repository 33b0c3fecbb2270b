"""What ranks of a replica send, and how long a ring takes for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.physics.collectives import (
    LAUNCH_SECONDS,
    Traffic,
    all_reduce_seconds,
    pipeline_traffic,
    tensor_traffic,
)

LLAMA = catalog.model("llama-3.1-70b")
NVLINK = catalog.fabric("nvlink-4")
PCIE = catalog.fabric("pcie-4")


def test_tensor_parallelism_reduces_twice_a_layer() -> None:
    traffic = tensor_traffic(LLAMA, 2048, 8)
    assert traffic.operations == 2 * 80
    assert traffic.bytes == 2 * 80 * 2048 * 8192 * 2
    assert tensor_traffic(LLAMA, 2048, 1) == Traffic(operations=0, bytes=0.0)


def test_stages_hand_the_residual_stream_over() -> None:
    assert pipeline_traffic(LLAMA, 2048, 4) == Traffic(operations=3, bytes=3 * 2048 * 8192 * 2)
    assert pipeline_traffic(LLAMA, 2048, 1).bytes == 0


def test_a_large_message_moves_at_the_achieved_rate_of_the_wire() -> None:
    message = Traffic(operations=1, bytes=8 * 2**30)
    assert NVLINK.efficiency is not None
    seconds = all_reduce_seconds(message, 8, NVLINK).value
    assert seconds == pytest.approx(2 * 7 / 8 * message.bytes / (450e9 * NVLINK.efficiency.value), rel=1e-3)


def test_a_small_message_takes_its_hops() -> None:
    seconds = all_reduce_seconds(Traffic(operations=1, bytes=0), 8, NVLINK).value
    assert seconds == pytest.approx(LAUNCH_SECONDS + 14 * 0.6e-6)


@given(size=st.floats(0, 1e12), ranks=st.integers(2, 64), operations=st.integers(1, 1000))
def test_time_grows_with_bytes_ranks_and_slower_wires(size: float, ranks: int, operations: int) -> None:
    here = all_reduce_seconds(Traffic(operations=operations, bytes=size), ranks, NVLINK)
    assert 0 < here.low <= here.value <= here.high
    assert (
        here.value <= all_reduce_seconds(Traffic(operations=operations, bytes=size), ranks + 1, NVLINK).value
    )
    assert (
        here.value <= all_reduce_seconds(Traffic(operations=operations, bytes=2 * size), ranks, NVLINK).value
    )
    assert here.value <= all_reduce_seconds(Traffic(operations=operations, bytes=size), ranks, PCIE).value
    assert all_reduce_seconds(Traffic(operations=operations, bytes=size), 1, NVLINK).value == 0
