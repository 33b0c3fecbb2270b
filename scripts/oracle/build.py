"""The model of a combination on the fake device: configuration, adapters, freezing, sharding, optimizer."""

from __future__ import annotations

from typing import Any

import torch
from combos import Combo, Model

DTYPES = {
    "bf16": torch.bfloat16,
    "autocast_bf16_base": torch.bfloat16,
    "autocast": torch.float32,
    "fsdp_mixed": torch.float32,
    "fp32": torch.float32,
}
TARGETS = {"qkvo": ["q_proj", "k_proj", "v_proj", "o_proj"], "all-linear": "all-linear"}
# What selective recomputation keeps: the results of matrix products and attention, as in torchtitan.
KEPT = (
    "mm.default",
    "_scaled_dot_product_flash_attention.default",
    "_scaled_dot_product_efficient_attention.default",
)


def configuration(model: Model) -> Any:
    from transformers import AutoConfig

    if model.family == "gpt2":
        values: dict[str, Any] = {
            "n_embd": model.hidden,
            "n_layer": model.layers,
            "n_head": model.heads,
            "n_inner": model.intermediate,
            "n_positions": 8192,
            "resid_pdrop": model.dropout,
            "embd_pdrop": model.dropout,
            "attn_pdrop": model.dropout,
        }
    else:
        values = {
            "hidden_size": model.hidden,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "intermediate_size": model.intermediate,
            "pad_token_id": 0,
            "max_position_embeddings": 8192,
        }
    if model.family == "mixtral":
        values |= {"num_local_experts": model.experts, "num_experts_per_tok": model.top_k}
    if model.family == "qwen3_moe":
        values |= {
            "num_experts": model.experts,
            "num_experts_per_tok": model.top_k,
            "moe_intermediate_size": model.intermediate,
        }
    values |= {"vocab_size": model.vocab, "tie_word_embeddings": model.tied, "use_cache": False}
    config = AutoConfig.for_model(model.family, **(values | dict(model.extra)))
    config._attn_implementation = model.attention
    return config


def model_of(combo: Combo) -> Any:
    from transformers import AutoModelForCausalLM

    config = configuration(combo.model)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=DTYPES[combo.compute], attn_implementation=combo.model.attention
        )
        if combo.method == "lora":
            from peft import LoraConfig, get_peft_model

            adapters = LoraConfig(
                r=combo.lora_rank,
                lora_alpha=2 * combo.lora_rank,
                lora_dropout=combo.lora_dropout,
                target_modules=TARGETS[combo.lora_targets],
                task_type="CAUSAL_LM",
            )
            # Adapters are made on the device already; a fake parameter cannot be swapped for a moved one.
            move, torch.nn.Module.to = torch.nn.Module.to, lambda module, *_, **__: module
            try:
                model = get_peft_model(model, adapters, autocast_adapter_dtype=False)
            finally:
                torch.nn.Module.to = move
            # The default of peft (autocast_adapter_dtype) makes adapters fp32 even where the model is bf16.
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.to(DTYPES[combo.lora_dtype])
    if combo.method == "frozen_embeddings":
        model.get_input_embeddings().requires_grad_(False)
        model.get_output_embeddings().requires_grad_(False)
    model.train()
    recompute(model, combo)
    return model


def recompute(model: Any, combo: Combo) -> None:
    if combo.recompute == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if combo.recompute == "selective":
        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

        def policy(_: Any, func: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
            keep = any(str(func) == f"aten.{name}" for name in KEPT)
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        options["context_fn"] = lambda: create_selective_checkpoint_contexts(policy)
    model.activation_checkpointing_enable(options)


def layers_of(model: Any) -> list[Any]:
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    body = base.get_decoder()
    return list(body.h if hasattr(body, "h") else body.layers)


def body_of(model: Any) -> Any:
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    return base.get_decoder()


def shard(model: Any, combo: Combo, mesh: Any) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if combo.tensor_parallel > 1:
        split(model, mesh["tp"])
        real_meshes()
    options: dict[str, Any] = {"mesh": mesh["dp"], "reshard_after_forward": combo.reshard}
    if combo.compute == "fsdp_mixed":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers_of(model):
        fully_shard(layer, **options)
    fully_shard(model, **options)


def split(model: Any, mesh: Any) -> None:
    """Tensor parallelism of the linears of each layer; activations between them stay whole on every rank."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in layers_of(model):
        parallelize_module(layer, mesh, plan)


def real_meshes() -> None:
    """Let a mesh that FSDP puts together be a real one: its coordinates are read."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils._python_dispatch import _disable_current_modes

    joined = DeviceMesh._concatenate

    def concatenate(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return joined(*args, **kwargs)

    DeviceMesh._concatenate = staticmethod(concatenate)


def gathered_of(model: Any) -> list[torch.Tensor]:
    """The whole parameters that FSDP fills before a layer runs and empties after."""
    from torch.distributed.fsdp import FSDPModule

    return [
        output
        for module in model.modules()
        if isinstance(module, FSDPModule) and (group := module._get_fsdp_state()._fsdp_param_group)
        for parameter in group.fsdp_params
        for output in parameter.all_gather_outputs
    ]


def optimizer_of(combo: Combo, parameters: list[Any]) -> Any:
    if combo.optimizer == "none":
        return None
    if combo.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    kind = combo.optimizer.removeprefix("adamw_")
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=kind == "foreach", fused=kind == "fused")
