"""The usual layout: what is given stays, what is not is filled in and told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.layout import Layout
from outgrow.physics.memory.serving import minimum_bytes
from outgrow.planning.feasible import legal_tensor_parallel, valid_tensor_parallel
from outgrow.planning.usual import (
    WEIGHTS_SHARE,
    narrowest_tensor_parallel,
    serving_split,
    training_layout,
    with_accumulation,
)
from outgrow.units import GIB
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob
from outgrow.workload.workload import LayoutChoice

FIXED = settings(derandomize=True, deadline=None, max_examples=80)


@FIXED
@given(
    gpus=st.sampled_from((1, 2, 8, 64, 512)), tp=st.sampled_from((None, 1, 2)), pp=st.sampled_from((None, 1)),
    micro=st.sampled_from((None, 4)), sharding=st.sampled_from((None, "zero1")),
    recompute=st.sampled_from((None, "selective")),
)  # fmt: skip
def test_what_is_given_stays_and_the_rest_is_told(
    gpus: int, tp: int | None, pp: int | None, micro: int | None, sharding: str | None, recompute: str | None
) -> None:
    choice = LayoutChoice(tp=tp, pp=pp, micro_batch=micro, sharding=sharding, recompute=recompute)  # type: ignore[arg-type]
    layout, assumed = training_layout(TrainingJob(), choice, gpus)
    assert layout.tp == (tp or 1)
    assert layout.micro_batch == (micro or 1)
    assert layout.gpus == max(gpus, tp or 1)
    assert layout.sharding == (sharding or ("zero3" if layout.dp > 1 else "none"))
    names = {a.name for a in assumed}
    assert ("layout.micro_batch" in names) == (micro is None)
    assert ("layout.recompute" in names) == (recompute is None)
    assert ("layout.sharding" in names) == (sharding is None and layout.dp > 1)
    assert all(a.value and a.why for a in assumed)


def test_accumulation_makes_up_the_global_batch() -> None:
    assert with_accumulation(TrainingJob(global_batch=256), Layout(dp=8, micro_batch=4)).accumulation == 8
    assert with_accumulation(TrainingJob(global_batch=4), Layout(dp=8)).accumulation == 1
    assert with_accumulation(TrainingJob(global_batch=8, accumulation=3), Layout(dp=8)).accumulation == 3


@pytest.mark.parametrize(
    ("name", "memory", "tp"),
    # 16 GB of weights on 80 GiB; 141 GB: on two of 80 GiB 71 each, more than 80 %; on four 35.
    [("llama-3.1-8b", 80, 1), ("llama-3.1-70b", 80, 4), ("llama-3.1-70b", 141, 2), ("llama-3.1-405b", 80, 8)],
)
def test_the_narrowest_that_leaves_room(name: str, memory: int, tp: int) -> None:
    model = catalog.model(name)
    assert narrowest_tensor_parallel(model, ServingJob(), limit=8, device_bytes=memory * GIB) == tp
    if tp > 1 and name != "llama-3.1-405b":
        fits = minimum_bytes(model, ServingJob(tp=tp)) <= WEIGHTS_SHARE * memory * GIB
        narrower = minimum_bytes(model, ServingJob(tp=tp // 2)) <= WEIGHTS_SHARE * memory * GIB
        assert (fits, narrower) == (True, False)


@FIXED
@given(
    name=st.sampled_from(("llama-3.1-8b", "qwen2.5-7b", "llama-3.1-70b")), gpus=st.sampled_from((1, 2, 4, 8, 16)),
    memory=st.floats(16, 200),
)  # fmt: skip
def test_replicas_take_the_other_gpus(name: str, gpus: int, memory: float) -> None:
    model = catalog.model(name)
    job, assumed = serving_split(model, ServingJob(), gpus=gpus, gpus_per_node=8, device_bytes=memory * GIB)
    assert job.tp * job.pp * job.replicas <= gpus
    assert job.tp in valid_tensor_parallel(model)
    assert job.tp <= min(gpus, 8)
    if gpus > 1:
        assert assumed
        assert job.replicas == gpus // (job.tp * job.pp)
        assert job.pp == 1 or job.tp == min(gpus, 8) or job.tp == legal_tensor_parallel(model, most=8)[-1]
    given_, said = serving_split(
        model, ServingJob(tp=2), gpus=max(2, gpus), gpus_per_node=8, device_bytes=memory * GIB
    )
    assert given_.tp == 2
    assert given_.replicas == max(2, gpus) // 2
    assert said == ()
