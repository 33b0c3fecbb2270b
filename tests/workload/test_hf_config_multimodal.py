"""Hybrid and multimodal models: exact counts, what layers and towers are, what is said of broken input."""

from __future__ import annotations

import copy
import csv
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outgrow.errors import ConfigError
from outgrow.workload.hf_config import hybrid, multimodal, resolve
from outgrow.workload.mixers import LinearAttention, Mamba, ParallelMixers, SelfAttention, ShortConvolution
from outgrow.workload.model import MixtureOfExperts, ModelShape, TensorClass

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "src/outgrow/catalog/data/models"
SHARED = ROOT.parent / "shared/cases/configs"
MINE = {**hybrid.MAPPERS, **multimodal.MAPPERS}

Config = dict[str, object]

# Small configurations of odd sizes, so that no two tensors are alike and a wrong one shows. The counts are
# those of the reference classes (transformers 5.24.0), which the test marked `oracle` takes again.
# fmt: off
VARIANTS: dict[str, tuple[int, Config]] = {
    "qwen3_next": (798600, {"model_type": "qwen3_next", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 12,
        "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3, "num_experts": 7, "num_experts_per_tok":
        2, "moe_intermediate_size": 52, "head_dim": 24, "layer_types": ["linear_attention",
        "full_attention", "linear_attention", "linear_attention", "full_attention"],
        "shared_expert_intermediate_size": 36, "mlp_only_layers": [1], "decoder_sparse_step": 1}),
    "qwen3_next_bias": (667272, {"model_type": "qwen3_next", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 12,
        "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3, "num_experts": 7, "num_experts_per_tok":
        2, "moe_intermediate_size": 52, "head_dim": 24, "layer_types": ["linear_attention",
        "full_attention", "linear_attention", "linear_attention", "full_attention"],
        "shared_expert_intermediate_size": 36, "attention_bias": True, "decoder_sparse_step": 2,
        "tie_word_embeddings": True}),
    "qwen3_5": (867520, {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3, "head_dim": 24,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention",
        "full_attention"]}, "vision_config": {"model_type": "qwen3_5", "depth": 4, "hidden_size": 48,
        "intermediate_size": 70, "num_heads": 4, "in_channels": 3, "patch_size": 7, "spatial_merge_size": 3,
        "temporal_patch_size": 2, "out_hidden_size": 96, "num_position_embeddings": 100},
        "tie_word_embeddings": True}),
    "qwen3_5_default_types": (454628824, {"model_type": "qwen3_5", "text_config": {"model_type":
        "qwen3_5_text", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 9,
        "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
        "linear_conv_kernel_dim": 3, "head_dim": 24}}),
    "qwen3_5_moe": (1179616, {"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3, "num_experts":
        7, "num_experts_per_tok": 2, "moe_intermediate_size": 52, "head_dim": 24, "layer_types":
        ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
        "shared_expert_intermediate_size": 44}, "vision_config": {"depth": 4, "hidden_size": 48,
        "intermediate_size": 70, "num_heads": 4, "in_channels": 3, "patch_size": 7, "spatial_merge_size": 3,
        "temporal_patch_size": 2, "out_hidden_size": 96, "num_position_embeddings": 100}}),
    "qwen3_vl": (1286496, {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"depth": 4,
        "hidden_size": 48, "intermediate_size": 70, "num_heads": 4, "in_channels": 3, "patch_size": 7,
        "spatial_merge_size": 3, "temporal_patch_size": 2, "out_hidden_size": 96, "num_position_embeddings":
        100, "deepstack_visual_indexes": [1, 3]}}),
    "qwen3_vl_default_v": (567442936, {"model_type": "qwen3_vl", "text_config": {"model_type":
        "qwen3_vl_text", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20},
        "tie_word_embeddings": True}),
    "qwen3_vl_moe": (1239408, {"model_type": "qwen3_vl_moe", "text_config": {"model_type":
        "qwen3_vl_moe_text", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211, "num_experts": 7,
        "num_experts_per_tok": 2, "moe_intermediate_size": 52, "head_dim": 20, "mlp_only_layers": [2]},
        "vision_config": {"depth": 4, "hidden_size": 48, "intermediate_size": 70, "num_heads": 4,
        "in_channels": 3, "patch_size": 7, "spatial_merge_size": 3, "temporal_patch_size": 2,
        "out_hidden_size": 96, "num_position_embeddings": 100, "deepstack_visual_indexes": [0]}}),
    "qwen2_vl": (706184, {"model_type": "qwen2_vl", "text_config": {"model_type": "qwen2_vl_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"depth": 3, "embed_dim": 40,
        "hidden_size": 96, "mlp_ratio": 3, "num_heads": 4, "in_channels": 3, "patch_size": 7,
        "spatial_merge_size": 3, "temporal_patch_size": 2}}),
    "qwen2_vl_tied_flat": (607528, {"model_type": "qwen2_vl", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "tie_word_embeddings": True, "vision_config": {"depth": 3, "embed_dim": 40, "hidden_size": 96,
        "mlp_ratio": 4, "num_heads": 4}}),
    "qwen2_5_vl": (684670, {"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2_5_vl_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "tie_word_embeddings": True}, "vision_config":
        {"depth": 3, "hidden_size": 40, "intermediate_size": 77, "num_heads": 4, "patch_size": 7,
        "spatial_merge_size": 3, "temporal_patch_size": 2, "out_hidden_size": 96}}),
    "qwen2_5_omni_thinker": (777415, {"model_type": "qwen2_5_omni_thinker", "text_config": {"model_type":
        "qwen2_5_omni_text", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5,
        "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"depth":
        3, "hidden_size": 40, "intermediate_size": 77, "num_heads": 4, "patch_size": 7,
        "spatial_merge_size": 3, "temporal_patch_size": 2, "out_hidden_size": 96}, "audio_config":
        {"d_model": 48, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 99,
        "num_mel_bins": 20, "output_dim": 96, "max_source_positions": 300}}),
    "qwen2_audio": (566985, {"model_type": "qwen2_audio", "text_config": {"model_type": "qwen2",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "audio_config": {"model_type": "qwen2_audio_encoder",
        "d_model": 48, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 99,
        "num_mel_bins": 20, "max_source_positions": 300}}),
    "voxtral": (650592, {"model_type": "voxtral", "text_config": {"model_type": "llama", "hidden_size": 96,
        "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211, "head_dim": 20}, "audio_config": {"model_type": "voxtral_encoder",
        "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 192,
        "num_mel_bins": 20, "max_source_positions": 300}}),
    "nemotron_h_M-M*-_None": (172056, {"model_type": "nemotron_h", "hidden_size": 96,
        "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 20, "vocab_size": 211, "ssm_state_size": 12,
        "mamba_num_heads": 6, "mamba_head_dim": 10, "n_groups": 2, "conv_kernel": 3, "n_routed_experts": 5,
        "n_shared_experts": 2, "moe_intermediate_size": 44, "moe_shared_expert_intermediate_size": 66,
        "num_experts_per_tok": 2, "intermediate_size": 130, "moe_latent_size": None, "use_bias": True}),
    "nemotron_h_M-M*-_33": (171516, {"model_type": "nemotron_h", "hidden_size": 96,
        "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 20, "vocab_size": 211, "ssm_state_size": 12,
        "mamba_num_heads": 6, "mamba_head_dim": 10, "n_groups": 2, "conv_kernel": 3, "n_routed_experts": 5,
        "n_shared_experts": 2, "moe_intermediate_size": 44, "moe_shared_expert_intermediate_size": 66,
        "num_experts_per_tok": 2, "intermediate_size": 130, "moe_latent_size": 33, "use_bias": False}),
    "nemotron_h_MEM*E-_None": (257976, {"model_type": "nemotron_h", "hidden_size": 96,
        "hybrid_override_pattern": "MEM*E-", "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 20, "vocab_size": 211, "ssm_state_size": 12,
        "mamba_num_heads": 6, "mamba_head_dim": 10, "n_groups": 2, "conv_kernel": 3, "n_routed_experts": 5,
        "n_shared_experts": 2, "moe_intermediate_size": 44, "moe_shared_expert_intermediate_size": 66,
        "num_experts_per_tok": 2, "intermediate_size": 130, "moe_latent_size": None, "use_bias": True}),
    "nemotron_h_MEM*E-_33": (214668, {"model_type": "nemotron_h", "hidden_size": 96,
        "hybrid_override_pattern": "MEM*E-", "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 20, "vocab_size": 211, "ssm_state_size": 12,
        "mamba_num_heads": 6, "mamba_head_dim": 10, "n_groups": 2, "conv_kernel": 3, "n_routed_experts": 5,
        "n_shared_experts": 2, "moe_intermediate_size": 44, "moe_shared_expert_intermediate_size": 66,
        "num_experts_per_tok": 2, "intermediate_size": 130, "moe_latent_size": 33, "use_bias": False}),
    "jamba": (1440044, {"model_type": "jamba", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 9, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "num_experts": 3, "num_experts_per_tok": 1, "mamba_d_state": 7, "mamba_d_conv": 3, "mamba_dt_rank":
        "auto", "attn_layer_period": 4, "attn_layer_offset": 1, "expert_layer_period": 3,
        "expert_layer_offset": 2, "mamba_proj_bias": True}),
    "jamba1": (1148312, {"model_type": "jamba", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 9, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "num_experts": 1, "mamba_dt_rank": 11, "mamba_conv_bias": False, "tie_word_embeddings": True}),
    "bamba": (584236, {"model_type": "bamba", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "mamba_n_heads": 12, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 9, "mamba_d_conv": 3,
        "attn_layer_indices": [1, 4], "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True}),
    "granite": (1583496, {"model_type": "granitemoehybrid", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "mamba_n_heads": 12, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 9, "layer_types":
        ["mamba", "attention", "mamba", "mamba", "attention"], "num_local_experts": 4,
        "num_experts_per_tok": 2, "shared_intermediate_size": 71, "attention_bias": True}),
    "granite_dense": (261792, {"model_type": "granitemoehybrid", "hidden_size": 96, "intermediate_size":
        208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "mamba_n_heads": 12, "mamba_d_head": 16, "layer_types": ["attention", "attention", "attention",
        "attention", "attention"], "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 71, "tie_word_embeddings": True}),
    "mamba": (230600, {"model_type": "mamba", "vocab_size": 211, "hidden_size": 100, "num_hidden_layers": 3,
        "state_size": 9, "conv_kernel": 3, "use_bias": True, "use_conv_bias": False}),
    "mamba_untied": (385500, {"model_type": "mamba", "vocab_size": 211, "hidden_size": 100,
        "num_hidden_layers": 3, "time_step_rank": 13, "tie_word_embeddings": False, "expand": 3}),
    "falcon_mamba": (242900, {"model_type": "falcon_mamba", "vocab_size": 211, "hidden_size": 100,
        "num_hidden_layers": 3}),
    "mamba2": (233640, {"model_type": "mamba2", "vocab_size": 211, "hidden_size": 96, "num_hidden_layers":
        3, "num_heads": 12, "head_dim": 16, "state_size": 10, "n_groups": 3, "use_bias": True}),
    "falcon_h1": (575518, {"model_type": "falcon_h1", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 9,
        "mamba_rms_norm": True, "projectors_bias": True, "mlp_bias": True, "attention_bias": True}),
    "falcon_h1b": (814248, {"model_type": "falcon_h1", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_proj_bias": True}),
    "lfm2": (466048, {"model_type": "lfm2", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"], "conv_bias": True,
        "block_multiple_of": 64, "block_ffn_dim_multiplier": 1.3}),
    "lfm2b": (507904, {"model_type": "lfm2", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "full_attn_idxs": [0, 2], "block_auto_adjust_ff_dim": False, "tie_embedding": False}),
    "lfm2_moe": (624448, {"model_type": "lfm2_moe", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "num_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 52, "layer_types": ["conv",
        "full_attention", "conv", "conv", "full_attention"], "num_dense_layers": 2}),
    "minimax": (1783848, {"model_type": "minimax", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 20, "layer_types":
        ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"]}),
    "minimax_d": (1716864, {"model_type": "minimax", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "num_local_experts": 5, "num_experts_per_tok": 2}),
    "kimi_linear": (496260, {"model_type": "kimi_linear", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 6, "vocab_size": 211,
        "num_experts": 6, "num_experts_per_token": 2, "num_shared_experts": 2, "moe_intermediate_size": 31,
        "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 14,
        "first_k_dense_replace": 2, "linear_attn_config": {"head_dim": 10, "num_heads": 5,
        "short_conv_kernel_size": 3, "full_attn_layers": [3], "kda_layers": [1, 2, 4, 5]}, "pad_token_id":
        0, "eos_token_id": 1, "bos_token_id": 1}),
    "kimi_linear_d": (12190304, {"model_type": "kimi_linear", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 6, "vocab_size": 211,
        "num_experts": 6, "num_experts_per_token": 2, "num_shared_experts": 1, "moe_intermediate_size": 31,
        "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}),
    "llava_clip": (642850, {"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 96,
        "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 64,
        "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
        "patch_size": 14}}),
    "llava_siglip": (679672, {"model_type": "llava", "text_config": {"model_type": "qwen2", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "siglip_vision_model",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14}, "multimodal_projector_bias": False}),
    "llava_tied": (623362, {"model_type": "llava", "text_config": {"model_type": "qwen2", "hidden_size": 96,
        "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211}, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64,
        "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
        "patch_size": 14, "vision_use_head": False}, "tie_word_embeddings": True}),
    "llava_next_clip": (642946, {"model_type": "llava_next", "text_config": {"model_type": "llama",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "clip_vision_model",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14}}),
    "llava_next_siglip": (679768, {"model_type": "llava_next", "text_config": {"model_type": "qwen2",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "siglip_vision_model",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14}, "multimodal_projector_bias": False}),
    "llava_next_tied": (623458, {"model_type": "llava_next", "text_config": {"model_type": "qwen2",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "siglip_vision_model",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14, "vision_use_head": False}, "tie_word_embeddings": True}),
    "llava_onevision_clip": (642946, {"model_type": "llava_onevision", "text_config": {"model_type":
        "llama", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads":
        6, "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type":
        "clip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}}),
    "llava_onevision_siglip": (679768, {"model_type": "llava_onevision", "text_config": {"model_type":
        "qwen2", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads":
        6, "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type":
        "siglip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "multimodal_projector_bias": False}),
    "llava_onevision_tied": (623458, {"model_type": "llava_onevision", "text_config": {"model_type":
        "qwen2", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads":
        6, "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type":
        "siglip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "vision_use_head": False},
        "tie_word_embeddings": True}),
    "llava_pixtral": (703072, {"model_type": "llava", "text_config": {"model_type": "mistral",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "pixtral", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "head_dim": 16}}),
    "llava_levels": (683554, {"model_type": "llava", "text_config": {"model_type": "mistral", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "clip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "vision_feature_layer": [-2, -1]}),
    "llava_onevision_d": (398348128, {"model_type": "llava_onevision", "text_config": {"model_type":
        "qwen2", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads":
        6, "num_key_value_heads": 3, "vocab_size": 211}}),
    "mistral3": (740000, {"model_type": "mistral3", "text_config": {"model_type": "mistral", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "pixtral", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "head_dim": 16}, "spatial_merge_size":
        3, "tie_word_embeddings": False, "multimodal_projector_bias": True}),
    "mistral3_m3": (699072, {"model_type": "mistral3", "text_config": {"model_type": "ministral3",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "pixtral", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "tie_word_embeddings": True}),
    "gemma3": (648778, {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "siglip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "vision_use_head": False}}),
    "gemma3h": (685024, {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "siglip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}}),
    "paligemma": (647650, {"model_type": "paligemma", "text_config": {"model_type": "gemma", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "siglip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "vision_use_head": False},
        "projection_dim": 96}),
    "paligemma_d": (400101792, {"model_type": "paligemma", "text_config": {"model_type": "gemma",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "projection_dim": 96}),
    "idefics2": (2406402, {"model_type": "idefics2", "text_config": {"model_type": "mistral", "hidden_size":
        192, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 32}, "vision_config": {"model_type":
        "idefics2_vision", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "perceiver_config":
        {"resampler_n_latents": 9, "resampler_depth": 2, "resampler_n_heads": 6, "resampler_head_dim": 10,
        "num_key_value_heads": 3, "hidden_size": 192}}),
    "idefics2b": (2406402, {"model_type": "idefics2", "text_config": {"model_type": "mistral",
        "hidden_size": 192, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 32}, "vision_config": {"model_type":
        "idefics2", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "perceiver_config":
        {"resampler_n_latents": 9, "resampler_depth": 2, "resampler_n_heads": 6, "resampler_head_dim": 10,
        "num_key_value_heads": 3}}),
    "idefics3": (682402, {"model_type": "idefics3", "text_config": {"model_type": "llama", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "idefics3_vision",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14}, "scale_factor": 3}),
    "smolvlm": (705154, {"model_type": "smolvlm", "text_config": {"model_type": "llama", "hidden_size": 96,
        "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211, "tie_word_embeddings": False}, "vision_config": {"model_type":
        "smolvlm_vision", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "scale_factor": 4,
        "tie_word_embeddings": True}),
    "internvl": (663330, {"model_type": "internvl", "text_config": {"model_type": "qwen2", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "internvl_vision",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": [56, 56], "patch_size": [14, 14], "attention_bias": True, "use_qk_norm": True},
        "tie_word_embeddings": False}),
    "internvl_rms": (675722, {"model_type": "internvl", "text_config": {"model_type": "qwen3",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20}, "vision_config": {"model_type":
        "internvl_vision", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": [56, 56], "patch_size": [14, 14], "norm_type": "rms_norm",
        "use_mean_pooling": False, "use_mask_token": True}, "tie_word_embeddings": True}),
    "lfm2_vl": (807493, {"model_type": "lfm2_vl", "text_config": {"model_type": "lfm2", "hidden_size": 96,
        "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211, "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"]},
        "vision_config": {"model_type": "siglip2_vision_model", "hidden_size": 64, "intermediate_size": 150,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_patches": 49, "patch_size": 16},
        "downsample_factor": 3, "projector_hidden_size": 77}),
    "deepseek_vl": (678904, {"model_type": "deepseek_vl", "text_config": {"model_type": "llama",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type": "siglip_vision_model",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14}, "tie_word_embeddings": False}),
    "deepseek_vl_hybrid": (803919, {"model_type": "deepseek_vl_hybrid", "text_config": {"model_type":
        "llama", "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads":
        6, "num_key_value_heads": 3, "vocab_size": 211}, "vision_config": {"model_type":
        "siglip_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "vision_use_head": False},
        "high_res_vision_config": {"model_type": "sam_vision_model", "hidden_size": 48, "mlp_dim": 99,
        "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 64, "patch_size": 16,
        "output_channels": 20, "window_size": 3, "global_attn_indexes": [1]}, "tie_word_embeddings":
        False}),
    "llama4": (1254448, {"model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 16, "intermediate_size_mlp": 300,
        "num_local_experts": 4, "interleave_moe_layer_step": 2}, "vision_config": {"model_type":
        "llama4_vision_model", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "vision_output_dim": 80,
        "projector_input_dim": 60, "projector_output_dim": 60}}),
    "llama4_text": (1020000, {"model_type": "llama4_text", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "head_dim": 16, "intermediate_size_mlp": 300, "num_local_experts": 4, "moe_layers": [1, 2],
        "attention_bias": True, "tie_word_embeddings": True}),
    "mllama": (755641, {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "cross_attention_layers": [1, 3], "pad_token_id": 0},
        "vision_config": {"model_type": "mllama_vision_model", "hidden_size": 64, "intermediate_size": 150,
        "num_hidden_layers": 3, "attention_heads": 4, "image_size": 56, "patch_size": 14,
        "num_global_layers": 2, "vision_output_dim": 128, "intermediate_layers_indices": [1],
        "max_num_tiles": 4}}),
    "mllama_ar": (1335801, {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 12, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "pad_token_id": 0}, "vision_config": {"model_type":
        "mllama_vision_model", "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3,
        "attention_heads": 4, "image_size": 56, "patch_size": 14, "num_global_layers": 2,
        "vision_output_dim": 128, "intermediate_layers_indices": [1], "max_num_tiles": 2,
        "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]}}),
    "gemma4": (1480988, {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text", "hidden_size":
        96, "intermediate_size": 208, "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20, "global_head_dim": 28,
        "vocab_size_per_layer_input": 201, "hidden_size_per_layer_input": 12, "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
        "sliding_attention", "full_attention"], "attention_k_eq_v": True, "num_global_key_value_heads": 2,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "enable_moe_block": True, "num_experts": 5,
        "top_k_experts": 2, "moe_intermediate_size": 33}, "vision_config": {"model_type": "gemma4_vision",
        "hidden_size": 64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 12, "position_embedding_size": 99, "patch_size": 7},
        "audio_config": {"model_type": "gemma4_audio", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "output_proj_dims": 50, "conv_kernel_size": 3}}),
    "gemma4_d": (746632, {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "head_dim": 20, "global_head_dim": 28,
        "vocab_size_per_layer_input": 201, "hidden_size_per_layer_input": 0, "sliding_window": 64,
        "num_global_key_value_heads": 2}, "vision_config": {"model_type": "gemma4_vision", "hidden_size":
        64, "intermediate_size": 150, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 12, "position_embedding_size": 99, "patch_size": 7},
        "audio_config": None}),
    "gemma4_text": (623144, {"model_type": "gemma4_text", "hidden_size": 96, "intermediate_size": 208,
        "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 211,
        "head_dim": 20, "global_head_dim": 28, "vocab_size_per_layer_input": 201,
        "hidden_size_per_layer_input": 12, "sliding_window": 64, "num_kv_shared_layers": 3, "layer_types":
        ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention"]}),
    "gemma3n_text": (641492, {"model_type": "gemma3n_text", "hidden_size": 96, "intermediate_size": [200,
        201, 202, 203, 204, 205], "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211, "head_dim": 20, "vocab_size_per_layer_input": 201,
        "hidden_size_per_layer_input": 12, "num_kv_shared_layers": 2, "laurel_rank": 7, "altup_num_inputs":
        3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
        "sliding_attention", "full_attention"]}),
    "whisper": (196819, {"model_type": "whisper", "d_model": 60, "vocab_size": 211, "encoder_layers": 3,
        "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 6, "encoder_ffn_dim":
        99, "decoder_ffn_dim": 101, "num_mel_bins": 22, "max_source_positions": 50, "max_target_positions":
        31, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}),
    "default_qwen3_next": (79674391296, {"model_type": "qwen3_next"}),
    "default_jamba": (51570323328, {"model_type": "jamba"}),
    "default_bamba": (9992765440, {"model_type": "bamba"}),
    "default_granitemoehybrid": (38601064448, {"model_type": "granitemoehybrid"}),
    "default_mamba": (159308544, {"model_type": "mamba"}),
    "default_mamba2": (7285403648, {"model_type": "mamba2"}),
    "default_falcon_h1": (8514961408, {"model_type": "falcon_h1"}),
    "default_lfm2": (2705497600, {"model_type": "lfm2"}),
    "default_minimax": (47373946880, {"model_type": "minimax"}),
    "default_kimi_linear": (49133074464, {"model_type": "kimi_linear"}),
    "default_whisper": (37760640, {"model_type": "whisper"}),
    "default_llama4_text": (107769861120, {"model_type": "llama4_text"}),
    "default_gemma4_text": (5077177856, {"model_type": "gemma4_text"}),
    "glm4v": (656112, {"model_type": "glm4v", "text_config": {"model_type": "glm4v_text", "hidden_size": 96,
        "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads":
        3, "vocab_size": 211, "pad_token_id": 0}, "vision_config": {"model_type": "glm4v_vision", "depth":
        3, "hidden_size": 48, "intermediate_size": 70, "num_heads": 4, "image_size": 56, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 96}}),
    "glm4v_moe": (667200, {"model_type": "glm4v_moe", "text_config": {"model_type": "glm4v_moe_text",
        "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 211, "pad_token_id": 0, "head_dim": 20, "n_routed_experts":
        5, "num_experts_per_tok": 2, "moe_intermediate_size": 30, "n_shared_experts": 1,
        "first_k_dense_replace": 2}, "vision_config": {"model_type": "glm4v_moe_vision", "depth": 3,
        "hidden_size": 48, "intermediate_size": 70, "num_heads": 4, "image_size": 56, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 96}}),
    "default_qwen3_vl_moe": (14052070640, {"model_type": "qwen3_vl_moe", "text_config": {"model_type":
        "qwen3_vl_moe_text", "hidden_size": 2048}}),
    "default_qwen2_vl": (73381962752, {"model_type": "qwen2_vl", "text_config": {"model_type":
        "qwen2_vl_text", "hidden_size": 8192}, "vision_config": {}}),
}
# fmt: on


def problems(config: Config) -> dict[str, str]:
    """Path -> message of every problem."""
    with pytest.raises(ConfigError) as caught:
        resolve(config)
    return {p.path: str(p) for p in caught.value.problems}


def shipped(name: str) -> ModelShape:
    entry = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    return resolve(entry["config"], name=name)


def entries() -> list[Path]:
    """Shipped models of the kinds that are read here."""
    paths = sorted(MODELS.glob("*.json"))
    return [p for p in paths if json.loads(p.read_text(encoding="utf-8"))["config"]["model_type"] in MINE]


def kinds(shape: ModelShape) -> Counter[str]:
    return Counter(x.mixer.kind for x in shape.layers if x.mixer is not None)


# -- exact counts


@pytest.mark.parametrize("name", VARIANTS)
def test_small_variants_are_exact(name: str) -> None:
    expected, config = VARIANTS[name]
    assert resolve(config, name=name).parameters == expected


def test_every_mapper_has_a_variant() -> None:
    tried = {str(config["model_type"]) for _, config in VARIANTS.values()}
    nested = {
        str(c["text_config"]["model_type"])
        for _, c in VARIANTS.values()
        if isinstance(c.get("text_config"), dict)
    }
    # No reference class: the layouts of their authors are read like those of the library.
    by_hand = {
        "internvl_chat",
        "minimax_text_01",
        "multi_modality",
        "phi3_v",
        "kimi_k25",
        "gemma3n",
        "qwen2_5_omni",
    }
    assert set(MINE) - tried - nested <= by_hand


@pytest.mark.shared
def test_shared_configs_are_exact() -> None:
    table = SHARED / "params.csv"
    if not table.exists():
        pytest.skip(f"{SHARED} is not here: fetched files are not part of the project")
    checked = []
    with table.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            config = json.loads((SHARED / row["file"]).read_text(encoding="utf-8"))
            if config["model_type"] in MINE:
                shape = resolve(config, name=row["file"])
                assert shape.parameters == int(row["total_params"]), row["file"]
                checked.append(row["file"])
    assert len(checked) == 9


@pytest.mark.parametrize("path", entries(), ids=lambda p: p.stem)
def test_shipped_models_are_exact(path: Path) -> None:
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["name"] == path.stem
    assert entry["source"]
    assert resolve(entry["config"], name=path.stem).parameters == entry["parameters"]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # What is published about them, to the precision that it is published with.
        ("llama-3.2-11b-vision", 10.67),
        ("llama-3.2-90b-vision", 88.59),
        ("llama-4-scout", 108.64),
        ("llama-4-maverick", 401.58),
        ("idefics2-8b", 8.40),
        ("gemma-3-4b", 4.30),
        ("gemma-3-12b", 12.19),
        ("gemma-3-27b", 27.43),
        ("mistral-small-3.2-24b", 24.01),
        ("mamba-2.8b", 2.77),
        ("jamba-1.5-mini", 51.57),
        ("whisper-large-v3", 1.54),
        ("qwen2.5-vl-72b", 73.41),
        ("nemotron-nano-9b-v2", 8.89),
    ],
)
def test_published_counts(name: str, billions: float) -> None:
    assert round(shipped(name).parameters / 1e9, 2) == billions


def test_phi3_vision() -> None:
    config: Config = {"model_type": "phi3_v", "hidden_size": 3072, "num_hidden_layers": 32}
    config |= {
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 8192,
        "vocab_size": 32064,
    }
    assert resolve(config).parameters == 4_146_621_440


# -- what the layers are


def test_qwen3_5_layers() -> None:
    shape = shipped("qwen3.5-35b-a3b")
    assert kinds(shape) == {"linear": 30, "attention": 10}
    delta, full = shape.layers[0].mixer, shape.layers[3].mixer
    assert isinstance(delta, LinearAttention)
    assert isinstance(full, SelfAttention)
    assert full.output_gate
    assert full.cache_elements() == 2 * 2 * 256
    assert delta.cache_elements() == 0
    assert delta.state_elements() == 32 * 128 * 128 + 8192 * 3
    assert delta.span == 0
    assert full.span is None
    assert 3.0e9 < shape.active_parameters < 3.6e9
    assert shape.by_class()[TensorClass.RECURRENT] == 30 * delta.parameters(2048)


def test_multi_token_prediction_is_beside_the_model() -> None:
    shape = shipped("qwen3.5-35b-a3b")
    block = shape.layers[3].parameters(2048)
    assert shape.mtp_parameters == block + 2 * 2048 * 2048 + 3 * 2048
    _, config = VARIANTS["nemotron_h_MEM*E-_None"]
    with_mtp = resolve({**config, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"})
    assert with_mtp.parameters == resolve(config).parameters
    ahead = sum(with_mtp.layers[i].parameters(96) for i in (3, 4))
    assert with_mtp.mtp_parameters == ahead + 2 * 96 * 96 + 3 * 96


def test_nemotron_3_nano_layers() -> None:
    shape = shipped("nemotron-3-nano-30b-a3b")
    parts = Counter(
        "experts" if isinstance(x.ffn, MixtureOfExperts) else x.mixer.kind if x.mixer else "dense"
        for x in shape.layers
    )
    assert parts == {"experts": 23, "mamba": 23, "attention": 6}
    assert shape.kv_heads == 2
    assert shape.experts == 128
    mixer = shape.layers[0].mixer
    assert isinstance(mixer, Mamba)
    assert mixer.state_elements() == 64 * 64 * 128 + (4096 + 2 * 8 * 128) * 3
    # Its shared expert is twice as wide as a routed one.
    assert shape.by_class()[TensorClass.SHARED_EXPERTS] == 23 * 2 * 2688 * 3712


def test_pattern_may_be_a_list() -> None:
    _, config = VARIANTS["nemotron_h_MEM*E-_None"]
    named = {k: v for k, v in config.items() if k != "hybrid_override_pattern"}
    named["layers_block_type"] = ["mamba", "moe", "mamba", "attention", "moe", "mlp"]
    assert resolve(named).layers == resolve(config).layers


def test_jamba_layers() -> None:
    shape = shipped("jamba-1.5-mini")
    assert [i for i, x in enumerate(shape.layers) if isinstance(x.mixer, SelfAttention)] == [4, 12, 20, 28]
    assert [isinstance(x.ffn, MixtureOfExperts) for x in shape.layers[:4]] == [False, True, False, True]


def test_falcon_h1_has_a_cache_and_a_state_in_each_layer() -> None:
    shape = resolve(VARIANTS["falcon_h1"][1])
    for layer in shape.layers:
        assert isinstance(layer.mixer, ParallelMixers)
        assert layer.mixer.cache_elements() == 2 * 3 * 16
        assert layer.mixer.state_elements() == 48 * 9 + (48 + 2 * 2 * 9) * 3
    assert len(shape.attention_layers) == 5


def test_lfm2_state_is_a_convolution() -> None:
    shape = shipped("lfm2-1.2b")
    assert kinds(shape) == {"convolution": 10, "attention": 6}
    mixer = shape.layers[0].mixer
    assert isinstance(mixer, ShortConvolution)
    assert mixer.state_elements() == 3 * 2048
    assert shape.tied


def test_kimi_linear_mixes_two_kinds_that_are_not_plain_attention() -> None:
    shape = resolve(VARIANTS["kimi_linear"][1])
    assert kinds(shape) == {"linear": 4, "latent": 1}
    assert shape.layers[2].mixer is not None
    assert shape.layers[2].mixer.cache_elements() == 24 + 8
    assert shape.uses_latent_attention


def test_minimax_keeps_one_matrix_per_head() -> None:
    shape = resolve(VARIANTS["minimax"][1])
    mixer = shape.layers[0].mixer
    assert isinstance(mixer, LinearAttention)
    assert mixer.state_elements() == 6 * 20 * 20
    original = {k: v for k, v in VARIANTS["minimax"][1].items() if k != "layer_types"}
    original |= {"model_type": "minimax_text_01", "attn_type_list": [0, 1, 0, 0, 1]}
    assert resolve(original).layers == shape.layers


# -- towers and text parts


def test_towers_of_qwen3_vl() -> None:
    shape = shipped("qwen3-vl-2b")
    (tower,) = shape.towers
    assert (tower.kind, tower.layers, tower.hidden, tower.heads) == ("vision", 24, 1024, 16)
    assert shape.language_parameters == 1_720_574_976
    assert shape.by_class()[TensorClass.VISION] == tower.parameters
    assert shape.max_positions == 262_144
    assert shape.dtype == "bfloat16"


def test_old_and_new_layout_of_qwen2_5_vl_are_one_model() -> None:
    entry = json.loads((MODELS / "qwen2.5-vl-7b.json").read_text(encoding="utf-8"))["config"]
    text = {k: v for k, v in entry.items() if k not in ("vision_config", "architectures", "model_type")}
    nested = {"model_type": "qwen2_5_vl", "vision_config": entry["vision_config"]}
    nested["text_config"] = {**text, "model_type": "qwen2_5_vl_text"}
    assert resolve(nested).layers == resolve(entry).layers
    assert resolve(nested).parameters == resolve(entry).parameters


def test_tokens_of_one_image_or_clip() -> None:
    assert shipped("gemma-3-27b").towers[0].max_tokens_per_item == 256
    assert shipped("idefics2-8b").towers[0].max_tokens_per_item == 64
    assert shipped("voxtral-mini-3b").towers[0].max_tokens_per_item == 375
    assert shipped("mistral-small-3.2-24b").towers[0].max_tokens_per_item == 3025
    assert shipped("qwen3-vl-2b").towers[0].max_tokens_per_item is None


def test_omni_is_its_thinker() -> None:
    shape = shipped("qwen2.5-omni-7b")
    assert [t.kind for t in shape.towers] == ["vision", "audio"]
    entry = json.loads((MODELS / "qwen2.5-omni-7b.json").read_text(encoding="utf-8"))["config"]
    spoken = resolve({**entry, "talker_config": {"hidden_size": 896}})
    assert spoken.parameters == shape.parameters
    assert any("talker" in note for note in spoken.assumed)


def test_cross_attention_has_no_cache_that_grows_with_the_text() -> None:
    shape = shipped("llama-3.2-11b-vision")
    crossed = [i for i, x in enumerate(shape.layers) if x.cross_attention is not None]
    assert crossed == list(range(3, 40, 5))
    assert len(shape.attention_layers) == 32
    layer = shape.layers[3]
    assert layer.cross_attention is not None
    assert layer.cross_attention.cache_elements() == 2 * 8 * 128  # of each position of the image
    assert shape.towers[0].max_tokens_per_item == 4 * (1600 + 1)


def test_whisper_is_an_encoder_decoder() -> None:
    shape = shipped("whisper-large-v3")
    assert (len(shape.encoder), len(shape.layers)) == (32, 32)
    assert shape.encoder[0].mixer is not None
    assert shape.encoder[0].mixer.cache_elements() == 0
    assert shape.layers[0].cross_attention is not None
    assert shape.tied


def test_gemma_4_shapes_differ_by_layer() -> None:
    shape = shipped("gemma-4-31b")
    local, wide = shape.layers[0].mixer, shape.layers[5].mixer
    assert isinstance(local, SelfAttention)
    assert isinstance(wide, SelfAttention)
    assert (local.span, local.cache_elements()) == (1024, 2 * 16 * 256)
    assert (wide.span, wide.cache_elements()) == (None, 2 * 4 * 512)
    assert wide.value_is_key


def test_layers_that_borrow_their_cache_have_none() -> None:
    shape = resolve(VARIANTS["gemma3n_text"][1])
    assert [x.mixer.cache_elements() > 0 for x in shape.layers if x.mixer] == [True] * 4 + [False] * 2


def test_llama_4_attends_in_chunks_but_for_every_fourth_layer() -> None:
    spans = [x.mixer.span for x in shipped("llama-4-scout").layers if x.mixer]
    assert spans == [8192, 8192, 8192, None] * 12


@pytest.mark.parametrize(
    ("top", "nested", "tied"),
    [(None, None, False), (True, None, True), (None, True, True), (False, True, True), (False, False, False)],
)
def test_a_tie_may_be_stated_at_either_level(top: bool | None, nested: bool | None, tied: bool) -> None:
    config = copy.deepcopy(VARIANTS["llava_clip"][1])
    text = config["text_config"]
    assert isinstance(text, dict)
    if top is not None:
        config["tie_word_embeddings"] = top
    if nested is not None:
        text["tie_word_embeddings"] = nested
    shape = resolve(config)
    assert shape.tied is tied
    assert any("tie_word_embeddings" in note for note in shape.assumed) is (top is None and nested is None)


def test_kimi_tower_is_told_and_not_counted() -> None:
    shape = shipped("kimi-k2.5")
    assert shape.parameters == 1_026_408_209_408
    assert shape.towers == ()
    assert any("471,143,920" in note for note in shape.assumed)


def test_missing_keys_are_those_of_the_class_and_told() -> None:
    nested: Config = {"model_type": "llama", "num_hidden_layers": 30, "vocab_size": 102400}
    shape = resolve({"model_type": "multi_modality", "language_config": nested})
    assert shape.parameters == shipped("deepseek-vl-7b").parameters
    assert "language_config.hidden_size = 4096 (default of its model type)" in shape.assumed
    assert not any("num_hidden_layers" in note for note in shape.assumed)


def test_a_vision_part_that_is_absent_is_that_of_the_class_and_told() -> None:
    text: Config = {"model_type": "llama4_text", "num_hidden_layers": 4}
    shape = resolve({"model_type": "llama4", "text_config": text})
    assert shape.towers[0].layers == 34
    assert any(note.startswith("vision_config =") for note in shape.assumed)


def test_both_layouts_of_internvl_are_one_model() -> None:
    expected, config = VARIANTS["internvl"]
    vision = config["vision_config"]
    assert isinstance(vision, dict)
    original: Config = {**vision, "model_type": "intern_vit_6b", "image_size": 56, "patch_size": 14}
    for new, old in (("attention_bias", "qkv_bias"), ("use_qk_norm", "qk_normalization")):
        original[old] = original.pop(new)
    chat = {"model_type": "internvl_chat", "llm_config": config["text_config"], "vision_config": original}
    assert resolve(chat).parameters == expected


# -- broken input


def test_missing_nested_config() -> None:
    assert "is missing" in problems({"model_type": "qwen3_vl"})["text_config"]
    assert "is missing" in problems({"model_type": "qwen2_5_omni"})["thinker_config"]
    assert (
        "must be a mapping" in problems({"model_type": "qwen2_5_omni", "thinker_config": 7})["thinker_config"]
    )


def test_nested_configs_of_the_wrong_type_are_all_told() -> None:
    told = problems({"model_type": "qwen3_vl", "text_config": [1], "vision_config": "x"})
    assert set(told) == {"text_config", "vision_config"}


def test_unknown_parts_are_all_told() -> None:
    told = problems(
        {"model_type": "llava", "text_config": {"model_type": "a"}, "vision_config": {"model_type": "b"}}
    )
    assert set(told) == {"text_config.model_type", "vision_config.model_type"}
    assert "siglip_vision_model" in told["vision_config.model_type"]


def test_multimodal_models_do_not_nest() -> None:
    config: Config = {"model_type": "llava", "text_config": {"model_type": "llama"}}
    for _ in range(300):
        config = {"model_type": "llava", "text_config": config}
    assert "not known" in problems(config)["text_config.model_type"]


def test_garbage_in_both_parts_is_told_at_once() -> None:
    vision: Config = {"hidden_size": 1000, "num_attention_heads": 16, "image_size": 7, "patch_size": 14}
    vision |= {"num_hidden_layers": 1e9, "vision_use_head": "no", "intermediate_size": -3}
    text: Config = {"model_type": "gemma3_text", "hidden_size": "big", "num_hidden_layers": 0}
    told = problems({"model_type": "gemma3", "text_config": text, "vision_config": vision})
    assert set(told) == {
        "text_config.hidden_size",
        "text_config.num_hidden_layers",
        "vision_config.image_size",
        "vision_config.intermediate_size",
        "vision_config.num_attention_heads",
        "vision_config.num_hidden_layers",
        "vision_config.vision_use_head",
    }


def test_pattern_faults() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"model_type": "nemotron_h", "num_hidden_layers": 5, "hybrid_override_pattern": "MX*Q"})
    text = str(caught.value)
    assert "letters that are not known: Q X" in text
    assert "has 4 letters, and num_hidden_layers is 5" in text
    assert "M is Mamba" in text
    assert "is missing" in problems({"model_type": "nemotron_h"})["hybrid_override_pattern"]
    assert (
        "short text"
        in problems({"model_type": "nemotron_h", "hybrid_override_pattern": 5})["hybrid_override_pattern"]
    )


def test_layer_list_faults() -> None:
    config: Config = {
        "model_type": "qwen3_next",
        "num_hidden_layers": 2,
        "num_experts": 4,
        "num_experts_per_tok": 9,
    }
    told = problems({**config, "layer_types": ["linear_attention", "wat"]})
    assert "not known: wat" in told["layer_types"]
    assert "at most the 4 experts" in told["num_experts_per_tok"]
    assert "must have 2 entries" in problems({**config, "layer_types": ["full_attention"]})["layer_types"]


def leaves(config: Config, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def read_or_told(config: Config) -> bool:
    try:
        shape = resolve(config)
    except ConfigError as error:
        return bool(error.problems)
    return shape.parameters > 0


BROKEN = [None, "x", "", -1, 0, 10**30, [], [1], ["x"], [None], {}, True, 1.5, float("nan"), float("inf")]


@pytest.mark.parametrize("name", VARIANTS)
def test_any_one_broken_value_is_read_or_told(name: str) -> None:
    for path in leaves(VARIANTS[name][1]):
        for value in BROKEN:
            config = copy.deepcopy(VARIANTS[name][1])
            inner = config
            for key in path[:-1]:
                inner = inner[key]  # type: ignore[assignment]
            inner[path[-1]] = value
            assert read_or_told(config), (path, value)


# -- the reference classes themselves

AUTO = (
    "AutoModelForImageTextToText",
    "AutoModelForMultimodalLM",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForCausalLM",
    "AutoModel",
)


def reference(config: Config) -> int:
    """Unique parameters of the reference class, built without memory."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch", reason="needs torch (pip install --group oracle)")
        transformers = pytest.importorskip(
            "transformers", reason="needs transformers (pip install --group oracle)"
        )
    built = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    for name in AUTO:
        kind = getattr(transformers, name, None)
        if kind is not None and type(built) in kind._model_mapping:
            with torch.device("meta"):
                model = kind.from_config(built)
            return sum({id(p): p.numel() for p in model.parameters()}.values())
    raise AssertionError(f"no class for {config['model_type']}")


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VARIANTS)
def test_small_variants_equal_the_reference_class(name: str) -> None:
    expected, config = VARIANTS[name]
    assert reference(config) == expected


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", entries(), ids=lambda p: p.stem)
def test_shipped_models_equal_the_reference_class(path: Path) -> None:
    entry = json.loads(path.read_text(encoding="utf-8"))
    config: Config = entry["config"]
    if path.stem == "kimi-k2.5":
        pytest.skip("the reference class has the vision tower, which is not counted")
    if config["model_type"] == "qwen2_5_omni":
        thinker = config["thinker_config"]
        assert isinstance(thinker, dict)
        config = {**thinker, "model_type": "qwen2_5_omni_thinker"}
    assert reference(config) == entry["parameters"]
