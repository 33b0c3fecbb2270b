"""One GPU, one node or a cluster: what decides is what asks for most, and flips flip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.decision.answers import SCALES, scale_of, widest
from outgrow.decision.verdict import Verdict, decide, grown, judge
from outgrow.layout import Layout
from outgrow.workload.serving import ServingJob, Targets, Traffic
from outgrow.workload.training import TrainingJob
from outgrow.workload.workload import Availability, Budget, Growth, Sensitivity, Team, Workload

FIXED = settings(derandomize=True, deadline=None, max_examples=25)
HGX = catalog.target("8x h100-sxm")
BASE = Layout(recompute="full")
MODELS = ("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b")


def training(name: str = "llama-3.1-8b", budget: Budget | None = None, **job: Any) -> Workload:
    return Workload(model=name, training=TrainingJob(**job), budget=budget or Budget())


def serving(name: str = "llama-3.1-8b", rate: float | None = 1.0, **changes: Any) -> Workload:
    job = ServingJob(max_model_len=8192, traffic=Traffic(requests_per_second=rate))
    return replace(Workload(model=name, serving=job), **changes)


def verdict(workload: Workload, **more: Any) -> Verdict:
    return judge(workload, catalog.model(workload.model), HGX, more.get("base", BASE))


def whole(workload: Workload) -> Verdict:
    return decide(workload, catalog.model(workload.model), HGX, BASE)


def workloads() -> st.SearchStrategy[Workload]:
    teams = st.lists(
        st.builds(
            Team,
            name=st.sampled_from(("a", "b", "c")),
            gpus=st.integers(1, 8),
            hours_per_week=st.sampled_from((10.0, 80.0)),
            production=st.booleans(),
            isolated=st.booleans(),
        ),
        max_size=3,
    ).map(tuple)
    train = st.builds(
        TrainingJob,
        method=st.sampled_from(("full", "lora", "qlora")),
        tokens=st.sampled_from((None, 1e8, 1e11)),
        sequence_length=st.sampled_from((512, 4096)),
    )
    serve = st.builds(
        ServingJob,
        max_model_len=st.just(8192),
        weights=st.sampled_from((None, "fp8")),
        targets=st.sampled_from((Targets(), Targets(tpot_seconds=0.02, ttft_seconds=0.5))),
        traffic=st.sampled_from(
            (None, Traffic(), Traffic(requests_per_second=0.5), Traffic(requests_per_second=50.0))
        ),
    )
    common = {
        "model": st.sampled_from(MODELS),
        "growth": st.sampled_from(
            (Growth(), Growth(traffic=4.0, tokens=4.0), Growth(context=2.0, parameters=2.0))
        ),
        "sharing": teams,
        "availability": st.sampled_from(
            (Availability(), Availability(target=0.99), Availability(target=0.999))
        ),
        "sensitivity": st.sampled_from((Sensitivity(), Sensitivity(data_class="regulated", regions=("eu",)))),
        "budget": st.sampled_from((Budget(), Budget(deadline_seconds=86_400.0, operations="none"))),
    }
    return st.builds(Workload, training=train, **common) | st.builds(Workload, serving=serve, **common)


# scales


@pytest.mark.parametrize(
    ("gpus", "scale"),
    [(0, "single-gpu"), (1, "single-gpu"), (2, "one-node"), (8, "one-node"), (9, "cluster")],
)
def test_scales(gpus: int, scale: str) -> None:
    assert scale_of(gpus, 8) == scale


def test_the_widest() -> None:
    assert widest([]) == "single-gpu"
    assert widest(["one-node", "single-gpu"]) == "one-node"
    assert widest(["one-node", "cluster", "single-gpu"]) == "cluster"


# what holds for every verdict


@FIXED
@given(workload=workloads())
def test_a_verdict_is_the_most_that_its_answers_ask_for(workload: Workload) -> None:
    found = verdict(workload)
    counted = [a for a in found.answers if a.applies]
    assert found.gpus == max(a.gpus for a in counted)
    assert SCALES.index(found.scale) == max(
        SCALES.index(scale_of(found.gpus, 8)), *(SCALES.index(a.scale) for a in counted)
    )
    assert found.nodes * 8 >= found.gpus
    assert (found.tenancy == "private") == any(a.private for a in found.answers)
    assert found == verdict(workload)


@FIXED
@given(workload=workloads())
def test_what_decides_asks_for_the_most(workload: Workload) -> None:
    found = verdict(workload)
    answers = {a.question: a for a in found.answers}
    assert found.deciding
    assert all(slug in answers for slug in found.deciding)
    # Something among them needs that many GPUs, and something needs that scale.
    assert any(answers[slug].gpus == found.gpus for slug in found.deciding)
    assert any(answers[slug].scale == found.scale for slug in found.deciding)


@FIXED
@given(workload=workloads())
def test_every_answer_explains_itself(workload: Workload) -> None:
    found = verdict(workload)
    questions = [a.question for a in found.answers]
    assert len(questions) == len(set(questions))
    for a in found.answers:
        assert a.title
        assert a.text
        assert a.gpus >= 1
        if a.applies:
            assert a.how, a.question
            assert SCALES.index(a.scale) >= SCALES.index(scale_of(a.gpus, 8))
        for name, quantity in a.quantities:
            assert name
            assert quantity.source
            assert quantity.low <= quantity.value <= quantity.high


@FIXED
@given(workload=workloads())
def test_the_horizon_is_the_verdict_of_the_grown_workload(workload: Workload) -> None:
    found = whole(workload)
    assert found.horizon is not None
    later_workload, later_model = grown(workload, catalog.model(workload.model), 1.0)
    later = judge(later_workload, later_model, HGX, BASE)
    assert (found.horizon.scale, found.horizon.gpus) == (later.scale, later.gpus)
    assert (found.horizon.outgrown_in_months is not None) == (later.gpus > found.gpus)
    if workload.growth == Growth():
        assert (later.scale, later.gpus) == (found.scale, found.gpus)
    if found.horizon.outgrown_in_months is not None:
        # Just before it is enough, just after it is not.
        share = found.horizon.outgrown_in_months / workload.growth.months
        assert 0 < share <= 1
        after = judge(*grown(workload, catalog.model(workload.model), share), HGX, BASE)
        before = judge(*grown(workload, catalog.model(workload.model), max(0.0, share - 1 / 4096)), HGX, BASE)
        assert before.gpus <= found.gpus < after.gpus


def changed(workload: Workload, change: str) -> Workload:
    """The workload that the words of a flip describe."""
    job, serve, budget = workload.training, workload.serving, workload.budget
    words = {
        "LoRA instead of full fine-tuning": {"method": "lora"},
        "QLoRA instead of full fine-tuning": {"method": "qlora"},
        "a 4-bit base (QLoRA)": {"method": "qlora"},
        "full fine-tuning": {"method": "full"},
        "all states in bf16": {"precision": "bf16"},
    }
    if job is not None and change in words:
        return replace(workload, training=replace(job, **words[change]))
    if job is not None and change.endswith("the sequence"):
        return replace(
            workload,
            training=replace(
                job, sequence_length=int(job.sequence_length * float(change.split(maxsplit=1)[0]))
            ),
        )
    if change.endswith("the deadline"):
        assert budget.deadline_seconds is not None
        times = 0.5 if change.startswith("half") else float(change.split(maxsplit=1)[0])
        return replace(workload, budget=replace(budget, deadline_seconds=budget.deadline_seconds * times))
    if change in ("a restart is acceptable", "99.9 % availability"):
        target = None if change.startswith("a restart") else 0.999
        return replace(workload, availability=replace(workload.availability, target=target))
    assert serve is not None, change
    if change.endswith("weights"):
        form = {"fp8 weights": "fp8", "4-bit weights": "awq"}[change]
        return replace(workload, serving=replace(serve, weights=form))
    assert change.endswith("times the traffic"), change
    assert serve.traffic is not None
    assert serve.traffic.requests_per_second is not None
    rate = serve.traffic.requests_per_second * float(change.split(maxsplit=1)[0])
    return replace(workload, serving=replace(serve, traffic=replace(serve.traffic, requests_per_second=rate)))


@FIXED
@given(workload=workloads())
def test_flips_flip(workload: Workload) -> None:
    found = whole(workload)
    assert len({f.change for f in found.flips}) == len(found.flips)
    for flip in found.flips:
        then = verdict(changed(workload, flip.change))
        assert then.scale != found.scale or then.gpus >= 2 * found.gpus or then.gpus <= found.gpus / 2
        assert str(then.gpus) in flip.then
        if then.scale != found.scale:
            assert then.name in flip.then


# directions


@FIXED
@given(
    name=st.sampled_from(MODELS), rate=st.floats(0.01, 200), times=st.floats(1, 20), peak=st.floats(1, 5),
    target=st.sampled_from((None, 0.99, 0.999)),
)  # fmt: skip
def test_more_traffic_never_needs_fewer_gpus(
    name: str, rate: float, times: float, peak: float, target: float | None
) -> None:
    def at(requests: float, factor: float = 1.0) -> Verdict:
        job = ServingJob(
            max_model_len=8192, traffic=Traffic(requests_per_second=requests, peak_factor=factor)
        )
        return verdict(Workload(model=name, serving=job, availability=Availability(target=target)))

    here = at(rate)
    for more in (at(rate * times), at(rate, peak)):
        assert more.gpus >= here.gpus
        assert SCALES.index(more.scale) >= SCALES.index(here.scale)


@FIXED
@given(name=st.sampled_from(MODELS), tokens=st.floats(1e7, 1e12), times=st.floats(1, 100))
def test_more_tokens_or_less_time_never_need_fewer_gpus(name: str, tokens: float, times: float) -> None:
    def at(count: float, seconds: float) -> int:
        return verdict(training(name, Budget(deadline_seconds=seconds), tokens=count)).gpus

    here = at(tokens, 86_400.0)
    assert at(tokens * times, 86_400.0) >= here
    assert at(tokens, 86_400.0 / times) >= here
    assert at(tokens, 86_400.0 * times) <= here


@FIXED
@given(workload=workloads(), more=st.integers(1, 8))
def test_more_teams_never_need_fewer_gpus(workload: Workload, more: int) -> None:
    team = Team(name="new", gpus=more, hours_per_week=100)
    assert verdict(replace(workload, sharing=(*workload.sharing, team))).gpus >= verdict(workload).gpus


@FIXED
@given(workload=workloads())
def test_a_promise_never_needs_fewer_gpus(workload: Workload) -> None:
    sizes = [
        verdict(replace(workload, availability=Availability(target=target))).gpus
        for target in (None, 0.9, 0.99, 0.999, 0.9999)
    ]
    assert sizes == sorted(sizes)


# by hand


def test_a_small_model_is_one_gpu() -> None:
    found = verdict(serving("llama-3.2-1b", rate=0.1))
    assert (found.scale, found.gpus, found.nodes, found.tenancy) == ("single-gpu", 1, 1, "shared")


def test_full_tuning_of_8b_is_one_node() -> None:
    # 16 B x 8.03e9 = 128 GB and more: two GPUs of 80 GB hold 64 each, with gathered layers and gradients; not one.
    found = verdict(training("llama-3.1-8b"))
    assert found.scale == "one-node"
    assert 2 <= found.gpus <= 4
    assert found.deciding == ("fits",)


def test_full_tuning_of_405b_is_a_cluster() -> None:
    # 16 x 405e9 B = 6.5 TB: 81 GPUs of 80 GB for the states alone.
    found = verdict(training("llama-3.1-405b", global_batch=512))
    assert found.scale == "cluster"
    assert found.gpus > 81


def test_sensitive_data_asks_for_tenancy_and_not_for_size() -> None:
    plain = verdict(serving())
    secret = verdict(serving(sensitivity=Sensitivity(data_class="regulated")))
    assert (plain.tenancy, secret.tenancy) == ("shared", "private")
    assert (plain.scale, plain.gpus) == (secret.scale, secret.gpus)
    assert secret.name.endswith(", private")


def test_high_availability_asks_for_machines_that_fail_apart() -> None:
    found = verdict(serving("llama-3.2-1b", rate=0.1, availability=Availability(target=0.999)))
    assert found.scale == "cluster"
    assert (found.gpus, found.nodes) == (2, 2)
    assert found.deciding == ("downtime",)


def test_what_decided_is_named_where_scale_and_size_have_two_reasons() -> None:
    # Traffic or sharing asks for eight GPUs of one node, availability for two machines: both decide.
    teams = (Team(name="a", gpus=8), Team(name="b", gpus=1, hours_per_week=1))
    found = verdict(serving("llama-3.2-1b", rate=0.1, availability=Availability(target=0.999), sharing=teams))
    assert (found.scale, found.gpus) == ("cluster", 8)
    assert set(found.deciding) == {"sharing", "downtime"}


def test_teams_by_hand() -> None:
    # 2 x 4 GPUs x 60 h = 480 GPU-hours over 168 x 0.7 = 117.6: 4.08, so 5 GPUs.
    teams = (Team(name="a", gpus=4, hours_per_week=60), Team(name="b", gpus=4, hours_per_week=60))
    answers = {a.question: a for a in verdict(serving("llama-3.2-1b", rate=0.1, sharing=teams)).answers}
    assert answers["sharing"].gpus == 5
    assert not answers["sharing"].private
    isolated = (replace(teams[0], isolated=True), teams[1])
    answers = {a.question: a for a in verdict(serving("llama-3.2-1b", rate=0.1, sharing=isolated)).answers}
    # A machine for the one that may not share, and elsewhere the four GPUs of the other.
    assert answers["sharing"].gpus == 12
    assert answers["sharing"].private


def test_growth_by_hand() -> None:
    model = catalog.model("llama-3.1-8b")
    start = serving(rate=8.0, growth=Growth(months=12, traffic=4.0, context=2.0, parameters=2.0))
    later, bigger = grown(start, model, 1.0)
    assert later.serving is not None
    assert later.serving.traffic is not None
    assert later.serving.traffic.requests_per_second == 32.0
    assert later.serving.traffic.input_tokens == 2048
    assert later.serving.max_model_len == 16_384
    assert len(bigger.layers) == 64
    half, _ = grown(start, model, 0.5)
    assert half.serving is not None
    assert half.serving.traffic is not None
    # Growing evenly: twice after half of the time.
    assert half.serving.traffic.requests_per_second == pytest.approx(16.0)
    assert grown(start, model, 0.0) == (start, replace(model, name=grown(start, model, 0.0)[1].name))


def test_experts_spread_out_are_judged() -> None:
    found = verdict(training("mixtral-8x7b"), base=Layout(dp=8, ep=8, recompute="full"))
    assert found.gpus >= 8
