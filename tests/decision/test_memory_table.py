"""The table that guides print, and what guides say, held against arithmetic."""

from __future__ import annotations

from outgrow import catalog
from outgrow.decision.memory_table import METHODS, memory_table

NAMES = ("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")
TABLE = memory_table([catalog.model(name) for name in NAMES], catalog.target("8x h100-sxm"))
CELLS = {(c.model, c.method, c.precision): c for c in TABLE.cells}


def test_every_model_by_every_method() -> None:
    assert len(TABLE.cells) == len(NAMES) * len(METHODS)
    assert {c.model for c in TABLE.cells} == set(NAMES)
    assert all(c.bytes > 0 for c in TABLE.cells)


def test_methods_are_ordered() -> None:
    for name in NAMES:
        size = {(m, p): CELLS[name, m, p].bytes for m, p, _ in METHODS}
        assert size["serve", "4-bit"] < size["serve", "fp8"] < size["serve", "bf16"]
        assert size["QLoRA", "nf4"] < size["LoRA", "bf16"] < size["full", "bf16"] < size["full", "mixed"]


def test_larger_models_need_more() -> None:
    for method, precision, _ in METHODS:
        sizes = [CELLS[name, method, precision].bytes for name in NAMES]
        gpus = [CELLS[name, method, precision].gpus or 10**9 for name in NAMES]
        assert sizes == sorted(sizes)
        assert gpus == sorted(gpus)


def test_states_by_hand() -> None:
    n = 8_030_261_248
    assert CELLS["llama-3.1-8b", "full", "mixed"].bytes > 16 * n
    assert CELLS["llama-3.1-8b", "full", "mixed"].bytes < 16 * n * 1.15
    assert CELLS["llama-3.1-8b", "full", "bf16"].bytes > 8 * n
    assert CELLS["llama-3.1-8b", "serve", "bf16"].bytes > 2 * n
    assert CELLS["llama-3.1-8b", "full", "mixed"].gpus in (2, 4)
    assert CELLS["llama-3.1-70b", "serve", "bf16"].gpus in (2, 4)


def test_claims_of_guides() -> None:
    holds = {c.text: c.holds for c in TABLE.claims}
    assert not holds["training needs the weights plus 20 to 40 %"]
    assert not holds["inference needs half of what training needs"]
    assert holds["70B needs more than one GPU in 16 bits"]
    assert not holds["70B needs a cluster"]
    assert not holds["405B needs a cluster of machines at any precision"]
    assert all(c.evidence for c in TABLE.claims)


def test_nothing_is_claimed_without_its_model() -> None:
    assert memory_table([catalog.model("gpt2")], catalog.target("h100-sxm")).claims == ()
