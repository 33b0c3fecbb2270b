"""Encoders (BERT) and encoder-decoders (T5, BART)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.mixers import SelfAttention, linear
from outgrow.workload.model import FeedForward, Layer, ModelShape

BERT_HEADS = ("num_attention_heads", "n_heads")
BERT_HIDDEN = ("hidden_size", "dim")


def bert(fields: Fields, name: str, *, types: bool = True, prediction: bool = True) -> ModelShape:
    """BERT and RoBERTa: positions and token types are learned; the head predicts masked words."""
    hidden = fields.integer(*BERT_HIDDEN)
    heads = fields.integer(*BERT_HEADS)
    mixer = SelfAttention(
        heads=heads,
        kv_heads=heads,
        head_dim=fields.divided(hidden, heads, key=BERT_HEADS[0], what="hidden size over heads"),
        q_bias=True,
        kv_bias=True,
        out_bias=True,
        causal=fields.flag("is_decoder"),
    )
    ffn = FeedForward(intermediate=fields.integer("intermediate_size", "hidden_dim"), gated=False, bias=True)
    layer = Layer(mixer=mixer, ffn=ffn, norm_parameters=4 * hidden)
    positions = fields.integer("max_position_embeddings", high=10**9)
    rows = positions + (fields.integer("type_vocab_size", default=2, low=0) if types else 0)
    bare = _is_bare(fields)
    # The head transforms a vector before it compares it with the embedding: one square layer and one norm.
    transform = linear(hidden, hidden, bias=True) + 2 * hidden
    pooler = linear(hidden, hidden, bias=True) if prediction else 0
    return ModelShape(
        name=name,
        family=fields.text("model_type", default="bert"),
        hidden=hidden,
        vocab=fields.integer("vocab_size"),
        layers=(layer,) * fields.layer_count("num_hidden_layers", "n_layers"),
        tied=fields.flag("tie_word_embeddings", default=True),
        has_head=not bare,
        head_bias=not bare,
        extra_embedding_parameters=rows * hidden,
        final_norm_parameters=2 * hidden,  # the norm of the embedding
        other_parameters=pooler if bare else transform,
        max_positions=positions,
    )


def _is_bare(fields: Fields) -> bool:
    """Whether the checkpoint is the encoder alone, as sentence embedders are."""
    names = fields.raw.get("architectures")
    return (
        isinstance(names, list)
        and len(names) == 1
        and isinstance(names[0], str)
        and names[0].endswith("Model")
    )


def t5(fields: Fields, name: str, *, bias_per_layer: bool = False) -> ModelShape:
    """T5 and mT5: relative positions are learned biases, in the first layer of a stack or (UMT5) in all."""
    hidden = fields.integer("d_model", "hidden_size")
    heads = fields.integer("num_heads", "num_attention_heads")
    head_dim = fields.integer("d_kv", "head_dim", default=64)
    depth = fields.layer_count("num_layers", "num_hidden_layers")
    decoder_depth = fields.integer("num_decoder_layers", default=depth, high=10_000)
    buckets = fields.integer("relative_attention_num_buckets", default=32)
    gated = fields.text("feed_forward_proj", default="relu").startswith("gated")
    ffn = FeedForward(intermediate=fields.integer("d_ff", "intermediate_size"), gated=gated)
    plain = SelfAttention(heads=heads, kv_heads=heads, head_dim=head_dim)
    first = replace(plain, extra_parameters=buckets * heads)

    def stack(count: int, mixer: SelfAttention, placed: SelfAttention, *, crosses: bool) -> tuple[Layer, ...]:
        norms = (3 if crosses else 2) * hidden
        return tuple(
            Layer(
                mixer=placed if index == 0 or bias_per_layer else mixer,
                ffn=ffn,
                norm_parameters=norms,
                cross_attention=plain if crosses else None,
            )
            for index in range(count)
        )

    vocab = fields.integer("vocab_size")
    assumed: tuple[str, ...] = ()
    if fields.has("tie_word_embeddings") and not fields.flag("tie_word_embeddings"):
        # Configs of version 1.1 say so, and their checkpoints store a head; the class ties it all the same.
        assumed = (
            f"tie_word_embeddings = True (its class always ties; an own head adds {vocab * hidden:,})",
        )
    return ModelShape(
        name=name,
        family=fields.text("model_type", default="t5"),
        hidden=hidden,
        vocab=vocab,
        layers=stack(decoder_depth, plain, first, crosses=True),
        encoder=stack(depth, replace(plain, causal=False), replace(first, causal=False), crosses=False),
        tied=True,
        assumed=assumed,
        final_norm_parameters=2 * hidden,
        max_positions=fields.optional("n_positions", "max_position_embeddings", low=1, high=10**9),
    )


def bart(fields: Fields, name: str, *, stack_norm: bool = False) -> ModelShape:
    """BART, and mBART with a norm at the end of each stack."""
    hidden = fields.integer("d_model", "hidden_size")
    positions = fields.integer("max_position_embeddings", high=10**9)

    def stack(side: str) -> tuple[Layer, ...]:
        crosses = side == "decoder"
        heads = fields.integer(f"{side}_attention_heads")
        mixer = SelfAttention(
            heads=heads,
            kv_heads=heads,
            head_dim=fields.divided(hidden, heads, key=f"{side}_attention_heads", what="width over heads"),
            q_bias=True,
            kv_bias=True,
            out_bias=True,
            causal=crosses,
        )
        ffn = FeedForward(intermediate=fields.integer(f"{side}_ffn_dim"), gated=False, bias=True)
        layer = Layer(
            mixer=mixer,
            ffn=ffn,
            norm_parameters=(6 if crosses else 4) * hidden,
            cross_attention=mixer if crosses else None,
        )
        return (layer,) * fields.layer_count(f"{side}_layers")

    return ModelShape(
        name=name,
        family=fields.text("model_type", default="bart"),
        hidden=hidden,
        vocab=fields.integer("vocab_size"),
        layers=stack("decoder"),
        encoder=stack("encoder"),
        tied=fields.flag("tie_word_embeddings", default=True),
        # Each stack has its table of positions, two rows longer than the longest sequence.
        extra_embedding_parameters=2 * (positions + 2) * hidden,
        final_norm_parameters=(8 if stack_norm else 4) * hidden,
        max_positions=positions,
    )


MAPPERS: dict[str, Callable[[Fields, str], ModelShape]] = {
    "bert": bert,
    "roberta": bert,
    "xlm-roberta": bert,
    "camembert": bert,
    "distilbert": partial(bert, types=False, prediction=False),
    "t5": t5,
    "mt5": t5,
    "umt5": partial(t5, bias_per_layer=True),
    "bart": bart,
    "mbart": partial(bart, stack_norm=True),
}
