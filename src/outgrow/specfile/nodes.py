"""YAML as a tree that knows its lines: scalars as YAML 1.2 reads them, nothing constructed, all bounded.

The parser's events are folded into a tree here, iteratively, because that is where depth, size and the growth
of aliases can be counted before they cost anything, and where duplicate keys are still to be seen.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import yaml

from outgrow.errors import Problem
from outgrow.specfile.text import step, text_problem
from outgrow.units import MIB

MOST_BYTES: Final = MIB
DEEPEST: Final = 50
MOST_NODES: Final = 100_000
MOST_DIGITS: Final = 18
"""More digits than any number of a workload has, and few enough for 64 bits."""

_MOST_PROBLEMS: Final = 1000
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER: Final = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_BASED: Final = re.compile(r"0(?:x[0-9a-fA-F]{1,15}|o[0-7]{1,15})\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TEXT_TAGS: Final = ("!", "tag:yaml.org,2002:str")


@dataclass(slots=True, kw_only=True)
class Node:
    """One value of a document and where it stands."""

    kind: Literal["map", "list", "scalar"]
    file: str
    line: int | None
    """Line of its key where it has one, else of itself."""
    key: str = ""
    """Its key as it is written."""
    value: bool | int | float | str | None = None
    raw: str = ""
    """A scalar as it is written, without quotes."""
    faulty: bool = False
    """Its fault has been told: nothing more is to be said about it."""
    entries: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    size: int = 1
    height: int = 1

    def plain(self) -> object:
        """The value without its lines."""
        if self.kind == "map":
            return {key: node.plain() for key, node in self.entries.items()}
        return [node.plain() for node in self.items] if self.kind == "list" else self.value

    def copy(self) -> Node:
        """A tree of its own, so that a change in one place of an alias does not show in another."""
        entries = {key: node.copy() for key, node in self.entries.items()}
        return replace(self, entries=entries, items=[node.copy() for node in self.items])

    @property
    def noun(self) -> str:
        """What it is, for people."""
        return {"map": "a mapping", "list": "a list", "scalar": "a single value"}[self.kind]


class _Stop(Exception):  # noqa: N818 (it ends the reading; it is not an error of ours)
    """The document cannot be read on."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read_nodes(text: str, *, file: str, numbered: bool = True) -> tuple[Node | None, list[Problem]]:
    """The tree of a YAML text and every fault of its form; no tree where it cannot be read to the end.

    `numbered` = False leaves lines out, for values of the command line.
    """
    problem = text_problem(text, file, limit=MOST_BYTES)
    if problem is not None:
        return None, [problem]
    builder = _Builder(file=file, numbered=numbered)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.feed(event)
    except _Stop as stop:
        return None, [*builder.problems, stop.problem]
    except yaml.YAMLError as error:
        return None, [*builder.problems, _syntax(error, text, file=file, numbered=numbered)]
    except (ValueError, OverflowError):  # the parser in Python, on escapes beyond Unicode
        return None, [
            *builder.problems,
            Problem(path="", message="holds an escape that is no character", file=file),
        ]
    return builder.root, builder.problems


def _syntax(error: yaml.YAMLError, text: str, *, file: str, numbered: bool) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        reason = str(getattr(error, "reason", None) or error).splitlines()[0]
        return Problem(path="", message=f"is not YAML: {reason}", file=file)
    number = error.problem_mark.line
    reason = error.problem or "it ends too early"
    if error.context and not error.context.startswith("while parsing a block"):
        reason = f"{error.context}, {reason}"
    if "nesting depth" in reason:  # the parser in C has a bound of its own, which it reaches first
        message = f"is nested more than {DEEPEST} deep"
        return Problem(path="", message=message, file=file, line=number + 1 if numbered else None)
    lines = text.split("\n")
    line = lines[number] if number < len(lines) else ""
    hint = ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        hint = "YAML is indented with spaces, never with tabs"
    elif "mapping values are not allowed" in reason:
        hint = "a text that holds ': ' needs quotes; or the line before is indented differently"
    elif number >= len(lines) - 1 and ("flow" in reason or "quoted" in reason):
        hint = "the text ends inside of something that was opened: [, { or a quote"
    return Problem(
        path="", message=f"is not YAML: {reason}", file=file, line=number + 1 if numbered else None, hint=hint
    )


@dataclass(slots=True)
class _Frame:
    node: Node
    path: str
    anchor: str | None
    key: str | None = None
    """The key whose value comes next; None where a key comes next, or where the key is not to be used."""
    key_line: int | None = None
    value_next: bool = False


