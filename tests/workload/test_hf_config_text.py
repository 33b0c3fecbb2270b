"""Text models: exact counts, what each layer is, and what is said of broken input."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from outgrow.errors import ConfigError
from outgrow.workload.hf_config import classic, dense, encoder, known_architectures, moe, resolve
from outgrow.workload.hf_config.defaults import CLASS_DEFAULTS
from outgrow.workload.mixers import CompressedAttention, LatentAttention, SelfAttention
from outgrow.workload.model import FeedForward, MixtureOfExperts, ModelShape, TensorClass

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "src/outgrow/catalog/data/models").glob("*.json"))
SHARED = ROOT.parent / "shared/cases/configs"
TEXT_TYPES = {**dense.MAPPERS, **moe.MAPPERS, **classic.MAPPERS, **encoder.MAPPERS}

LLAMA: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def shipped(name: str) -> ModelShape:
    entry = json.loads((ROOT / f"src/outgrow/catalog/data/models/{name}.json").read_text(encoding="utf-8"))
    return resolve(entry["config"], name=name)


def problems(config: dict[str, object]) -> dict[str, str]:
    """Path -> message of every problem; a path that is told twice is a failure."""
    with pytest.raises(ConfigError) as caught:
        resolve(config)
    told = Counter(p.path for p in caught.value.problems)
    assert max(told.values()) == 1, told
    return {p.path: str(p) for p in caught.value.problems}


# -- exact counts


@pytest.mark.shared
def test_shared_configs_are_exact() -> None:
    table = SHARED / "params.csv"
    if not table.exists():
        pytest.skip(f"{SHARED} is not here: fetched files are not part of the project")
    checked = 0
    with table.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            config = json.loads((SHARED / row["file"]).read_text(encoding="utf-8"))
            if config["model_type"] not in TEXT_TYPES:
                continue
            assert resolve(config).parameters == int(row["total_params"]), row["file"]
            checked += 1
    assert checked >= 20


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_shipped_models_are_exact(path: Path) -> None:
    entry = json.loads(path.read_text(encoding="utf-8"))
    if entry["config"]["model_type"] not in TEXT_TYPES:
        pytest.skip("not a text model")
    shape = resolve(entry["config"], name=entry["name"])
    assert shape.parameters == entry["parameters"]
    assert sum(shape.by_class().values()) == shape.parameters
    assert shape.active_parameters <= shape.parameters
    # A shipped config states what it is made of: nothing that decides a count is left to a default.
    decisive = ("hidden", "layers", "heads", "intermediate", "vocab", "experts", "rank", "tie_", "head_dim")
    allowed = ("num_key_value_heads", "tie_word_embeddings")
    left_open = [a for a in shape.assumed if any(d in a for d in decisive) and not a.startswith(allowed)]
    assert not left_open


def test_shipped_models_are_well_formed() -> None:
    assert len(MODELS) >= 75
    names: Counter[str] = Counter()
    for path in MODELS:
        entry = json.loads(path.read_text(encoding="utf-8"))
        assert set(entry) == {"name", "hub_id", "aliases", "source", "parameters", "config"}, path.name
        assert entry["name"] == path.stem
        assert entry["source"]
        if entry["config"]["model_type"] in TEXT_TYPES:
            assert not [k for k in entry["config"] if k.endswith("token_id")]
        names.update({x.lower() for x in (entry["name"], entry["hub_id"], *entry["aliases"]) if x})
    assert [n for n, times in names.items() if times > 1] == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-2-13b", 13_015_864_320),
        ("llama-3.1-8b", 8_030_261_248),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", 671_026_404_352),
        ("deepseek-v4-flash", 284_332_230_231),
        ("gpt2", 124_439_808),
        ("bert-base", 109_514_298),
    ],
)
def test_well_known_counts(name: str, count: int) -> None:
    assert shipped(name).parameters == count


def test_classes_of_tensors() -> None:
    counts = resolve(LLAMA).by_class()
    assert counts[TensorClass.EMBEDDING] == counts[TensorClass.HEAD] == 128256 * 4096
    assert counts[TensorClass.ATTENTION] == 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert counts[TensorClass.FFN] == 32 * 3 * 4096 * 14336
    assert counts[TensorClass.NORM] == 65 * 4096
    assert TensorClass.HEAD not in resolve({**LLAMA, "tie_word_embeddings": True}).by_class()


def test_classes_of_a_mixture() -> None:
    counts = shipped("deepseek-v3").by_class()
    assert counts[TensorClass.EXPERTS] == 58 * 256 * 3 * 7168 * 2048
    assert counts[TensorClass.SHARED_EXPERTS] == 58 * 3 * 7168 * 2048
    assert counts[TensorClass.ROUTER] == 58 * 256 * 7168
    assert counts[TensorClass.FFN] == 3 * 3 * 7168 * 18432
    shape = shipped("deepseek-v3")
    # One module: a layer, a projection from twice the width, three norms; without embedding and head.
    assert shape.mtp_parameters == shape.layers[-1].parameters(7168) + 2 * 7168 * 7168 + 3 * 7168


def test_active_parameters() -> None:
    assert math.isclose(shipped("qwen3-30b-a3b").active_parameters, 3.35e9, rel_tol=0.01)
    assert math.isclose(shipped("mixtral-8x7b").active_parameters, 12.9e9, rel_tol=0.01)
    assert math.isclose(shipped("gpt-oss-120b").active_parameters, 5.7e9, rel_tol=0.02)


# -- what the layers are


def windows(shape: ModelShape) -> Counter[int | None]:
    return Counter(x.mixer.span if x.mixer is not None else -1 for x in shape.layers)


def test_windows() -> None:
    assert windows(shipped("mistral-7b")) == {4096: 32}
    assert windows(shipped("mistral-7b-v0.3")) == {None: 32}
    assert windows(shipped("gemma-2-9b")) == {4096: 21, None: 21}
    assert windows(shipped("gemma-3-27b-text")) == {1024: 52, None: 10}
    assert windows(shipped("gpt-oss-120b")) == {128: 18, None: 18}
    assert windows(shipped("mimo-v2-flash")) == {128: 39, None: 9}
    assert windows(shipped("qwen2.5-7b")) == {None: 28}
    assert windows(shipped("gpt-neo-1.3b")) == {None: 12, 256: 12}
    assert windows(resolve({**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 512,
                            "max_window_layers": 30})) == {None: 30, 512: 2}  # fmt: skip
    assert windows(resolve({**LLAMA, "model_type": "exaone4", "sliding_window": 512,
                            "sliding_window_pattern": "LLLG"})) == {None: 8, 512: 24}  # fmt: skip


def test_a_window_that_is_absent_is_the_default_and_null_is_none() -> None:
    assert windows(resolve({**LLAMA, "model_type": "mistral"})) == {4096: 32}
    assert windows(resolve({**LLAMA, "model_type": "mistral", "sliding_window": None})) == {None: 32}


def test_llama4_chunks_and_interleaves() -> None:
    shape = resolve({"model_type": "llama4_text", "interleave_moe_layer_step": 2})
    assert Counter(x.mixer.chunk for x in shape.layers if isinstance(x.mixer, SelfAttention)) == {
        8192: 36,
        None: 12,
    }
    assert sum(isinstance(x.ffn, MixtureOfExperts) for x in shape.layers) == 24


def test_latent_attention_has_one_small_cache() -> None:
    mixer = shipped("deepseek-v3").layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.cache_elements() == 576
    assert mixer.kv_heads == 1


def test_compressed_attention() -> None:
    shape = shipped("deepseek-v4-flash")
    ratios = Counter(x.mixer.ratio for x in shape.layers if isinstance(x.mixer, CompressedAttention))
    assert ratios == {0: 2, 4: 21, 128: 20}
    assert shape.mtp_parameters > 0


def test_blocks_that_are_left_out() -> None:
    shape = shipped("nemotron-super-49b")
    assert sum(x.mixer is None for x in shape.layers) == 31
    assert len({x.ffn.intermediate for x in shape.layers if isinstance(x.ffn, FeedForward)}) > 3
    assert shape.kv_heads == 8


def test_heads_wider_than_the_model() -> None:
    assert shipped("gpt-oss-20b").attention_layers[0].mixer.head_dim == 64  # type: ignore[union-attr]
    assert shipped("qwen3-32b").attention_layers[0].mixer.head_dim == 128  # type: ignore[union-attr]
    assert shipped("falcon-7b").kv_heads == 1
    assert shipped("chatglm3-6b").kv_heads == 2


def test_encoder_decoder() -> None:
    shape = shipped("t5-3b")
    assert len(shape.encoder) == len(shape.layers) == 24
    assert all(x.cross_attention is not None for x in shape.layers)
    assert all(x.cross_attention is None and x.mixer is not None for x in shape.encoder)
    assert shape.encoder[0].mixer.cache_elements() == 0  # type: ignore[union-attr]
    assert any("tie_word_embeddings" in a for a in shipped("flan-t5-xxl").assumed)


def test_a_bare_encoder_has_a_pooler_and_no_head() -> None:
    whole = resolve({"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    bare = resolve({"model_type": "bert", "architectures": ["BertModel"]})
    assert whole.parameters == 109_514_298
    assert bare.parameters == 109_482_240
    assert TensorClass.HEAD not in bare.by_class()


# -- defaults


def test_defaults_are_told() -> None:
    shape = resolve({"model_type": "llama"})
    assert shape.parameters == 6_738_415_616
    assert "vocab_size = 32000 (default of its model type)" in shape.assumed
    assert resolve({**LLAMA, "max_position_embeddings": 8192}).assumed == ()


def test_every_default_belongs_to_a_known_or_nested_type() -> None:
    assert set(TEXT_TYPES) <= set(known_architectures())
    for model_type, values in CLASS_DEFAULTS.items():
        assert values, model_type
        assert all(v is not None for v in values.values())


def test_reading_as_another_architecture() -> None:
    shape = resolve({**LLAMA, "model_type": "brand_new", "like": "llama"})
    assert shape.parameters == 8_030_261_248


# -- broken input: everything at once, nothing raised but ConfigError


def test_an_unknown_architecture_says_what_was_understood() -> None:
    told = problems({**LLAMA, "model_type": "lama"})
    assert "hidden_size = 4096" in told["model_type"]
    assert "llama" in told["model_type"]
    assert "model.like" in told["model_type"]


@pytest.mark.parametrize("value", [None, 7, [], {}])
def test_no_architecture(value: object) -> None:
    assert "model_type" in problems({**LLAMA, "model_type": value})


def test_missing_keys_are_listed_together() -> None:
    told = problems({"model_type": "chatglm"})
    assert {"hidden_size", "num_attention_heads", "num_layers", "ffn_hidden_size"} <= set(told)
    assert all("is missing" in text for text in told.values())


def test_heads_that_do_not_divide() -> None:
    assert "does not divide" in problems({**LLAMA, "num_attention_heads": 33})["num_attention_heads"]
    assert "must divide" in problems({**LLAMA, "num_key_value_heads": 5})["num_key_value_heads"]
    assert "n_head" in problems({"model_type": "gpt2", "n_head": 7})


def test_all_problems_at_once() -> None:
    told = problems(
        {
            **LLAMA,
            "hidden_size": -4096,
            "num_hidden_layers": "32",
            "intermediate_size": 1e30,
            "vocab_size": float("nan"),
            "tie_word_embeddings": "yes",
            "attention_bias": 1,
        }
    )
    expected = {"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"}
    assert expected | {"tie_word_embeddings", "attention_bias"} <= set(told)


def test_more_experts_per_token_than_experts() -> None:
    told = problems({**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5})
    assert "4 experts" in told["num_experts_per_tok"]


def test_lists_of_another_length() -> None:
    told = problems({**LLAMA, "model_type": "gemma2", "layer_types": ["full_attention"]})
    assert "32 entries" in told["layer_types"]
    told = problems({**LLAMA, "model_type": "gemma2", "layer_types": ["mamba"] * 32})
    assert "not known" in told["layer_types"]
    told = problems({"model_type": "deepseek_v4", "compress_ratios": [4, 128]})
    assert "43 layers" in told["compress_ratios"]
    told = problems({**LLAMA, "model_type": "nemotron-nas", "block_configs": [{"attention": 3, "ffn": None}]})
    assert "block_configs" in told


HOSTILE: list[object] = [
    None,
    True,
    -1,
    0,
    1,
    3,
    1.5,
    1e30,
    -1e30,
    float("nan"),
    float("inf"),
    10**40,
    "",
    "x",
    "4096",
    [],
    [1],
    [None],
    [[1, 2]],
    [["a"], -1],
    {},
    {"a": 1},
    {"num_bits": []},
    object(),
]

EXTRA = [
    "layer_types",
    "mlp_layer_types",
    "sliding_window",
    "head_dim",
    "num_key_value_heads",
    "quantization_config",
    "block_configs",
    "attn_config",
    "ffn_config",
    "compress_ratios",
    "moe_layer_freq",
    "no_rope_layers",
    "architectures",
    "moe_topk",
    "index_topk_pattern",
    "attention_types",
    "torch_dtype",
    "sliding_window_pattern",
    "num_nextn_predict_layers",
    "mlp_only_layers",
    "compress_rates",
    "hybrid_layer_pattern",
    "attention_bias",
    "mlp_bias",
    "use_bias",
    "qkv_bias",
    "qk_layernorm",
    "use_sliding_window",
    "enable_moe_block",
    "bias",
    "parallel_attn",
    "indexer_types",
    "moe_layers",
    "num_shared_expert",
    "feed_forward_proj",
    "word_embed_proj_dim",
]
NESTED: dict[str, list[str]] = {
    "compress_rates": ["compressed_sparse_attention", "heavily_compressed_attention"],
    "attn_config": ["kv_n_heads"],
    "ffn_config": ["ffn_hidden_size", "moe_num_experts", "moe_top_k"],
}


def minimal(model_type: str) -> dict[str, object]:
    """A config that writes all that its class assumes."""
    stated = {k: v for k, v in LLAMA.items() if k not in CLASS_DEFAULTS.get(model_type, {})}
    return {**stated, **CLASS_DEFAULTS.get(model_type, {}), "model_type": model_type}


def endure(config: dict[str, object]) -> None:
    """Either a shape that makes sense, or an error that lists problems."""
    try:
        shape = resolve(config)
    except ConfigError as error:
        told = (str(error), error.problems)
        assert all(told)
    else:
        assert 0 < shape.parameters < 10**15
        assert shape.layers


@pytest.mark.parametrize("model_type", sorted(TEXT_TYPES))
def test_hostile_values_never_raise_anything_else(model_type: str) -> None:
    base = minimal(model_type)
    for key in (*base, *EXTRA):
        if key == "model_type":
            continue
        for value in HOSTILE:
            endure({**base, key: value})
            for inner in NESTED.get(key, ()):
                endure({**base, key: {inner: value}})


def test_hostile_blocks() -> None:
    base = minimal("nemotron-nas") | {"num_hidden_layers": 1}
    for value in HOSTILE:
        endure({**base, "block_configs": [value]})
        for part, key in (("attention", "n_heads_in_group"), ("attention", "no_op"), ("ffn", "ffn_mult")):
            endure({**base, "block_configs": [{part: value}]})
            endure({**base, "block_configs": [{part: {key: value}}]})


def test_nothing_at_all_is_endured_by_every_mapper() -> None:
    for model_type in TEXT_TYPES:
        endure({"model_type": model_type})
