"""Decoders from before Llama set the pattern: GPT-2, GPT-NeoX, OPT, BLOOM, Falcon and their kin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from outgrow.workload.hf_config.dense import (
    HEADS,
    HIDDEN,
    Rules,
    decoder,
    feed_forward,
    finish,
    neo_windows,
    present,
    read_frame,
    standard,
)
from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.mixers import SelfAttention
from outgrow.workload.model import FeedForward, Layer, ModelShape

GPT2 = Rules(
    qkv_bias=True,
    out_bias=True,
    ffn_bias=True,
    gated=False,
    ffn_ratio=4,
    norm_bias=True,
    multi_head=True,
    positions=0,
    tied=True,
)
GPTJ = replace(GPT2, qkv_bias=False, out_bias=False, head_bias=True, norms=1, positions=None, tied=False)
STABLELM = Rules(qkv_bias="use_qkv_bias", norm_bias=True, qk_norm="full", qk_norm_if="qk_layernorm")

RULES: dict[str, Rules] = {
    "gpt2": GPT2,
    "gpt_neo": replace(GPT2, qkv_bias=False, spans=neo_windows),
    "gptj": GPTJ,
    "codegen": GPTJ,
    "gpt_neox": replace(
        GPT2, qkv_bias="attention_bias", out_bias="attention_bias", positions=None, tied=False
    ),
    "bloom": replace(GPT2, positions=None, embedding_norm=True),
    "phi": replace(
        GPT2,
        head_bias=True,
        norms=1,
        multi_head=False,
        positions=None,
        tied=False,
        qk_norm="head",
        qk_norm_if="qk_layernorm",
        qk_norm_bias=True,
    ),
    "persimmon": replace(
        GPT2, positions=None, tied=False, qk_norm="head", qk_norm_if="qk_layernorm", qk_norm_bias=True
    ),
}


def gpt_bigcode(fields: Fields, name: str) -> ModelShape:
    """StarCoder and SantaCoder: GPT-2 with one key-value head for all query heads."""
    frame = read_frame(fields, GPT2)
    kv_heads = 1 if fields.flag("multi_query", default=True) else frame.mixers[0].heads
    shared = replace(frame, mixers=tuple(replace(m, kv_heads=kv_heads) for m in frame.mixers))
    return finish(fields, name, shared, [feed_forward(fields, frame)] * frame.count)


def stablelm(fields: Fields, name: str) -> ModelShape:
    """StableLM: layers with a parallel residual have one norm less."""
    norms = 1 if fields.flag("use_parallel_residual") else 2
    return standard(fields, name, rules=replace(STABLELM, norms=norms))


def opt(fields: Fields, name: str) -> ModelShape:
    """OPT: two rows more than positions; the smallest ones project a narrow embedding."""
    biased = fields.flag("enable_bias", default=True)
    affine = fields.flag("layer_norm_elementwise_affine", default=True)
    before = fields.flag("do_layer_norm_before", default=True)
    removed = fields.flag("_remove_final_layer_norm")
    rules = replace(
        GPT2,
        qkv_bias=biased,
        out_bias=biased,
        ffn_bias=biased,
        norms=2 if affine else 0,
        final_norm=affine and before and not removed,
        positions=2,
    )
    shape = standard(fields, name, rules=rules)
    # A config that does not write the width has the embedding as wide as the layers.
    narrow = (
        fields.integer("word_embed_proj_dim", default=shape.hidden)
        if fields.has("word_embed_proj_dim")
        else None
    )
    if narrow is None or narrow == shape.hidden:
        return shape
    tables = 1 if shape.tied else 2
    slimmer = tables * shape.vocab * (shape.hidden - narrow) - 2 * shape.hidden * narrow
    return replace(shape, extra_embedding_parameters=shape.extra_embedding_parameters - slimmer)


def falcon(fields: Fields, name: str) -> ModelShape:
    """Falcon: flags say how many key-value heads and norms there are."""
    hidden = fields.integer(*HIDDEN)
    heads = fields.integer(*HEADS)
    new = fields.flag("new_decoder_architecture")
    kv_heads = heads
    if new:
        kv_heads = fields.integer("num_kv_heads", "n_head_kv", default=heads)
    elif fields.flag("multi_query", default=True):
        kv_heads = 1
    if heads % kv_heads:
        fields.fault("num_kv_heads", f"must divide the {heads} query heads", value=kv_heads)
    bias = fields.flag("bias")
    norms = fields.integer("num_ln_in_parallel_attn", default=2 if new else 1, low=0, high=2)
    if not fields.flag("parallel_attn", default=True):
        norms = 2
    mixer = SelfAttention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.divided(hidden, heads, key=present(fields, HEADS), what="hidden size over heads"),
        q_bias=bias,
        kv_bias=bias,
        out_bias=bias,
    )
    width = fields.integer("ffn_hidden_size", default=4 * hidden)
    layer = Layer(
        mixer=mixer,
        ffn=FeedForward(intermediate=width, gated=False, bias=bias),
        # Each norm has a weight and a bias.
        norm_parameters=2 * hidden * (2 if norms == 2 else 1),
    )
    return decoder(fields, name, [layer] * fields.layer_count(), hidden=hidden, tied=True, norm_width=2)


def mpt(fields: Fields, name: str) -> ModelShape:
    """MPT: no biases anywhere, positions by linear bias, so there is no table."""
    hidden = fields.integer(*HIDDEN)
    heads = fields.integer("n_heads", "num_attention_heads")
    inner = fields.child("attn_config")
    kv_heads = inner.integer("kv_n_heads", default=heads) if inner is not None else heads
    if heads % kv_heads:
        fields.fault("attn_config.kv_n_heads", f"must divide the {heads} query heads", value=kv_heads)
    mixer = SelfAttention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.divided(hidden, heads, key="n_heads", what="hidden size over heads"),
    )
    ratio = fields.integer("expansion_ratio", default=4, high=64)
    ffn = FeedForward(intermediate=ratio * hidden, gated=False)
    layer = Layer(mixer=mixer, ffn=ffn, norm_parameters=2 * hidden)
    return decoder(fields, name, [layer] * fields.layer_count(), hidden=hidden, tied=True)


def chatglm(fields: Fields, name: str) -> ModelShape:
    """ChatGLM-2 and 3, GLM-4 of the first release: keys of their own for everything."""
    hidden = fields.integer(*HIDDEN)
    heads = fields.integer(*HEADS)
    head_dim = fields.optional("kv_channels", low=1)
    if head_dim is None:
        head_dim = fields.divided(hidden, heads, key=present(fields, HEADS), what="hidden size over heads")
    groups = (
        fields.integer("multi_query_group_num", default=1) if fields.flag("multi_query_attention") else heads
    )
    if heads % groups:
        fields.fault("multi_query_group_num", f"must divide the {heads} query heads", value=groups)
    bias = fields.flag("add_bias_linear")
    mixer = SelfAttention(
        heads=heads,
        kv_heads=groups,
        head_dim=head_dim,
        q_bias=bias or fields.flag("add_qkv_bias"),
        kv_bias=bias or fields.flag("add_qkv_bias"),
        out_bias=bias,
    )
    layer = Layer(
        mixer=mixer,
        ffn=FeedForward(intermediate=fields.integer("ffn_hidden_size"), bias=bias),
        norm_parameters=hidden * (1 if fields.flag("rmsnorm", default=True) else 2) * 2,
    )
    final = fields.flag("post_layer_norm", default=True)
    return decoder(
        fields,
        name,
        [layer] * fields.layer_count("num_layers", "num_hidden_layers"),
        hidden=hidden,
        norm_width=final,
    )


MAPPERS: dict[str, Callable[[Fields, str], ModelShape]] = {
    **{model_type: partial(standard, rules=rules) for model_type, rules in RULES.items()},
    "gpt_bigcode": gpt_bigcode,
    "stablelm": stablelm,
    "opt": opt,
    "falcon": falcon,
    "refinedweb": falcon,
    "RefinedWeb": falcon,
    "RefinedWebModel": falcon,
    "mpt": mpt,
    "chatglm": chatglm,
}
