"""Is a layout legal for this model and these devices: every violation at once, each with the nearest legal values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outgrow.cluster.device import Device
from outgrow.layout import Layout, divisors, nearest
from outgrow.workload.mixers import LinearAttention, Mamba, SelfAttention
from outgrow.workload.model import FeedForward, MixtureOfExperts, ModelShape
from outgrow.workload.quantization import WeightFormat
from outgrow.workload.training import TrainingJob

KERNEL_TILE = 128
"""Columns that the kernels of grouped 4-bit formats work on at once (Marlin)."""
Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that does not divide, or that a device cannot do."""

    severity: Severity
    what: str
    """The rule, with the numbers that break it."""
    legal: str
    """The nearest values that would be legal."""
    silent: bool = False
    """Frameworks are known to go on with a wrong model instead of refusing."""


def valid_tensor_parallel(model: ModelShape, most: int = 16) -> tuple[int, ...]:
    """Tensor-parallel degrees that divide the query heads of every attention layer, up to `most`."""
    heads = {
        x.mixer.heads
        for x in model.layers
        if x.mixer is not None and x.mixer.kind in ("attention", "latent", "compressed")
    }
    if not heads:
        heads = {x.mixer.heads for x in model.layers if x.mixer is not None} or {1}
    return tuple(d for d in range(1, most + 1) if all(h % d == 0 for h in heads))


def legal_tensor_parallel(
    model: ModelShape, most: int = 16, *, form: WeightFormat | None = None
) -> tuple[int, ...]:
    """Degrees at which nothing at all is in the way: key-value heads, widths and quantisation groups included."""
    return tuple(
        tp
        for tp in valid_tensor_parallel(model, most)
        if not any(
            v.severity == "error" for v in _tensor(model, Layout(tp=tp, sequence_parallel=False), form)
        )
    )


def violations(
    model: ModelShape, layout: Layout, *, form: WeightFormat | None = None, device: Device | None = None,
    job: TrainingJob | None = None, global_batch: int | None = None, fp8: bool = False, bf16: bool = False,
    uneven_stages: bool = False,
) -> tuple[Violation, ...]:  # fmt: skip
    """Every violation of a layout, worst first. Engines that serve take `uneven_stages` as they come."""
    found = [
        *_tensor(model, layout, form),
        *_experts(model, layout),
        *_pipeline(model, layout, even=not uneven_stages),
    ]
    found += _batch(layout, job, global_batch)
    if device is not None:
        found += _device(device, fp8=fp8, bf16=bf16, form=form)
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda v: order[v.severity]))


def _legal_tp(model: ModelShape, tp: int) -> str:
    return nearest(tp, list(valid_tensor_parallel(model, most=256)))


