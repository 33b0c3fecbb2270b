"""Verdicts that were wrong once: each of them by the file or the name that showed it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import outgrow
from outgrow.decision.answers import Answer
from outgrow.decision.verdict import Verdict
from outgrow.errors import InputError

ROOT = Path(__file__).parents[2]
CHAT = str(ROOT / "examples" / "chat-8b.yaml")
SFT = str(ROOT / "examples" / "sft-70b.yaml")
FREE = "availability.target=null"


def verdict(what: str, *settings: str, on: str = "h100-sxm", job: Any = None) -> Verdict:
    return outgrow.decide(what, on=on, job=job, overrides=settings).value.verdict


def answer(of: Verdict, question: str) -> Answer:
    return next(a for a in of.answers if a.question == question)


def test_a_given_width_is_counted() -> None:
    staged = verdict(CHAT, FREE, "model=llama-3.1-70b", "serving.pp=4")
    assert answer(staged, "fits").gpus == 4
    assert staged.gpus % 4 == 0
    spread = verdict(CHAT, FREE, "model=deepseek-v3", "serving.ep=64", "serving.traffic.input_tokens=512")
    assert answer(spread, "fits").gpus == 64


def test_expert_parallelism_takes_its_gpus() -> None:
    with pytest.raises(InputError, match="needs 64 GPUs"):
        outgrow.fit("deepseek-v3", on="1xh100-sxm", overrides=["serving.ep=64", "serving.max_model_len=4096"])
    sizes = {
        ep: sum(
            t.bytes
            for t in outgrow.fit(
                "deepseek-v3", on="hgx-h200", overrides=["serving.tp=8", f"serving.ep={ep}"]
            ).value.fit.terms
            if t.name == "weights"
        )
        for ep in (1, 2, 4, 8)
    }
    assert max(sizes.values()) == pytest.approx(min(sizes.values()), rel=0.02)
    with pytest.raises(InputError, match=r"serving\.ep"):
        outgrow.fit("deepseek-v3", on="hgx-h200", overrides=["serving.tp=4", "serving.ep=6"])


@pytest.mark.parametrize(
    ("what", "on", "job", "settings"),
    [
        (SFT, "h100-sxm", None, ()), (SFT, "rtx-4090", None, ()), (SFT, "h100-sxm", None, ("layout.pp=8",)),
        ("llama-3.1-8b", "rtx-4090", "qlora", ()), ("llama-3.1-8b", "dgx-spark", "training", ()),
        ("kimi-k2", "h100-sxm", None, ()), ("llama-3.1-405b", "l4", None, ()), (CHAT, "h100-sxm", None, ()),
        ("llama-3.1-70b", "l4", "training", ()), ("qwen3-32b", "l40s", "lora", ("training.global_batch=64",)),
    ],
)  # fmt: skip
def test_what_is_decided_fits_when_it_is_asked_next(
    what: str, on: str, job: Any, settings: tuple[str, ...]
) -> None:
    import shlex

    result = outgrow.decide(what, on=on, job=job, overrides=settings)
    assert not result.value.verdict.impossible
    words = shlex.split(result.next)
    assert words[:3] == ["outgrow", "fit", what]
    options = list(zip(words[3::2], words[4::2], strict=True))
    again = outgrow.fit(
        what,
        on=dict(options)["--on"],
        job=dict(options).get("--for"),
        overrides=[v for k, v in options if k == "--set"],  # type: ignore[arg-type]
    )
    assert again.value.fit.fits, result.next


def test_what_fits_nowhere_has_no_number() -> None:
    found = verdict("llama-3.1-8b", "training.sequence_length=100000000", job="training")
    assert found.impossible == ("fits",)
    document = outgrow.decide(
        "llama-3.1-8b", on="h100-sxm", job="training", overrides=["training.sequence_length=100000000"]
    ).to_dict()
    assert document["result"]["gpus"] is None
    assert "NOT ON THIS GPU" in found.name
    assert all(not flip.then.endswith("instead of 1") for flip in found.flips)


def test_stages_that_do_not_sum_are_no_traceback() -> None:
    verdict(SFT, "layout.pp=2", "layout.stage_layers=[41,41]")
    verdict(SFT, "layout.pp=2", "layout.stage_layers=[40,40]", "growth.parameters=0.5")


def test_no_traffic_is_little_traffic() -> None:
    none = verdict(CHAT, FREE, "serving.traffic.requests_per_second=0")
    assert (none.gpus, none.impossible) == (1, ())
    closed = verdict(
        CHAT, FREE, "serving.traffic={concurrency: 5000, input_tokens: 1000, output_tokens: 200}"
    )
    assert closed.gpus > 1


def test_a_modest_promise_needs_no_spare() -> None:
    found = verdict(CHAT, "serving.traffic.requests_per_second=60", "availability.target=0.5")
    assert answer(found, "downtime").text.startswith("yes")
    assert found.gpus == answer(found, "traffic").gpus


def test_a_batch_bounds_the_gpus_of_a_deadline() -> None:
    found = verdict(SFT, "training.global_batch=8", "training.tokens=100B", "budget.deadline=1 day")
    assert "fast-enough" in found.impossible
    assert "global batch of 8" in answer(found, "fast-enough").text


def test_isolated_teams_take_machines() -> None:
    teams = "sharing=[{name: a, gpus: 1, isolated: true}, {name: b, gpus: 1, isolated: true}]"
    assert answer(verdict(CHAT, FREE, teams), "sharing").gpus == 16
    large = "sharing=[{name: a, gpus: 16, isolated: true}, {name: b, gpus: 1}]"
    assert answer(verdict(CHAT, FREE, large), "sharing").gpus == 17


def test_a_target_is_met_or_said_to_be_out_of_reach() -> None:
    calm = verdict(CHAT, FREE, "serving.traffic.requests_per_second=0.01", "serving.targets.tpot=10ms")
    assert not calm.impossible
    never = verdict(CHAT, FREE, "serving.targets.tpot=10us")
    assert "latency" in never.impossible


def test_requests_longer_than_the_engine_takes_are_refused() -> None:
    with pytest.raises(InputError, match=r"longer than serving\.max_model_len, 8,192"):
        verdict(CHAT, "serving.max_model_len=8192", "serving.traffic.input_tokens=100000")
    with pytest.raises(InputError, match="longer than the context of"):
        verdict(CHAT, "serving.max_model_len=null", "serving.traffic.input_tokens=200000")


def test_what_was_given_is_not_assumed() -> None:
    names = {a.name for a in outgrow.decide(SFT, on="h100-sxm").assumed}
    assert not names & {"training.precision", "training.sequence_length", "training.global_batch"}


def test_five_gpus_train_with_the_batch_that_nobody_gave() -> None:
    assert outgrow.fit("llama-3.1-8b", on="5xh100-sxm", job="training").value.fit.fits


def test_a_default_context_does_not_ask_for_a_second_gpu() -> None:
    assert outgrow.fit("llama-3.1-8b", on="rtx-4090").value.fit.fits
    assert verdict("llama-3.1-8b", on="rtx-4090").gpus == 1


@pytest.mark.parametrize(
    ("what", "job", "settings"),
    [
        ("llama-3.1-8b", "training", ("layout.pp=1000000",)),
        (
            "llama-3.1-8b",
            "training",
            ("layout.dp=999983", "layout.tp=999979", "layout.cp=999961", "layout.ep=7"),
        ),
        ("llama-3.1-8b", "training", ("layout.tp=1000000",)),
        (
            "llama-3.1-8b",
            "training",
            ("training.global_batch=1000000000", "training.tokens=1e18", "budget.deadline=1s"),
        ),
        ("llama-3.1-8b", None, ("serving.pp=1000000",)),
        ("llama-3.1-8b", None, ("serving.ep=1000000",)),
        (CHAT, None, ("serving.traffic.requests_per_second=10000000", "growth.traffic=1000000")),
    ],
)
def test_numbers_of_another_world_end_in_an_answer_or_a_refusal(
    what: str, job: Any, settings: tuple[str, ...]
) -> None:
    for ask in (outgrow.fit, outgrow.decide):
        # A refusal is an answer too; an endless loop, or a traceback of any other kind, is not.
        with suppress(InputError):
            assert ask(what, on="h100-sxm", job=job, overrides=settings).value is not None


def test_more_stages_than_layers_are_refused_with_the_number() -> None:
    with pytest.raises(InputError, match="32 layers cannot fill pp x vpp = 64 chunks"):
        outgrow.fit("llama-3.1-8b", on="64xh100-sxm", job="training", overrides=["layout.pp=64"])


def test_what_is_given_and_changes_nothing_is_told() -> None:
    result = outgrow.decide(
        CHAT, on="h100-sxm", overrides=["budget.per_month=1", "serving.speculative_tokens=4"]
    )
    told = [f.message for f in result.findings if f.code == "not-counted"]
    assert len(told) == 2
    assert all(name in str(result) for name in ("budget.per_month", "serving.speculative_tokens"))
