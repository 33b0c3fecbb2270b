"""How an architecture computes, where that decides what it keeps in memory: its norms, soft caps, fused projections.

These change no parameter count; they change what the backward pass needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from outgrow.workload.mixers import SelfAttention
from outgrow.workload.model import FeedForward, ModelShape, NormKind

LAYER_NORM = frozenset({
    "bert", "bloom", "bart", "codegen", "cohere", "cohere2", "dbrx", "distilbert", "falcon", "gpt2", "gpt_bigcode", "gpt_neo",
    "gpt_neox", "gptj", "mbart", "mpt", "nemotron", "olmo", "opt", "persimmon", "phi", "phi-msft", "roberta", "stablelm",
    "starcoder2", "whisper", "xlm-roberta",
})  # fmt: skip
RMS_IN_FP32 = ("gemma", "olmo2", "olmo3")
"""Families whose norm multiplies by its scale before it goes back to 16 bits, and so keeps an fp32 value more."""
POST_NORM = ("olmo2", "olmo3", "exaone4")
"""Families that normalise what a block adds, not what it reads."""
FUSED_QKV = frozenset({"phi3", "phi3_v", "phi4"})
PARALLEL = frozenset({"cohere", "cohere2", "falcon", "gptj", "gpt_neox", "phi", "codegen", "stablelm_alpha"})
COMPOSITE_GELU = frozenset({"gpt2", "gpt_neo", "gptj", "codegen"})


def norm_kind(family: str) -> NormKind:
    """The kind of norm of a family."""
    if family in LAYER_NORM:
        return "layer"
    return "rms-fp32" if family.startswith(RMS_IN_FP32) else "rms"


def with_traits(shape: ModelShape, config: Mapping[str, object], model_type: str) -> ModelShape:
    """The shape with what its family and config say of how it computes."""
    text = _text_config(config)
    family = str(text.get("model_type") or model_type)
    layers = shape.layers
    if family in FUSED_QKV:
        layers = tuple(
            replace(x, mixer=replace(x.mixer, fused_projection=True))
            if isinstance(x.mixer, SelfAttention)
            else x
            for x in layers
        )
    if family in COMPOSITE_GELU and str(text.get("activation_function", "gelu_new")).startswith("gelu_"):
        layers = tuple(
            replace(x, ffn=replace(x.ffn, composite=True)) if isinstance(x.ffn, FeedForward) else x
            for x in layers
        )
    return replace(
        shape,
        layers=layers,
        norm=norm_kind(family),
        post_norm=family.startswith(POST_NORM),
        parallel_blocks=family in PARALLEL,
        logit_softcap=bool(text.get("final_logit_softcapping")),
        attention_softcap=bool(text.get("attn_logit_softcapping")),
    )


def _text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    for key in ("text_config", "language_config", "llm_config", "thinker_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping):
            return _text_config(nested)
    return config
