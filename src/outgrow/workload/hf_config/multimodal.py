"""Language models with vision or audio: a nested text part, read by its own mapper, and its towers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from outgrow.workload.hf_config import towers
from outgrow.workload.hf_config.defaults import CLASS_DEFAULTS
from outgrow.workload.hf_config.dense import HIDDEN, attention, decoder
from outgrow.workload.hf_config.reader import Fields
from outgrow.workload.hf_config.towers import Encoder, named, section
from outgrow.workload.mixers import SelfAttention, linear
from outgrow.workload.model import FeedForward, Layer, ModelShape, Tower

TEXT_KEYS = ("text_config", "language_config", "llm_config")

ALIASES = {
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "kimi_k2": "deepseek_v3",
    "ministral3": "mistral",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
}
"""Text parts that have the layers of a model type that also comes alone."""

# A key that the class writes into its code, not into its config.
FIXED: dict[str, dict[str, object]] = {"glm4v_text": {"attention_bias": True}}


# -- the text part


def text_part(
    fields: Fields, name: str, *, default: str, keys: tuple[str, ...] = TEXT_KEYS, tied: bool = False
) -> ModelShape:
    """The language model inside of a multimodal config.

    `default` is the model type where the nested config names none, `tied` whether output head and embedding
    are one where neither level says so. Old configs keep the keys of the language model at the top level.
    """
    nested = fields.child(*keys)
    raw: Mapping[str, object]
    if nested is not None:
        raw, path, model_type = nested.raw, nested.path, nested.text("model_type", default=default)
    elif fields.has(*HIDDEN):
        raw, path, model_type = fields.raw, fields.path, default
    else:
        if not fields.has(*keys):
            hint = "a multimodal config keeps the language model's keys there"
            fields.fault(keys[0], "is missing, and there is no hidden_size beside it", hint=hint)
        return _nothing(name)
    mappers = _registry()
    chosen = model_type if model_type in mappers else ALIASES.get(model_type, model_type)
    # A multimodal model inside of a multimodal model is no layout that exists, and could nest without end.
    if chosen not in mappers or (chosen in MAPPERS and chosen not in TEXT):
        inner = Fields(raw, fields.notes, path=path)
        inner.fault("model_type", "is a language model that is not known", value=model_type)
        return _nothing(name)
    known = _class_defaults(model_type)
    stated = {**raw, "tie_word_embeddings": _tied(fields, nested, default=tied), "model_type": model_type}
    return mappers[chosen](Fields(stated, fields.notes, path=path, class_defaults=known), name)


def _class_defaults(model_type: str) -> Mapping[str, object]:
    known = CLASS_DEFAULTS.get(model_type) or CLASS_DEFAULTS.get(ALIASES.get(model_type, ""), {})
    return {**known, **FIXED.get(model_type, {})}


def _tied(fields: Fields, nested: Fields | None, *, default: bool) -> bool:
    """Checkpoints state the tie at either level; one that says yes is enough."""
    keys = ("tie_word_embeddings", "tie_embedding")
    levels = [Fields(x.raw, x.notes, path=x.path) for x in (fields, nested) if x is not None]
    stated = [level.flag(key) for level in levels for key in keys if level.has(key)]
    if stated:
        return any(stated)
    fields.notes.assumed.append(f"tie_word_embeddings = {str(default).lower()} (the config does not say)")
    return default


def _registry() -> Mapping[str, Callable[[Fields, str], ModelShape]]:
    # The registry imports this module, so it can only be asked when a config is read.
    from outgrow.workload import hf_config

    return hf_config.MAPPERS


def _nothing(name: str) -> ModelShape:
    """Stands in for a text part whose fault is noted, so that the towers' faults are found as well."""
    return ModelShape(name=name, family="", hidden=1, vocab=1, layers=())


def _joined(fields: Fields, shape: ModelShape, *parts: Tower | None, extra: int = 0) -> ModelShape:
    family = fields.text("model_type", default=shape.family)
    return replace(
        shape,
        family=family,
        towers=tuple(p for p in parts if p is not None),
        other_parameters=shape.other_parameters + extra,
    )


def _intermediate(shape: ModelShape) -> int:
    """Feed-forward width of the text part, which some projectors share."""
    return max((x.ffn.intermediate for x in shape.layers if x.ffn is not None), default=1)


