"""What one token of context costs in cache, for every stored config."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from outgrow.workload.hf_config import resolve
from outgrow.workload.model import ModelShape

SHARED = Path(__file__).resolve().parents[3] / "shared/cases/configs"
BYTES = 2
"""bfloat16"""


def rows() -> list[dict[str, str]]:
    table = SHARED / "params.csv"
    if not table.exists():
        return []
    with table.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def per_token(shape: ModelShape, *, windowed: bool) -> int:
    """Bytes per token of the layers that keep the whole context, and with `windowed` of the others too."""
    mixers = [x.mixer for x in shape.layers if x.mixer is not None]
    return BYTES * sum(m.cache_elements() for m in mixers if windowed or m.span is None)


@pytest.mark.shared
@pytest.mark.skipif(not rows(), reason=f"{SHARED} is not here: fetched files are not part of the project")
def test_every_stored_config_is_there() -> None:
    assert len(rows()) == len(list(SHARED.glob("*.json")))


@pytest.mark.shared
@pytest.mark.skipif(not rows(), reason=f"{SHARED} is not here: fetched files are not part of the project")
@pytest.mark.parametrize("row", rows(), ids=lambda r: r["file"])
def test_cache_per_token_of_stored_configs(row: dict[str, str]) -> None:
    shape = resolve(json.loads((SHARED / row["file"]).read_text(encoding="utf-8")), name=row["file"])
    if not row["kv_bytes_per_token_bf16_all_layers"]:
        pytest.skip(row["cache_note"])
    assert per_token(shape, windowed=False) == int(row["kv_bytes_per_token_bf16_full_layers"])
    assert per_token(shape, windowed=True) == int(row["kv_bytes_per_token_bf16_all_layers"])


@pytest.mark.shared
@pytest.mark.skipif(not rows(), reason=f"{SHARED} is not here: fetched files are not part of the project")
@pytest.mark.parametrize("row", [r for r in rows() if r["full_attn_layers"]], ids=lambda r: r["file"])
def test_layers_and_windows_of_stored_configs(row: dict[str, str]) -> None:
    shape = resolve(json.loads((SHARED / row["file"]).read_text(encoding="utf-8")), name=row["file"])
    attends = [x.mixer for x in shape.attention_layers if x.mixer is not None]
    spans = [m.span for m in attends if m.span is not None]
    assert sum(m.span is None for m in attends) == int(row["full_attn_layers"])
    assert len(spans) == int(row["windowed_layers"])
    if spans:
        assert set(spans) == {int(row["window"])}
    assert shape.heads == int(row["q_heads"])
    # Layers of one model may differ in key-value heads: the table has those that keep the whole context.
    whole = {m.kv_heads for m in attends if m.span is None}
    assert whole == {int(row["kv_heads"])}
