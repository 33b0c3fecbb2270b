"""The key-value cache: bytes per token and GPU, by kind of layer, with its replication rules; and fixed states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from outgrow.workload.mixers import (
    CompressedAttention,
    LatentAttention,
    LinearAttention,
    Mamba,
    ParallelMixers,
    SelfAttention,
    ShortConvolution,
)
from outgrow.workload.model import Layer, ModelShape

STATE_BYTES = 2.0
RECURRENT_BYTES = 4.0
"""Recurrent states are kept in fp32 unless the model says otherwise (`mamba_ssm_dtype`)."""


def layer_cache_bytes(layer: Layer, tp: int, cache_bytes: float, *, latent_alignment: int = 1) -> float:
    """Cache bytes of one token in one layer on one GPU.

    Key-value heads are split over tensor-parallel ranks until each holds one, then copied. A latent is never split.
    """
    mixer = layer.mixer.attention if isinstance(layer.mixer, ParallelMixers) else layer.mixer
    if isinstance(mixer, SelfAttention):
        if mixer.shares_kv or not mixer.causal:
            return 0.0
        return max(1.0, mixer.kv_heads / tp) * (mixer.head_dim + mixer.value_dim) * cache_bytes
    if isinstance(mixer, LatentAttention):
        index = mixer.index_head_dim if mixer.index_heads else 0
        entry = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * cache_bytes
        return -(-entry // latent_alignment) * latent_alignment + index
    if isinstance(mixer, CompressedAttention):
        return mixer.cache_elements() * cache_bytes
    return 0.0


def layer_state_bytes(layer: Layer, tp: int, *, recurrent_bytes: float = RECURRENT_BYTES) -> float:
    """Fixed state of one sequence in one layer on one GPU."""
    mixer = layer.mixer.recurrent if isinstance(layer.mixer, ParallelMixers) else layer.mixer
    if isinstance(mixer, LinearAttention):
        recurrent = mixer.value_heads * mixer.key_head_dim * mixer.value_head_dim
        return (recurrent * recurrent_bytes + mixer.conv_width * (mixer.conv_kernel - 1) * STATE_BYTES) / tp
    if isinstance(mixer, Mamba):
        return (
            mixer.inner * mixer.state * recurrent_bytes
            + mixer.conv_width * (mixer.conv_kernel - 1) * STATE_BYTES
        ) / tp
    if isinstance(mixer, ShortConvolution):
        return mixer.width * mixer.kernel * STATE_BYTES / tp
    if isinstance(mixer, CompressedAttention):
        return mixer.state_elements() * STATE_BYTES
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCost:
    """What the cache of a model costs on one GPU of one pipeline stage."""

    full_per_token: float
    """Bytes per token of layers that see the whole context."""
    windowed_per_token: float
    """Bytes per token of layers that see a window, while inside of it."""
    window: int
    """That window, in tokens; 0 = there are no such layers."""
    state_per_sequence: float
    """Bytes of recurrent and convolution states."""
    cross_per_image_token: float
    """Bytes per image token of cross-attention layers."""

    @property
    def charged_per_token(self) -> float:
        """Bytes per token where an engine charges every layer the full context, cross-attention included."""
        return self.full_per_token + self.windowed_per_token + self.cross_per_image_token

    def sequence_bytes(self, tokens: float, *, hybrid: bool = True) -> float:
        """Bytes that one sequence of `tokens` needs."""
        windowed = min(tokens, self.window) if hybrid and self.window else tokens
        return self.full_per_token * tokens + self.windowed_per_token * windowed + self.state_per_sequence


def cache_cost(
    model: ModelShape,
    *,
    tp: int = 1,
    cache_bytes: float = 2.0,
    layers: tuple[int, ...] | None = None,
    latent_alignment: int = 1,
) -> CacheCost:
    """Cost of the cache on one GPU; `layers` = indices of a pipeline stage, None = all."""
    chosen = model.layers if layers is None else tuple(model.layers[i] for i in layers)
    full = windowed = state = cross = 0.0
    window = 0
    for layer, times in Counter(chosen).items():
        size = layer_cache_bytes(layer, tp, cache_bytes, latent_alignment=latent_alignment) * times
        span = getattr(layer.mixer, "span", None)
        if span and size:
            windowed += size
            window = max(window, span)
        else:
            full += size
        state += layer_state_bytes(layer, tp) * times
        if layer.cross_attention is not None:
            attention = layer.cross_attention
            heads = max(1.0, attention.kv_heads / tp)
            cross += heads * (attention.head_dim + attention.value_dim) * cache_bytes * times
    return CacheCost(
        full_per_token=full,
        windowed_per_token=windowed,
        window=window,
        state_per_sequence=state,
        cross_per_image_token=cross,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share one page table."""

    kind: str
    """"attention", or "state": one page per sequence, whatever its length."""
    window: int
    """Tokens that attention looks back; 0 = all."""
    page_tokens: int
    """Tokens of one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A key-value pool as an engine divides it: pages of one size, layers in groups of one size."""

    bytes: float
    page_bytes: float
    """Bytes of one page of one layer."""
    group_layers: int
    groups: tuple[Group, ...]
    window_slack: int
    """Tokens that a windowed group holds beyond its window, while a chunk of the prompt is at work."""

    @property
    def pages(self) -> int:
        per_page = self.page_bytes * self.group_layers
        return max(0, int(self.bytes // per_page)) if per_page else 0

    def pages_of(self, tokens: int) -> int:
        """Pages that one sequence of `tokens` takes."""
        total = 0
        for group in self.groups:
            if group.kind == "state":
                total += 1
                continue
            held = tokens if not group.window else min(tokens, group.window + self.window_slack)
            total += -(-held // group.page_tokens) + (1 if held < tokens else 0)
        return total

    @property
    def tokens(self) -> int:
        """Tokens if every group is charged alike: what engines printed as the size of the cache."""
        smallest = min((g.page_tokens for g in self.groups if g.kind == "attention"), default=0)
        return self.pages // max(1, len(self.groups)) * smallest

    def sequences(self, tokens: int) -> float:
        """Sequences of `tokens` that fit at once."""
        return self.pages / max(1, self.pages_of(tokens))


def pool(model: ModelShape, size: float, *, tp: int, cache_bytes: float, block_tokens: int, hybrid: bool = True,
         window_slack: int = 0, recurrent_bytes: float = RECURRENT_BYTES, layers: tuple[int, ...] | None = None) -> Pool:  # fmt: skip
    """Divide `size` bytes as vLLM does (vllm/v1/core/kv_cache_utils.py).

    Layers of one kind form groups of equal size. The page is that of the widest kind; a narrower kind puts more
    tokens into it, and attention blocks grow until their page holds a recurrent state.
    """
    chosen = model.layers if layers is None else tuple(model.layers[i] for i in layers)
    kinds: Counter[tuple[str, int, float]] = Counter()
    state = 0.0
    # Layers that compress by different ratios share one page size and hold the same tokens in it.
    compressed = max(
        (
            layer_cache_bytes(x, tp, cache_bytes)
            for x in set(chosen)
            if isinstance(x.mixer, CompressedAttention)
        ),
        default=0.0,
    )
    for layer, times in Counter(chosen).items():
        per_token = layer_cache_bytes(layer, tp, cache_bytes)
        if isinstance(layer.mixer, CompressedAttention) and per_token:
            per_token = compressed
        per_sequence = layer_state_bytes(layer, tp, recurrent_bytes=recurrent_bytes)
        span = getattr(layer.mixer, "span", None) or 0
        if per_token:
            kinds["attention", span if hybrid else 0, per_token] += times
        # Attention and a recurrent mixer side by side are a layer of each kind.
        if per_sequence and (not per_token or isinstance(layer.mixer, ParallelMixers)):
            kinds["state", 0, 0.0] += times
            state = max(state, per_sequence)
    widths = [width for _, _, width in kinds if width]
    if not widths:
        return Pool(bytes=size, page_bytes=0, group_layers=1, groups=(), window_slack=0)
    tokens = block_tokens
    if state:
        # Attention blocks grow by whole blocks until one page holds the state.
        tokens = max(block_tokens, -(-int(-(-state // min(widths))) // block_tokens) * block_tokens)
    page = max(tokens * max(widths), state)
    group = min(kinds.values())
    if max(kinds.values()) < 1.25 * group:
        group = max(kinds.values())
    groups: list[Group] = []
    for (kind, window, width), count in sorted(kinds.items()):
        held = max(block_tokens, int(page // width) // block_tokens * block_tokens) if width else 0
        groups += [Group(kind=kind, window=window, page_tokens=held)] * (-(-count // group))
    return Pool(
        bytes=size, page_bytes=page, group_layers=group, groups=tuple(groups), window_slack=window_slack
    )
