"""Time of work on one device: a roofline, with the band of efficiencies that published runs reach.

Flop convention, everywhere in this project: a matrix product of (m, k) and (k, n) is 2 m k n; model flops per token
of training are 6 x (active parameters without the input embedding) + 6 x layers x attention width x sequence length
(causal), recomputation not counted. Tested against published tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.cluster.device import Device
from outgrow.units import format_percent
from outgrow.workload.mixers import LatentAttention, SelfAttention
from outgrow.workload.model import ModelShape
from outgrow.workload.training import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A fraction of a peak with the range that measurements span."""

    value: float
    low: float
    high: float
    source: str


TRAINING_BF16 = Band(
    value=0.42,
    low=0.28,
    high=0.56,
    source="model flops over dense bf16 peak of published bf16 runs on A100 and H100 (validation/data/training.csv, column norm_mfu_bf16)",
)
TRAINING_MOE = Band(value=0.22, low=0.10, high=0.35, source="the same for mixture-of-experts runs")
FP32 = 4
QUANTISED_BASE = Band(
    value=1.35,
    low=1.2,
    high=1.55,
    source="a 4-bit base took 1.2 to 1.55 times as long in published runs (Lightning-AI/litgpt resource tables, torchtune)",
)
DECODE_BANDWIDTH = Band(
    value=0.65,
    low=0.45,
    high=0.85,
    source="achieved over nominal memory bandwidth while decoding (published serving results)",
)
PREFILL_COMPUTE = Band(
    value=0.50,
    low=0.30,
    high=0.70,
    source="achieved over dense peak while prefilling (published serving results)",
)


def attention_flops_per_token(model: ModelShape, length: float, *, causal: bool = True) -> float:
    """Forward flops of the attention matrices of one token of a sequence of `length`: scores and weighted values."""
    total = 0.0
    for layer in model.layers:
        mixer = getattr(layer.mixer, "attention", layer.mixer)
        if isinstance(mixer, SelfAttention | LatentAttention):
            span = min(length, mixer.span or length)
            reach = span - span**2 / (2 * length) if causal else span
            width = mixer.heads * (mixer.head_dim + mixer.value_dim)
            total += 2 * width * reach
    return total


def forward_flops_per_token(model: ModelShape, length: float) -> float:
    """Forward flops of one token: matrix products with weights, and attention at mean reach."""
    return 2.0 * _multiplied(model) + attention_flops_per_token(model, length)


def training_flops_per_token(model: ModelShape, job: TrainingJob) -> float:
    """Model flops of one trained token: forward, and backward at twice that; a frozen base has no weight gradients."""
    forward = forward_flops_per_token(model, job.mean_length or job.sequence_length)
    return forward * (3.0 if job.trains_all else 1.0 if job.method == "frozen" else 2.0)


def training_efficiency(model: ModelShape) -> Band:
    """Share of the dense peak that training reaches."""
    return TRAINING_MOE if model.is_moe else TRAINING_BF16


def peak_flops(device: Device, *, fp8: bool = False) -> float | None:
    """Dense peak of a device for 16-bit work (or 8-bit where it has it)."""
    if fp8 and device.peak("fp8"):
        return device.peak("fp8")
    return device.peak("bf16") or device.peak("fp16")


def training_tokens_per_second(model: ModelShape, job: TrainingJob, device: Device, gpus: int) -> Band | None:
    """Tokens per second of `gpus` devices at the efficiency of published runs; None where the peak is unknown."""
    peak = device.peak("tf32") or device.peak("fp32") if job.regime.activation == FP32 else peak_flops(device)
    if peak is None:
        return None
    band = training_efficiency(model)
    flops = training_flops_per_token(model, job)
    rate = gpus * peak / flops
    slower = QUANTISED_BASE if job.base_format is not None and not job.trains_all else None
    value, low, high = (1.0, 1.0, 1.0) if slower is None else (slower.value, slower.high, slower.low)
    return Band(
        value=rate * band.value / value,
        low=rate * band.low / low,
        high=rate * band.high / high,
        source=f"roofline: {flops:.3g} flop per token; {band.source}"
        + (f"; {slower.source}" if slower else ""),
    )


def implausible(
    model: ModelShape, job: TrainingJob, device: Device, gpus: int, tokens_per_second: float
) -> str | None:
    """Why a measured speed cannot be true: model flops beyond the peak mean that less was trained than is believed.

    None where the speed is possible, or the device has no published peak.
    """
    peak = peak_flops(device, fp8=job.regime.fp8)
    if peak is None:
        return None
    share = training_flops_per_token(model, job) * tokens_per_second / (gpus * peak)
    if share <= 1.0:
        return None
    return (
        f"{tokens_per_second:,.0f} tokens/s on {gpus} x {device.title} would be {format_percent(share, digits=0)} of the peak: "
        f"compare the layers and parameters that were built with the {model.parameters:,} of the configuration"
    )


def prefill_seconds(
    model: ModelShape, device: Device, tokens: float, *, gpus: int = 1, fp8: bool = False
) -> Band | None:
    """Time to read a prompt of `tokens`."""
    peak = peak_flops(device, fp8=fp8)
    if peak is None:
        return None
    work = forward_flops_per_token(model, tokens) * tokens / (peak * gpus)
    e = PREFILL_COMPUTE
    return Band(value=work / e.value, low=work / e.high, high=work / e.low, source=f"roofline: {e.source}")


def decode_step_seconds(
    model: ModelShape,
    device: Device,
    *,
    weight_bytes: float,
    cache_bytes: float,
    sequences: float,
    gpus: int = 1,
    fp8: bool = False,
) -> Band | None:
    """Time of one decode step of `sequences`: the slower of reading weights and caches, and of multiplying.

    `weight_bytes` and `cache_bytes` are read by each GPU of a replica.
    """
    peak = peak_flops(device, fp8=fp8)
    if peak is None:
        return None
    read = (weight_bytes + cache_bytes) / device.memory_bandwidth.value
    multiply = sequences * 2.0 * _multiplied(model) / (peak * gpus)

    def step(bandwidth: float, compute: float) -> float:
        return max(read / bandwidth, multiply / compute)

    b, c = DECODE_BANDWIDTH, PREFILL_COMPUTE
    return Band(
        value=step(b.value, c.value),
        low=step(b.high, c.high),
        high=step(b.low, c.low),
        source=f"roofline: {b.source}",
    )


def _multiplied(model: ModelShape) -> int:
    weights = model.active_parameters - model.embedding_parameters - model.extra_embedding_parameters
    return weights + (model.embedding_parameters if model.tied and model.has_head else 0)
