"""Rows of measurements, and what their source's recipe says about them."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from outgrow.errors import InputError, Problem
from outgrow.units import MIB

Row = dict[str, str]
LARGEST_FILE = 256 * MIB


def read_rows(path: Path, needed: tuple[str, ...] = ("id",)) -> list[Row]:
    """Read a CSV file of measurements; every fault is told with its line."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} is too large for a table of measurements.")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file.", hint="give a CSV file in UTF-8") from None
    except ValueError:
        raise InputError("A path holds no NUL.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from None
    csv.field_size_limit(1_000_000)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header = reader.fieldnames or []
        missing = [name for name in needed if name not in header]
        if missing:
            known = ", ".join(header[:12])
            raise InputError(
                f"{path} lacks the columns {', '.join(missing)}.",
                hint=f"it has {known or 'no header'}; see validation/README.md",
            )
        rows, problems = [], []
        for raw in reader:
            if None in raw or None in raw.values():
                problems.append(
                    Problem(
                        path="",
                        line=reader.line_num,
                        file=str(path),
                        message="has another number of columns than the header",
                    )
                )
                continue
            rows.append({key: (value or "").strip() for key, value in raw.items()})
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}.") from None
    if problems:
        raise InputError(f"{path} has broken rows.", problems=problems)
    if not rows:
        raise InputError(f"{path} has no rows.")
    return rows


@dataclass(slots=True)
class Recipe:
    """Everything that the recipes say about one row."""

    job: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)


@cache
def _recipes() -> list[dict[str, Any]]:
    text = resources.files("outgrow.validation").joinpath("recipes.toml").read_text(encoding="utf-8")
    recipes: list[dict[str, Any]] = tomllib.loads(text)["recipe"]
    for recipe in recipes:
        recipe["match"] = {
            column: re.compile(pattern, re.IGNORECASE) for column, pattern in recipe["match"].items()
        }
    return recipes


def recipe_for(row: Mapping[str, str]) -> Recipe:
    """All recipes that match a row, later ones over earlier ones."""
    result = Recipe()
    for recipe in _recipes():
        if all(pattern.search(row.get(column, "")) for column, pattern in recipe["match"].items()):
            for part in ("job", "layout", "model"):
                getattr(result, part).update(recipe.get(part, {}))
            result.sources.append(recipe["source"])
    return result
