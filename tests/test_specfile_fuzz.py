"""Whatever is in a file, the answer is a value or an `OutgrowError`, soon."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.errors import EXIT_INPUT, EXIT_MISSING, OutgrowError
from outgrow.specfile import cluster_of, load_cluster, load_model, load_workload
from outgrow.specfile.fields import slots_of, spellings_of
from outgrow.specfile.tree import blocks_of
from outgrow.workload.workload import Workload

ROOT = Path(__file__).parent.parent
EXAMPLES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.yaml"))]
KEYS = sorted({key for _, block in blocks_of(Workload) for key in (*slots_of(block), *spellings_of(block))})
FUZZ = settings(
    max_examples=200,
    derandomize=True,
    deadline=5000,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def survives(call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    caught: OutgrowError | None = None
    try:
        call(*args, **kwargs)
    except OutgrowError as error:
        caught = error
    if caught is not None:
        assert caught.exit_code in (EXIT_INPUT, EXIT_MISSING)
        assert str(caught)
        assert caught.problems or caught.hint


def survives_bytes(call: Callable[[Path], object], data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        survives(call, path)


def model_at(path: Path) -> object:
    return load_model(str(path))


@FUZZ
@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"%YAML 9.9\n---\n")
def test_any_bytes(data: bytes) -> None:
    survives_bytes(load_workload, data, "w.yaml")
    survives_bytes(load_cluster, data, "c.yaml")
    survives_bytes(model_at, data, "config.json")


@FUZZ
@given(st.text(max_size=200))
@example("? [a]\n: b\n")
@example('model: "\\UFFFFFFFF"\n')
@example('model: "\\ud800"\n')
@example("model: !<tag:yaml.org,2002:python/name:os.system> x\n")
@example("&a *a : 1\n")
@example("training: {global_batch: 1e300, tokens: 1e308 T}\nserving: {weights_bytes: 1e308 TiB}\n")
def test_any_text(text: str) -> None:
    survives(load_workload, None, text)
    survives(load_cluster, None, text)
    survives(
        load_workload, None, EXAMPLES[0], overrides=[text, f"training.{text}", f"training.tokens={text}"]
    )
    survives(cluster_of, text, files=False)
    survives(load_model, text, {text: text}, files=False)


PIECES = [
    "", ":", " ", "\n", "\t", "- ", "[", "{", "&a ", "*a", "<<: ", "!!x ", "'", '"', "#", "0", "-",
    "9" * 40, ".nan", "null", "\x00", "é", "|", ">", "? ", "%", "@", "`",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, documents: list[str]) -> str:
    text = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 8)))
        piece = draw(st.sampled_from(PIECES))
        text = text[:start] + piece + text[end:]
    return text


@FUZZ
@given(mutated(EXAMPLES))
def test_mutated_documents(text: str) -> None:
    survives(load_workload, None, text)
    survives(load_cluster, None, text)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["5 days", "15T", "1e999 GiB", "4x", "99%", "adamw", "nf4", "mixed", "yes", "2024-01-01"]
    ),
)


def nested(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
        max_leaves=25,
    )


@FUZZ
@given(
    st.dictionaries(st.sampled_from(KEYS), nested(st.sampled_from(KEYS) | st.text(max_size=6)), max_size=6)
)
def test_known_keys_with_any_values(value: dict[str, Any]) -> None:
    survives(load_workload, None, yaml.safe_dump(value))
    survives(load_workload, None, json.dumps(value))


BASES = [
    "llama-3.1-8b",
    *[name for name in catalog.names("model") if name.startswith(("mixtral", "deepseek-v3", "qwen2-vl"))][:3],
]
CONFIGS = [catalog.model_config(name) for name in BASES]
CONFIG_KEYS = sorted({key for config in CONFIGS for key in config})


@FUZZ
@given(
    st.sampled_from(CONFIGS),
    st.dictionaries(st.sampled_from(CONFIG_KEYS), nested(st.sampled_from(CONFIG_KEYS)), max_size=4),
)
def test_any_values_in_a_config(config: dict[str, Any], changes: dict[str, Any]) -> None:
    survives_bytes(model_at, json.dumps({**config, **changes}).encode(), "config.json")
    survives(load_model, "llama-3.1-8b", changes)


@FUZZ
@given(nested(st.text(max_size=10)))
def test_any_json(value: object) -> None:
    survives_bytes(model_at, json.dumps(value).encode(), "config.json")


@FUZZ
@given(mutated([json.dumps(config, indent=1) for config in CONFIGS]))
def test_mutated_configs(text: str) -> None:
    survives_bytes(model_at, text.encode("utf-8", "surrogatepass"), "config.json")
