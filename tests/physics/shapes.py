"""Models of known widths, and strategies that draw models, jobs and layouts which belong together."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from hypothesis import strategies as st

from outgrow import catalog
from outgrow.layout import Layout, Recompute, Schedule, Sharding, divisors
from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape
from outgrow.workload.training import (
    PRECISIONS,
    AttentionKernel,
    Batching,
    Kernels,
    Lora,
    Loss,
    Method,
    Objective,
    Optimizer,
    TrainingJob,
)

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB, LAYERS = 512, 8, 2, 64, 1408, 32_000, 4


def decoder(model_type: str = "llama", **changes: Any) -> ModelShape:
    """A small decoder of some family, by way of its config.json."""
    config: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INTERMEDIATE,
        "vocab_size": VOCAB,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    return resolve(config | changes, name=model_type)


def side_by_side() -> ModelShape:
    """Attention and a state space on one input, as in Falcon-H1."""
    return decoder(
        "falcon_h1", mamba_d_ssm=1024, mamba_d_state=64, mamba_d_head=64, mamba_n_heads=16, mamba_n_groups=1, mamba_d_conv=4
    )  # fmt: skip


@cache
def known(name: str) -> ModelShape:
    """A model of the catalogue."""
    return catalog.model(name)


# One of every kind of thing that memory knows: attention of all kinds, experts, states, towers, encoders, ties.
FAMILIES = (
    "llama-3.2-1b", "qwen3-0.6b", "gemma-3-1b", "gemma-2-2b", "gpt2", "phi-3-mini", "olmo-2-7b", "mixtral-8x7b",
    "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b",
    "mamba-2.8b", "lfm2-1.2b", "qwen2.5-vl-7b", "llama-3.2-11b-vision", "t5-base", "whisper-large-v3", "bert-base",
    "falcon-7b", "jamba-1.5-mini", "deepseek-v4-flash", "gemma-4-26b-a4b",
)  # fmt: skip


def models() -> st.SearchStrategy[ModelShape]:
    """Any family."""
    return st.sampled_from(FAMILIES).map(known)


DEGREES = st.sampled_from((1, 2, 4, 8))


@st.composite
def layouts(draw: st.DrawFn, model: ModelShape) -> Layout:
    """A layout that is legal in itself and has no empty stages."""
    pp = draw(st.sampled_from([d for d in (1, 2, 4) if d <= len(model.layers)]))
    vpp = draw(st.sampled_from([v for v in (1, 2) if v * pp <= len(model.layers)])) if pp > 1 else 1
    dp, cp = draw(DEGREES), draw(st.sampled_from((1, 2)))
    return Layout(
        dp=dp,
        tp=draw(DEGREES),
        pp=pp,
        vpp=vpp,
        cp=cp,
        ep=draw(st.sampled_from(divisors(dp * cp))) if model.is_moe else 1,
        sharding=draw(any_of(Sharding)),
        sequence_parallel=draw(st.booleans()),
        schedule=draw(any_of(Schedule)),
        micro_batch=draw(st.integers(1, 8)),
        recompute=draw(any_of(Recompute)),
    )


def any_of(literal: Any) -> st.SearchStrategy[Any]:
    """Any value of a Literal."""
    return st.sampled_from(get_args(literal))


@st.composite
def jobs(draw: st.DrawFn) -> TrainingJob:
    """Any training job."""
    return TrainingJob(
        objective=draw(any_of(Objective)),
        method=draw(any_of(Method)),
        sequence_length=draw(st.sampled_from((8, 512, 4096, 131_072))),
        batching=draw(any_of(Batching)),
        mean_length=draw(st.sampled_from((None, 4))),
        accumulation=draw(st.sampled_from((1, 2, 16))),
        precision=draw(st.sampled_from(sorted(PRECISIONS))),
        optimizer=draw(any_of(Optimizer)),
        optimizer_foreach=draw(st.booleans()),
        optimizer_in_backward=draw(st.booleans()),
        loss=draw(any_of(Loss)),
        loss_chunks=draw(st.sampled_from((1, 8))),
        kernels=draw(any_of(Kernels)),
        attention=draw(any_of(AttentionKernel)),
        expert_load=draw(st.sampled_from((1.0, 2.5))),
        recomputed_ahead=draw(st.sampled_from((0.0, 1.0))),
        expandable_segments=draw(st.booleans()),
        reshard=draw(st.booleans()),
        accumulate_unsharded=draw(st.booleans()),
        lora=Lora(
            rank=draw(st.sampled_from((1, 16, 256))),
            targets=draw(st.sampled_from((("q", "v"), ("q", "k", "v", "o"), ("all",)))),
            dropout=draw(st.sampled_from((0.0, 0.1))),
            parameter_bytes=draw(st.sampled_from((2.0, 4.0))),
            autocast=draw(st.booleans()),
            train_embeddings=draw(st.booleans()),
        ),
        base=draw(st.sampled_from((None, "nf4", "nf4-double", "fp8"))),
        offload=draw(st.sampled_from(((), ("optimizer",), ("activations",), ("parameters", "optimizer")))),
        ema=draw(st.booleans()),
        reference_precomputed=draw(st.booleans()),
    )
