"""The combinations that are run: small models with the proportions of real ones, and a few real ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Dimensions of a decoder; ``extra`` goes to the configuration class as it is."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    attention: str = "sdpa"
    dropout: float = 0.0
    extra: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Combo:
    id: str
    model: Model
    batch: int = 4
    seq: int = 1024
    compute: str = "bf16"  # bf16, fp32, autocast (fp32 weights), autocast_bf16_base, fsdp_mixed (fp32 shards)
    recompute: str = "none"  # none, full, selective
    loss: str = "plain"
    method: str = "full"  # full, lora, frozen_embeddings
    lora_rank: int = 0
    lora_targets: str = ""
    lora_dropout: float = 0.0
    lora_dtype: str = ""
    padded: bool = False  # the batch comes with an attention mask, so that no flash attention is possible
    sharding: str = "none"  # none, fsdp2
    world: int = 1
    tensor_parallel: int = 1
    reshard: bool = True
    optimizer: str = "adamw_foreach"  # adamw_foreach, adamw_loop, adamw_fused, sgd, none


LLAMA = Model(
    family="llama", hidden=2048, layers=4, heads=16, kv_heads=4, head_dim=128, intermediate=7168, vocab=32000
)
LLAMA_BIG_VOCAB = replace(LLAMA, hidden=1024, heads=8, kv_heads=2, intermediate=3584, vocab=128256, layers=6)
QWEN2 = Model(
    family="qwen2",
    hidden=1536,
    layers=4,
    heads=12,
    kv_heads=2,
    head_dim=128,
    intermediate=8960,
    vocab=151936,
    tied=True,
)
QWEN3 = Model(
    family="qwen3",
    hidden=1024,
    layers=4,
    heads=16,
    kv_heads=8,
    head_dim=128,
    intermediate=3072,
    vocab=151936,
    tied=True,
)
MISTRAL = Model(
    family="mistral",
    hidden=2048,
    layers=4,
    heads=16,
    kv_heads=4,
    head_dim=128,
    intermediate=7168,
    vocab=32768,
    extra=(("sliding_window", None),),
)
GEMMA2 = Model(
    family="gemma2",
    hidden=1152,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=256,
    intermediate=9216,
    vocab=64000,
    tied=True,
    attention="eager",
)
GEMMA3 = Model(
    family="gemma3_text",
    hidden=1152,
    layers=4,
    heads=4,
    kv_heads=1,
    head_dim=256,
    intermediate=6912,
    vocab=131072,
    tied=True,
)
PHI3 = Model(
    family="phi3", hidden=1536, layers=4, heads=16, kv_heads=16, head_dim=96, intermediate=4096, vocab=32064
)
OLMO2 = Model(
    family="olmo2",
    hidden=2048,
    layers=4,
    heads=16,
    kv_heads=16,
    head_dim=128,
    intermediate=5504,
    vocab=100352,
)
MIXTRAL = Model(
    family="mixtral",
    hidden=1024,
    layers=4,
    heads=8,
    kv_heads=2,
    head_dim=128,
    intermediate=3584,
    vocab=32000,
    experts=8,
    top_k=2,
)
QWEN3_MOE = Model(
    family="qwen3_moe",
    hidden=1024,
    layers=4,
    heads=16,
    kv_heads=4,
    head_dim=128,
    intermediate=512,
    vocab=64000,
    experts=32,
    top_k=8,
)
GPT2 = Model(
    family="gpt2",
    hidden=1024,
    layers=4,
    heads=16,
    kv_heads=16,
    head_dim=64,
    intermediate=4096,
    vocab=50257,
    tied=True,
)
LLAMA_8B = Model(
    family="llama",
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate=14336,
    vocab=128256,
)
QWEN25_7B = Model(
    family="qwen2",
    hidden=3584,
    layers=28,
    heads=28,
    kv_heads=4,
    head_dim=128,
    intermediate=18944,
    vocab=152064,
)


def combos() -> Iterator[Combo]:
    yield from _core()
    yield from _families()
    yield from _lora()
    yield from _sharded()
    yield from _real()


def _core() -> Iterator[Combo]:
    base = Combo(id="", model=LLAMA)
    for recompute in ("none", "full"):
        for compute in ("bf16", "autocast"):
            yield replace(base, id=f"llama-{compute}-{recompute}-plain", compute=compute, recompute=recompute)
    for loss in ("plain_keep", "plain_noupcast", "chunked", "chunked_recompute", "fused"):
        for recompute in ("none", "full"):
            yield replace(base, id=f"llama-bf16-{recompute}-{loss}", recompute=recompute, loss=loss)
    for recompute, loss in (("full", "fused"), ("none", "fused"), ("full", "chunked")):
        name = f"llama-autocast-{recompute}-{loss}"
        yield replace(base, id=name, compute="autocast", recompute=recompute, loss=loss)
    yield replace(base, id="llama-bf16-selective-fused", recompute="selective", loss="fused")
    yield replace(base, id="llama-mha-fp32-none-plain", model=replace(LLAMA, kv_heads=16), compute="fp32")
    for optimizer in ("adamw_loop", "adamw_fused", "sgd", "none"):
        yield replace(
            base, id=f"llama-bf16-full-fused-{optimizer}", recompute="full", loss="fused", optimizer=optimizer
        )
    for batch, seq in ((1, 512), (2, 1024), (1, 4096), (4, 2048)):
        for recompute in ("none", "full"):
            yield replace(
                base,
                id=f"llama-bf16-{recompute}-fused-b{batch}s{seq}",
                batch=batch,
                seq=seq,
                recompute=recompute,
                loss="fused",
            )
    for loss in ("plain", "fused"):
        for recompute in ("none", "full"):
            yield replace(
                base,
                id=f"llama-128k-bf16-{recompute}-{loss}",
                model=LLAMA_BIG_VOCAB,
                recompute=recompute,
                loss=loss,
            )
    for recompute in ("none", "full"):
        deep = replace(base, model=replace(LLAMA, layers=8), recompute=recompute, loss="fused")
        yield replace(deep, id=f"llama-l8-bf16-{recompute}-fused")
    yield replace(base, id="llama-bf16-none-plain-frozen_embeddings", method="frozen_embeddings")
    for recompute in ("none", "full"):
        yield replace(
            base, id=f"llama-padded-bf16-{recompute}-fused", padded=True, recompute=recompute, loss="fused"
        )
    slow = replace(LLAMA, attention="eager")
    yield replace(base, id="llama-eager-bf16-none-fused", model=slow, loss="fused")


def _families() -> Iterator[Combo]:
    models = (
        QWEN2,
        QWEN3,
        MISTRAL,
        GEMMA2,
        GEMMA3,
        replace(GEMMA3, extra=(("sliding_window", 512),)),
        PHI3,
        OLMO2,
        MIXTRAL,
        QWEN3_MOE,
        GPT2,
        replace(GPT2, dropout=0.1),
    )
    for model in models:
        name = model.family.removesuffix("_text")
        if ("sliding_window", 512) in model.extra:
            name += "-window512"
        if model.dropout:
            name += "-dropout"
        base = Combo(id=name, model=model)
        yield replace(base, id=f"{name}-bf16-none-plain")
        yield replace(base, id=f"{name}-bf16-full-plain", recompute="full")
        if model.family not in ("gemma2", "gemma3_text"):
            yield replace(base, id=f"{name}-bf16-none-fused", loss="fused")
        if model.family in ("qwen2", "qwen3_moe", "mixtral", "gpt2", "gemma3_text"):
            yield replace(base, id=f"{name}-autocast-none-plain", compute="autocast")
            yield replace(base, id=f"{name}-autocast-full-plain", compute="autocast", recompute="full")


def _lora() -> Iterator[Combo]:
    base = Combo(id="lora", model=LLAMA, method="lora", lora_rank=16, lora_targets="qkvo", lora_dtype="fp32")
    for targets in ("qkvo", "all-linear"):
        for dropout in (0.0, 0.05):
            for dtype in ("fp32", "bf16"):
                yield replace(
                    base,
                    id=f"llama-lora-{targets}-d{dropout}-{dtype}-none-plain",
                    lora_targets=targets,
                    lora_dropout=dropout,
                    lora_dtype=dtype,
                )
    for recompute in ("none", "full"):
        yield replace(
            base,
            id=f"llama-lora-all-linear-d0.05-fp32-{recompute}-fused",
            lora_targets="all-linear",
            lora_dropout=0.05,
            recompute=recompute,
            loss="fused",
        )
        yield replace(
            base,
            id=f"llama-lora-all-linear-autocast-{recompute}-plain",
            lora_targets="all-linear",
            recompute=recompute,
            compute="autocast_bf16_base",
        )
    yield replace(
        base,
        id="llama-lora-all-linear-r64-full-fused",
        lora_targets="all-linear",
        lora_rank=64,
        recompute="full",
        loss="fused",
    )
    yield replace(
        base,
        id="qwen2-lora-all-linear-full-fused",
        model=QWEN2,
        lora_targets="all-linear",
        recompute="full",
        loss="fused",
    )


def _sharded() -> Iterator[Combo]:
    base = Combo(id="fsdp", model=replace(LLAMA, layers=8), sharding="fsdp2", loss="plain")
    for world in (2, 8):
        for reshard in (True, False):
            for compute in ("fsdp_mixed", "bf16"):
                tag = ("keep", "reshard")[reshard]
                yield replace(
                    base,
                    id=f"llama-fsdp{world}-{tag}-{compute}-full-plain",
                    world=world,
                    reshard=reshard,
                    compute=compute,
                    recompute="full",
                )
        yield replace(
            base, id=f"llama-fsdp{world}-reshard-fsdp_mixed-none-plain", world=world, compute="fsdp_mixed"
        )
        yield replace(
            base,
            id=f"llama-fsdp{world}-reshard-fsdp_mixed-full-plain-b1s128",
            world=world,
            batch=1,
            seq=128,
            compute="fsdp_mixed",
            recompute="full",
        )
    yield replace(
        base,
        id="qwen2-fsdp8-reshard-fsdp_mixed-full-plain",
        model=replace(QWEN2, layers=8),
        world=8,
        compute="fsdp_mixed",
        recompute="full",
    )
    yield replace(
        base,
        id="mixtral-fsdp8-reshard-fsdp_mixed-full-plain",
        model=MIXTRAL,
        world=8,
        compute="fsdp_mixed",
        recompute="full",
    )

    lora = replace(
        base,
        method="lora",
        lora_rank=16,
        lora_targets="all-linear",
        lora_dtype="bf16",
        world=8,
        compute="bf16",
    )
    yield replace(lora, id="llama-fsdp8-lora-full-plain", recompute="full")
    tp = replace(base, world=4, tensor_parallel=2, compute="fsdp_mixed")
    yield replace(tp, id="llama-fsdp2-tp2-none-plain")
    yield replace(tp, id="llama-fsdp2-tp2-full-plain", recompute="full")


def _real() -> Iterator[Combo]:
    base = Combo(id="llama-8b", model=LLAMA_8B, batch=1, seq=4096, recompute="full")
    yield replace(base, id="llama-3.1-8b-bf16-full-plain")
    yield replace(base, id="llama-3.1-8b-bf16-full-fused", loss="fused")
    yield replace(base, id="llama-3.1-8b-bf16-none-fused", loss="fused", recompute="none")
    yield replace(base, id="llama-3.1-8b-fsdp8-full-plain", sharding="fsdp2", world=8, compute="fsdp_mixed")
    yield replace(
        base,
        id="llama-3.1-8b-fsdp8-none-plain-s2048",
        sharding="fsdp2",
        world=8,
        seq=2048,
        compute="fsdp_mixed",
        recompute="none",
    )
    lora = replace(
        base,
        model=QWEN25_7B,
        batch=1,
        seq=2048,
        method="lora",
        lora_rank=16,
        lora_targets="all-linear",
        lora_dropout=0.05,
        lora_dtype="fp32",
    )
    yield replace(lora, id="qwen2.5-7b-lora-full-plain")
    yield replace(lora, id="qwen2.5-7b-lora-none-plain", recompute="none")
