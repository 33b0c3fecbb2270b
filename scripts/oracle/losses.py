"""The ways to get from the last hidden states to a loss, each as the libraries in use do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from combos import Combo
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CHUNKS = 8


def _projected(chunk: torch.Tensor, labels: torch.Tensor, head: Any, softcap: float | None) -> torch.Tensor:
    logits = head(chunk)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return functional.cross_entropy(logits.float(), labels, reduction="sum")


def chunked(
    hidden: torch.Tensor, labels: torch.Tensor, head: Any, softcap: float | None, *, recompute: bool
) -> torch.Tensor:
    """Project and reduce one part of the tokens after the other; with recompute, keep no logits at all."""
    total: Any = 0.0
    for part, target in zip(hidden.flatten(0, 1).chunk(CHUNKS), labels.flatten().chunk(CHUNKS), strict=True):
        if recompute:
            total = total + checkpoint(_projected, part, target, head, softcap, use_reentrant=False)
        else:
            total = total + _projected(part, target, head, softcap)
    return total / labels.numel()


class FusedLinearCrossEntropy(torch.autograd.Function):
    """Gradients of hidden states and head are made in the forward, so that logits live for one part only.

    Stands for the fused kernels of Liger: the number of parts follows from V/h, the loss and the gradient of
    the logits are written in place by the kernel, and each part's product for the weight is made in the
    compute type and again as fp32 before it is added.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cuda"):
            # `custom_fwd` leaves the inputs as they are; each product casts its own operands.
            hidden_c, weight_c = hidden, weight.to(torch.get_autocast_dtype("cuda"))
        else:
            hidden_c, weight_c = hidden, weight
        tokens, width = hidden.shape
        ratio = -(-weight.shape[0] // width)
        size = 1 << (-(-tokens // ratio) - 1).bit_length()
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        losses = torch.zeros(tokens, dtype=torch.float32, device=hidden.device)
        for start in range(0, tokens, size):
            part = hidden_c[start : start + size]
            grad_logits = part.to(weight_c.dtype) @ weight_c.t()
            target = labels[start : start + size]
            losses[start : start + size].add_(target.ne(-100))
            grad_hidden[start : start + size] = grad_logits @ weight_c
            if grad_weight is not None:
                grad_weight += torch.mm(grad_logits.t(), part.to(weight_c.dtype)).float()
        ctx.save_for_backward(grad_hidden, grad_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        grad_hidden, grad_weight = ctx.saved_tensors
        grad_hidden.mul_(grad_output)
        if grad_weight is not None:
            grad_weight.mul_(grad_output)
        return grad_hidden, grad_weight, None


def compute(
    combo: Combo, model: Any, ids: torch.Tensor, hidden_done: Callable[[torch.Tensor], None]
) -> tuple[torch.Tensor, Any]:
    """The loss of one batch, and what the training loop keeps besides it."""
    name = combo.loss
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    # With a mask given, the model cannot see that it hides nothing: the same as a batch with padding.
    inputs = {"input_ids": ids} | ({"attention_mask": torch.ones_like(ids)} if combo.padded else {})
    softcap = getattr(base.config, "final_logit_softcapping", None)
    if name in ("plain", "plain_keep"):
        out = model(**inputs, labels=ids)
        return out.loss, (out if name == "plain_keep" else None)
    if name == "plain_noupcast":
        logits = model(**inputs).logits
        return functional.cross_entropy(logits.flatten(0, 1), ids.flatten()), None
    # The head is used apart from the model's own forward, as the libraries that replace that forward do.
    body = base.get_decoder() if hasattr(base, "get_decoder") else base.model
    hidden = body(**inputs).last_hidden_state
    hidden_done(hidden)
    head = base.get_output_embeddings()
    if name in ("chunked", "chunked_recompute"):
        return chunked(hidden, ids, head, softcap, recompute=name == "chunked_recompute"), None
    if name == "fused":
        return FusedLinearCrossEntropy.apply(hidden.flatten(0, 1), head.weight, ids.flatten()), None
    raise ValueError(f"unknown loss {name!r}")
