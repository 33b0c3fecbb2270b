"""Calls of the command line: in this process, where they are fast, or in one of their own."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outgrow.cli.main import run

ROOT = Path(__file__).parents[2]
BROKEN = ROOT / "tests" / "data" / "broken"


@dataclass(frozen=True, slots=True)
class Call:
    """What a shell would see of one call."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def fresh(*argv: str) -> Call:
    """Run `outgrow ARGV` in this process, from the root of the project, with files for streams."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2)]
    code: int | str | None = None
    with (
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        contextlib.suppress(ValueError),
    ):
        try:
            run(argv)
        except SystemExit as error:
            code = error.code
    texts = []
    for stream in streams:
        stream.flush()
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        texts.append(buffer.getvalue().decode())
    assert isinstance(code, int), "run() leaves with an exit code"
    return Call(argv=argv, code=code, out=texts[0], err=texts[1])


@functools.cache
def call(*argv: str) -> Call:
    """The same, remembered: equal calls give equal answers, which has its own test."""
    return fresh(*argv)


def config_folder(folder: Path, **changes: object) -> Path:
    """A folder with a config.json: a small model's, with changes."""
    entry = json.loads((ROOT / "src/outgrow/catalog/data/models/qwen3-0.6b.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(entry["config"] | changes), encoding="utf-8")
    return folder


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment without what would colour or re-encode the output of a child."""
    ruled = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM", "LC_ALL", "LANG",
             "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONHASHSEED", "OUTGROW_DEBUG")  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name not in ruled}
    env.update({name: value for name, value in changes.items() if value is not None})
    return env


def child(
    *argv: str, env: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """Run `outgrow ARGV` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "outgrow", *argv],
        cwd=ROOT, env=dict(env if env is not None else environment()), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
        check=False, timeout=120,
    )  # fmt: skip
