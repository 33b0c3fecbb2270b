"""The operations that every door shares: names and files in, results out. The only place where rooms meet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from outgrow import catalog, specfile
from outgrow.cluster.cluster import Cluster
from outgrow.decision.findings import findings, not_counted
from outgrow.decision.fit import Fit, fit_serving, fit_training, takes_fp16
from outgrow.decision.verdict import Verdict
from outgrow.decision.verdict import decide as judge
from outgrow.errors import InputError, MissingError, Problem, UnknownNameError, all_of
from outgrow.evidence import Assumption, Finding, Source
from outgrow.layout import Layout, replica_layout
from outgrow.planning.feasible import unfilled_stages
from outgrow.planning.usual import serving_split, training_layout, with_accumulation
from outgrow.report.result import Result
from outgrow.workload.model import ModelShape
from outgrow.workload.serving import ServingJob
from outgrow.workload.workload import Workload

JobKind = Literal["serving", "training", "lora", "qlora"]
JOB_KINDS: tuple[JobKind, ...] = ("serving", "training", "lora", "qlora")
_STARTERS: dict[str, str] = {
    "serving": "serving={}", "training": "training={}",
    "lora": "training={method: lora}", "qlora": "training={method: qlora}",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """A fit with what it is about."""

    model: ModelShape
    cluster: Cluster
    workload: Workload
    layout: Layout
    fit: Fit


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideAnswer:
    """A verdict with what it is about."""

    model: ModelShape
    cluster: Cluster
    workload: Workload
    verdict: Verdict


def _load(
    what: str, job: JobKind | None, overrides: Sequence[str]
) -> tuple[Workload, ModelShape, tuple[Assumption, ...]]:
    """A workload file, or a model's name with a job of defaults."""
    if _is_workload_file(what):
        if job is not None:
            raise InputError(
                "A workload file says what is to be done.", hint="leave out --for, or give a model's name"
            )
        try:
            loaded = specfile.load_workload(Path(what), overrides=overrides)
        except InputError as error:
            if _is_cluster_file(error):
                raise InputError(
                    f"{what} describes a cluster.", hint="give it with --on, after a model or a workload file"
                ) from None
            raise
    else:
        if job is not None and job not in _STARTERS:
            raise InputError(f"No job is called {job!r}.", hint="one of " + ", ".join(JOB_KINDS))
        given = (f"model={_quoted(what)}", _STARTERS[job or "serving"])
        loaded = specfile.load_workload(None, overrides=(*given, *overrides))
    model = specfile.load_model(loaded.workload.model, loaded.model_overrides)
    assumed = [
        *loaded.assumed,
        *(
            Assumption(
                name=f"model.{line.split(' = ')[0]}",
                value=line.split(" = ", 1)[1],
                why="the config does not say",
            )
            if " = " in line
            else Assumption(name="model", value=line, why="the catalogue's reading of the name")
            for line in model.assumed
        ),
    ]
    if not _is_workload_file(what) and job is None:
        assumed.insert(
            0, Assumption(name="job", value="serving", why="--for says otherwise: training, lora, qlora")
        )
    return loaded.workload, model, tuple(assumed)


def _is_workload_file(what: str) -> bool:
    return Path(what).suffix in (".yaml", ".yml")


def _is_cluster_file(error: InputError) -> bool:
    """The faults of a workload file are the keys of a cluster file, and that it names no model."""
    paths = {problem.path for problem in error.problems}
    return "model" in paths and bool(paths & {"node", "device", "gpus", "nodes"})


def _load_both(
    what: str, job: JobKind | None, overrides: Sequence[str], on: str
) -> tuple[Workload, ModelShape, tuple[Assumption, ...], Cluster]:
    """The workload with its model, and what it shall run on; the faults of both at once."""
    errors: list[InputError | MissingError] = []
    try:
        loaded = _load(what, job, overrides)
    except (InputError, MissingError) as error:
        errors.append(error)
    try:
        target = specfile.cluster_of(on)
    except (InputError, MissingError) as error:
        errors.append(error)
    if errors:
        raise all_of(errors)
    return *loaded, target


