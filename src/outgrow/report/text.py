"""Results for a terminal: 80 columns, verdict first, readable without colour, ending with the next command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from outgrow.evidence import Quantity
from outgrow.physics.memory.serving import stored_format
from outgrow.report.lines import WIDTH, Line, Role, bar, columns, plain_text, wrapped
from outgrow.report.result import Result
from outgrow.units import MIB, counted, format_bytes, format_count, format_percent

BAR = 26
LONGEST_CELL = 30
"""Characters of a fact that still stand in a column; longer ones are paragraphs."""
SHOWN_LEVERS = 6
_VERDICTS: dict[str, tuple[str, Role]] = {
    "fits": ("Fits", "good"), "fits-barely": ("Fits, but close: the upper bound does not", "warn"),
    "barely-not": ("Does not fit, but close: the lower bound would", "bad"), "does-not-fit": ("Does not fit", "bad"),
    "illegal": ("Not legal", "bad"),
}  # fmt: skip


def lines(result: Result[Any]) -> Iterator[Line]:
    """The text view of a result."""
    for line in _VIEWS[result.kind](result):
        # Names come from files: what a terminal would obey is not passed on.
        yield (
            line
            if line.text.isprintable()
            else Line("".join(c if c.isprintable() else "?" for c in line.text), line.role)
        )


def plain(result: Result[Any], *, ascii_only: bool = False) -> str:
    """The text view without colour."""
    return plain_text(lines(result), ascii_only=ascii_only)


def render(result: Result[Any]) -> Any:
    """The text view for rich."""
    from rich.text import Text

    styles: dict[Role, str] = {
        "title": "bold",
        "good": "bold green",
        "bad": "bold red",
        "warn": "bold yellow",
        "dim": "dim",
        "code": "cyan",
        "plain": "",
    }
    text = Text(no_wrap=True)
    for line in lines(result):
        text.append(line.text.rstrip() + "\n", style=styles[line.role] or None)
    text.rstrip()
    return text


def _range(q: Quantity) -> str:
    if q.low == q.high:
        return format_bytes(q.value)
    return f"{format_bytes(q.value)} ({format_bytes(q.low)} to {format_bytes(q.high)})"


def _subject(value: Any) -> str:
    workload, cluster = value.workload, value.cluster
    where = (
        f"{cluster.gpus} × {cluster.device.title}"
        if cluster.nodes == 1
        else f"{cluster.name} ({cluster.gpus} GPUs)"
    )
    if workload.training is not None:
        job = workload.training
        what = {
            "full": "full training",
            "lora": "LoRA",
            "dora": "DoRA",
            "qlora": "QLoRA",
            "frozen": "frozen",
        }[job.method]
        form = job.base_format.name if job.base_format is not None else job.precision
        return f"{value.model.name} on {where}: {what}, {form}"
    serving = workload.serving
    form = stored_format(value.model, serving).name
    return f"{value.model.name} on {where}: serving with {serving.engine}, {form}"


def _fit(result: Result[Any]) -> Iterator[Line]:
    value, fit = result.value, result.value.fit
    yield from wrapped(_subject(value), role="title")
    yield from wrapped(_layout_words(value), role="dim")
    yield Line()
    words, role = _VERDICTS[fit.verdict]
    yield from wrapped(f"{words}. {_headline(value)}", role=role)
    yield Line()
    capacity = fit.capacity.value
    for term in fit.terms:
        share = term.bytes / capacity
        yield Line(
            f"  {term.name[:24]:24} {format_bytes(term.bytes):>10}  {bar(share, BAR)} {format_percent(share):>8}"
        )
    free = capacity - sum(t.bytes for t in fit.terms)
    if fit.phase == "serving" and free > -MIB:
        pass  # the engine takes what it was given: nothing is free beside what it leaves
    elif free > -MIB:
        yield Line(
            f"  {'free':24} {format_bytes(free):>10}  {bar(0, BAR)} {format_percent(free / capacity):>8}",
            "dim",
        )
    else:
        yield Line(
            f"  {'too much':24} {format_bytes(-free):>10}  {'':{BAR}} {format_percent(-free / capacity):>8}",
            "bad",
        )
    yield Line()
    if fit.phase != "serving":
        yield Line(f"  allocated  {_range(fit.allocated)}")
        yield Line(f"  reserved   {_range(fit.reserved)}")
        yield Line(f"  device     {_range(fit.device)}")
        yield Line(f"  needed     {_range(fit.needed)}: device less idle cache")
        yield from wrapped(
            f"peak in the {fit.phase} phase"
            + (f" of stage {fit.stage}" if value.layout.pp > 1 else "")
            + f"; usable {format_bytes(capacity)} of the device",
            indent="  ",
            role="dim",
        )
        yield Line()
    yield from _limits(fit)
    yield from _violations(fit)
    yield from _levers(value)
    yield from _foot(result)


def _layout_words(value: Any) -> str:
    layout = value.layout
    if value.workload.training is not None:
        return f"layout {layout}"
    serving = value.workload.serving
    parts = [
        f"tensor parallel {serving.tp}",
        f"pipeline {serving.pp}" if serving.pp > 1 else "",
        f"{serving.replicas} replicas" if serving.replicas > 1 else "one replica",
    ]
    return "layout " + ", ".join(p for p in parts if p)


def _headline(value: Any) -> str:
    fit = value.fit
    if fit.phase == "serving":
        per = fit.cache_bytes_per_token or 0.0
        if fit.verdict == "illegal":
            return "See what does not divide."
        if not fit.fits:
            longest = fit.limit("context of one request")
            if longest:
                return f"The cache holds {fit.cache_tokens:,} tokens: one request of {fit.context_length:,} does not fit; {longest:,} would."
            return f"{format_bytes(-fit.free_bytes)} short per GPU for the weights and one short request."
        if not fit.cache_tokens and not per:
            return (
                "It keeps no cache that grows with a context."
                if value.model.has_head
                else "It generates no text and needs no cache."
            )
        room = f"Room for {fit.cache_tokens:,} tokens of cache" + (
            f" at {format_bytes(per)} each" if per else ""
        )
        return (
            f"{room}: about {int(fit.concurrency):,} requests at once."
            if fit.concurrency != float("inf")
            else f"{room}."
        )
    if fit.verdict == "illegal":
        return "See what does not divide."
    if fit.free_bytes >= 0:
        return f"Needs {format_bytes(fit.needed.value)} ({format_bytes(fit.needed.low)} to {format_bytes(fit.needed.high)}) of {format_bytes(fit.capacity.value)} per GPU."
    return f"Needs {format_bytes(fit.needed.value)} ({format_bytes(fit.needed.low)} to {format_bytes(fit.needed.high)}) per GPU and has {format_bytes(fit.capacity.value)}."


def _limits(fit: Any) -> Iterator[Line]:
    yield Line("Largest that still fits, all else as it is", "title")
    for limit in fit.limits:
        amount = "none" if limit.value is None else f"{limit.value:,} {limit.unit}"
        yield Line(f"  {limit.name:24} {amount}" + (f"  ({limit.note})" if limit.note else ""))
    yield Line()


def _violations(fit: Any) -> Iterator[Line]:
    if not fit.violations:
        return
    yield Line("What does not divide, or this device cannot do", "title")
    for v in fit.violations:
        mark = {"error": "error", "warning": "warning", "info": "note"}[v.severity]
        yield from wrapped(
            f"{mark}: {v.what}", indent="    ", first="  ", role="bad" if v.severity == "error" else "plain"
        )
        yield from wrapped(f"legal: {v.legal}", indent="      ", first="    ", role="dim")
    yield Line()


def _levers(value: Any) -> Iterator[Line]:
    fit, device, gpus = value.fit, value.cluster.device, value.cluster.gpus
    if not fit.levers:
        return
    by = "the room for cache that it adds" if fit.phase == "serving" else "what it saves per GPU"
    yield Line(f"What would help, by {by}", "title")
    for lever in fit.levers[:SHOWN_LEVERS]:
        mark = "" if fit.fits else ("  then fits" if lever.then_fits else "  not enough alone")
        yield Line(f"  {format_bytes(lever.saves_bytes):>10}  {lever.name}{mark}")
        where = f"--on {lever.gpus}x{device.name} " if lever.gpus > gpus else ""
        yield from wrapped(
            f"{where}--set {lever.setting}: {lever.cost}", indent=" " * 16, first=" " * 14, role="dim"
        )
    if len(fit.levers) > SHOWN_LEVERS:
        yield Line(f"  {'':>10}  and {len(fit.levers) - SHOWN_LEVERS} more in --json", "dim")
    yield Line()


def _foot(result: Result[Any]) -> Iterator[Line]:
    notes = [f for f in result.findings if f.code not in ("does-not-divide", "note")]
    for finding in notes:
        yield from wrapped(
            f"{'Note' if finding.severity == 'info' else 'Warning'}: {finding.message}"
            + (f" ({finding.hint})" if finding.hint else ""),
            indent="  ",
            first="",
            role="warn" if finding.severity != "info" else "plain",
        )
    if result.assumed:
        yield from wrapped(
            "Assumed: " + "; ".join(f"{a.name} = {a.value}" for a in result.assumed),
            indent="  ",
            first="",
            role="dim",
        )
    for source in result.sources:
        yield from wrapped(
            f"Source: {source.ref}" + (f" ({source.kind})" if source.kind != "given" else ""),
            indent="  ",
            first="",
            role="dim",
        )
    if result.next:
        # A backslash at each break: what is copied from the screen runs.
        parts = list(wrapped(f"next: {result.next}", indent="      ", first="", role="code", width=WIDTH - 2))
        yield from (Line(f"{part.text} \\", part.role) for part in parts[:-1])
        yield parts[-1]


_SCALES = {"single-gpu": "one GPU", "one-node": "one node", "cluster": "a cluster"}


def _decide(result: Result[Any]) -> Iterator[Line]:
    value, verdict = result.value, result.value.verdict
    yield from wrapped(_decide_subject(value), role="title")
    yield Line()
    if verdict.impossible:
        unmet = ", ".join(a.title for a in verdict.answers if a.impossible)
        words = (
            f"Verdict: {verdict.name}: on no number of {value.cluster.device.title} as it is asked: {unmet}."
        )
        yield from wrapped(words, role="bad")
    else:
        size = counted(verdict.gpus, "GPU") + (
            f" on at least {verdict.nodes} machines" if verdict.nodes > 1 else ""
        )
        yield from wrapped(
            f"Verdict: {verdict.name}: {size}. Confidence {verdict.confidence}; decided by: {', '.join(verdict.deciding)}.",
            role="good" if verdict.scale == "single-gpu" else "warn",
        )
    yield Line()
    for answer in verdict.answers:
        asks = (
            ""
            if not answer.applies
            else f"  [{_SCALES[answer.scale]}{', private' if answer.private else ''}]"
        )
        yield Line(f"  {answer.title}{asks}", "title")
        yield from wrapped(answer.text, indent="    ")
        if answer.rule_of_thumb:
            yield from wrapped(f"Rule of thumb: {answer.rule_of_thumb}.", indent="    ", role="dim")
        if answer.how and answer.applies:
            yield from wrapped(f"computed: {answer.how}", indent="    ", role="dim")
    yield Line()
    if verdict.flips:
        yield Line("What would flip it", "title")
        for flip in verdict.flips:
            yield from wrapped(f"{flip.change} → {flip.then}", indent="    ", first="  ")
    else:
        yield Line("Nothing that was tried would flip it.", "title")
    if verdict.horizon is not None:
        yield from wrapped(
            verdict.horizon.text[0].upper() + verdict.horizon.text[1:] + ".", indent="  ", first=""
        )
    yield Line()
    # Rules of thumb stand beside the answers that they belong to.
    rest = tuple(f for f in result.findings if f.code != "rule-of-thumb")
    yield from _foot(replace(result, findings=rest))


def _decide_subject(value: Any) -> str:
    job = value.workload.training
    if job is not None:
        what = {
            "full": "full training",
            "lora": "LoRA",
            "dora": "DoRA",
            "qlora": "QLoRA",
            "frozen": "frozen",
        }[job.method]
        amount = f" on {format_count(job.tokens)} tokens" if job.tokens else ""
        return f"{value.model.name}, {what}{amount}, asked of {value.cluster.device.title}"
    return f"{value.model.name}, served, asked of {value.cluster.device.title}"


def _model(result: Result[Any]) -> Iterator[Line]:
    card = result.value
    model, cost = card.model, card.cost
    yield Line(f"{model.name} ({model.family})", "title")
    rows = [
        ("parameters", f"{model.parameters:,}"), ("active per token", f"{model.active_parameters:,}"),
        ("layers", f"{len(model.layers)}" + (f" + {len(model.encoder)} encoder" if model.encoder else "")),
        ("hidden, vocabulary", f"{model.hidden:,}, {model.vocab:,}"), ("heads", f"{model.heads} query, {model.kv_heads} key-value"),
        ("cache per token, bf16", format_bytes(cost.charged_per_token)),
        ("tensor parallel up to 16", " ".join(map(str, card.valid_tensor_parallel))),
        ("stored as", model.weights.name if model.weights is not None else model.dtype),
    ]  # fmt: skip
    if cost.window:
        rows.insert(
            6, ("  of it in windows", f"{format_bytes(cost.windowed_per_token)} up to {cost.window:,} tokens")
        )
    if cost.state_per_sequence:
        rows.insert(6, ("state per sequence", format_bytes(cost.state_per_sequence)))
    if model.mtp_parameters:
        rows.insert(2, ("prediction modules", f"{model.mtp_parameters:,}, stored beside"))
    yield from columns([(a, b) for a, b in rows], aligns="<<")
    yield Line()
    yield Line("By class of tensor", "title")
    counts = sorted(model.by_class().items(), key=lambda item: -item[1])
    for kind, count in counts:
        yield Line(
            f"  {kind.value:16} {count:>20,}  {bar(count / max(model.parameters, 1), BAR)} {format_percent(count / max(model.parameters, 1)):>8}"
        )
    for note in model.assumed:
        yield from wrapped(f"Assumed: {note}", indent="  ", first="", role="dim")
    if model.source:
        yield from wrapped(f"Source: {model.source}", indent="  ", first="", role="dim")


def _facts(result: Result[Any]) -> Iterator[Line]:
    from outgrow.report.facts import facts

    value = result.value
    found = list(facts(value))
    yield Line(f"{value.title} ({value.name})", "title")
    figures: list[tuple[str, ...]] = [(f.name, f.text, f.kind) for f in found if len(f.text) <= LONGEST_CELL]
    yield from columns(figures, aligns="<<<")
    for fact in found:
        if len(fact.text) > LONGEST_CELL:
            yield from wrapped(f"{fact.name}: {fact.text}", indent="    ", first="  ")
    for trap in value.traps:
        yield from wrapped(f"Trap: {trap}", indent="  ", first="", role="warn")
    for source in sorted({f.source for f in found if f.source}):
        yield from wrapped(f"Source: {source}", indent="  ", first="", role="dim")


def _listing(result: Result[Any]) -> Iterator[Line]:
    value = result.value
    yield Line(f"{len(value.names)} {value.kind}s", "title")
    yield from columns([(name, title[: WIDTH - 40]) for name, title in value.names], aligns="<<")
    yield Line("next: outgrow catalog show NAME", "code")


def _explain(result: Result[Any]) -> Iterator[Line]:
    value = result.value
    yield Line(value.title, "title")
    for paragraph in value.text.split("\n\n"):
        if paragraph.startswith("    "):
            for line in paragraph.splitlines():
                yield Line("  " + line.strip(), "code")
        else:
            yield from wrapped(" ".join(paragraph.split()))
        yield Line()
    if value.see:
        yield Line("see also: " + ", ".join(value.see), "dim")


def _percent(value: float | None) -> str:
    return "-" if value is None else format_percent(value)


def _validate(result: Result[Any]) -> Iterator[Line]:
    value = result.value
    yield Line(f"{value.kind}: {result.inputs['rows']} rows of {result.inputs['file']}", "title")
    header = ("", "n", "answered", "median", "p90", "bias", "inside")

    def row(name: str, s: Any) -> tuple[str, ...]:
        bias = "-" if s.bias is None else f"{s.bias * 100:+.1f} %"
        return (
            name[:30],
            str(s.n),
            str(s.answered),
            _percent(s.median_ape),
            _percent(s.p90_ape),
            bias,
            _percent(s.coverage),
        )

    rows = [header, row("all", value.summary), *(row(name, s) for name, s in value.quantities.items())]
    rows += [
        ("by " + value.by, "", "", "", "", "", ""),
        *(row(name or "(none)", s) for name, s in value.groups.items()),
    ]
    yield from columns(rows, aligns="<>>>>>>", gap=1)
    c = value.verdicts
    if c.failed or c.succeeded:
        yield Line()
        yield from wrapped(
            f"Runs that failed for memory: {c.failed_said_no} of {c.failed} said not to fit. Runs that succeeded: {c.succeeded_said_no} of {c.succeeded} said not to fit."
        )
    if value.worst:
        yield Line()
        yield Line("Worst rows", "title")
        yield from columns(
            [
                (o.id, o.quantity, f"{(o.error or 0) * 100:+.0f} %", (o.note or o.group)[:36])
                for o in value.worst
            ],
            aligns="<<><",
        )
    reasons: dict[str, int] = {}
    for o in value.outcomes:
        if o.predicted is None and o.quantity != "fits":
            reasons[o.reason] = reasons.get(o.reason, 0) + 1
    if reasons:
        yield Line()
        yield Line("Not answered", "title")
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:8]:
            yield from wrapped(f"{count} × {reason}", indent="      ", first="  ")


def _table(result: Result[Any]) -> Iterator[Line]:
    from outgrow.report.table import lines as table_lines

    yield from table_lines(result.value)
    yield from _foot(Result(kind="table", value=None, inputs={}, assumed=result.assumed, next=result.next))


_VIEWS: dict[str, Callable[[Result[Any]], Iterator[Line]]] = {
    "fit": _fit, "decide": _decide, "model": _model, "device": _facts, "node": _facts, "fabric": _facts,
    "catalog-list": _listing, "explain": _explain, "validate": _validate, "table": _table,
}  # fmt: skip