# -- Qwen


def _qwen_vl(
    fields: Fields,
    name: str,
    *,
    text: str,
    kind: str,
    reader: Callable[[Fields], Encoder],
    tied: bool = False,
) -> ModelShape:
    shape = text_part(fields, name, default=text, tied=tied)
    encoder = reader(section(fields, "vision_config", kind=kind))
    # Images become tokens by their own size: the config bounds their number nowhere.
    return _joined(fields, shape, encoder.tower("vision", projector=0))


def qwen2_vl(fields: Fields, name: str) -> ModelShape:
    """Qwen2-VL."""
    return _qwen_vl(fields, name, text="qwen2_vl_text", kind="qwen2_vl_vision", reader=towers.qwen2_vl)


def qwen2_5_vl(fields: Fields, name: str) -> ModelShape:
    """Qwen2.5-VL."""
    return _qwen_vl(fields, name, text="qwen2_5_vl_text", kind="qwen2_5_vl_vision", reader=towers.qwen2_5_vl)


def qwen3_vl(fields: Fields, name: str) -> ModelShape:
    """Qwen3-VL."""
    return _qwen_vl(fields, name, text="qwen3_vl_text", kind="qwen3_vl_vision", reader=towers.qwen3_vl)


def qwen3_vl_moe(fields: Fields, name: str) -> ModelShape:
    """Qwen3-VL with experts."""
    return _qwen_vl(
        fields, name, text="qwen3_vl_moe_text", kind="qwen3_vl_moe_vision", reader=towers.qwen3_vl
    )


def qwen3_5(fields: Fields, name: str) -> ModelShape:
    """Qwen3.5: hybrid text part, vision tower."""
    return _qwen_vl(fields, name, text="qwen3_5_text", kind="qwen3_5_vision", reader=towers.qwen3_vl)


def qwen3_5_moe(fields: Fields, name: str) -> ModelShape:
    """Qwen3.5 with experts."""
    return _qwen_vl(fields, name, text="qwen3_5_moe_text", kind="qwen3_5_moe_vision", reader=towers.qwen3_vl)


def qwen2_5_omni(fields: Fields, name: str) -> ModelShape:
    """Qwen2.5-Omni: the thinker, which reads text, images and sound and writes text."""
    thinker = fields.child("thinker_config")
    if thinker is None:
        if fields.has("thinker_config"):
            return _nothing(name)
        if not fields.has(*TEXT_KEYS):
            fields.fault("thinker_config", "is missing", hint="a config of the thinker alone has text_config")
            return _nothing(name)
        thinker = fields
    if fields.has("talker_config") or fields.has("token2wav_config"):
        fields.notes.assumed.append("talker and token2wav are not counted: only the thinker serves text")
    shape = text_part(thinker, name, default="qwen2_5_omni_text")
    vision = towers.qwen2_5_vl(section(thinker, "vision_config", kind="qwen2_5_omni_vision_encoder"))
    sound = section(thinker, "audio_config", kind="qwen2_5_omni_audio_encoder")
    encoder = towers.audio(sound, positions=False)
    out = sound.integer("output_dim")
    # Marks of begin and end, and the output projection.
    projector = 2 * out + linear(encoder.hidden, out, bias=True)
    heard = encoder.tower("audio", projector=projector, tokens=_shrunk(encoder.tokens, 2))
    return _joined(fields, shape, vision.tower("vision", projector=0), heard)


def qwen2_audio(fields: Fields, name: str) -> ModelShape:
    """Qwen2-Audio: Whisper's encoder, halved in length, and one linear layer."""
    shape = text_part(fields, name, default="qwen2")
    encoder = towers.audio(section(fields, "audio_config", kind="qwen2_audio_encoder"))
    projector = linear(encoder.hidden, shape.hidden, bias=True)
    return _joined(
        fields, shape, encoder.tower("audio", projector=projector, tokens=_shrunk(encoder.tokens, 2))
    )