def _once(notes: Sequence[Assumption]) -> tuple[Assumption, ...]:
    """One assumption per name: the last that was told, in the order of the first."""
    return tuple({a.name: a for a in notes}.values())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sources(model: ModelShape, cluster: Cluster) -> tuple[Source, ...]:
    memory = cluster.device.torch_memory
    found = [
        Source(
            kind="given" if not model.source else "datasheet",
            ref=f"{model.name}: {model.source or 'given config.json'}",
        ),
        Source(
            kind="measured" if memory.kind == "measured" else "estimated",
            ref=f"{cluster.device.title}: {memory.source}",
            date=memory.date,
        ),
    ]
    if cluster.overlay:
        found.append(Source(kind="given", ref="an entry of the user's overlay catalogue"))
    return tuple(found)


def fit(
    what: str,
    *,
    on: str,
    job: JobKind | None = None,
    overrides: Sequence[str] = (),
    cluster: Cluster | None = None,
) -> Result[FitAnswer]:
    """Does it fit, and what fills the memory.

    `what` is a model (name, config.json or its folder) or a workload file; `on` a device, a node, a count of
    either, or a cluster file. `overrides` are dotted settings such as "training.sequence_length=8192".
    """
    what = str(what)
    if cluster is None:
        workload, model, assumed, target = _load_both(what, job, overrides, on)
    else:
        (workload, model, assumed), target = _load(what, job, overrides), cluster
    device = target.device
    notes = [*assumed, *target.assumed]
    if workload.training is not None:
        layout, more = training_layout(workload.training, workload.layout, target.gpus)
        _enough_layers(model, layout.pp, layout.vpp)
        asked = workload.training
        if any(a.name == "training.global_batch" for a in assumed):
            step = layout.dp * layout.micro_batch
            least = step if asked.optimizer_in_backward else asked.global_batch
            asked = replace(asked, global_batch=-(-least // step) * step)
            workload = replace(workload, training=asked)
        training = with_accumulation(asked, layout)
        answer = fit_training(
            model,
            training,
            layout,
            device,
            global_batch=asked.global_batch,
        )
        _enough_gpus(layout.gpus, target, layout, answer)
        workload = replace(workload, training=training)
        notes += [*more, *_training_notes(workload, assumed)]
    else:
        assert workload.serving is not None  # noqa: S101 (Workload holds exactly one)
        _enough_layers(model, workload.serving.pp)
        serving, more = serving_split(
            model,
            workload.serving,
            gpus=target.gpus,
            gpus_per_node=target.gpus_per_node,
            device_bytes=device.torch_memory.value,
        )
        layout = replica_layout(serving)
        workload = replace(workload, serving=serving)
        answer = fit_serving(model, serving, device)
        _enough_gpus(serving.gpus * serving.replicas, target, serving, answer)
        notes += more
        if takes_fp16(model, serving, device):
            notes.append(Assumption(name="serving.weights", value="fp16", why=f"{device.title} has no bf16"))
    value = FitAnswer(model=model, cluster=target, workload=workload, layout=layout, fit=answer)
    return Result(
        kind="fit", value=value, inputs=_inputs(workload, model, target), assumed=_once(notes), findings=findings(model, workload, layout, target, answer),
        sources=_sources(model, target), next=_after_fit(what, on, value, overrides),
    )  # fmt: skip


def _enough_gpus(needed: int, target: Cluster, layout: Layout | ServingJob, answer: Fit) -> None:
    """Refuse a layout of more GPUs than there are, and tell whatever else is wrong with it."""
    if needed <= target.gpus:
        return
    if isinstance(layout, Layout):
        path, parts = "layout", f"dp {layout.dp} x tp {layout.tp} x pp {layout.pp} x cp {layout.cp}"
    else:
        path, parts = (
            "serving",
            f"max(tp {layout.tp}, ep {layout.ep}) x pp {layout.pp} x replicas {layout.replicas}",
        )
    problem = Problem(
        path=path,
        message=f"needs {needed} GPUs ({parts}) and there are {target.gpus}",
        hint=f"ask for more: --on {needed}x{target.device.name}",
    )
    others = [
        Problem(path=path, message=v.what, hint=f"legal: {v.legal}")
        for v in answer.violations
        if v.severity == "error"
    ]
    raise InputError("The layout does not fit the machines.", problems=[problem, *others])


def _within_context(workload: Workload, model: ModelShape) -> None:
    """Refuse traffic whose requests are longer than the engine, or the model, takes."""
    serving = workload.serving
    if serving is None or serving.traffic is None:
        return
    longest = serving.traffic.input_tokens + serving.traffic.output_tokens
    for limit, what in (
        (serving.max_model_len, "serving.max_model_len"),
        (model.max_positions, f"the context of {model.name}"),
    ):
        if limit is not None and longest > limit:
            problem = Problem(
                path="serving.traffic", message=f"a request of input_tokens + output_tokens = {longest:,} is longer than {what}, {limit:,}"
            )  # fmt: skip
            raise InputError("The traffic does not fit the engine.", problems=[problem])


def _enough_layers(model: ModelShape, pp: int, vpp: int = 1) -> None:
    """Refuse more pipeline stages than there are layers, before anything is computed of them."""
    wrong = unfilled_stages(model, pp * vpp)
    if wrong is not None:
        problem = Problem(path="pp", message=wrong.what, hint=f"legal: {wrong.legal}")
        raise InputError("The layout does not fit the model.", problems=[problem])


def _training_notes(workload: Workload, assumed: Sequence[Assumption]) -> list[Assumption]:
    """Why the defaults that mattered are what they are."""
    job = workload.training
    if job is None:
        return []
    missing = {a.name for a in assumed}
    notes = (
        Assumption(name="training.precision", value=job.precision, why=job.regime.meaning),
        Assumption(
            name="training.sequence_length",
            value=f"{job.sequence_length:,}",
            why="the longest sample sets the peak",
        ),
        Assumption(
            name="training.global_batch",
            value=f"{job.global_batch:,}",
            why="a whole number of micro-batches on every replica",
        ),
    )
    kernels = Assumption(
        name="training.kernels", value=job.kernels, why="what the framework keeps for the backward pass"
    )
    return [*(n for n in notes if n.name in missing), *([kernels] if job.kernels == "eager" else [])]


def _inputs(workload: Workload, model: ModelShape, cluster: Cluster) -> dict[str, Any]:
    """What an answer depends on, as plain data."""
    return {
        "workload": asdict(workload),
        "model": asdict(model),
        "cluster": asdict(cluster),
    }


def _after_fit(what: str, on: str, value: FitAnswer, overrides: Sequence[str]) -> str:
    """The next command, whole: with everything that was set, and with the first lever where it does not fit."""
    job = _job_kind(value.workload)
    verb, setting = "decide", ""
    if not value.fit.fits and value.fit.levers:
        first = next((lever for lever in value.fit.levers if lever.then_fits), value.fit.levers[0])
        verb, setting = "fit", first.setting
        if first.gpus > value.cluster.gpus:
            on = f"{first.gpus}x{value.cluster.device.name}"
        if setting.startswith("training.method=") and not _is_workload_file(what):
            job, setting = setting.split("=")[1], ""
    return _command(verb, what, on, job, overrides, (setting,) if setting else ())


def _command(
    verb: str, what: str, on: str, job: str, overrides: Sequence[str], settings: Sequence[str]
) -> str:
    """A command that can be pasted: what was set before, unless one of the new settings replaces it."""
    replaced = {setting.split("=")[0] for setting in settings}
    words = ["outgrow", verb, what, "--on", on]
    if job != "serving" and not _is_workload_file(what):
        words += ["--for", job]
    for text in (*(o for o in overrides if o.split("=")[0].strip() not in replaced), *settings):
        words += ["--set", text]
    return shlex.join(words)


def _job_kind(workload: Workload) -> str:
    """What --for says for a workload."""
    if workload.training is None:
        return "serving"
    return workload.training.method if workload.training.method in JOB_KINDS else "training"


def decide(
    what: str, *, on: str | None = None, job: JobKind | None = None, overrides: Sequence[str] = ()
) -> Result[DecideAnswer]:
    """Single GPU, one node or a cluster; shared or private; today and later; with what would flip it."""
    asked = on
    on = "h100-sxm" if on is None else on
    workload, model, assumed, target = _load_both(what, job, overrides, on)
    notes = list(assumed)
    if asked is None:
        notes.append(Assumption(name="--on", value=on, why="the device that the questions are asked about"))
    notes += target.assumed
    usual = target.device.usual_node
    if usual is not None and target.gpus < catalog.node(usual).gpus:
        target = replace(catalog.target(usual), region=target.region, tenancy=target.tenancy)
        notes.append(
            Assumption(
                name="one node", value=target.node.title, why=f"what {target.device.title} usually comes in"
            )
        )
    _within_context(workload, model)
    layout = Layout()
    if workload.serving is not None:
        _enough_layers(model, workload.serving.pp)
    if workload.training is not None:
        layout, more = training_layout(workload.training, workload.layout, 1)
        _enough_layers(model, layout.pp, layout.vpp)
        notes += [*(a for a in more if a.name != "layout.micro_batch"), *_training_notes(workload, assumed)]
    free = any(a.name == "training.global_batch" for a in assumed)
    verdict = judge(workload, model, target, layout, batch_is_free=free)
    value = DecideAnswer(model=model, cluster=target, workload=workload, verdict=verdict)
    thumbs = (
        Finding(severity="info", code="rule-of-thumb", message=a.rule_of_thumb)
        for a in verdict.answers
        if a.rule_of_thumb
    )
    told = (*thumbs, *not_counted(workload))
    if verdict.gpus == 1:
        where = target.device.name
    elif verdict.gpus <= target.gpus_per_node:
        where = f"{verdict.gpus}x{target.device.name}"
    else:
        where = f"{-(-verdict.gpus // target.gpus_per_node)}x{target.node.name}"
    return Result(
        kind="decide", value=value, inputs=_inputs(workload, model, target), assumed=_once(notes), findings=told,
        sources=_sources(model, target), next=_command("fit", what, where, _job_kind(workload), overrides, verdict.settings),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainAnswer:
    """One entry of the glossary."""

    term: str
    title: str
    text: str
    see: tuple[str, ...]


def explain(term: str) -> Result[ExplainAnswer]:
    """What a word means here, and how the number behind it is computed."""
    import difflib

    entries = catalog.glossary()
    names = {
        _term_key(alias): name
        for name, entry in entries.items()
        for alias in (name, *entry.get("aliases", []))
    }
    key = _term_key(term)
    if key not in names:
        near = difflib.get_close_matches(key, names, n=3, cutoff=0.5)
        raise UnknownNameError(
            f"No entry explains {term[:60]!r}.",
            hint=("did you mean " + ", ".join(near) + "? " if near else "")
            + "entries: "
            + ", ".join(sorted(entries)),
        )
    entry = entries[names[key]]
    value = ExplainAnswer(
        term=names[key], title=entry["title"], text=entry["text"].strip(), see=tuple(entry.get("see", ()))
    )
    return Result(kind="explain", value=value, inputs={"term": value.term})


def _term_key(text: str) -> str:
    return re.sub(r"[\s_]+", "-", text.strip().lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogList:
    """Names of one kind."""

    kind: str
    names: tuple[tuple[str, str], ...]
    """(name, title)."""


KINDS = ("model", "device", "node", "fabric")


def listing(kind: str) -> Result[CatalogList]:
    """Everything of one kind that the catalogue holds."""
    rows: list[tuple[str, str]] = []
    for name in catalog.names(kind):
        if kind == "model":
            rows.append((name, str(catalog.model_entry(name).get("hub_id", ""))))
        elif kind == "device":
            rows.append((name, catalog.device(name).title))
        elif kind == "node":
            rows.append((name, catalog.node(name).title))
        else:
            rows.append((name, catalog.fabric(name).title))
    return Result(kind="catalog-list", value=CatalogList(kind=kind, names=tuple(rows)), inputs={"kind": kind})


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long for a file system is no folder
        return False


def show(name: str) -> Result[Any]:
    """One entry of the catalogue: a model (name or config path), a device, a node or a fabric."""
    from outgrow.report.cards import ModelCard

    path = Path(name)
    if path.suffix == ".json" or _is_folder(path):
        shape = specfile.load_model(name, {})
        return Result(kind="model", value=ModelCard.of(shape), inputs={"model": asdict(shape)})
    problems: list[UnknownNameError] = []
    looks: list[tuple[str, Any]] = [
        ("model", catalog.model),
        ("device", catalog.device),
        ("node", catalog.node),
        ("fabric", catalog.fabric),
    ]
    # An entry's own name goes before another kind's alias: a machine may be called like its chip.
    looks.sort(key=lambda item: name.strip().lower() not in catalog.names(item[0]))
    for kind, look in looks:
        try:
            value: Any = look(name)
        except UnknownNameError as error:
            problems.append(error)
            continue
        return Result(
            kind=kind, value=ModelCard.of(value) if kind == "model" else value, inputs={kind: asdict(value)}
        )
    near = dict.fromkeys(e.hint for e in problems if e.hint.startswith("did you mean"))
    raise UnknownNameError(
        f"Nothing in the catalogue is called {name[:60]!r}.",
        hint="; ".join(near) or "outgrow catalog list models (devices, nodes, fabrics) shows what there is",
    )


def validate(kind: str, path: Path, *, by: str | None = None) -> Result[Any]:
    """Predict every row of a file of measurements from its inputs alone, and tell the errors."""
    from outgrow.validation import kv, memory, report
    from outgrow.validation.rows import read_rows

    rooms: Mapping[str, Any] = {"memory": memory, "kv": kv}
    if kind not in rooms:
        raise InputError(f"No measurements are called {kind!r}.", hint="one of " + ", ".join(rooms))
    path = Path(path)
    room = rooms[kind]
    rows = read_rows(path, needed=room.COLUMNS)
    if by is not None and by not in rows[0]:
        raise InputError(f"{path} has no column {by!r}.", hint="columns: " + ", ".join(rows[0]))
    value = report.build(kind, rows, room.predict_rows(rows), by=by)
    return Result(
        kind="validate",
        value=value,
        inputs={"kind": kind, "by": by, "measurements": rows, "file": path.name, "rows": len(rows)},
    )


def memory_table(models: Sequence[str] = (), *, on: str = "h100-sxm") -> Result[Any]:
    """The memory table of guides, computed: model sizes x method x precision on one device."""
    from outgrow.decision import memory_table as room

    target = specfile.cluster_of(on)
    usual = target.device.usual_node
    if usual is not None and target.gpus < catalog.node(usual).gpus:
        target = catalog.target(usual)
    shapes = [specfile.load_model(name, {}) for name in (models or room.SIZES)]
    value = room.memory_table(shapes, target)
    inputs = {
        "models": [m.name for m in shapes],
        "device": target.device.name,
        "gpus_per_node": target.gpus_per_node,
    }
    return Result(
        kind="table",
        value=value,
        inputs=inputs,
        assumed=target.assumed,
        next=f"outgrow fit {shapes[-1].name} --on {target.device.name} --for qlora",
    )


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of an input file or of an answer."""
    if kind == "workload":
        return specfile.json_schema("workload")
    if kind == "cluster":
        return specfile.json_schema("cluster")
    from outgrow.report.schemas import answer_schema

    return answer_schema(kind)
