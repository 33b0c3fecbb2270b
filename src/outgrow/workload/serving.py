"""A serving job: the engine and its budgets, the formats of weights and cache, the traffic, the targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outgrow.errors import InputError, Problem

Engine = Literal["vllm", "sglang", "tensorrt-llm"]
CacheFormat = Literal["auto", "bf16", "fp8", "fp4"]
UsageContext = Literal["server", "offline"]
Arrivals = Literal["closed", "poisson", "bursty"]

CACHE_BYTES: dict[str, float] = {"auto": 2.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What is asked of the service."""

    requests_per_second: float | None = None
    """Mean arrival rate of an open loop."""
    concurrency: int | None = None
    """Requests in flight of a closed loop."""
    input_tokens: int = 1024
    output_tokens: int = 256
    peak_factor: float = 1.0
    """Busiest minute over the mean."""
    arrivals: Arrivals = "poisson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the service promises; None = nothing."""

    ttft_seconds: float | None = None
    """Time to first token."""
    tpot_seconds: float | None = None
    """Time per output token after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingJob:
    """One model served by one engine. None = the engine's own default for this model and GPU."""

    engine: Engine = "vllm"
    engine_version: str | None = None
    """As the engine prints it, such as "0.11.0"; None = current."""
    weights: str | None = None
    """Weight format; None = as the checkpoint is stored."""
    cache: CacheFormat = "auto"
    """Format of the key-value cache; auto = 16 bits."""
    tp: int = 1
    pp: int = 1
    ep: int = 1
    replicas: int = 1
    """Independent copies (data parallel)."""
    memory_fraction: float | None = None
    """vLLM gpu_memory_utilization, SGLang mem_fraction_static, TensorRT-LLM free_gpu_memory_fraction."""
    max_model_len: int | None = None
    """Longest context; None = the model's own."""
    max_batched_tokens: int | None = None
    max_sequences: int | None = None
    block_tokens: int | None = None
    usage: UsageContext = "server"
    enforce_eager: bool = False
    """No CUDA graphs."""
    images_per_prompt: int = 1
    """Images that the engine must be able to take in one prompt, for vision models; 0 = text only."""
    image_tokens: int | None = None
    """Most tokens of one image; None = the model's own largest."""
    hybrid_cache: bool = True
    """Sliding-window layers keep their window only; False = every layer is charged the full context."""
    speculative_tokens: int = 0
    lora_adapters: int = 0
    lora_rank: int = 16
    weights_bytes: float | None = None
    """Overrides, in bytes per GPU, of what the engine's start log prints: weights, activation peak, memory outside
    of the framework, CUDA graphs."""
    activation_bytes: float | None = None
    non_torch_bytes: float | None = None
    graph_bytes: float | None = None
    traffic: Traffic | None = None
    targets: Targets = Targets()

    def __post_init__(self) -> None:
        wide, narrow = max(self.tp, self.ep), min(self.tp, self.ep)
        if self.ep > 1 and wide % narrow:
            problem = Problem(
                path="serving.ep", message=f"must divide serving.tp = {self.tp} or be a multiple of it", value=self.ep, has_value=True
            )  # fmt: skip
            raise InputError("Cannot read the serving job.", problems=[problem])

    @property
    def gpus(self) -> int:
        """GPUs of one replica. More expert-parallel than tensor-parallel ranks: attention is data-parallel over them."""
        return max(self.tp, self.ep) * self.pp
