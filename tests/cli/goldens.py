"""Texts that are kept as files: a change of a view shows as a diff.

`OUTGROW_UPDATE_GOLDENS=1 pytest tests/cli tests/report` writes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path

SWITCH = "OUTGROW_UPDATE_GOLDENS"


def check(folder: Path, name: str, text: str) -> None:
    """Compare with the kept file; write it instead where the switch is set."""
    path = folder / f"{name}.txt"
    if os.environ.get(SWITCH) == "1":
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    again = f"{SWITCH}=1 pytest tests/cli tests/report writes it anew"
    assert path.is_file(), f"{path.name} is not kept yet; {again}"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; {again}"