def voxtral(fields: Fields, name: str) -> ModelShape:
    """Voxtral: Whisper's encoder, four frames per token."""
    shape = text_part(fields, name, default="llama", keys=("text_config",))
    encoder = towers.audio(section(fields, "audio_config", kind="voxtral_encoder"))
    projector = linear(encoder.intermediate, shape.hidden) + linear(shape.hidden, shape.hidden)
    tokens = _shrunk(encoder.tokens, max(1, encoder.intermediate // encoder.hidden))
    return _joined(fields, shape, encoder.tower("audio", projector=projector, tokens=tokens))


def _shrunk(tokens: int | None, factor: int) -> int | None:
    return -(-tokens // factor) if tokens else None


# -- LLaVA and its kin


def _levels(fields: Fields) -> int:
    """How many layers of the encoder the projector reads."""
    value = fields.raw.get("vision_feature_layer")
    return max(1, len(value)) if isinstance(value, list | tuple) else 1


def _llava(fields: Fields, name: str, *, text: str, vision: str, newline: bool) -> ModelShape:
    shape = text_part(fields, name, default=text)
    encoder = named(fields, "vision_config", default=vision)
    bias = fields.flag("multimodal_projector_bias", default=True)
    projector = linear(encoder.hidden * _levels(fields), shape.hidden, bias=bias)
    projector += linear(shape.hidden, shape.hidden, bias=bias) + (shape.hidden if newline else 0)
    # Only the first LLaVA shows every image at one size.
    tokens = None if newline else encoder.tokens
    return _joined(fields, shape, encoder.tower("vision", projector=projector, tokens=tokens))


def llava(fields: Fields, name: str) -> ModelShape:
    """LLaVA-1.5 and Pixtral in its layout."""
    return _llava(fields, name, text="llama", vision="clip_vision_model", newline=False)


def llava_next(fields: Fields, name: str) -> ModelShape:
    """LLaVA-NeXT: a learned mark ends each row of the image."""
    return _llava(fields, name, text="llama", vision="clip_vision_model", newline=True)


def llava_onevision(fields: Fields, name: str) -> ModelShape:
    """LLaVA-OneVision."""
    so400m = {"intermediate_size": 4304, "num_hidden_layers": 26, "image_size": 384}
    return _llava(
        _siglip_if_absent(fields, so400m), name, text="qwen2", vision="siglip_vision_model", newline=True
    )


def mistral3(fields: Fields, name: str) -> ModelShape:
    """Mistral Small 3.1 and later: Pixtral's encoder, patches merged before the projector."""
    shape = text_part(fields, name, default="mistral")
    encoder = named(fields, "vision_config", default="pixtral")
    merge = fields.integer("spatial_merge_size", default=2)
    bias = fields.flag("multimodal_projector_bias")
    projector = encoder.hidden + linear(encoder.hidden * merge**2, encoder.hidden)
    projector += linear(encoder.hidden * _levels(fields), shape.hidden, bias=bias)
    projector += linear(shape.hidden, shape.hidden, bias=bias)
    return _joined(
        fields, shape, encoder.tower("vision", projector=projector, tokens=_shrunk(encoder.tokens, merge**2))
    )


def gemma3(fields: Fields, name: str) -> ModelShape:
    """Gemma-3: SigLIP pooled to a fixed number of tokens."""
    shape = text_part(fields, name, default="gemma3_text", tied=True)
    encoder = named(fields, "vision_config", default="siglip_vision_model")
    projector = linear(encoder.hidden, shape.hidden) + encoder.hidden
    tokens = fields.integer("mm_tokens_per_image", default=256)
    return _joined(fields, shape, encoder.tower("vision", projector=projector, tokens=tokens))


def paligemma(fields: Fields, name: str) -> ModelShape:
    """PaliGemma: SigLIP and one linear layer."""
    shape = text_part(fields, name, default="gemma", tied=True)
    small = {"intermediate_size": 4096, "num_hidden_layers": 27, "image_size": 224}
    encoder = named(_siglip_if_absent(fields, small), "vision_config", default="siglip_vision_model")
    projector = linear(encoder.hidden, shape.hidden, bias=True)
    return _joined(fields, shape, encoder.tower("vision", projector=projector, tokens=encoder.tokens))


def _siglip_if_absent(fields: Fields, sizes: Mapping[str, object]) -> Fields:
    """Some classes assume an encoder where the config has none: SigLIP of this width, without a head."""
    if fields.has("vision_config"):
        return fields
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "num_attention_heads": 16,
        "patch_size": 14,
    }
    fields.notes.assumed.append("vision_config = SigLIP (it is not in the config)")
    raw = {**fields.raw, "vision_config": {**vision, "vision_use_head": False, **sizes}}
    return Fields(raw, fields.notes, path=fields.path, class_defaults=fields.class_defaults)


def idefics2(fields: Fields, name: str) -> ModelShape:
    """Idefics-2: a resampler of a few latents reads each image."""
    shape = text_part(fields, name, default="mistral")
    encoder = towers.idefics(section(fields, "vision_config", kind="idefics2_vision"))
    perceiver = section(fields, "perceiver_config", kind="idefics2_perceiver")
    wide = _intermediate(shape)
    hidden = shape.hidden
    # The class sizes the resampler like the language model: its own hidden_size is only a default.
    head_dim = perceiver.integer("resampler_head_dim")
    width = perceiver.integer("resampler_n_heads") * head_dim
    kv_width = perceiver.integer("num_key_value_heads") * head_dim
    latents = perceiver.integer("resampler_n_latents")
    layer = 2 * hidden * width + 2 * hidden * kv_width + 3 * 4 * hidden * hidden + 3 * hidden
    projector = 2 * encoder.hidden * wide + wide * hidden
    projector += latents * hidden + perceiver.layer_count("resampler_depth") * layer + hidden
    return _joined(fields, shape, encoder.tower("vision", projector=projector, tokens=latents))


def idefics3(fields: Fields, name: str) -> ModelShape:
    """Idefics-3 and SmolVLM: neighbouring patches become one token."""
    shape = text_part(fields, name, default="llama")
    encoder = towers.idefics(section(fields, "vision_config", kind="idefics3_vision"))
    scale = fields.integer("scale_factor", "pixel_shuffle_factor", default=2)
    projector = linear(encoder.hidden * scale**2, shape.hidden)
    return _joined(fields, shape, encoder.tower("vision", projector=projector))


def internvl(fields: Fields, name: str) -> ModelShape:
    """InternVL, in the layout of its authors and in that of the library."""
    shape = text_part(fields, name, default="qwen2")
    encoder = named(fields, "vision_config", default="internvl_vision")
    ratio = fields.number("downsample_ratio", default=0.5, low=0.01, high=1.0)
    merged = encoder.hidden * int(1 / ratio) ** 2
    projector = (
        2 * merged + linear(merged, shape.hidden, bias=True) + linear(shape.hidden, shape.hidden, bias=True)
    )
    return _joined(fields, shape, encoder.tower("vision", projector=projector))


def lfm2_vl(fields: Fields, name: str) -> ModelShape:
    """LFM2-VL: SigLIP-2, patches merged before the projector."""
    shape = text_part(fields, name, default="lfm2", tied=True)
    encoder = named(fields, "vision_config", default="siglip2_vision_model")
    merged = encoder.hidden * fields.integer("downsample_factor", default=2) ** 2
    inner = fields.integer("projector_hidden_size", default=2560)
    bias = fields.flag("projector_bias", default=True)
    projector = linear(merged, inner, bias=bias) + linear(inner, shape.hidden, bias=bias)
    if fields.flag("projector_use_layernorm", default=True):
        projector += 2 * merged
    return _joined(fields, shape, encoder.tower("vision", projector=projector))


def deepseek_vl(fields: Fields, name: str) -> ModelShape:
    """DeepSeek-VL with one encoder."""
    shape = text_part(fields, name, default="llama")
    encoder = named(fields, "vision_config", default="siglip_vision_model")
    projector = linear(encoder.hidden, shape.hidden, bias=True) + linear(
        shape.hidden, shape.hidden, bias=True
    )
    return _joined(fields, shape, encoder.tower("vision", projector=projector, tokens=encoder.tokens))


def deepseek_vl_hybrid(fields: Fields, name: str) -> ModelShape:
    """DeepSeek-VL with SigLIP for the whole image and SAM for its details, as in the 7B model."""
    shape = text_part(fields, name, default="llama")
    encoder = named(fields, "vision_config", default="siglip_vision_model")
    detail = towers.sam(section(fields, "high_res_vision_config", kind="sam_vision_model"))
    out = detail.output
    # A second neck, two convolutions that shrink the map, a learned share, and three linear layers.
    joint = towers.sam_neck(detail.hidden, out) + 9 * out * 2 * out + 9 * 2 * out * 4 * out + 1
    half = shape.hidden // 2
    projector = linear(encoder.hidden, half, bias=True) + linear(4 * out, half, bias=True)
    projector += linear(shape.hidden, shape.hidden, bias=True)
    return _joined(
        fields,
        shape,
        encoder.tower("vision", projector=projector, tokens=encoder.tokens),
        detail.tower("vision", projector=joint, tokens=encoder.tokens),
    )


def multi_modality(fields: Fields, name: str) -> ModelShape:
    """DeepSeek-VL and Janus as their authors write them: encoders by name, their sizes in the code."""
    vision = fields.child("vision_config")
    kind = vision.text("cls", default="HybridVisionTower") if vision is not None else "HybridVisionTower"
    large: dict[str, object] = {
        "model_type": "siglip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
        "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 384, "patch_size": 16,
        "vision_use_head": False,
    }  # fmt: skip
    fields.notes.assumed.append(f"vision_config = SigLIP-L at 384 pixels (what {kind} uses)")
    raw: dict[str, object] = {**fields.raw, "vision_config": large}
    mapper = deepseek_vl
    if "Hybrid" in kind:
        raw["high_res_vision_config"] = towers.defaults("sam_vision_model")
        mapper = deepseek_vl_hybrid
    if fields.has("gen_vision_config"):
        fields.notes.assumed.append("the parts that generate images are not counted")
    return mapper(Fields(raw, fields.notes, path=fields.path, class_defaults=fields.class_defaults), name)


def kimi_k25(fields: Fields, name: str) -> ModelShape:
    """Kimi-K2.5: only the language model is counted; the size of its tower is told beside it."""
    shape = text_part(fields, name, default="kimi_k2")
    vision = section(fields, "vision_config", kind="kimi_k25_vision")
    encoder = towers.kimi_k25(vision)
    sides = vision.integers("merge_kernel_size", length=2, low=1) or [2, 2]
    merged = encoder.hidden * sides[0] * sides[1]
    projector = (
        2 * encoder.hidden + linear(merged, merged, bias=True) + linear(merged, shape.hidden, bias=True)
    )
    fields.notes.assumed.append(
        f"vision tower: {encoder.parameters + projector:,} parameters by the layout of its class, not counted"
    )
    return replace(_joined(fields, shape), uncounted_tower=True)


def glm4v(fields: Fields, name: str) -> ModelShape:
    """GLM-4.1V."""
    return _qwen_vl(fields, name, text="glm4v_text", kind="glm4v_vision", reader=towers.glm4v)


def glm4v_moe(fields: Fields, name: str) -> ModelShape:
    """GLM-4.5V."""
    return _qwen_vl(fields, name, text="glm4v_moe_text", kind="glm4v_vision", reader=towers.glm4v)


def phi3_v(fields: Fields, name: str) -> ModelShape:
    """Phi-3-Vision and Phi-3.5-Vision: CLIP ViT-L at 336 pixels, whose sizes its code fixes."""
    raw = {**fields.raw, "model_type": "phi3"}
    mapper = _registry()["phi3"]
    known = CLASS_DEFAULTS.get("phi3", {})
    shape = mapper(Fields(raw, fields.notes, path=fields.path, class_defaults=known), name)
    large: dict[str, object] = {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 336, "patch_size": 14,
    }  # fmt: skip
    encoder = towers.clip(Fields(large, fields.notes, path="img_processor"))
    merged = 4 * encoder.hidden
    projector = linear(merged, shape.hidden, bias=True) + linear(shape.hidden, shape.hidden, bias=True)
    projector += 2 * merged  # marks of a row's end and between the two views
    return _joined(fields, shape, encoder.tower("vision", projector=projector))


# -- Llama-4


def llama4(fields: Fields, name: str) -> ModelShape:
    """Llama-4 with its vision tower."""
    shape = text_part(fields, name, default="llama4_text")
    vision = section(fields, "vision_config", kind="llama4_vision_model")
    encoder = towers.llama4(vision)
    projector = linear(vision.integer("vision_output_dim"), shape.hidden)
    # Images are cut into tiles, and the config does not say into how many.
    return _joined(fields, shape, encoder.tower("vision", projector=projector))


# -- Llama-3.2-Vision


def mllama_text(fields: Fields, name: str) -> ModelShape:
    """Llama-3.2-Vision, text part: some layers attend to the image and not to the text."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    own = attention(fields, hidden=hidden)
    across = replace(own, qk_norm_parameters=2 * own.head_dim)
    at = fields.integers("cross_attention_layers", high=count - 1)
    crossed = set(at) if at is not None else set(range(3, count, 5))
    ffn = FeedForward(intermediate=fields.integer("intermediate_size"))
    text = Layer(mixer=own, ffn=ffn, norm_parameters=2 * hidden)
    # Its keys and values are those of the image: one set per sequence, however long the text. Two gates.
    image = Layer(mixer=None, cross_attention=across, ffn=ffn, norm_parameters=2 * hidden, extra_parameters=2)
    layers = [image if i in crossed else text for i in range(count)]
    # Eight embeddings more than the head has outputs: one is the mark of an image.
    return decoder(fields, name, layers, hidden=hidden, extra_embedding_parameters=8 * hidden)


def mllama(fields: Fields, name: str) -> ModelShape:
    """Llama-3.2-Vision."""
    shape = text_part(fields, name, default="mllama_text_model")
    vision = section(fields, "vision_config", kind="mllama_vision_model")
    encoder = towers.mllama(vision)
    projector = linear(vision.integer("vision_output_dim"), shape.hidden, bias=True)
    return _joined(fields, shape, encoder.tower("vision", projector=projector, tokens=encoder.tokens))


# -- Gemma-3n and Gemma-4


def gemma4(fields: Fields, name: str) -> ModelShape:
    """Gemma-4 with the towers that its config has."""
    shape = text_part(fields, name, default="gemma4_text", tied=True)
    vision = fields.child("vision_config", class_defaults=towers.defaults("gemma4_vision"))
    seen = heard = None
    if vision is not None:
        encoder = towers.gemma4_vision(vision)
        tokens = fields.optional("vision_soft_tokens_per_image", low=1)
        seen = encoder.tower("vision", projector=linear(encoder.hidden, shape.hidden), tokens=tokens)
    sound = fields.child("audio_config", class_defaults=towers.defaults("gemma4_audio"))
    if sound is not None:
        encoder = towers.gemma4_audio(sound)
        heard = encoder.tower("audio", projector=linear(encoder.output, shape.hidden))
    return _joined(fields, shape, seen, heard)


def gemma3n_text(fields: Fields, name: str) -> ModelShape:
    """Gemma-3n, text part: copies of the state, low-rank residuals, embeddings per layer, shared caches."""
    hidden = fields.integer(*HIDDEN)
    count = fields.layer_count()
    full = _gemma3n_full(fields, count)
    shared = fields.integer("num_kv_shared_layers", low=0)
    if shared >= count:
        fields.fault("num_kv_shared_layers", f"must be fewer than the {count} layers", value=shared)
    bias = fields.flag("attention_bias")
    base = attention(fields, hidden=hidden, bias=bias, out_bias=bias)
    window = fields.integer("sliding_window", high=10**9)
    width = fields.integer("hidden_size_per_layer_input")
    table = fields.integer("vocab_size_per_layer_input") * count * width
    copies, rank = fields.integer("altup_num_inputs", high=100), fields.integer("laurel_rank")
    extra = hidden + copies**2 + copies**3 + hidden * copies + hidden  # mixing of the copies
    extra += 2 * hidden * rank + hidden  # low-rank residual and its norm
    extra += 2 * hidden * width + hidden  # gate and projection of the per-layer embedding, and its norm
    if isinstance(fields.raw.get("intermediate_size"), list | tuple):
        widths = fields.integers("intermediate_size", length=count, low=1) or [1] * count
    else:
        widths = [fields.integer("intermediate_size")] * count
    layers = []
    for i in range(count):
        borrows = i >= count - shared
        mixer = replace(
            base,
            window=None if full[i] else window,
            shares_kv=borrows,
            qk_norm_parameters=base.head_dim * (1 if borrows else 2),
        )
        ffn = FeedForward(intermediate=widths[i])
        layers.append(Layer(mixer=mixer, ffn=ffn, norm_parameters=4 * hidden, extra_parameters=extra))
    # What feeds the per-layer embeddings, and the projections that make copies of the state and join them.
    other = linear(hidden, count * width) + width + 2 * (copies - 1) * hidden * hidden
    return decoder(
        fields,
        name,
        layers,
        hidden=hidden,
        tied=True,
        extra_embedding_parameters=table,
        other_parameters=other,
    )


def _gemma3n_full(fields: Fields, count: int) -> list[bool]:
    """Whether each layer attends to the whole context."""
    names = fields.items("layer_types", length=count)
    if names is None:
        return [(i + 1) % 5 == 0 for i in range(count)]
    unknown = sorted({str(v)[:40] for v in names if v not in ("full_attention", "sliding_attention")})
    if unknown:
        fields.fault("layer_types", f"has kinds of layer that are not known: {', '.join(unknown)}")
    return [v == "full_attention" for v in names]


def gemma3n(fields: Fields, name: str) -> ModelShape:
    """Gemma-3n: only the language model is counted."""
    shape = text_part(fields, name, default="gemma3n_text", tied=True)
    fields.notes.assumed.append(
        "vision and audio towers are not counted: their config does not describe their layers"
    )
    return _joined(fields, shape)


# -- Whisper


def whisper(fields: Fields, name: str) -> ModelShape:
    """Whisper: an encoder for sound, a decoder that attends to it."""
    hidden = fields.integer("d_model")
    heard = _whisper_attention(fields, "encoder_attention_heads", hidden, causal=False)
    spoken = _whisper_attention(fields, "decoder_attention_heads", hidden, causal=True)
    into = FeedForward(intermediate=fields.integer("encoder_ffn_dim"), gated=False, bias=True)
    out = FeedForward(intermediate=fields.integer("decoder_ffn_dim"), gated=False, bias=True)
    encoder = Layer(mixer=heard, ffn=into, norm_parameters=4 * hidden)
    layer = Layer(mixer=spoken, cross_attention=spoken, ffn=out, norm_parameters=6 * hidden)
    source, target = fields.integer("max_source_positions"), fields.integer("max_target_positions")
    convolutions = 3 * fields.integer("num_mel_bins") * hidden + 3 * hidden * hidden + 2 * hidden
    return ModelShape(
        name=name,
        family="whisper",
        hidden=hidden,
        vocab=fields.integer("vocab_size"),
        layers=(layer,) * fields.layer_count("decoder_layers"),
        encoder=(encoder,) * fields.layer_count("encoder_layers"),
        tied=fields.flag("tie_word_embeddings", default=True),
        extra_embedding_parameters=(source + target) * hidden,
        final_norm_parameters=4 * hidden,
        other_parameters=convolutions,
        max_positions=target,
    )


def _whisper_attention(fields: Fields, key: str, hidden: int, *, causal: bool) -> SelfAttention:
    heads = fields.integer(key)
    head_dim = fields.divided(hidden, heads, key=key, what="width over heads")
    return SelfAttention(
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        q_bias=True,
        out_bias=True,
        causal=causal,
        # Values have a bias, keys have none.
        extra_parameters=hidden,
    )


TEXT = ("mllama_text_model", "gemma3n_text")
"""Text parts among the model types below."""

MAPPERS = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl_moe,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
    "qwen2_5_omni": qwen2_5_omni,
    "qwen2_5_omni_thinker": qwen2_5_omni,
    "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
    "llava": llava,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "mistral3": mistral3,
    "gemma3": gemma3,
    "paligemma": paligemma,
    "idefics2": idefics2,
    "idefics3": idefics3,
    "smolvlm": idefics3,
    "internvl": internvl,
    "internvl_chat": internvl,
    "lfm2_vl": lfm2_vl,
    "deepseek_vl": deepseek_vl,
    "deepseek_vl_hybrid": deepseek_vl_hybrid,
    "multi_modality": multi_modality,
    "kimi_k25": kimi_k25,
    "glm4v": glm4v,
    "glm4v_moe": glm4v_moe,
    "phi3_v": phi3_v,
    "llama4": llama4,
    "mllama_text_model": mllama_text,
    "mllama": mllama,
    "gemma4": gemma4,
    "gemma3n_text": gemma3n_text,
    "gemma3n": gemma3n,
    "whisper": whisper,
}
