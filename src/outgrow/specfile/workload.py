"""A workload file: YAML, and `--set path=value`, to a `Workload`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from outgrow.errors import Problem, SpecError
from outgrow.evidence import Assumption
from outgrow.specfile.fields import FORMAT_KEYS, canonical_format
from outgrow.specfile.nodes import MOST_BYTES, Node, read_nodes
from outgrow.specfile.override import OVERRIDE, override, split_override
from outgrow.specfile.text import read_text
from outgrow.specfile.tree import Reading, read_tree, settle_keys
from outgrow.workload.serving import ServingJob
from outgrow.workload.training import PRECISIONS, TrainingJob
from outgrow.workload.workload import Workload

_NO_NAME: Final = "<text>"
_MOST_PROBLEMS: Final = 1000
_MODEL: Final = "model"
_JOBS: Final[dict[str, type]] = {"training": TrainingJob, "serving": ServingJob}

# Defaults that move the answer. Those of LoRA are told for the methods that use it.
_TELLING: Final[dict[str, tuple[str, ...]]] = {
    "training": ("method", "sequence_length", "global_batch", "precision", "optimizer"),
    "serving": ("engine", "cache"),
    "traffic": ("input_tokens", "output_tokens", "peak_factor", "arrivals"),
    "lora": ("rank", "targets"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A workload, and what reading it left open."""

    workload: Workload
    assumed: tuple[Assumption, ...] = ()
    """Defaults that were taken and matter, and names that were read as other names."""
    model_overrides: Mapping[str, object] = field(default_factory=dict)
    """Values of `--set model.…`, by their path in the model's config.json."""


def load_workload(path: Path | None, text: str | None = None, *, overrides: Sequence[str] = ()) -> Loaded:
    """Read a workload file.

    `text` is the file's text where it is at hand already (then `path` only names it in messages); without
    either, the workload is made of overrides alone. An override is `path=value` with a value as YAML writes
    it; `model.…` paths are kept for the model's configuration. A relative path under `model:` counts from the
    file's folder. Raises `SpecError` with every fault of the file and of the overrides.
    """
    name = str(path) if path is not None else _NO_NAME
    problems: list[Problem] = []
    root = read_root(path, text, problems, empty_is_a_fault=path is not None or text is not None)
    settle_keys(root, Workload, problems)
    from_file = root.entries.get(_MODEL)
    model_overrides: dict[str, object] = {}
    for one in overrides:
        found = split_override(one, problems)
        if found is None:
            continue
        steps, value = found
        if steps[0] == _MODEL and len(steps) > 1:
            model_overrides[".".join(steps[1:])] = value.plain()
        else:
            override(root, Workload, steps, value, problems)
    reading = read_tree(root, Workload)
    reading.problems[:0] = problems
    workload = _checked(reading, root)
    if workload is None:
        raise fault_of(name if path is not None or text is not None else "", reading.problems)
    if path is not None and root.entries.get(_MODEL) is from_file:
        workload = replace(workload, model=_beside(workload.model, path))
    return Loaded(workload=workload, assumed=_assumed(workload, root), model_overrides=model_overrides)


def read_root(
    path: Path | None, text: str | None, problems: list[Problem], *, empty_is_a_fault: bool = True
) -> Node:
    """The first level of a YAML file. Raises `SpecError` where there is no mapping to go on with."""
    file = str(path) if path is not None else _NO_NAME
    if text is None and path is not None:
        found = read_text(path, limit=MOST_BYTES)
        if isinstance(found, Problem):
            raise fault_of(file, [found])
        text = found
    node, faults = read_nodes((text or "").removeprefix("\ufeff"), file=file)
    problems += faults
    if node is None and faults:
        raise fault_of(file, problems)
    if node is None or (node.kind == "scalar" and node.value is None and not node.raw):
        if empty_is_a_fault:
            raise fault_of(file, [*problems, Problem(path="", message="is empty", file=file)])
        return Node(kind="map", file=file if text is not None else OVERRIDE, line=None)
    if node.kind != "map":
        message = f"must be a mapping of keys, and is {node.noun}"
        problem = Problem(path="", message=message, file=file, line=node.line)
        raise fault_of(file, [*problems, problem])
    return node


