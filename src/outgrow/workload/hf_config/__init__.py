"""From a Hugging Face `config.json` to a `ModelShape`: one small mapper per architecture family.

`resolve` picks the mapper by `model_type` and raises one `ConfigError` with every fault. An architecture that
no mapper knows is an error that says what was understood: it is never guessed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace

from outgrow.errors import ConfigError, Problem
from outgrow.workload.hf_config import classic, dense, encoder, hybrid, moe, multimodal
from outgrow.workload.hf_config.defaults import CLASS_DEFAULTS
from outgrow.workload.hf_config.quantization import read_quantization
from outgrow.workload.hf_config.reader import Fields, Notes
from outgrow.workload.hf_config.traits import with_traits
from outgrow.workload.model import ModelShape

Mapper = Callable[[Fields, str], ModelShape]

MAPPERS: dict[str, Mapper] = {
    **dense.MAPPERS,
    **moe.MAPPERS,
    **classic.MAPPERS,
    **encoder.MAPPERS,
    **hybrid.MAPPERS,
    **multimodal.MAPPERS,
}

MOST_PARAMETERS = 10**15
_UNDERSTOOD = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)


def known_architectures() -> tuple[str, ...]:
    """Every `model_type` that can be read."""
    return tuple(sorted(MAPPERS))


def resolve(config: Mapping[str, object], *, name: str = "", source: str = "") -> ModelShape:
    """Turn a config dictionary into a shape.

    `config` is the parsed file, with overrides already applied. Raises `ConfigError` listing every fault.
    """
    notes = Notes()
    model_type = _model_type(config, notes)
    if notes.problems:
        raise ConfigError("Cannot read the model's configuration.", problems=notes.problems)
    fields = Fields(config, notes, class_defaults=CLASS_DEFAULTS.get(model_type, {}))
    shape: ModelShape | None = None
    try:
        shape = MAPPERS[model_type](fields, name or model_type)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        # A mapper works on with harmless values after a fault, so that it can list them all. Where those values
        # do not fit together the fault that it noted first is the one to tell.
        if not notes.problems:
            raise ConfigError(
                "Cannot read the model's configuration.", problems=[Problem(path="", message=str(error))]
            ) from None
    if notes.problems or shape is None:
        raise ConfigError(f"Cannot read the configuration of {name or model_type}.", problems=notes.problems)
    if shape.parameters > MOST_PARAMETERS:
        problem = Problem(
            path="", message=f"the shape has {shape.parameters:.3g} parameters; no model is that large"
        )
        raise ConfigError(f"Cannot believe the configuration of {name or model_type}.", problems=[problem])
    dtype = str(config.get("torch_dtype") or config.get("dtype") or _nested_dtype(config) or shape.dtype)
    weights = read_quantization(config, notes)
    if notes.problems:
        raise ConfigError(f"Cannot read the configuration of {name or model_type}.", problems=notes.problems)
    assumed = tuple(dict.fromkeys((*shape.assumed, *notes.assumed)))
    shape = with_traits(shape, config, model_type)
    return replace(shape, dtype=dtype.removeprefix("torch."), weights=weights, source=source, assumed=assumed)


def _nested_dtype(config: Mapping[str, object]) -> object:
    for key in ("text_config", "language_config", "llm_config", "thinker_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping):
            return nested.get("torch_dtype") or nested.get("dtype") or _nested_dtype(nested)
    return None


def _model_type(config: Mapping[str, object], notes: Notes) -> str:
    # `like` is not a key of the format: it is how a person says "read it as that architecture" (--set model.like=llama).
    value = config.get("like") or config.get("model_type")
    if value is None:
        understood = ", ".join(f"{k} = {config[k]}" for k in _UNDERSTOOD if isinstance(config.get(k), int))
        hint = "say which architecture it is: --set model.like=llama, or one of " + ", ".join(
            known_architectures()
        )
        message = (
            f"is missing; understood so far: {understood}"
            if understood
            else "is missing, and none of the usual keys is here"
        )
        notes.problems.append(Problem(path="model_type", message=message, hint=hint))
        return ""
    if not isinstance(value, str):
        notes.problems.append(
            Problem(path="model_type", message="must be a text", value=value, has_value=True)
        )
        return ""
    if value not in MAPPERS:
        understood = ", ".join(f"{k} = {config[k]}" for k in _UNDERSTOOD if isinstance(config.get(k), int))
        near = difflib.get_close_matches(value, MAPPERS, n=3, cutoff=0.6)
        hint = (f"did you mean {', '.join(near)}? " if near else "") + (
            "if its layers are those of an architecture that is known, say so: --set model.like=llama"
        )
        message = "is an architecture that is not known" + (
            f"; understood: {understood}" if understood else ""
        )
        notes.problems.append(
            Problem(path="model_type", message=message, value=value, has_value=True, hint=hint)
        )
        return ""
    return value
