"""The peak at the loss: logits, their copies and their gradients, in bytes of one (token, vocabulary entry) pair."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.layout import Layout
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCost:
    """Bytes per logit alive at once while the loss is computed and while it is differentiated."""

    forward: float
    backward: float
    what: str


# For 16-bit activations. `plain` and `plain-no-upcast` are what PyTorch's own tracker counts
# (validation/data/fake_tensor_memory.csv); the others follow from the operations that they name.
LOSSES: dict[str, LossCost] = {
    "plain": LossCost(forward=10, backward=12, what="16-bit logits 2, fp32 copy 4, log-softmax 4; then log-softmax and two gradients, fp32"),
    "plain-shifted": LossCost(forward=14, backward=12, what="as plain, with a shifted fp32 copy of the logits (transformers before 4.46)"),
    "plain-no-upcast": LossCost(forward=4, backward=6, what="everything in 16 bits"),
    "in-place": LossCost(forward=6, backward=8, what="fp32 copy 4 that becomes its own gradient, 16-bit logits 2, gradient cast back 2"),
    "compiled": LossCost(forward=6, backward=6, what="16-bit logits and one fp32 copy"),
    "parallel": LossCost(forward=6, backward=6, what="16-bit logits 2, fp32 copy 4 that is turned into its own softmax (Megatron)"),
    "parallel-fused": LossCost(forward=4, backward=4, what="16-bit logits and a gradient of the same width"),
    "parallel-unfused": LossCost(forward=14, backward=20, what="log-softmax, zero-filled gradient, exponentials, difference, product, all fp32 (loss_parallel)"),
}  # fmt: skip
FP32_LOSS = LossCost(
    forward=8, backward=12, what="fp32 logits, log-softmax; then log-softmax and two gradients"
)

CHUNK = 6.0
"""One chunk of a chunked loss beside the fp32 log-softmax of all: 16-bit logits and an fp32 copy."""
COMPILED_CHUNK = 4.0
FUSED_CHUNK = 14.0
"""One chunk of a fused linear loss: 16-bit logits, fp32 copy, softmax, gradient."""


def loss_cost(job: TrainingJob) -> LossCost:
    """Bytes per logit of a job's loss, for losses whose cost does not depend on sizes."""
    if job.loss == "chunked":
        if job.kernels == "eager":
            return LossCost(
                forward=4 + CHUNK / job.loss_chunks,
                backward=4 + CHUNK / job.loss_chunks,
                what="fp32 log-softmax of all chunks, and one chunk's copies",
            )
        kept = job.regime.activation
        return LossCost(
            forward=kept + COMPILED_CHUNK / job.loss_chunks,
            backward=kept + COMPILED_CHUNK / job.loss_chunks,
            what="16-bit logits of all chunks, fp32 of one",
        )
    return FP32_LOSS if job.regime.activation == 4 else LOSSES[job.loss]


def loss_bytes(model: ModelShape, job: TrainingJob, layout: Layout, tokens: float) -> tuple[float, float]:
    """(forward, backward) bytes at the loss for `tokens` on the rank that holds the output head."""
    if not model.has_head:
        return 0.0, 0.0
    logits = tokens * model.vocab / layout.tp
    if job.loss == "fused":
        # Linear layer and loss in one: a chunk of logits at a time, and the gradient of the hidden states.
        size = (
            fused_chunk_tokens(model, tokens) * model.vocab * FUSED_CHUNK
            + tokens * model.hidden * job.regime.activation
        )
        return size, size
    cost = loss_cost(job)
    capped = 2.0 if model.logit_softcap else 0.0
    return logits * (cost.forward + capped), logits * (cost.backward + capped)


def fused_chunk_tokens(model: ModelShape, tokens: float) -> float:
    """Tokens of one chunk: about as many pieces as the vocabulary is wider than the model, a power of two each."""
    pieces = max(1, -(-model.vocab // model.hidden))
    size = 1
    while size < tokens / pieces:
        size *= 2
    return min(float(size), tokens)


def logits_gradient_bytes(model: ModelShape, job: TrainingJob, layout: Layout, tokens: float) -> float:
    """Gradient of the logits while the head itself is differentiated."""
    if not model.has_head or job.loss == "fused":
        return 0.0
    pieces = job.loss_chunks if job.loss == "chunked" else 1
    return tokens * model.vocab / layout.tp * job.regime.activation / pieces