def _tensor(model: ModelShape, layout: Layout, form: WeightFormat | None) -> list[Violation]:
    tp = layout.tp
    if tp == 1:
        return []
    found: dict[str, Violation] = {}
    for layer in model.layers:
        mixer, ffn = getattr(layer.mixer, "attention", layer.mixer), layer.ffn
        if isinstance(mixer, SelfAttention):
            if mixer.heads % tp:
                found["heads"] = Violation(
                    severity="error",
                    what=f"{mixer.heads} query heads do not divide by tp = {tp}",
                    legal=f"tp = {_legal_tp(model, tp)}",
                )
            if mixer.kv_heads % tp and tp % mixer.kv_heads:
                legal = [
                    d for d in divisors(mixer.heads) if mixer.kv_heads % d == 0 or d % mixer.kv_heads == 0
                ]
                found["kv"] = Violation(
                    severity="error",
                    what=f"{mixer.kv_heads} key-value heads can be neither split nor copied evenly over tp = {tp}",
                    legal=f"tp = {nearest(tp, legal)}",
                )
            elif tp > mixer.kv_heads:
                found["kv"] = Violation(
                    severity="info",
                    what=f"{mixer.kv_heads} key-value heads are copied over tp = {tp}: beyond tp = {mixer.kv_heads} the cache per GPU stops shrinking",
                    legal=f"tp <= {mixer.kv_heads}, or more replicas",
                )
        elif isinstance(mixer, LinearAttention) and (mixer.value_heads % tp or mixer.key_heads % tp):
            found["linear"] = Violation(
                severity="error",
                what=f"{mixer.key_heads} key and {mixer.value_heads} value heads of linear attention do not divide by tp = {tp}",
                legal=f"tp = {nearest(tp, [d for d in divisors(mixer.key_heads) if mixer.value_heads % d == 0])}",
            )
        elif isinstance(mixer, Mamba) and mixer.version == 2 and mixer.heads % tp:
            found["mamba"] = Violation(
                severity="error",
                what=f"{mixer.heads} state-space heads do not divide by tp = {tp}",
                legal=f"tp = {nearest(tp, divisors(mixer.heads))}",
            )
        elif mixer is not None and mixer.kind in ("latent", "compressed"):
            if mixer.heads % tp:
                found["heads"] = Violation(
                    severity="error",
                    what=f"{mixer.heads} heads do not divide by tp = {tp}",
                    legal=f"tp = {_legal_tp(model, tp)}",
                )
            found["latent"] = Violation(
                severity="info",
                what="the latent cache is copied to every tensor-parallel rank",
                legal="data-parallel attention divides it",
            )
        width = _expert_width(ffn, layout) or (ffn.intermediate if isinstance(ffn, FeedForward) else 0)
        if width and width % tp:
            found["ffn"] = Violation(
                severity="error",
                what=f"a feed-forward width of {width:,} does not divide by tp = {tp}",
                legal=f"tp = {nearest(tp, divisors(width))}",
            )
        elif width and form is not None and form.group and form.bits == 4:
            part = width // tp
            step = max(form.group, KERNEL_TILE)
            if part % step:
                legal = [d for d in divisors(width) if (width // d) % step == 0 and model.heads % d == 0]
                found["group"] = Violation(
                    severity="error",
                    what=f"{width:,} / tp {tp} = {part:,} is no multiple of {step} (quantisation group {form.group}, kernel tile {KERNEL_TILE})",
                    legal=f"tp = {nearest(tp, legal)}, or requantise with group {_fitting_group(part)}",
                )
    if model.vocab % tp:
        padded = -(-model.vocab // tp) * tp
        found["vocab"] = Violation(
            severity="info",
            what=f"the vocabulary of {model.vocab:,} is padded to {padded:,} for tp = {tp}",
            legal="nothing to do",
        )
    return list(found.values())


def _expert_width(ffn: object, layout: Layout) -> int:
    return ffn.intermediate if isinstance(ffn, MixtureOfExperts) and layout.ep == 1 else 0


def _fitting_group(part: int) -> str:
    fitting = [g for g in (128, 64, 32) if part % g == 0]
    return str(fitting[0]) if fitting else "none: the width is odd"


def _experts(model: ModelShape, layout: Layout) -> list[Violation]:
    if layout.ep == 1:
        return []
    if not model.is_moe:
        return [
            Violation(
                severity="error", what=f"ep = {layout.ep}, and the model has no experts", legal="ep = 1"
            )
        ]
    if model.experts % layout.ep:
        return [
            Violation(
                severity="error",
                what=f"{model.experts} experts do not divide by ep = {layout.ep}",
                legal=f"ep = {nearest(layout.ep, divisors(model.experts))}",
            )
        ]
    return []


def unfilled_stages(model: ModelShape, chunks: int) -> Violation | None:
    """More pipeline chunks (pp x vpp) than there are layers."""
    layers = len(model.layers)
    if chunks <= layers:
        return None
    return Violation(
        severity="error",
        what=f"{layers} layers cannot fill pp x vpp = {chunks} chunks",
        legal=f"pp x vpp <= {layers}",
    )


def _pipeline(model: ModelShape, layout: Layout, *, even: bool) -> list[Violation]:
    # Engines hand out the layers that are left over; training frameworks want equal stages or to be told the sizes.
    layers, chunks = len(model.layers), layout.pp * layout.vpp
    if layout.stage_layers is not None:
        total = sum(layout.stage_layers)
        if total != layers:
            return [
                Violation(
                    severity="error",
                    what=f"the stages hold {total} layers and the model has {layers}",
                    legal=f"stage_layers that sum to {layers}",
                    silent=True,
                )
            ]
        return []
    if chunks == 1:
        return []
    if (wrong := unfilled_stages(model, chunks)) is not None:
        return [wrong]
    if even and layers % chunks:
        whole = [d for d in divisors(layers) if layers % (d * layout.vpp) == 0]
        base, rest = divmod(layers, chunks)
        uneven = [base + (1 if i < rest else 0) for i in range(chunks)]
        shown = ", ".join(map(str, uneven[:6])) + (", ..." if chunks > 6 else "")
        return [
            Violation(severity="error", what=f"{layers} layers do not divide by pp {layout.pp} x vpp {layout.vpp} = {chunks}: some frameworks build {base * chunks} layers and say nothing",
                      legal=f"pp = {nearest(layout.pp, whole)}, or uneven stages: stage_layers = [{shown}]", silent=True)
        ]  # fmt: skip
    return []


def _batch(layout: Layout, job: TrainingJob | None, global_batch: int | None) -> list[Violation]:
    found = []
    if job is not None and layout.cp > 1 and job.sequence_length % (2 * layout.cp):
        found.append(
            Violation(
                severity="error",
                what=f"a sequence of {job.sequence_length:,} does not divide by 2 x cp = {2 * layout.cp}",
                legal=f"a length that is a multiple of {2 * layout.cp}",
            )
        )
    if job is not None and job.optimizer_in_backward and job.accumulation > 1:
        found.append(
            Violation(
                severity="error",
                what=f"the optimizer steps in the backward pass, and {job.accumulation} micro-batches are accumulated",
                legal=f"a global batch of {layout.dp * layout.micro_batch}, or training.optimizer_in_backward=false",
            )
        )
    if global_batch is not None and global_batch % (layout.dp * layout.micro_batch):
        step = layout.dp * layout.micro_batch
        below, above = global_batch // step * step, -(-global_batch // step) * step
        found.append(
            Violation(severity="error", what=f"a global batch of {global_batch:,} is not dp {layout.dp} x micro-batch {layout.micro_batch} x a whole number",
                      legal="global batch " + " or ".join(f"{b:,}" for b in (below, above) if b) + (f", or micro-batch {nearest(layout.micro_batch, divisors(global_batch // layout.dp))}" if global_batch % layout.dp == 0 else ""), silent=True)
        )  # fmt: skip
    return found


def _device(device: Device, *, fp8: bool, bf16: bool, form: WeightFormat | None) -> list[Violation]:
    found = []
    if fp8 and not device.supports_fp8:
        found.append(
            Violation(
                severity="error",
                what=f"{device.title} does not multiply in fp8 (compute capability {device.compute_capability or 'n/a'}, 8.9 is needed)",
                legal="bf16, or fp8 as a storage format of weights",
            )
        )
    elif form is not None and form.bits == 8 and "fp8" in form.name and not device.supports_fp8:
        found.append(
            Violation(
                severity="warning",
                what=f"{device.title} has no fp8 units: fp8 weights are stored in 8 bits and multiplied in 16",
                legal="int8 weights, or a device of compute capability 8.9",
            )
        )
    if bf16 and not device.supports_bf16:
        found.append(
            Violation(
                severity="warning",
                what=f"{device.title} has no bf16 (compute capability {device.compute_capability or 'n/a'}, 8.0 is needed)",
                legal="fp16 is taken, in the same memory: watch for overflow",
            )
        )
    return found
