"""What a command costs before it answers: CPU time of a child process, least of several, beside Python's own.

    python benchmarks/run.py [--runs 7] [--check]

CPU time (user + system) of the child is steadier than wall time on a shared machine, and the ratio to
`python -c pass` steadier still. `--check` leaves with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What to run, and the CPU milliseconds that it may take.
CASES: dict[str, tuple[list[str], float | None]] = {
    "python -c pass": (["-c", "pass"], None),
    "import outgrow": (["-c", "import outgrow"], None),
    "import outgrow.app": (["-c", "import outgrow.app"], None),
    "outgrow --version": (["-m", "outgrow", "--version"], 150),
    "outgrow --help": (["-m", "outgrow", "--help"], 150),
    "outgrow fit --help": (["-m", "outgrow", "fit", "--help"], 150),
    "outgrow fit NAME": (["-m", "outgrow", "fit", "llama-3.1-8b", "--on", "h100-sxm"], 500),
    "outgrow fit NAME --json": (["-m", "outgrow", "fit", "llama-3.1-8b", "--on", "h100-sxm", "--json"], 500),
    "outgrow fit training": (["-m", "outgrow", "fit", "llama-3.1-70b", "--on", "hgx-h100", "--for", "training"], 500),
    "outgrow fit FILE": (["-m", "outgrow", "fit", "examples/sft-70b.yaml", "--on", "2xhgx-h100"], 500),
    "outgrow fit --table": (["-m", "outgrow", "fit", "--table"], None),
    "outgrow decide FILE": (["-m", "outgrow", "decide", "examples/sft-70b.yaml"], None),
    "outgrow catalog list model": (["-m", "outgrow", "catalog", "list", "model"], 500),
    "outgrow explain mfu": (["-m", "outgrow", "explain", "mfu"], 500),
    "unknown name": (["-m", "outgrow", "fit", "lama"], 500),
}  # fmt: skip


def cpu_ms(argv: list[str]) -> float:
    """User and system time of one child."""
    with subprocess.Popen(
        [sys.executable, *argv], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = 0  # reaped above, with its usage
    return (used.ru_utime + used.ru_stime) * 1e3


def installed_mb(name: str, seen: set[str]) -> float:
    """Size on disk of a distribution and of what it requires without extras."""
    from packaging.requirements import Requirement

    key = name.lower().replace("_", "-")
    if key in seen:
        return 0.0
    seen.add(key)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return 0.0
    total = 0.0
    for file in found.files or []:
        path = Path(str(file.locate()))
        if path.is_file() and path.suffix != ".pyc":
            total += path.stat().st_size / 1e6
    for text in found.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            total += installed_mb(requirement.name, seen)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="leave with 1 where a target is missed")
    args = parser.parse_args()
    missed = 0
    least = {name: float("inf") for name in CASES}
    # Round by round, so that a busy minute of the machine touches every case alike.
    for _ in range(args.runs):
        for name, (argv, _) in CASES.items():
            least[name] = min(least[name], cpu_ms(argv))
    base = least["python -c pass"]
    print(f"CPU ms of a child, least of {args.runs}\n")
    print(f"{'':28}{'ms':>8}{'x python':>10}{'target':>8}")
    for name, (_, target) in CASES.items():
        late = target is not None and least[name] > target
        missed += late
        print(f"{name:28}{least[name]:>8.0f}{least[name] / max(base, 1.0):>10.1f}{'' if target is None else f'{target:.0f}':>8}{'  MISSED' if late else ''}")  # fmt: skip
    print("\nMB on disk of what the base needs, without compiled caches\n")
    total = 0.0
    seen: set[str] = {"outgrow"}
    for text in metadata.distribution("outgrow").requires or []:
        if "extra ==" in text:
            continue
        before = set(seen)
        name = text.split(">")[0].split("=")[0].split("<")[0].strip()
        size = installed_mb(name, seen)
        total += size
        print(f"{name:28}{size:>8.1f}  {' '.join(sorted(seen - before - {name.lower()}))}".rstrip())
    own = sum(p.stat().st_size for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix != ".pyc") / 1e6
    print(f"{'outgrow':28}{own:>8.1f}\n{'together':28}{total + own:>8.1f}")
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
