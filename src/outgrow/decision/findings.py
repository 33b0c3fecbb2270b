"""What a reader should know beside the verdict of a fit: surprises, refusals to start, versions that fail."""

from __future__ import annotations

from collections.abc import Iterator

from outgrow.catalog.compatibility import notices
from outgrow.cluster.cluster import Cluster
from outgrow.decision.fit import Fit
from outgrow.evidence import Finding
from outgrow.layout import Layout
from outgrow.physics.memory.moments import micro_batch_tokens
from outgrow.units import GIB, format_bytes
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import TrainingJob
from outgrow.workload.workload import Workload

LARGE_LOGITS = 0.05
"""Logits are told of where one copy takes more than this share of a GPU."""
MANY_BYTES = 6
"""Bytes per parameter above which a rule of thumb from the weights alone misleads."""
LARGE_RANK = 64
"""Adapters of a higher rank are rare enough that one of them should not set the memory of all."""


def findings(
    model: ModelShape, workload: Workload, layout: Layout, cluster: Cluster, fit: Fit
) -> tuple[Finding, ...]:
    """Everything worth telling, warnings and notes alike."""
    found = [*_violations(fit)]
    if workload.training is not None:
        found += _of_training(model, workload.training, layout, fit)
    if model.is_moe:
        idle = model.parameters - model.active_parameters
        found.append(
            _note(
                "active-parameters",
                f"memory is set by all {model.parameters / 1e9:,.1f} B parameters, not by the {model.active_parameters / 1e9:,.1f} B that a token uses",
                f"{idle / 1e9:,.1f} B are experts that wait",
            )
        )
    if cluster.device.vendor not in ("nvidia", "amd"):
        found.append(
            _warning(
                "not-validated",
                f"no published run or ledger on {cluster.device.title} was checked: context, graphs and allocator are taken from CUDA devices",
                "read the total as an estimate of weights, states and cache",
            )
        )
    if cluster.device.unified_memory:
        found.append(
            _warning("unified-memory", "the memory is the host's too: the operating system takes its part")
        )
    if workload.serving is not None:
        found += _of_serving(model, workload.serving, fit)
    return (*found, *not_counted(workload))


def not_counted(workload: Workload) -> Iterator[Finding]:
    """Inputs that were given and that no answer depends on."""
    serving, budget, unused = workload.serving, workload.budget, []
    if serving is not None and serving.speculative_tokens:
        unused.append("serving.speculative_tokens (a draft takes weights, cache and time of its own)")
    if serving is not None and serving.traffic is not None and serving.traffic.arrivals != "poisson":
        unused.append("serving.traffic.arrivals (the closed form knows the mean and the peak)")
    if budget.per_month is not None:
        unused.append("budget.per_month (no prices are known)")
    if budget.runs_per_month is not None:
        unused.append("budget.runs_per_month (one run is judged)")
    for name in unused:
        yield _warning("not-counted", f"{name} is given and changes nothing here")


def _note(code: str, message: str, hint: str = "") -> Finding:
    return Finding(severity="info", code=code, message=message, hint=hint)


def _warning(code: str, message: str, hint: str = "") -> Finding:
    return Finding(severity="warning", code=code, message=message, hint=hint)


def _violations(fit: Fit) -> Iterator[Finding]:
    for v in fit.violations:
        yield Finding(
            severity=v.severity,
            code="does-not-divide" if v.severity == "error" else "note",
            message=v.what + (" (frameworks may go on silently)" if v.silent else ""),
            hint=v.legal,
        )


def _of_training(model: ModelShape, job: TrainingJob, layout: Layout, fit: Fit) -> Iterator[Finding]:
    per = job.bytes_per_parameter
    if job.trains_all and per >= MANY_BYTES:
        yield _note(
            "bytes-per-parameter",
            f"full training holds {per:g} bytes per parameter before activations, {per / 2:.0f} times the 16-bit weights",
            "outgrow explain bytes-per-parameter",
        )
    for known in notices(model, job, layout):
        yield _warning(
            "compatibility",
            f"{known.library} {known.version}: {known.message}",
            f"{known.hint}; {known.source}",
        )
    if model.max_positions is not None and job.sequence_length > model.max_positions:
        yield _warning(
            "context-beyond-model",
            f"sequences of {job.sequence_length:,} are beyond the {model.max_positions:,} positions that {model.name} was built for",
            f"--set training.sequence_length={model.max_positions}",
        )
    tokens = micro_batch_tokens(job, layout)
    copy = 4.0 * tokens * model.vocab / layout.tp
    spent = sum(t.bytes for t in fit.terms if t.name == "logits and loss")
    if copy > LARGE_LOGITS * fit.capacity.value and spent > copy and job.loss != "fused":
        yield _note(
            "logits-peak",
            f"one fp32 copy of the logits ({tokens:,.0f} tokens x {model.vocab:,} entries) is {format_bytes(copy)}, and the loss holds {spent / copy:.1f} of them",
            "--set training.loss=fused never makes them whole",
        )
    if layout.sharding in ("zero1", "zero2", "zero3") and job.base_format is not None:
        yield _warning(
            "quantised-base-sharding",
            "FSDP shards a 4-bit base; DeepSpeed's ZeRO and DDP copy it to every GPU",
            "layout.sharding=none to see the copy",
        )
    if fit.host_bytes >= 0.5 * GIB:
        yield _note(
            "host-memory",
            f"the host needs about {fit.host_bytes / GIB:,.0f} GiB per GPU for what is offloaded or paged",
            "loading and saving need more: outgrow explain host-memory",
        )


def _of_serving(model: ModelShape, job: ServingJob, fit: Fit) -> Iterator[Finding]:
    longest, context = fit.limit("context of one request"), fit.context_length or 0
    if job.max_model_len is None and fit.fits and longest is not None and longest < context:
        start = "would refuse to start" if job.engine == "vllm" else "would cut or refuse longer requests"
        yield _warning(
            "context-too-long",
            f"with the model's own context of {context:,} tokens {job.engine} {start}: the cache holds one request of {longest:,}",
            f"--set serving.max_model_len={longest}",
        )
    if (
        job.max_model_len is not None
        and model.max_positions is not None
        and job.max_model_len > model.max_positions
    ):
        yield _warning(
            "context-beyond-model",
            f"a context of {job.max_model_len:,} is beyond the {model.max_positions:,} positions that {model.name} was built for",
            f"--set serving.max_model_len={model.max_positions}",
        )
    if (
        not fit.cache_bytes_per_token
        and not any(limit.name == "state blocks" for limit in fit.limits)
        and not model.has_head
    ):
        yield _note(
            "no-generation",
            f"{model.name} generates no text: it needs no cache, and requests are bounded by compute",
        )
    if job.lora_adapters and job.lora_rank > LARGE_RANK:
        yield _warning(
            "max-lora-rank",
            "engines reserve the largest rank for every adapter",
            "set it to the largest rank in use",
        )
    if any(getattr(layer.mixer, "span", None) for layer in model.attention_layers):
        yield _note(
            "sliding-window",
            "sliding-window layers hold their window only where the engine's hybrid cache is on",
            "serving.hybrid_cache=false shows the cache without it",
        )
