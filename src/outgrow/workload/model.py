"""The shape of a model: its layers, and exact parameter counts by class of tensor.

A shape is plain data. `hf_config` makes it from a config.json; memory, time and layout rules read it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from outgrow.workload.mixers import LatentAttention, Mixer, SelfAttention, linear
from outgrow.workload.quantization import WeightFormat

NormKind = Literal["rms", "rms-fp32", "layer"]


class TensorClass(StrEnum):
    """What a weight is for: formats, sharding and training treat the classes differently."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    FFN = "ffn"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORM = "norm"
    VISION = "vision"
    AUDIO = "audio"
    MTP = "mtp"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense feed-forward block: two matrices, or three where it is gated."""

    intermediate: int
    gated: bool = True
    bias: bool = False
    composite: bool = False
    """The activation is written as several operations, each of which keeps its input (GELU of GPT-2)."""

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2

    def parameters(self, hidden: int) -> int:
        up = linear(hidden, self.intermediate, bias=self.bias)
        return up * (self.matrices - 1) + linear(self.intermediate, hidden, bias=self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts, of which each token visits `top_k`, and shared ones that every token visits."""

    experts: int
    top_k: int
    intermediate: int
    gated: bool = True
    bias: bool = False
    shared_intermediate: int = 0
    """Total width of the shared experts; 0 = none."""
    shared_gate: bool = False
    router_bias: bool = False
    router_extra: int = 0
    """Router parameters beyond one row and one bias per expert."""
    latent: int | None = None
    """Experts work in a space of this width, reached by one projection down and one up (Nemotron-3 Super)."""

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2

    def expert(self, hidden: int) -> int:
        """Parameters of one routed expert."""
        width = self.latent or hidden
        up = linear(width, self.intermediate, bias=self.bias)
        return up * (self.matrices - 1) + linear(self.intermediate, width, bias=self.bias)

    def router(self, hidden: int) -> int:
        return linear(hidden, self.experts, bias=self.router_bias) + self.router_extra

    def shared(self, hidden: int) -> int:
        if not self.shared_intermediate:
            return 0
        block = FeedForward(intermediate=self.shared_intermediate, gated=self.gated, bias=self.bias)
        return block.parameters(hidden) + (hidden if self.shared_gate else 0)

    def latent_projections(self, hidden: int) -> int:
        return 2 * hidden * self.latent if self.latent else 0

    def parameters(self, hidden: int) -> int:
        routed = self.experts * self.expert(hidden) + self.latent_projections(hidden)
        return routed + self.router(hidden) + self.shared(hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block: a mixer, a feed-forward part, or both; a decoder of an encoder-decoder adds cross-attention."""

    mixer: Mixer | None
    ffn: FeedForward | MixtureOfExperts | None
    norm_parameters: int
    cross_attention: SelfAttention | None = None
    extra_parameters: int = 0
    """Parameters that belong to none of the parts, such as residual scales or per-layer embeddings' gates."""

    def by_class(self, hidden: int) -> Counter[TensorClass]:
        counts: Counter[TensorClass] = Counter()
        counts[TensorClass.NORM] += self.norm_parameters
        counts[TensorClass.FFN] += self.extra_parameters
        for mixer in (self.mixer, self.cross_attention):
            if mixer is not None:
                attends = mixer.kind in ("attention", "latent", "compressed")
                counts[TensorClass.ATTENTION if attends else TensorClass.RECURRENT] += mixer.parameters(
                    hidden
                )
        if isinstance(self.ffn, FeedForward):
            counts[TensorClass.FFN] += self.ffn.parameters(hidden)
        elif self.ffn is not None:
            counts[TensorClass.EXPERTS] += self.ffn.experts * self.ffn.expert(hidden)
            counts[TensorClass.EXPERTS] += self.ffn.latent_projections(hidden)
            counts[TensorClass.SHARED_EXPERTS] += self.ffn.shared(hidden)
            counts[TensorClass.ROUTER] += self.ffn.router(hidden)
        return counts

    def parameters(self, hidden: int) -> int:
        return sum(self.by_class(hidden).values())

    def active_parameters(self, hidden: int) -> int:
        """Parameters that one token passes through."""
        total = self.parameters(hidden)
        if isinstance(self.ffn, MixtureOfExperts):
            total -= (self.ffn.experts - self.ffn.top_k) * self.ffn.expert(hidden)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A vision or audio encoder beside the language model, with its projector."""

    kind: Literal["vision", "audio"]
    layers: int
    hidden: int
    parameters: int
    intermediate: int = 0
    heads: int = 0
    max_tokens_per_item: int | None = None
    """Language-model tokens that one image or clip can become at most, where the config says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model as memory and time see it."""

    name: str
    family: str
    """`model_type` of the config that it came from."""
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    encoder: tuple[Layer, ...] = ()
    """Layers of the encoder, for encoder-decoders."""
    tied: bool = False
    """The output head is the input embedding."""
    has_head: bool = True
    head_bias: bool = False
    extra_embedding_parameters: int = 0
    """Learned positions, token types, per-layer embeddings."""
    final_norm_parameters: int = 0
    other_parameters: int = 0
    """Parameters outside of layers that are none of the above."""
    norm: NormKind = "rms"
    """Kind of norm: a layer norm keeps its input once, an RMS norm of plain modules an fp32 copy as well, and one
    that applies its scale in fp32 keeps the normalised value in fp32 too."""
    post_norm: bool = False
    """Norms are applied to what a block adds, not to what it reads."""
    logit_softcap: bool = False
    attention_softcap: bool = False
    """Attention scores are capped: the matrix is kept, flash kernels of plain modules do not apply."""
    parallel_blocks: bool = False
    """Attention and feed-forward read the same input (GPT-J, Falcon, Cohere)."""
    towers: tuple[Tower, ...] = ()
    uncounted_tower: bool = False
    """It takes images, by a tower whose parameters are not counted."""
    mtp_parameters: int = 0
    """Multi-token-prediction modules: stored beside the model, not part of `parameters`."""
    dtype: str = "bfloat16"
    weights: WeightFormat | None = None
    """How the checkpoint is quantised, where the config says so."""
    max_positions: int | None = None
    source: str = ""
    assumed: tuple[str, ...] = ()
    """Values that the config does not state and that its model type's defaults supplied."""
    ignored: tuple[str, ...] = field(default=(), repr=False)

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters of an output head of its own: 0 where it is tied."""
        bias = self.vocab if self.head_bias else 0
        return (0 if self.tied or not self.has_head else self.embedding_parameters) + bias

    def by_class(self) -> dict[TensorClass, int]:
        """Unique parameters of each class of tensor; MTP modules are not among them."""
        return dict(_by_class(self))

    @property
    def parameters(self) -> int:
        """All unique parameters: ties once, towers included, multi-token-prediction modules not."""
        return sum(_by_class(self).values())

    @property
    def language_parameters(self) -> int:
        """Parameters without vision and audio towers."""
        return self.parameters - sum(t.parameters for t in self.towers)

    @property
    def active_parameters(self) -> int:
        """Parameters that one text token passes through, embedding and head included, towers not."""
        idle = sum(
            layer.parameters(self.hidden) - layer.active_parameters(self.hidden) for layer in self.layers
        )
        return self.language_parameters - idle

    @property
    def takes_images(self) -> bool:
        return self.uncounted_tower or any(t.kind == "vision" for t in self.towers)

    @property
    def is_moe(self) -> bool:
        return any(isinstance(layer.ffn, MixtureOfExperts) for layer in self.layers)

    @property
    def attention_layers(self) -> tuple[Layer, ...]:
        """Layers that keep a cache that grows with the context."""
        return tuple(
            x
            for x in self.layers
            if x.mixer is not None and x.mixer.kind in ("attention", "latent", "compressed")
        )

    @property
    def heads(self) -> int:
        """Query heads of the widest attention layer; 0 for a model without attention."""
        return max((x.mixer.heads for x in self.attention_layers if x.mixer is not None), default=0)

    @property
    def kv_heads(self) -> int:
        """Key-value heads of the attention layer that has most of them; 1 for latent attention."""
        return max((getattr(x.mixer, "kv_heads", 0) for x in self.attention_layers), default=0)

    @property
    def experts(self) -> int:
        return max((x.ffn.experts for x in self.layers if isinstance(x.ffn, MixtureOfExperts)), default=0)

    @property
    def uses_latent_attention(self) -> bool:
        return any(isinstance(x.mixer, LatentAttention) for x in self.layers)


@lru_cache(maxsize=256)
def _by_class(model: ModelShape) -> Counter[TensorClass]:
    counts: Counter[TensorClass] = Counter()
    # Layers repeat: count each distinct one once.
    for layer, times in Counter((*model.layers, *model.encoder)).items():
        for kind, count in layer.by_class(model.hidden).items():
            counts[kind] += count * times
    counts[TensorClass.EMBEDDING] += model.embedding_parameters + model.extra_embedding_parameters
    counts[TensorClass.HEAD] += model.head_parameters
    counts[TensorClass.NORM] += model.final_norm_parameters
    counts[TensorClass.FFN] += model.other_parameters
    for tower in model.towers:
        counts[TensorClass.VISION if tower.kind == "vision" else TensorClass.AUDIO] += tower.parameters
    return Counter({kind: count for kind, count in counts.items() if count})
