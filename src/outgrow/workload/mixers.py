"""Token mixers: what a layer uses to let positions see one another, with exact parameter counts.

Every mixer answers the same four questions, so that nobody else needs to know its kind:
  `parameters(hidden)`       how many weights it holds
  `cache_elements()`         elements cached per token of context (keys and values, or a latent)
  `state_elements()`         elements of fixed state per sequence, whatever its length (recurrent, convolved)
  `span`                     how many tokens back the cache is ever read; None = all of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


def linear(inputs: int, outputs: int, *, bias: bool = False) -> int:
    """Parameters of a linear layer."""
    return inputs * outputs + (outputs if bias else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAttention:
    """Multi-head, grouped-query or multi-query attention."""

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int | None = None
    """Where values are of another width than keys (MiMo-V2)."""
    q_bias: bool = False
    kv_bias: bool = False
    out_bias: bool = False
    qk_norm_parameters: int = 0
    """2 x head_dim where heads share one norm (Qwen3), the widths of queries and keys where not (OLMo-2)."""
    output_gate: bool = False
    """The query projection is doubled and gates the output (Qwen3-Next)."""
    sinks: bool = False
    """One learned sink logit per head (gpt-oss)."""
    window: int | None = None
    """Sliding window, in tokens; None = the whole context."""
    chunk: int | None = None
    """Attention within chunks of this many tokens (Llama-4)."""
    shares_kv: bool = False
    """Reads the keys and values of an earlier layer: no projections, no cache of its own (Gemma-3n)."""
    value_is_key: bool = False
    """Values reuse the key projection (Gemma-4 global layers)."""
    causal: bool = True
    fused_projection: bool = False
    """Queries, keys and values come out of one matrix: values keep all of its output alive (Phi-3)."""
    extra_parameters: int = 0
    kind: Literal["attention"] = "attention"

    @property
    def value_dim(self) -> int:
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def span(self) -> int | None:
        return self.window if self.window is not None else self.chunk

    def parameters(self, hidden: int) -> int:
        q_width = self.heads * self.head_dim * (2 if self.output_gate else 1)
        total = linear(hidden, q_width, bias=self.q_bias)
        if not self.shares_kv:
            total += linear(hidden, self.kv_heads * self.head_dim, bias=self.kv_bias)
            if not self.value_is_key:
                total += linear(hidden, self.kv_heads * self.value_dim, bias=self.kv_bias)
        total += linear(self.heads * self.value_dim, hidden, bias=self.out_bias)
        return total + self.qk_norm_parameters + (self.heads if self.sinks else 0) + self.extra_parameters

    def cache_elements(self) -> int:
        if self.shares_kv or not self.causal:
            return 0
        return self.kv_heads * (self.head_dim + self.value_dim)

    def state_elements(self) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): one compressed vector per token is cached for all heads."""

    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    value_head_dim: int
    bias: bool = False
    index_heads: int = 0
    """Lightning indexer of sparse attention (DeepSeek-V3.2); 0 = none."""
    index_head_dim: int = 0
    extra_parameters: int = 0
    kind: Literal["latent"] = "latent"
    window: int | None = None

    @property
    def head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def value_dim(self) -> int:
        return self.value_head_dim

    @property
    def span(self) -> int | None:
        return self.window

    @property
    def kv_heads(self) -> int:
        """One latent, shared by all heads: tensor parallelism cannot split the cache."""
        return 1

    def parameters(self, hidden: int) -> int:
        q_width = self.heads * self.head_dim
        if self.q_lora_rank is None:
            total = linear(hidden, q_width)
        else:
            total = linear(hidden, self.q_lora_rank, bias=self.bias) + self.q_lora_rank
            total += linear(self.q_lora_rank, q_width)
        total += linear(hidden, self.kv_lora_rank + self.qk_rope_head_dim, bias=self.bias) + self.kv_lora_rank
        total += linear(self.kv_lora_rank, self.heads * (self.qk_nope_head_dim + self.value_head_dim))
        total += linear(self.heads * self.value_head_dim, hidden, bias=self.bias)
        if self.index_heads and self.q_lora_rank is not None:
            total += linear(self.q_lora_rank, self.index_heads * self.index_head_dim)
            total += linear(hidden, self.index_head_dim) + 2 * self.index_head_dim
            total += linear(hidden, self.index_heads)
        return total + self.extra_parameters

    def cache_elements(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim

    def state_elements(self) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over a sliding window plus a context compressed by a fixed ratio (DeepSeek-V4).

    Keys and values are one shared vector of `head_dim`. Beyond the window, `ratio` tokens share one entry;
    ratio 0 means the window alone.
    """

    heads: int
    head_dim: int
    window: int | None
    ratio: int
    parameter_count: int
    """Given by the mapper: low-rank output, compressor and indexer have no shorter description."""
    index_head_dim: int = 0
    kind: Literal["compressed"] = "compressed"

    @property
    def kv_heads(self) -> int:
        return 1

    @property
    def value_dim(self) -> int:
        return self.head_dim

    @property
    def span(self) -> int | None:
        return self.window if self.ratio == 0 else None

    def parameters(self, hidden: int) -> int:  # noqa: ARG002 (one interface for all mixers)
        return self.parameter_count

    def cache_elements(self) -> int:
        """Elements per token in the long run: the compressed entry's share; the window is state."""
        return -(-(self.head_dim + self.index_head_dim) // self.ratio) if self.ratio else 0

    def state_elements(self) -> int:
        return self.head_dim * (self.window or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Linear attention (Qwen3-Next, Kimi Linear, MiniMax-01): a fixed state per head, no growing cache."""

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    """1 = no convolution before the heads."""
    extra_parameters: int = 0
    parameter_count: int | None = None
    """Given by the mapper where the gates differ from those of the gated delta rule."""
    kind: Literal["linear"] = "linear"

    @property
    def heads(self) -> int:
        return self.value_heads

    @property
    def span(self) -> int | None:
        return 0

    @property
    def conv_width(self) -> int:
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    def parameters(self, hidden: int) -> int:
        if self.parameter_count is not None:
            return self.parameter_count + self.extra_parameters
        value_width = self.value_heads * self.value_head_dim
        total = linear(hidden, self.conv_width)  # queries, keys, values
        total += linear(hidden, value_width)  # output gate z
        total += 2 * linear(hidden, self.value_heads)  # beta and alpha
        total += self.conv_width * self.conv_kernel
        total += 2 * self.value_heads  # decay: A_log, dt_bias
        total += self.value_head_dim  # norm of the gated output
        return total + linear(value_width, hidden) + self.extra_parameters

    def cache_elements(self) -> int:
        return 0

    def state_elements(self) -> int:
        recurrent = self.value_heads * self.key_head_dim * self.value_head_dim
        return recurrent + self.conv_width * (self.conv_kernel - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """Selective state space layer, version 1 (per-channel) or 2 (per-head)."""

    version: Literal[1, 2]
    inner: int
    state: int
    conv_kernel: int
    heads: int = 1
    groups: int = 1
    dt_rank: int = 0
    conv_bias: bool = True
    bias: bool = False
    norm_parameters: int = 0
    extra_parameters: int = 0
    kind: Literal["mamba"] = "mamba"

    @property
    def span(self) -> int | None:
        return 0

    @property
    def conv_width(self) -> int:
        return self.inner + (2 * self.groups * self.state if self.version == 2 else 0)

    def parameters(self, hidden: int) -> int:
        conv = self.conv_width * self.conv_kernel + (self.conv_width if self.conv_bias else 0)
        if self.version == 2:
            total = linear(hidden, self.inner + self.conv_width + self.heads, bias=self.bias)
            total += 3 * self.heads  # A_log, D, dt_bias
        else:
            total = linear(hidden, 2 * self.inner, bias=self.bias)
            total += linear(self.inner, self.dt_rank + 2 * self.state)
            total += linear(self.dt_rank, self.inner, bias=True)
            total += self.inner * self.state + self.inner  # A_log, D
        total += conv + self.norm_parameters
        return total + linear(self.inner, hidden, bias=self.bias) + self.extra_parameters

    def cache_elements(self) -> int:
        return 0

    def state_elements(self) -> int:
        return self.inner * self.state + self.conv_width * (self.conv_kernel - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution:
    """Gated short convolution (LFM2)."""

    width: int
    kernel: int
    bias: bool = False
    kind: Literal["convolution"] = "convolution"

    @property
    def heads(self) -> int:
        return 1

    @property
    def span(self) -> int | None:
        return 0

    def parameters(self, hidden: int) -> int:
        conv = self.width * self.kernel + (self.width if self.bias else 0)
        return (
            linear(hidden, 3 * self.width, bias=self.bias) + conv + linear(self.width, hidden, bias=self.bias)
        )

    def cache_elements(self) -> int:
        return 0

    def state_elements(self) -> int:
        return self.width * self.kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelMixers:
    """Attention and a state space layer side by side on one input, their outputs added (Falcon-H1)."""

    attention: SelfAttention
    recurrent: Mamba
    kind: Literal["attention"] = "attention"

    @property
    def heads(self) -> int:
        return self.attention.heads

    @property
    def kv_heads(self) -> int:
        return self.attention.kv_heads

    @property
    def head_dim(self) -> int:
        return self.attention.head_dim

    @property
    def value_dim(self) -> int:
        return self.attention.value_dim

    @property
    def span(self) -> int | None:
        return self.attention.span

    def parameters(self, hidden: int) -> int:
        return self.attention.parameters(hidden) + self.recurrent.parameters(hidden)

    def cache_elements(self) -> int:
        return self.attention.cache_elements()

    def state_elements(self) -> int:
        return self.recurrent.state_elements()


Mixer = (
    SelfAttention
    | LatentAttention
    | CompressedAttention
    | LinearAttention
    | Mamba
    | ShortConvolution
    | ParallelMixers
)
