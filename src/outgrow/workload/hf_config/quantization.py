"""`quantization_config`: which weight format a checkpoint is stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from outgrow.workload.hf_config.reader import Fields, Notes
from outgrow.workload.quantization import FORMATS, WeightFormat


def read_quantization(config: Mapping[str, object], notes: Notes) -> WeightFormat | None:
    """The format that `quantization_config` states, or None where the checkpoint is not quantised."""
    fields = Fields(config, notes)
    section = fields.child("quantization_config", "compression_config")
    if section is None:
        for key in ("text_config", "llm_config", "thinker_config"):
            nested = config.get(key)
            if isinstance(nested, Mapping) and nested.get("quantization_config"):
                return read_quantization(nested, notes)
        return None
    method = section.text("quant_method", "quant_algo", default="").lower().replace("_", "-")
    known = _by_method(section, method)
    if known is None:
        hint = "remove it, or say how the weights are stored: --set serving.weights=fp8"
        section.fault("quant_method", "is a quantisation that is not known", hint=hint)
    return known


def _by_method(section: Fields, method: str) -> WeightFormat | None:
    if method == "fp8":
        block = section.integers("weight_block_size")
        return (
            replace(FORMATS["fp8-block"], block=(block[0], block[1]))
            if block and len(block) == 2
            else FORMATS["fp8"]
        )
    if method in ("awq", "gptq", "auto-round"):
        bits = section.integer("bits", "w_bit", default=4, low=2, high=8)
        group = section.integer("group_size", "q_group_size", default=128, low=-1)
        base = FORMATS["awq" if method == "awq" else "gptq"]
        return replace(
            base, bits=bits, group=group if group > 0 else None, scale_bits=16 + bits, method=method
        )
    if method == "bitsandbytes":
        if section.flag("load_in_8bit"):
            return FORMATS["bnb-int8"]
        return FORMATS["nf4-double" if section.flag("bnb_4bit_use_double_quant") else "nf4"]
    if method == "mxfp4":
        return FORMATS["mxfp4"]
    if method in ("modelopt", "modelopt-fp4", "nvfp4", "fp4"):
        algorithm = section.text("quant_algo", default="NVFP4").upper()
        return FORMATS["fp8"] if algorithm.startswith("FP8") else FORMATS["nvfp4"]
    if method in ("compressed-tensors", "compressed", "quark"):
        return _without_ignored(_compressed(section), section)
    if method in ("w8a8", "w8a8-int8", "int8"):
        return FORMATS["int8"]
    if method in ("fbgemm-fp8", "w8a8-fp8", "ptpc-fp8", "fp8-dynamic"):
        return FORMATS["fp8"]
    if method == "gguf":
        return FORMATS["q4_k_m"]
    return None


def _without_ignored(form: WeightFormat | None, section: Fields) -> WeightFormat | None:
    """Narrow a format where the config leaves attention, or everything but routed experts, in 16 bits."""
    ignored = " ".join(str(x) for x in section.items("ignore", "modules_to_not_convert", "exclude") or [])
    if form is None or "attn" not in ignored:
        return form
    return (
        replace(form, experts_only=True)
        if "shared_expert" in ignored or "mlp" in ignored
        else replace(form, ffn_only=True)
    )


def _compressed(section: Fields) -> WeightFormat | None:
    groups = section.child("config_groups", "layer_quant_config") or section
    for key in list(groups.raw):
        group = groups.child(key) if isinstance(groups.raw[key], Mapping) else None
        weights = group.child("weights") if group is not None else None
        if weights is None:
            continue
        bits = weights.integer("num_bits", default=8, low=2, high=16)
        size = weights.optional("group_size", low=-1)
        kind = weights.text("type", default="int")
        if bits == 8:
            return FORMATS["fp8" if kind == "float" else "int8"]
        if kind == "float" and bits == 4:
            return FORMATS["nvfp4"]
        return replace(FORMATS["int4"], bits=bits, group=size if size and size > 0 else None)
    text = section.text("format", default="")
    if "float" in text:
        return FORMATS["fp8"]
    # Without its groups the section says no more than "compressed": packed 4-bit weights are what it usually means.
    return FORMATS["int8"] if "int-quantized" in text else FORMATS["int4"]
