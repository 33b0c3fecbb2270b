"""Inference engines as memory accountants: their defaults and what each version charges before the cache.

Sources: vLLM vllm/worker/worker.py (V0) and vllm/v1/worker/gpu_worker.py (V1), pull requests 2031, 9352, 10511,
11394, 16158, 17885, 26859, 30515, 32558, 40376; SGLang server_args.py and model_runner.py, pull requests 7054
and 10975; TensorRT-LLM _util.py (KvCacheCreator). Magnitudes of memory outside of the framework are those that
start logs print.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outgrow.units import GIB, MIB
from outgrow.workload.serving import ServingJob

CURRENT_VLLM = (0, 25)
LARGE_DEVICE = 70 * GIB
CONTEXT_BYTES = 0.6 * GIB
SMALL_CONTEXT_BYTES = 0.25 * GIB
"""CUDA context of one process, as the difference between total and free memory at start shows it: it grows with the
number of multiprocessors, so that devices of up to 40 GiB need less."""
SMALL_DEVICE = 40 * GIB

SORTING_SAMPLER = 38.0
"""Bytes per logit of top-k/top-p by sorting: 16-bit and fp32 logits 6, sorted values 4, 64-bit indices 8, and the
sort's own double buffers 20."""
FUSED_SAMPLER = 16.0
"""The same without a sort (FlashInfer, Triton)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBudget:
    """What an engine assumes for one model on one GPU."""

    memory_fraction: float
    max_batched_tokens: int
    max_sequences: int
    block_tokens: int
    sampler_bytes: float
    """Bytes per logit of the sampler's profile run."""
    profile_extra_bytes: float
    """What the profile run needs beside its largest operation."""
    non_torch_bytes: float
    graph_bytes: float
    all_logits: bool = False
    """The profile run computes logits of every token and does not sample (V1 before 0.8)."""
    keeps_reduced_inputs: bool = False
    """Inputs of all-reduces stay until a synchronisation (before 0.4)."""
    tables_everywhere: bool = False
    """Every pipeline stage holds the embedding and the head, which only the first and the last use (before 0.5.3)."""
    latent_alignment: int = 1
    """Bytes to which the latent of one token is rounded up."""
    fraction_of: str
    """"total", "available" (SGLang: free memory before loading) or "remaining" (TensorRT-LLM: free after loading)."""


# Releases of vLLM, for logs that tell the month and not the version.
RELEASES = (
    ("2023-12", (0, 2, 5)), ("2024-01", (0, 3, 0)), ("2024-03", (0, 4, 0)), ("2024-06", (0, 5, 0)), ("2024-09", (0, 6, 0)),
    ("2024-10", (0, 6, 3)), ("2024-12", (0, 6, 5)), ("2025-01", (0, 7, 0)), ("2025-02", (0, 7, 3)), ("2025-03", (0, 8, 0)),
    ("2025-04", (0, 8, 4)), ("2025-05", (0, 9, 0)), ("2025-07", (0, 10, 0)), ("2025-08", (0, 10, 1)), ("2025-09", (0, 10, 2)),
    ("2025-10", (0, 11, 1)), ("2025-12", (0, 12, 0)), ("2026-01", (0, 14, 0)), ("2026-04", (0, 20, 0)), ("2026-07", (0, 25, 0)),
)  # fmt: skip
LAST_PATCH = 9
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def version_of(text: str | None) -> tuple[int, int, int] | None:
    """(major, minor, patch) of "vLLM 0.11.0", "0.7 V0", "V1 Sep-2025" or "2026"; None where nothing tells it."""
    words = text or ""
    match = re.search(r"(?<!\d)(\d+)\.(\d+)(?:\.(\d+))?", words)
    if match:
        return int(match[1]), int(match[2]), int(match[3] or LAST_PATCH)  # "0.11" is its last patch release
    month = re.search(r"([A-Za-z]{3})[a-z]*[- ](20\d\d)", words)
    year = re.search(r"20\d\d", words)
    if month and month[1].lower() in _MONTHS:
        date = f"{month[2]}-{_MONTHS.index(month[1].lower()) + 1:02d}"
    elif year:
        date = f"{year[0]}-12"
    else:
        return (0, 10, 2) if "V1" in words else (0, 7, 2) if "V0" in words else None
    latest = max((version for start, version in RELEASES if start <= date), default=None)
    return min(latest, (0, 7, 3)) if latest is not None and "V0" in words else latest


def engine_budget(
    job: ServingJob, *, device_bytes: float, is_a100: bool, context_length: int, multimodal: bool
) -> EngineBudget:
    """Defaults of the engine's version, with what the job sets instead."""
    match job.engine:
        case "vllm":
            return _vllm(
                job, device_bytes, is_a100=is_a100, context_length=context_length, multimodal=multimodal
            )
        case "sglang":
            return _sglang(job, device_bytes, multimodal=multimodal)
        case "tensorrt-llm":
            return EngineBudget(
                memory_fraction=job.memory_fraction or 0.9, max_batched_tokens=job.max_batched_tokens or 8192,
                max_sequences=job.max_sequences or 2048, block_tokens=job.block_tokens or 32, sampler_bytes=4.0,
                profile_extra_bytes=0.0, non_torch_bytes=CONTEXT_BYTES + communication_bytes(job.tp),
                graph_bytes=0.0, fraction_of="remaining",
            )  # fmt: skip


