"""The peak at the loss, counted tensor by tensor: bytes per (token, vocabulary entry)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.layout import Layout
from outgrow.physics.memory.loss import loss_bytes
from outgrow.workload.training import TrainingJob

from .shapes import VOCAB, decoder, jobs, known

FIXED = settings(derandomize=True, deadline=None, max_examples=80)
BF16 = TrainingJob(precision="bf16")
TOKENS = 1024


def per_logit(job: TrainingJob) -> tuple[float, float]:
    forward, backward = loss_bytes(decoder(), job, Layout(), TOKENS)
    return forward / (TOKENS * VOCAB), backward / (TOKENS * VOCAB)


def test_plain() -> None:
    # Forward: logits 2, fp32 copy 4, log-softmax 4. Backward: log-softmax 4, gradient of it 4, its result 4.
    assert per_logit(BF16) == (10, 12)
    # Without the upcast: logits 2 and log-softmax 2; then log-softmax and two gradients.
    assert per_logit(replace(BF16, loss="plain-no-upcast")) == (4, 6)


@pytest.mark.parametrize("chunks", [2, 8, 64])
def test_chunked(chunks: int) -> None:
    # Every chunk's fp32 log-softmax stays; one chunk has 16-bit logits and an fp32 copy beside it.
    forward, backward = per_logit(replace(BF16, loss="chunked", loss_chunks=chunks))
    assert forward == pytest.approx(4 + 6 / chunks)
    # Gradients are made a chunk at a time.
    assert backward <= 12


def test_a_fused_loss_works_in_pieces() -> None:
    # Llama-3: 128,256 / 4096 = 31.3, so 32 pieces of 8192 tokens: 256 tokens at a time, a power of two.
    model = known("llama-3.1-8b")
    forward, _ = loss_bytes(model, replace(BF16, loss="fused"), Layout(), 8192)
    # The gradient of the hidden states, and of one piece at least its 16-bit logits and an fp32 copy, at most four fp32.
    hidden = 2 * 8192 * 4096
    assert hidden + 256 * 128_256 * 6 <= forward <= hidden + 256 * 128_256 * 16
    plain, _ = loss_bytes(model, BF16, Layout(), 8192)
    assert forward < plain / 10


def test_a_soft_cap_keeps_one_tensor_more() -> None:
    capped = replace(decoder(), logit_softcap=True)
    for at in (0, 1):
        more = (
            loss_bytes(capped, BF16, Layout(), TOKENS)[at] - loss_bytes(decoder(), BF16, Layout(), TOKENS)[at]
        )
        assert more == 2 * TOKENS * VOCAB


def test_llama_at_eight_thousand_tokens() -> None:
    # 12 B x 8192 x 128,256 = 12.6 GB: more than the weights of a small model.
    assert loss_bytes(known("llama-3.1-8b"), BF16, Layout(), 8192)[1] == 12 * 8192 * 128_256


@FIXED
@given(job=jobs(), tokens=st.sampled_from((1, 16, 4096, 131_072)), tp=st.sampled_from((1, 2, 8)))
def test_a_loss_grows_with_tokens_and_shrinks_with_ranks(job: TrainingJob, tokens: int, tp: int) -> None:
    model = known("llama-3.2-1b")
    one = loss_bytes(model, job, Layout(tp=tp), tokens)
    more = loss_bytes(model, job, Layout(tp=tp), 2 * tokens)
    wide = loss_bytes(model, job, Layout(tp=2 * tp), tokens)
    for at in (0, 1):
        assert 0 < one[at] <= more[at]
        assert wide[at] <= one[at]


@FIXED
@given(job=jobs(), chunks=st.integers(2, 64))
def test_chunks_never_cost_more_than_the_whole(job: TrainingJob, chunks: int) -> None:
    model = known("llama-3.2-1b")
    plain = loss_bytes(model, replace(job, loss="plain"), Layout(), 4096)
    pieces = loss_bytes(model, replace(job, loss="chunked", loss_chunks=chunks), Layout(), 4096)
    fused = loss_bytes(model, replace(job, loss="fused"), Layout(), 4096)
    finer = loss_bytes(model, replace(job, loss="chunked", loss_chunks=2 * chunks), Layout(), 4096)
    assert max(pieces) <= max(plain)
    assert max(finer) <= max(pieces)
    assert max(fused) <= max(plain)


def test_no_head_no_loss() -> None:
    assert loss_bytes(replace(decoder(), has_head=False), BF16, Layout(), TOKENS) == (0, 0)
