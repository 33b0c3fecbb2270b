"""Parameter counts of vision and audio encoders, without the projector into a language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from outgrow.workload.hf_config.defaults import CLASS_DEFAULTS
from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.mixers import linear
from outgrow.workload.model import Tower

OWN_DEFAULTS: dict[str, dict[str, object]] = {
    "clip_vision_model": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 224, "patch_size": 32,
    },
    "siglip_vision_model": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 224, "patch_size": 16,
    },
    "siglip2_vision_model": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "num_patches": 256, "patch_size": 16,
    },
    "idefics2_perceiver": {
        "hidden_size": 4096, "resampler_n_latents": 64, "resampler_depth": 3, "resampler_n_heads": 16,
        "resampler_head_dim": 96, "num_key_value_heads": 4,
    },
    "pixtral": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 1024, "patch_size": 16,
    },
    "kimi_k25_vision": {
        "vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27,
        "vt_num_attention_heads": 16, "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
    },
    "sam_vision_model": {
        "hidden_size": 768, "mlp_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 1024, "patch_size": 16, "output_channels": 256, "window_size": 14,
    },
    "voxtral_encoder": {
        "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
        "num_mel_bins": 128, "max_source_positions": 1500,
    },
    "qwen2_audio_encoder": {
        "d_model": 1280, "encoder_ffn_dim": 5120, "encoder_layers": 32, "encoder_attention_heads": 20,
        "num_mel_bins": 128, "max_source_positions": 1500,
    },
}  # fmt: skip
"""Encoders whose class is no model type of its own in `CLASS_DEFAULTS`."""


def defaults(kind: str) -> Mapping[str, object]:
    """What the class of an encoder assumes for a key that its config does not write."""
    return OWN_DEFAULTS.get(kind) or CLASS_DEFAULTS.get(kind, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """An encoder as its config describes it; `tokens` is the number of positions that it puts out."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    parameters: int
    tokens: int | None = None
    output: int = 0
    """Width of what it puts out, where that is not `hidden`."""

    def tower(self, kind: Literal["vision", "audio"], *, projector: int, tokens: int | None = None) -> Tower:
        """The encoder together with `projector` parameters that join it to the language model."""
        return Tower(
            kind=kind,
            layers=self.layers,
            hidden=self.hidden,
            parameters=self.parameters + projector,
            intermediate=self.intermediate,
            heads=self.heads,
            max_tokens_per_item=tokens,
        )


def block(
    hidden: int,
    intermediate: int,
    *,
    biases: int = 4,
    kv_width: int | None = None,
    q_width: int | None = None,
    matrices: int = 2,
    ffn_bias: bool = True,
    norms: int = 4,
) -> int:
    """Parameters of one encoder block.

    `biases` counts how many of the query, key, value and output projections have one, `norms` the vectors of
    hidden size in its norms: a layer norm with a bias has two, and there are two of them.
    """
    q_width = hidden if q_width is None else q_width
    kv_width = q_width if kv_width is None else kv_width
    total = 2 * linear(hidden, q_width) + 2 * linear(hidden, kv_width) + biases * hidden
    total += matrices * hidden * intermediate + norms * hidden
    if ffn_bias:
        total += (matrices - 1) * intermediate + hidden
    return total


def _square(fields: Fields, name: str) -> int:
    """A size that is written as one number or as height and width, which must then be equal."""
    value = fields.raw.get(name)
    if value is None:
        value = fields.class_defaults.get(name)
    if isinstance(value, list | tuple):
        sides = fields.integers(name, length=2, low=1) or [1]
        if len(set(sides)) > 1:
            fields.fault(name, "must be square", value=value)
        return sides[0]
    return fields.integer(name)