def context_bytes(device_bytes: float) -> float:
    """CUDA context of one process."""
    return SMALL_CONTEXT_BYTES if device_bytes < SMALL_DEVICE else CONTEXT_BYTES


def communication_bytes(tp: int, per_rank: float = 0.28 * GIB) -> float:
    """Buffers of collectives and custom all-reduce on one GPU."""
    return per_rank * (tp - 1) if tp > 1 else 0.0


def graph_bytes(sequences: int) -> float:
    """Pool of captured CUDA graphs: they are captured for batch sizes up to twice the sequences, 512 at most."""
    return (0.05 + 0.45 * min(1.0, sequences / 256)) * GIB


def _is_early_v1(job: ServingJob, version: tuple[int, ...]) -> bool:
    """The new core of vLLM in versions that started the old one unless asked."""
    return version < (0, 8) and "V1" in (job.engine_version or "")


def latent_alignment(job: ServingJob) -> int:
    """Bytes to which the latent of one token is rounded up: 256 in vLLM 0.7.2 to 0.7.x, but for its new core."""
    if job.engine != "vllm":
        return 1
    version = version_of(job.engine_version) or (*CURRENT_VLLM, 0)
    return 256 if (0, 7, 1) < version < (0, 8) and not _is_early_v1(job, version) else 1


def _vllm(
    job: ServingJob, device_bytes: float, *, is_a100: bool, context_length: int, multimodal: bool
) -> EngineBudget:
    version = version_of(job.engine_version) or (*CURRENT_VLLM, 0)
    early_v1 = _is_early_v1(job, version)
    large = device_bytes >= LARGE_DEVICE and not is_a100
    if early_v1:
        sequences, tokens = job.max_sequences or 256, 8192
    elif version < (0, 8):
        sequences = job.max_sequences or 256
        tokens = max(context_length, 2048)
        if context_length > 32768 and not multimodal:
            tokens = 512 if version < (0, 6, 3) else 2048  # chunked prefill turns itself on
        if multimodal:
            tokens = max(tokens, 5120)
    else:
        sequences = job.max_sequences or (1024 if large or version < (0, 8, 3) else 256)
        offline = job.usage == "offline"
        tokens = (16384 if offline else 8192) if large else (8192 if offline else 2048)
    fast_sampler = version[:3] == (0, 11, 0) or version >= (0, 20)
    # Before 0.7 and from 0.8 to 0.9.1 everything in use was charged, the CUDA context too; else only growth since start.
    charges_context = (0, 6, 3) <= version < (0, 7) or (0, 8) <= version < (0, 9, 2) or early_v1
    if version < (0, 11):
        communication = communication_bytes(job.tp)
        if version >= (0, 9, 2) and job.tp > 1:
            communication += 0.9 * GIB  # collectives were initialised after the snapshot
    else:
        communication = 0.42 * GIB if job.tp > 1 else 0.0
    return EngineBudget(
        memory_fraction=job.memory_fraction or (0.92 if version >= (0, 21) else 0.9),
        max_batched_tokens=job.max_batched_tokens or tokens,
        max_sequences=sequences,
        block_tokens=job.block_tokens or 16,
        sampler_bytes=FUSED_SAMPLER if fast_sampler else SORTING_SAMPLER,
        profile_extra_bytes=0.0 if version < (0, 8) else 50 * MIB,
        non_torch_bytes=0.1 * GIB + communication + (context_bytes(device_bytes) if charges_context else 0.0),
        graph_bytes=graph_bytes(sequences) if version >= (0, 21) and not job.enforce_eager else 0.0,
        all_logits=early_v1,
        keeps_reduced_inputs=version < (0, 4),
        tables_everywhere=version < (0, 5, 3),
        latent_alignment=latent_alignment(job),
        fraction_of="total",
    )


def _sglang(job: ServingJob, device_bytes: float, *, multimodal: bool) -> EngineBudget:
    chunk, graphs = next(
        (c, b if job.tp < 4 else wide)
        for limit, c, b, wide in ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (90, 8192, 256, 512),
                                  (160, 8192, 256, 512), (float("inf"), 16384, 512, 512))
        if device_bytes < limit * GIB
    )  # fmt: skip
    chunk = job.max_batched_tokens or chunk
    reserved = (512 + 1.5 * max(chunk, 2048) + 2 * graphs + job.tp * job.pp / 8 * 1024) * MIB
    if device_bytes > 60 * GIB:
        reserved = max(reserved, 10240 * MIB)
    fraction = job.memory_fraction or (device_bytes - reserved) / device_bytes * (
        0.95 if multimodal and job.memory_fraction is None else 1.0
    )
    return EngineBudget(
        memory_fraction=fraction, max_batched_tokens=chunk, max_sequences=job.max_sequences or 2 * graphs,
        block_tokens=job.block_tokens or 1, sampler_bytes=FUSED_SAMPLER, profile_extra_bytes=0.0,
        non_torch_bytes=CONTEXT_BYTES + communication_bytes(job.tp), graph_bytes=0.0,
        fraction_of="available",
    )  # fmt: skip
