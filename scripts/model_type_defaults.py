"""Write `hf_config/defaults.py`: what each model type's config class assumes for keys that are not written.

Run it with the pinned `transformers` of the `oracle` group. Only declared defaults count, never values that
a class computes from others, and only of keys that the mappers read: the string literals of their modules.

    python scripts/model_type_defaults.py          write the file
    python scripts/model_type_defaults.py --check  say whether it is up to date
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/outgrow/workload/hf_config"
TARGET = PACKAGE / "defaults.py"

# Architectures whose classes travel with the checkpoint: from their configuration files.
REMOTE: dict[str, dict[str, object]] = {
    "internlm": {"bias": True, "tie_word_embeddings": False},
    "internlm2": {"bias": True, "tie_word_embeddings": False},
    "baichuan": {"tie_word_embeddings": False},
    "chatglm": {"padded_vocab_size": 65024, "kv_channels": 128, "multi_query_group_num": 1, "rmsnorm": True},
    "deepseek": {"first_k_dense_replace": 0, "moe_layer_freq": 1},
    "mimo": {"tie_word_embeddings": False},
}
# Same class, other name.
SAME = {"kimi_k2": "deepseek_v3", "yi": "llama"}

# Keys that are read but whose class default says nothing about the shape of a checkpoint.
LEFT_OUT = {
    "model_type",
    "architectures",
    "quantization_config",
    "num_nextn_predict_layers",
    "num_mtp_layers",
}


def keys_that_mappers_read() -> set[str]:
    """Every string in the mappers that could be a key of a config."""
    keys: set[str] = set()
    for path in PACKAGE.glob("*.py"):
        if path == TARGET:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                keys.add(node.value)
    sides = {
        f"{side}_{part}"
        for side in ("encoder", "decoder")
        for part in ("attention_heads", "ffn_dim", "layers")
    }
    return (keys | sides) - LEFT_OUT


def flags_that_may_be_on() -> set[str]:
    """Keys of flags whose getter does not take False for granted: only there is a default of False news."""
    keys: set[str] = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "flag"
            ):
                stated = [k.value for k in node.keywords if k.arg == "default"]
                if stated and not (isinstance(stated[0], ast.Constant) and stated[0].value is False):
                    keys |= {
                        a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                    }
    return keys


def declared(config_class: type, keys: set[str], on: set[str]) -> dict[str, object]:
    """The defaults that a config class declares for `keys`."""
    values: dict[str, object] = {}
    spellings: dict[str, str] = getattr(config_class, "attribute_map", {}) or {}
    for field in dataclasses.fields(config_class):
        value = field.default
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if isinstance(value, tuple):
            value = list(value)
        if not isinstance(value, bool | int | float | str | list) or value in ([], "", ()):
            continue
        names = [field.name, *(alias for alias, name in spellings.items() if name == field.name)]
        known = [name for name in names if name in keys]
        if known and not (value is False and known[0] not in on):
            values[known[0]] = value
    return values


def collect() -> dict[str, dict[str, object]]:
    """Defaults of every model type that a mapper knows, and of the nested configs of those."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    sys.path.insert(0, str(ROOT / "src"))
    from outgrow.workload.hf_config import MAPPERS

    keys = keys_that_mappers_read()
    on = flags_that_may_be_on()
    found: dict[str, dict[str, object]] = {}

    def add(model_type: str, config_class: type) -> None:
        if model_type in found:
            return
        found[model_type] = declared(config_class, keys, on)
        for nested in (getattr(config_class, "sub_configs", None) or {}).values():
            nested_type = getattr(nested, "model_type", "")
            if nested_type and dataclasses.is_dataclass(nested):
                add(nested_type, nested)

    for model_type in MAPPERS:
        known = SAME.get(model_type, model_type)
        if known in CONFIG_MAPPING:
            add(model_type, CONFIG_MAPPING[known])
    found |= REMOTE
    return {model_type: values for model_type, values in sorted(found.items()) if values}


def literal(value: object) -> str:
    """A value as this file's style writes it."""
    return json.dumps(value) if isinstance(value, str | list) else repr(value)


def render(found: dict[str, dict[str, object]]) -> str:
    """The text of the module."""
    lines = [
        '"""What each model type assumes for keys that its config does not write.',
        "",
        "Written by scripts/model_type_defaults.py from the classes of transformers: run that to change it.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        "CLASS_DEFAULTS: dict[str, dict[str, object]] = {",
    ]
    for model_type, values in found.items():
        line = f"    {literal(model_type)}: {{"
        for key, value in sorted(values.items()):
            part = f"{literal(key)}: {literal(value)}, "
            if len(line) + len(part) > 108:
                lines.append(line.rstrip())
                line = "        "
            line += part
        lines.append(line.rstrip(", ") + "},")
    return "\n".join([*lines, "}", ""])


def main() -> int:
    """Write or check the file."""
    text = render(collect())
    if "--check" in sys.argv:
        current = TARGET.read_text(encoding="utf-8") == text
        print("up to date" if current else "out of date: run scripts/model_type_defaults.py")
        return 0 if current else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
