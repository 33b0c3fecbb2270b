"""Parameter counts against the reference classes, built without memory on the meta device."""

from __future__ import annotations

import copy
import json
import os
import warnings
from pathlib import Path

import pytest

from outgrow.workload.hf_config import classic, dense, encoder, moe, resolve

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="needs torch (pip install --group oracle)")
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers (pip install --group oracle)"
    )

MODELS = Path(__file__).resolve().parents[2] / "src/outgrow/catalog/data/models"

# Classes that travel with the checkpoint: the count in the catalogue is made from the published layout.
BY_HAND = {
    "baichuan": "remote code; a Llama layout with fused projections",
    "chatglm": "remote code; the published count of chatglm3-6b is met",
    "deepseek": "remote code; a Llama layout with DeepSeek's experts",
    "internlm": "remote code; a Llama layout with biases",
    "internlm2": "remote code; a Llama layout with fused projections",
    "mimo": "remote code; Qwen-2 and prediction modules, which are not counted",
    "nemotron-nas": "remote code; layers differ one by one",
}
SAME_CLASS = {"kimi_k2": "deepseek_v3"}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}

SMALL: dict[str, list[dict[str, object]]] = {
    "llama": [{"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, {"head_dim": 24}],
    "mistral": [{"head_dim": 24}],
    "ministral": [{"head_dim": 24}],
    "ministral3": [{"head_dim": 24}],
    "qwen2": [{}, {"tie_word_embeddings": True}],
    "qwen3": [{"attention_bias": True, "head_dim": 24}],
    "qwen2_moe": [
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "shared_expert_intermediate_size": 56,
        },
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [1],
            "qkv_bias": False,
        },
    ],
    "qwen3_moe": [
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "head_dim": 24,
            "attention_bias": True,
        },
        {"num_experts": 6, "num_experts_per_tok": 2, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ],
    "mixtral": [{"num_local_experts": 6, "num_experts_per_tok": 2}],
    "phimoe": [
        {"num_local_experts": 6, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True}
    ],
    "gemma": [{"attention_bias": True, "head_dim": 24}],
    "gemma2": [{"attention_bias": True, "head_dim": 24, "tie_word_embeddings": False}],
    "gemma3_text": [{"attention_bias": True, "head_dim": 24}],
    "gemma4_text": [
        {
            "head_dim": 24,
            "global_head_dim": 40,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        {
            "head_dim": 24,
            "global_head_dim": 40,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "attention_bias": True,
            "hidden_size_per_layer_input": 0,
        },
        {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 40},
    ],
    "phi": [{"qk_layernorm": True}],
    "phi3": [{"num_key_value_heads": 2, "pad_token_id": 0}],
    "cohere": [{"use_qk_norm": True, "attention_bias": True}],
    "cohere2": [{"attention_bias": True}],
    "cohere2_moe": [
        {
            "num_experts": 6,
            "num_shared_experts": 2,
            "first_k_dense_replace": 1,
            "prefix_dense_intermediate_size": 72,
        },
    ],
    "olmo": [{"attention_bias": True}],
    "olmo2": [{"attention_bias": True}],
    "olmo3": [{"attention_bias": True}],
    "olmoe": [{"num_experts": 6, "num_experts_per_tok": 2}],
    "flex_olmo": [{"num_experts": 6, "num_experts_per_tok": 2, "pad_token_id": 0}],
    "granite": [{"attention_bias": True, "mlp_bias": True}],
    "granitemoe": [{"num_local_experts": 6, "attention_bias": True}],
    "granitemoeshared": [{"num_local_experts": 6, "shared_intermediate_size": 56}],
    "starcoder2": [{"use_bias": False}, {"use_bias": True}],
    "stablelm": [
        {"use_qkv_bias": True, "qk_layernorm": True},
        {"use_parallel_residual": True, "num_key_value_heads": 4},
    ],
    "nemotron": [
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5}}
    ],
    "internlm3": [{"qkv_bias": True, "bias": True}, {}],
    "exaone": [{}],
    "exaone4": [{"sliding_window": 8}],
    "exaone_moe": [
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "first_k_dense_replace": 2}
    ],
    "helium": [{"attention_bias": True, "mlp_bias": True, "head_dim": 16, "num_attention_heads": 4}],
    "arcee": [{"attention_bias": True, "mlp_bias": True}],
    "apertus": [{"attention_bias": True}],
    "smollm3": [{"attention_bias": True, "pad_token_id": 0}],
    "seed_oss": [{"attention_out_bias": True, "mlp_bias": True, "head_dim": 24}],
    "ernie4_5": [{"use_bias": True, "head_dim": 24}],
    "ernie4_5_moe": [
        {
            "moe_num_experts": 6,
            "moe_k": 2,
            "moe_intermediate_size": 40,
            "use_bias": False,
            "moe_layer_interval": 2,
        },
        {
            "moe_num_experts": 6,
            "moe_k": 2,
            "moe_intermediate_size": 40,
            "moe_num_shared_experts": 0,
            "moe_layer_start_index": 2,
            "moe_layer_end_index": -1,
        },
    ],
    "glm": [{"head_dim": 24, "attention_bias": False, "pad_token_id": 0}],
    "glm4": [{"head_dim": 24, "pad_token_id": 0}],
    "glm4_moe": [
        {
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "use_qk_norm": True,
            "attention_bias": True,
            "first_k_dense_replace": 2,
            "n_shared_experts": 2,
            "head_dim": 24,
        },
    ],
    "glm4_moe_lite": [{"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}],
    "glm_moe_dsa": [
        {"n_routed_experts": 6, "num_experts_per_tok": 2, "index_topk_freq": 2, "index_skip_topk_offset": 1},
        {
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "indexer_types": ["full", "shared", "full", "shared"],
        },
    ],
    "deepseek_v2": [
        {"n_routed_experts": 6, "num_experts_per_tok": 2, "q_lora_rank": None, "first_k_dense_replace": 1},
        {
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "mlp_bias": True,
            "first_k_dense_replace": 1,
        },
    ],
    "deepseek_v3": [
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 40,
            "n_shared_experts": 3,
        },
        {"n_routed_experts": 8, "num_experts_per_tok": 2, "q_lora_rank": None},
    ],
    "deepseek_v32": [
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "index_n_heads": 3,
            "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
        },
    ],
    "deepseek_v4": [
        {
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "compress_ratios": [0, 4, 128, 4, 0],
            "o_groups": 4,
            "o_lora_rank": 24,
            "hc_mult": 3,
            "head_dim": 64,
            "num_key_value_heads": 1,
            "num_attention_heads": 8,
        },
        {
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "o_groups": 4,
            "layer_types": [
                "sliding_attention",
                "compressed_sparse_attention",
                "heavily_compressed_attention",
                "sliding_attention",
            ],
            "compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 64},
        },
    ],
    "gpt_oss": [{"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 24}],
    "llama4_text": [
        {
            "num_local_experts": 6,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 72,
            "attention_bias": True,
        },
        {"num_local_experts": 6, "moe_layers": [0, 3], "head_dim": 24},
    ],
    "minimax_m2": [{"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 24}],
    "mimo_v2_flash": [
        {"n_routed_experts": 6, "num_experts_per_tok": 2, "attention_bias": True, "num_attention_heads": 8}
    ],
    "hunyuan_v1_dense": [{"head_dim": 24, "attention_bias": True}],
    "hunyuan_v1_moe": [{"head_dim": 24, "num_experts": 6, "moe_topk": 2}],
    "hy_v3": [{"num_experts": 6, "num_experts_per_tok": 2, "mlp_bias": False, "attention_bias": True}],
    "dots1": [
        {"n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2, "first_k_dense_replace": 1}
    ],
    "solar_open": [{"n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2}],
    "afmoe": [{"num_experts": 6, "num_experts_per_tok": 2, "num_dense_layers": 2, "attention_bias": True}],
    "bloom": [{"n_head": 4, "n_layer": 3}],
    "falcon": [
        {"multi_query": False, "parallel_attn": False, "bias": True},
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ],
    "gpt2": [{"n_inner": 72}, {"tie_word_embeddings": False}],
    "gpt_neox": [{"attention_bias": False}, {"tie_word_embeddings": True}],
    "gptj": [{"n_inner": 72, "rotary_dim": 8}],
    "codegen": [{"n_inner": 72, "rotary_dim": 8}],
    "gpt_neo": [{"attention_types": [[["global", "local"], 2]]}],
    "opt": [
        {"enable_bias": False, "word_embed_proj_dim": 64, "pad_token_id": 0},
        {"word_embed_proj_dim": 48, "do_layer_norm_before": False, "pad_token_id": 0},
        {
            "layer_norm_elementwise_affine": False,
            "_remove_final_layer_norm": True,
            "word_embed_proj_dim": 64,
            "pad_token_id": 0,
        },
    ],
    "mpt": [{"n_layers": 3, "d_model": 64, "n_heads": 4}],
    "gpt_bigcode": [{"multi_query": False}, {"n_inner": 72}],
    "persimmon": [{"qk_layernorm": False}],
    "t5": [
        {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 2, "d_kv": 24, "tie_word_embeddings": False}
    ],
    "mt5": [{"num_decoder_layers": 2}],
    "umt5": [{"num_decoder_layers": 2}],
    "bert": [{"tie_word_embeddings": True, "pad_token_id": 0}],
    "roberta": [{"type_vocab_size": 1}],
    "distilbert": [{"dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 4}],
    "bart": [{"encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 72}],
    "mbart": [{"encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 72}],
}

# What makes a configuration small, under the names that its class declares.
SMALLNESS: dict[str, object] = {
    "vocab_size": 501,
    "vocab_size_per_layer_input": 301,
    "hidden_size_per_layer_input": 12,
    "hidden_size": 64,
    "n_embd": 64,
    "d_model": 64,
    "intermediate_size": 88,
    "ffn_dim": 88,
    "d_ff": 88,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "n_layer": 4,
    "num_attention_heads": 8,
    "n_head": 8,
    "num_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 50,
    "n_positions": 50,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 14,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 80,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "intermediate_size_mlp": 72,
    "n_group": 2,
    "topk_group": 1,
    "index_head_dim": 10,
    "index_n_heads": 4,
}


def reference(config: dict[str, object]) -> int:
    """Unique parameters of the reference class of a configuration."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    raw = copy.deepcopy(config)
    model_type = str(raw.pop("model_type"))
    raw.pop("quantization_config", None)
    built = CONFIG_MAPPING[SAME_CLASS.get(model_type, model_type)].from_dict(raw)
    decoders = (
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForMaskedLM,
    )
    # Some classes have both a sequence-to-sequence and a decoder-only form: the config says which it is.
    kinds = decoders if built.is_encoder_decoder else decoders[1:]
    for kind in kinds:
        if type(built) in kind._model_mapping:
            with torch.device("meta"):
                model = kind.from_config(built)
            return sum({id(p): p.numel() for p in model.parameters()}.values())
    raise AssertionError(f"no language model of {model_type}")


def small(model_type: str, overrides: dict[str, object]) -> dict[str, object]:
    """A small configuration: sizes that no two tensors share, so that a wrong one shows."""
    import dataclasses

    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    declared = {f.name for f in dataclasses.fields(CONFIG_MAPPING[model_type])}
    chosen = {key: value for key, value in SMALLNESS.items() if key in declared}
    return {"model_type": model_type, **chosen, **overrides}


def shipped() -> list[tuple[str, dict[str, object], int]]:
    """Name, configuration and stated count of every text model of the catalogue."""
    text = {**dense.MAPPERS, **moe.MAPPERS, **classic.MAPPERS, **encoder.MAPPERS}
    entries = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(MODELS.glob("*.json"))]
    return [(e["name"], e["config"], e["parameters"]) for e in entries if e["config"]["model_type"] in text]


@pytest.mark.parametrize(
    ("model_type", "overrides"),
    [pytest.param(kind, o, id=f"{kind}-{i}") for kind, cases in SMALL.items() for i, o in enumerate(cases)],
)
def test_small_variants_equal_the_reference_class(model_type: str, overrides: dict[str, object]) -> None:
    config = small(model_type, overrides)
    assert resolve(config).parameters == reference(config)


def test_dbrx_equals_the_reference_class() -> None:
    config: dict[str, object] = {
        "model_type": "dbrx",
        "d_model": 64,
        "n_heads": 8,
        "n_layers": 3,
        "vocab_size": 501,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 88, "moe_num_experts": 6, "moe_top_k": 2},
    }
    assert resolve(config).parameters == reference(config)


@pytest.mark.parametrize(("config", "count"), [pytest.param(c, n, id=name) for name, c, n in shipped()])
def test_shipped_models_equal_the_reference_class(config: dict[str, object], count: int) -> None:
    model_type = str(config["model_type"])
    if model_type in BY_HAND:
        pytest.skip(f"counted by hand: {BY_HAND[model_type]}")
    assert count == reference(config)