@dataclass(slots=True, kw_only=True)
class _Builder:
    file: str
    numbered: bool
    root: Node | None = None
    problems: list[Problem] = field(default_factory=list)
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, Node | None] = field(default_factory=dict)
    """None while the anchored value is still being read."""
    documents: int = 0
    nodes: int = 0

    def feed(self, event: Any) -> None:
        line = event.start_mark.line + 1 if self.numbered and event.start_mark is not None else None
        if isinstance(event, yaml.ScalarEvent):
            self._count(1, line)
            self._scalar(event, line)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._count(1, line)
            self._open(event, "map" if isinstance(event, yaml.MappingStartEvent) else "list", line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            frame = self.stack.pop()
            if frame.anchor:
                self.anchors[frame.anchor] = frame.node
            self._add(frame.node)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "", line)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self._stop(
                    "holds a second document", line, hint="one file is one document: remove the line ---"
                )

    # -- bounds

    def _stop(self, message: str, line: int | None, *, hint: str = "") -> _Stop:
        return _Stop(Problem(path="", message=message, file=self.file, line=line, hint=hint))

    def _count(self, nodes: int, line: int | None, *, aliased: bool = False) -> None:
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            what = " once its aliases are written out" if aliased else ""
            raise self._stop(f"holds more than {MOST_NODES:,} values{what}", line)
        if len(self.problems) >= _MOST_PROBLEMS:
            raise self._stop("has too many faults to go on", line)

    def _deep(self, height: int, line: int | None) -> None:
        if len(self.stack) + height > DEEPEST:
            raise self._stop(f"is nested more than {DEEPEST} deep", line)

    # -- events

    def _open(self, event: Any, kind: Literal["map", "list"], line: int | None) -> None:
        self._deep(1, line)
        path = self._path()
        node = Node(kind=kind, file=self.file, line=line)
        node.faulty = self._tag(event.tag, path, line)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.stack.append(_Frame(node=node, path=path, anchor=event.anchor))

    def _scalar(self, event: Any, line: int | None) -> None:
        node = Node(kind="scalar", file=self.file, line=line, raw=event.value, value=event.value)
        if not self._key_next():
            path = self._path()
            message = hint = ""
            if event.tag in (None, "!") and event.style in (None, "") and event.implicit[0]:
                node.value, message, hint = _resolve(event.value)
            elif event.tag not in _TEXT_TAGS:
                node.faulty = self._tag(event.tag, path, line)
            if message:
                node.faulty = True
                self.problems.append(
                    Problem(
                        path=path,
                        message=message,
                        value=event.value,
                        has_value=True,
                        file=self.file,
                        line=line,
                        hint=hint,
                    )
                )
        if event.anchor:
            self.anchors[event.anchor] = node
        self._add(node)

    def _tag(self, tag: str | None, path: str, line: int | None) -> bool:
        """Whether a tag is a fault, which is then told."""
        if tag is not None and tag != "!":
            shown = (
                "!!" + tag.removeprefix("tag:yaml.org,2002:") if tag.startswith("tag:yaml.org,2002:") else tag
            )
            problem = Problem(
                path=path, message="tags are not read", value=shown, has_value=True,
                file=self.file, line=line, hint="remove it: every key has one type",
            )  # fmt: skip
            self.problems.append(problem)
            return True
        return False

    def _alias(self, name: str, line: int | None) -> None:
        if name not in self.anchors:
            raise self._stop(
                f"refers to *{name[:50]}, which is not defined above",
                line,
                hint="quote a text that begins with *",
            )
        node = self.anchors[name]
        if node is None:
            raise self._stop(f"*{name[:50]} refers to itself", line)
        self._deep(node.height, line)
        self._count(node.size, line, aliased=True)
        copied = node.copy()
        copied.line = line
        self._add(copied)

    def _key_next(self) -> bool:
        return bool(self.stack) and self.stack[-1].node.kind == "map" and not self.stack[-1].value_next

    def _path(self) -> str:
        """Path of the value that comes next."""
        if not self.stack:
            return ""
        frame = self.stack[-1]
        key = str(len(frame.node.items)) if frame.node.kind == "list" else (frame.key or "")
        return step(frame.path, key)

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        parent = frame.node
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if parent.kind == "list":
            node.key = str(len(parent.items))
            parent.items.append(node)
        elif not frame.value_next:
            frame.value_next, frame.key_line = True, node.line
            frame.key = self._key(frame, node)
        else:
            frame.value_next = False
            if frame.key is not None:
                node.key, node.line = frame.key, frame.key_line
                parent.entries[frame.key] = node
            frame.key = None

    def _key(self, frame: _Frame, node: Node) -> str | None:
        """The key to file the next value under, or None where the key itself is a fault."""
        problem: Problem | None = None
        if node.kind != "scalar":
            problem = Problem(
                path=frame.path, message="a key must be one word", file=self.file, line=node.line
            )
        elif node.raw == "<<":
            problem = Problem(
                path=step(frame.path, "<<"), message="merge keys are not read",
                file=self.file, line=node.line, hint="write the keys out",
            )  # fmt: skip
        elif node.raw in frame.node.entries:
            first = frame.node.entries[node.raw].line
            message = f"is given twice, first on line {first}" if first else "is given twice"
            problem = Problem(
                path=step(frame.path, node.raw), message=message, file=self.file, line=node.line
            )
        if problem is None:
            return node.raw
        self.problems.append(problem)
        return None


def _resolve(raw: str) -> tuple[bool | int | float | str | None, str, str]:
    """What a plain scalar means (YAML 1.2: `no` is a text, 1e9 is a number), or a message and a hint."""
    if raw in _WORDS:
        return _WORDS[raw], "", ""
    if len(raw) > 400:  # no number: and the patterns below need not see it
        return raw, "", ""
    if _INTEGER.match(raw):
        digits = raw.lstrip("+-").replace("_", "")
        if len(digits) > MOST_DIGITS:
            return None, f"has more than {MOST_DIGITS} digits", "quote it if it is a text"
        if len(digits) > 1 and digits[0] == "0":
            bare = digits.lstrip("0") or "0"
            return (
                None,
                "begins with 0, which some readers take for octal",
                f'write {bare}, or "{raw}" for a text',
            )
        return int(raw.replace("_", "")), "", ""
    if _BASED.match(raw):
        return int(raw, 0), "", ""
    if _NOT_FINITE.match(raw):
        return None, "must be a finite number", "leave the key out where there is no bound"
    if _FLOAT.match(raw):
        value = float(raw.replace("_", ""))
        return (value, "", "") if math.isfinite(value) else (None, "must be a finite number", "")
    return raw, "", ""