def fault_of(name: str, problems: Iterable[Problem]) -> SpecError:
    """The error of a file, its faults in the order of its lines; those of the command line last."""
    unique = {(p.file, p.line, p.path, p.message): p for p in problems}
    ordered = sorted(unique.values(), key=lambda p: (p.file == OVERRIDE, p.line or 0))
    head = f"Cannot use {name}." if name else "Cannot use these settings."
    return SpecError(head, problems=ordered[:_MOST_PROBLEMS])


def _checked(reading: Reading, root: Node) -> Workload | None:
    # pydantic takes its time to import: a call that only needs a name of the catalogue does not pay for it.
    from outgrow.specfile.check import check

    given = [job for job in _JOBS if reading.data.get(job) is not None or (job,) in reading.told]
    if len(given) != 1:
        found = "both are given" if given else "neither is given"
        line = root.entries[given[1]].line if given else root.line
        file = root.entries[given[1]].file if given else root.file
        message = f"give exactly one of `training:` and `serving:`; {found}"
        hint = "for a model given by name, --for says which" if file == OVERRIDE else ""
        reading.problems.append(Problem(path="", message=message, file=file, line=line, hint=hint))
    model = root.entries.get(_MODEL)
    if model is not None and isinstance(model.value, str) and not model.value.strip():
        reading.fault((_MODEL,), "is empty", hint="name a model, such as llama-3.1-8b")
    # The dataclass allows one job only. With none or two, each is still checked
    # for what it says.
    everything = reading.data
    result: Any = None
    for job in [job for job in given if job in everything] or ["training"]:
        reading.data = {key: value for key, value in everything.items() if key == job or key not in _JOBS}
        if len(given) == 0 or job not in everything:
            reading.data["training"] = {}
        result = check(reading, Workload)
    return result if isinstance(result, Workload) and not reading.problems else None


def _beside(model: str, path: Path) -> str:
    """A relative path of a model counts from the file that names it."""
    from outgrow.specfile.model import looks_like_path

    if not looks_like_path(model) or model.startswith("~") or Path(model).is_absolute():
        return model
    beside = str(path.parent / model)
    return beside if looks_like_path(beside) else f"./{beside}"


def _assumed(workload: Workload, root: Node) -> tuple[Assumption, ...]:
    """Defaults that nobody wrote down and that move the answer, and formats that were read as others."""
    found: list[Assumption] = []
    for name, cls in _JOBS.items():
        job = getattr(workload, name)
        if job is None:
            continue
        node = root.entries[name]
        found += _defaults(job, node, name, _TELLING[name])
        if isinstance(job, ServingJob) and job.traffic is not None:
            found += _defaults(job.traffic, node.entries["traffic"], "serving.traffic", _TELLING["traffic"])
        if isinstance(job, TrainingJob) and job.method in ("lora", "dora", "qlora"):
            lora = node.entries.get("lora", Node(kind="map", file="", line=None))
            found += _defaults(job.lora, lora, "training.lora", _TELLING["lora"])
        for key in (key for owner, key in FORMAT_KEYS if owner is cls):
            written = node.entries[key].value if key in node.entries else None
            if isinstance(written, str) and canonical_format(written) != written:
                value = str(getattr(job, key))
                found.append(Assumption(name=f"{name}.{key}", value=value, why=f"{written} read as {value}"))
    return tuple(found)


def _defaults(value: object, node: Node, path: str, names: tuple[str, ...]) -> list[Assumption]:
    found = []
    for name in names:
        if name in node.entries:
            continue
        taken = getattr(value, name)
        shown = f"[{', '.join(taken)}]" if isinstance(taken, tuple) else str(taken)
        why = PRECISIONS[shown].meaning if name == "precision" else "the default"
        found.append(Assumption(name=f"{path}.{name}", value=shown, why=why))
    return found
