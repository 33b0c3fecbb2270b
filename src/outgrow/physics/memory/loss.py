"""The peak at the loss: logits, their copies and their gradients, in bytes of one (token, vocabulary entry) pair."""

from __future__ import annotations

from outgrow.layout import Layout
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob

# What is alive at once, in bytes per logit of a 16-bit model.
# plain: backward pass with fp32 log-softmax 4, gradient of the loss 4, gradient of the softmax 4 (the forward pass
# needs 16-bit logits 2, fp32 copy 4, log-softmax 4).
PLAIN = 12.0
# the same where the logits are shifted by a copy: 16-bit logits 2, fp32 copy 4, shifted copy 4, log-softmax 4.
PLAIN_SHIFTED = 14.0
# in-place: 16-bit logits 2, fp32 copy 4 that becomes its own gradient, gradient cast back to 16 bits 2.
IN_PLACE = 8.0
# plain without the upcast: logits, log-softmax, and two gradients in 16 bits.
NO_UPCAST = 8.0
# vocabulary-parallel cross-entropy of Megatron: 16-bit logits 2, fp32 copy 4 that is turned into its own softmax.
PARALLEL = 6.0
# its fused form: 16-bit logits and a gradient of the same width.
PARALLEL_FUSED = 4.0
# the same on distributed tensors (PyTorch's loss_parallel), whose steps are separate operations: log-softmax,
# zero-filled gradient, exponentials, their difference and its product, all fp32.
PARALLEL_UNFUSED = 20.0
# torch.compile of the loss: 16-bit logits and one fp32 copy.
COMPILED = 6.0
# one chunk of a chunked loss: fp32 copy, log-softmax, gradient.
CHUNK = 12.0
COMPILED_CHUNK = 4.0


def logits_bytes(model: ModelShape, job: TrainingJob, layout: Layout, tokens: float) -> float:
    """Bytes at the loss for `tokens` on the rank that holds the output head."""
    if not model.has_head:
        return 0.0
    vocab = model.vocab / (layout.tp if layout.tp > 1 else 1)
    logits = tokens * vocab
    if job.objective == "dpo":
        # Chosen and rejected are one batch; log-probabilities of policy and reference are reduced one after the other.
        logits *= 1
    a = job.regime.activation
    match job.loss:
        case "plain":
            return logits * (PLAIN if a == 2 else 16.0)
        case "plain-shifted":
            return logits * (PLAIN_SHIFTED if a == 2 else 16.0)
        case "plain-no-upcast":
            return logits * NO_UPCAST
        case "in-place":
            return logits * IN_PLACE
        case "parallel":
            return logits * PARALLEL
        case "parallel-fused":
            return logits * PARALLEL_FUSED
        case "parallel-unfused":
            return logits * PARALLEL_UNFUSED
        case "compiled":
            return logits * COMPILED
        case "chunked":
            # All chunks' 16-bit logits are kept, and their gradients are made chunk by chunk.
            piece = CHUNK if job.kernels == "eager" else COMPILED_CHUNK
            return logits * (a + piece / job.loss_chunks)
        case "fused":
            # Linear layer and loss in one: a chunk of logits at a time, and the gradient of the hidden states.
            return logits * (a + CHUNK) / fused_chunks(model) + tokens * model.hidden * a
    raise AssertionError(job.loss)


def fused_chunks(model: ModelShape) -> int:
    """Pieces that a fused linear loss cuts the tokens into: as many as the vocabulary is wider than the model."""
    return max(1, -(-model.vocab // model.hidden))


def logits_gradient_bytes(model: ModelShape, job: TrainingJob, layout: Layout, tokens: float) -> float:
    """Gradient of the logits while the head itself is differentiated."""
    return tokens * model.vocab / layout.tp * job.regime.activation if model.has_head else 0.0


def head_gradient_bytes(model: ModelShape, job: TrainingJob, layout: Layout) -> float:
    """Weight gradient of the head that a fused loss makes in the forward pass."""
    if job.loss != "fused" or not job.trains_all or not model.has_head:
        return 0.0
    return model.embedding_parameters / layout.tp * job.regime.activation