def _grid(fields: Fields) -> tuple[int, int]:
    """Patches of one image of the size that the config states, and values of one patch."""
    image, patch = _square(fields, "image_size"), _square(fields, "patch_size")
    if image < patch:
        fields.fault("image_size", f"must be at least one patch of {patch}", value=image)
    return (image // patch) ** 2, _channels(fields) * patch**2


def _channels(fields: Fields) -> int:
    return fields.integer("num_channels", "in_channels", "in_chans", default=3)


def _plain(fields: Fields) -> tuple[int, int, int, int]:
    """Hidden size, intermediate size, layers and heads under their usual names."""
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads", "attention_heads")
    fields.divided(hidden, heads, key="num_attention_heads", what="hidden size over heads")
    return hidden, fields.integer("intermediate_size"), fields.layer_count(), heads


def _pixels(fields: Fields) -> int:
    """Values of one patch, where the size of images is not stated."""
    return _channels(fields) * _square(fields, "patch_size") ** 2


def clip(fields: Fields) -> Encoder:
    """CLIP: a class token, norms before and after."""
    hidden, intermediate, layers, heads = _plain(fields)
    patches, pixels = _grid(fields)
    total = hidden + pixels * hidden + (patches + 1) * hidden + 4 * hidden
    total += layers * block(hidden, intermediate)
    return Encoder(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total, tokens=patches
    )


def _siglip(fields: Fields, *, patches: int, pixels: int, head: bool) -> Encoder:
    hidden, intermediate, layers, heads = _plain(fields)
    total = linear(pixels, hidden, bias=True) + patches * hidden + 2 * hidden
    total += layers * block(hidden, intermediate)
    if head:  # attention pooling: a probe, and a block with one norm
        total += hidden + block(hidden, intermediate, norms=2)
    return Encoder(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total, tokens=patches
    )


def siglip(fields: Fields) -> Encoder:
    """SigLIP; checkpoints inside of a language model usually come without the pooling head."""
    patches, pixels = _grid(fields)
    head = fields.flag("vision_use_head", default=True)
    return _siglip(fields, patches=patches, pixels=pixels, head=head)


def siglip2(fields: Fields) -> Encoder:
    """SigLIP-2 for images of any shape: positions are counted, not derived."""
    patches = fields.integer("num_patches")
    head = fields.flag("vision_use_head", default=True)
    return _siglip(fields, patches=patches, pixels=_pixels(fields), head=head)


def idefics(fields: Fields) -> Encoder:
    """The encoder of Idefics-2, Idefics-3 and SmolVLM: SigLIP without a head."""
    patches, pixels = _grid(fields)
    return _siglip(fields, patches=patches, pixels=pixels, head=False)


def pixtral(fields: Fields) -> Encoder:
    """Pixtral: no biases, rotary positions, gated blocks."""
    hidden, intermediate, layers, heads = _plain(fields)
    head_dim = fields.optional("head_dim", low=1) or hidden // heads
    patches, pixels = _grid(fields)
    total = pixels * hidden + hidden
    total += layers * block(
        hidden, intermediate, biases=0, q_width=heads * head_dim, matrices=3, ffn_bias=False, norms=2
    )
    return Encoder(
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        parameters=total,
        tokens=patches,
    )


def internvl(fields: Fields) -> Encoder:
    """InternViT: a class token and a learned scale on each branch. Both spellings of the config are read."""
    hidden, intermediate, layers, heads = _plain(fields)
    patches, pixels = _grid(fields)
    biased = fields.flag("attention_bias", "qkv_bias")
    norm_vectors = 2 if fields.text("norm_type", default="layer_norm") == "rms_norm" else 4
    total = hidden + linear(pixels, hidden, bias=True) + (patches + 1) * hidden
    if fields.flag("use_mask_token"):
        total += hidden
    if not fields.flag("use_absolute_position_embeddings", default=True):
        total -= (patches + 1) * hidden
    scales = 2 + (2 if fields.flag("use_qk_norm", "qk_normalization") else 0)
    total += layers * block(hidden, intermediate, biases=4 if biased else 1, norms=norm_vectors + scales)
    if not fields.flag("use_mean_pooling", default=True):
        total += 2 * hidden
    return Encoder(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total, tokens=patches
    )


def _qwen_patches(fields: Fields, hidden: int, *, bias: bool) -> int:
    """A convolution over space and time."""
    return linear(_pixels(fields) * fields.integer("temporal_patch_size"), hidden, bias=bias)


def _qwen_heads(fields: Fields, hidden: int) -> int:
    heads = fields.integer("num_heads", "num_attention_heads")
    fields.divided(hidden, heads, key="num_heads", what="hidden size over heads")
    return heads


def qwen2_vl(fields: Fields) -> Encoder:
    """Qwen2-VL; `hidden_size` is the width of the language model here. The merger is counted."""
    hidden, out = fields.integer("embed_dim"), fields.integer("hidden_size")
    layers, heads = fields.layer_count("depth"), _qwen_heads(fields, hidden)
    intermediate = int(hidden * fields.number("mlp_ratio", low=0.01, high=1000))
    merged = hidden * fields.integer("spatial_merge_size") ** 2
    total = _qwen_patches(fields, hidden, bias=False) + layers * block(hidden, intermediate)
    total += 2 * hidden + linear(merged, merged, bias=True) + linear(merged, out, bias=True)
    return Encoder(layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total)


def qwen2_5_vl(fields: Fields) -> Encoder:
    """Qwen2.5-VL and Qwen2.5-Omni. The merger is counted."""
    hidden, intermediate = fields.integer("hidden_size"), fields.integer("intermediate_size")
    layers, heads = fields.layer_count("depth"), _qwen_heads(fields, hidden)
    merged = hidden * fields.integer("spatial_merge_size") ** 2
    total = _qwen_patches(fields, hidden, bias=False) + layers * block(
        hidden, intermediate, matrices=3, norms=2
    )
    total += hidden + linear(merged, merged, bias=True)
    total += linear(merged, fields.integer("out_hidden_size"), bias=True)
    return Encoder(layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total)


def qwen3_vl(fields: Fields) -> Encoder:
    """Qwen3-VL and Qwen3.5: learned positions, one more merger per layer in `deepstack_visual_indexes`."""
    hidden, intermediate = fields.integer("hidden_size"), fields.integer("intermediate_size")
    layers, heads = fields.layer_count("depth"), _qwen_heads(fields, hidden)
    merged = hidden * fields.integer("spatial_merge_size") ** 2
    merger = linear(merged, merged, bias=True) + linear(merged, fields.integer("out_hidden_size"), bias=True)
    total = _qwen_patches(fields, hidden, bias=True) + fields.integer("num_position_embeddings") * hidden
    total += layers * block(hidden, intermediate) + 2 * hidden + merger
    deep = len(fields.integers("deepstack_visual_indexes", high=10_000) or ())
    # The mergers of inner layers norm after merging, the last one before.
    total += deep * (2 * merged + merger)
    return Encoder(layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total)


def glm4v(fields: Fields) -> Encoder:
    """GLM-4V: blocks are as wide inside as the language model, the merger as `intermediate_size`."""
    hidden, out = fields.integer("hidden_size"), fields.integer("out_hidden_size")
    layers, heads = fields.layer_count("depth"), _qwen_heads(fields, hidden)
    wide = fields.integer("intermediate_size")
    merge = fields.integer("spatial_merge_size")
    patches, pixels = _grid(fields)
    biases = 3 if fields.flag("attention_bias") else 0
    total = (
        linear(pixels * fields.integer("temporal_patch_size"), hidden, bias=True)
        + patches * hidden
        + 2 * hidden
    )
    total += layers * block(hidden, out, biases=biases, matrices=3, ffn_bias=False, norms=2)
    total += linear(hidden * merge**2, out, bias=True)  # downsampling convolution
    total += out * out + 2 * out + 3 * out * wide
    return Encoder(
        layers=layers,
        hidden=hidden,
        intermediate=out,
        heads=heads,
        parameters=total,
        tokens=patches // merge**2 or None,
    )


def llama4(fields: Fields) -> Encoder:
    """Llama-4: a class token, norms before and after, and an adapter after the pixel shuffle."""
    hidden, intermediate, layers, heads = _plain(fields)
    patches, pixels = _grid(fields)
    into, out = fields.integer("projector_input_dim"), fields.integer("projector_output_dim")
    total = hidden + (patches + 1) * hidden + pixels * hidden + 4 * hidden
    total += layers * block(hidden, intermediate)
    total += linear(intermediate, into) + linear(out, out)
    return Encoder(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total, tokens=patches
    )


def mllama(fields: Fields) -> Encoder:
    """Llama-3.2-Vision: tiles with positions of their own, and gated global layers behind the local ones."""
    hidden, intermediate, layers, heads = _plain(fields)
    patches, pixels = _grid(fields)
    places = patches + 1  # a class token
    tiles = fields.integer("max_num_tiles")
    shapes = fields.items("supported_aspect_ratios")
    ratios = (8 if shapes is None else len(shapes)) + 1
    globals_ = fields.integer("num_global_layers", low=0, high=10_000)
    total = hidden + pixels * hidden + 4 * hidden
    total += 1 + places * hidden + ratios * tiles * places * hidden  # gate, positions, positions of each tile
    total += 2 * (1 + ratios * tiles * hidden)  # before and after the layers
    one = block(hidden, intermediate, biases=0)
    total += layers * one + globals_ * (one + 2)
    return Encoder(
        layers=layers + globals_,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        parameters=total,
        tokens=tiles * places,
    )


def gemma4_vision(fields: Fields) -> Encoder:
    """Gemma-4: gated blocks with four norms, two tables of positions."""
    hidden, intermediate, layers, heads = _plain(fields)
    head_dim = fields.integer("head_dim")
    total = _pixels(fields) * hidden + 2 * fields.integer("position_embedding_size") * hidden
    one = block(
        hidden,
        intermediate,
        biases=0,
        q_width=heads * head_dim,
        kv_width=fields.integer("num_key_value_heads") * head_dim,
        matrices=3,
        ffn_bias=False,
        norms=4,
    )
    total += layers * (one + 2 * head_dim)
    return Encoder(layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total)


def gemma4_audio(fields: Fields) -> Encoder:
    """Gemma-4's conformer: two halves of a feed-forward part around attention and a short convolution."""
    hidden, layers, heads = (
        fields.integer("hidden_size"),
        fields.layer_count(),
        fields.integer("num_attention_heads"),
    )
    head_dim = fields.divided(hidden, heads, key="num_attention_heads", what="hidden size over heads")
    channels = fields.integers("subsampling_conv_channels", length=2, low=1) or [128, 32]
    total = 9 * channels[0] + channels[0] + 9 * channels[0] * channels[1] + channels[1]
    total += linear(channels[0] // 4 * channels[1], hidden)  # two convolutions of stride 2 leave a quarter
    feed = 2 * linear(hidden, 4 * hidden) + 2 * hidden
    attends = 5 * linear(hidden, hidden) + head_dim
    convolves = linear(hidden, 2 * hidden) + linear(hidden, hidden)
    convolves += hidden * fields.integer("conv_kernel_size") + 2 * hidden
    total += layers * (2 * feed + attends + convolves + 3 * hidden)
    out = fields.integer("output_proj_dims")
    total += linear(hidden, out, bias=True)
    return Encoder(
        layers=layers, hidden=hidden, intermediate=4 * hidden, heads=heads, parameters=total, output=out
    )


def kimi_k25(fields: Fields) -> Encoder:
    """MoonViT of Kimi-K2.5, under the names of its own config."""
    hidden, intermediate = fields.integer("vt_hidden_size"), fields.integer("vt_intermediate_size")
    layers = fields.layer_count("vt_num_hidden_layers")
    heads = fields.integer("vt_num_attention_heads")
    fields.divided(hidden, heads, key="vt_num_attention_heads", what="hidden size over heads")
    places = fields.integer("init_pos_emb_height") * fields.integer("init_pos_emb_width")
    total = linear(_pixels(fields), hidden, bias=True) + places * hidden
    total += layers * block(hidden, intermediate) + 2 * hidden
    return Encoder(layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total)


def sam(fields: Fields) -> Encoder:
    """SAM's image encoder, with relative positions in each layer and a neck."""
    hidden, intermediate = fields.integer("hidden_size"), fields.integer("mlp_dim")
    layers, heads = fields.layer_count(), fields.integer("num_attention_heads")
    head_dim = fields.divided(hidden, heads, key="num_attention_heads", what="hidden size over heads")
    patches, pixels = _grid(fields)
    side = math.isqrt(patches)
    window, out = fields.integer("window_size", low=0), fields.integer("output_channels")
    at = fields.integers("global_attn_indexes", high=10_000)
    everywhere = len(at) if at is not None else 4
    total = linear(pixels, hidden, bias=True)
    if fields.flag("use_abs_pos", default=True):
        total += side**2 * hidden
    total += layers * block(hidden, intermediate, biases=4 if fields.flag("qkv_bias", default=True) else 1)
    if fields.flag("use_rel_pos", default=True):
        total += everywhere * 2 * (2 * side - 1) * head_dim
        total += (layers - everywhere) * 2 * (2 * (window or side) - 1) * head_dim
    total += sam_neck(hidden, out)
    return Encoder(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total, output=out
    )


def sam_neck(hidden: int, out: int) -> int:
    """Two convolutions, of one and of three pixels, each with a norm."""
    return hidden * out + 9 * out * out + 4 * out


def audio(fields: Fields, *, positions: bool = True) -> Encoder:
    """Whisper's encoder, which most audio models start from: two convolutions, blocks without a key bias."""
    hidden = fields.integer("d_model", "hidden_size")
    intermediate = fields.integer("encoder_ffn_dim", "intermediate_size")
    layers = fields.layer_count("encoder_layers", "num_hidden_layers")
    heads = fields.integer("encoder_attention_heads", "num_attention_heads")
    fields.divided(hidden, heads, key="encoder_attention_heads", what="width over heads")
    places = fields.integer("max_source_positions")
    total = 3 * fields.integer("num_mel_bins") * hidden + hidden + 3 * hidden * hidden + hidden
    total += (places * hidden if positions else 0) + 2 * hidden
    total += layers * block(hidden, intermediate, biases=3)
    return Encoder(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, parameters=total, tokens=places
    )


BY_TYPE: Mapping[str, tuple[str, Callable[[Fields], Encoder]]] = {
    "clip_vision_model": ("clip_vision_model", clip),
    "siglip_vision_model": ("siglip_vision_model", siglip),
    "siglip2_vision_model": ("siglip2_vision_model", siglip2),
    "pixtral": ("pixtral", pixtral),
    "internvl_vision": ("internvl_vision", internvl),
    "intern_vit_6b": ("internvl_vision", internvl),
    "idefics2": ("idefics2_vision", idefics),
    "idefics2_vision": ("idefics2_vision", idefics),
    "idefics3": ("idefics3_vision", idefics),
    "idefics3_vision": ("idefics3_vision", idefics),
    "smolvlm_vision": ("idefics3_vision", idefics),
}
"""Encoders that a config may name under any kind of model: the key of `DEFAULTS` and the reader."""


def _empty(fields: Fields, name: str, kind: str) -> Fields:
    path = f"{fields.path}.{name}" if fields.path else name
    return Fields({}, fields.notes, path=path, class_defaults=defaults(kind))


def section(fields: Fields, *names: str, kind: str) -> Fields:
    """A nested config with the defaults of `kind`; one that is absent is all defaults, which is told."""
    child = fields.child(*names, class_defaults=defaults(kind))
    if child is not None:
        return child
    if not fields.has(*names):
        fields.notes.assumed.append(f"{names[0]} = {kind} (it is not in the config)")
    return _empty(fields, names[0], kind)


def named(fields: Fields, *names: str, default: str) -> Encoder:
    """The encoder that a nested config names by its `model_type`."""
    child = fields.child(*names)
    chosen = default
    if child is not None:
        chosen = child.text("model_type", default=default)
        if chosen not in BY_TYPE:
            hint = "one of " + ", ".join(BY_TYPE)
            child.fault("model_type", "is an encoder that is not known", value=chosen, hint=hint)
            chosen = default
    kind, reader = BY_TYPE[chosen]
    if child is not None:
        child.class_defaults = defaults(kind)
        return reader(child)
    if not fields.has(*names):
        fields.notes.assumed.append(f"{names[0]} = {kind} (it is not in the config)")
    return reader(_empty(fields, names[0], kind))
