"""A number that explains itself: its interval always holds it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow.evidence import Quantity

FIXED = settings(derandomize=True, deadline=None, max_examples=100)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@FIXED
@given(NUMBERS, NUMBERS, NUMBERS)
def test_an_interval_holds_its_value_or_is_refused(low: float, value: float, high: float) -> None:
    if low <= value <= high:
        q = Quantity(value=value, unit="byte", low=low, high=high, source="test")
        assert q.low <= q.value <= q.high
    else:
        with pytest.raises(ValueError, match="does not hold"):
            Quantity(value=value, unit="byte", low=low, high=high, source="test")


@pytest.mark.parametrize("bad", ["value", "low", "high"])
def test_what_is_not_a_number_is_refused(bad: str) -> None:
    numbers = {"value": 1.0, "low": 0.0, "high": 2.0} | {bad: float("nan")}
    with pytest.raises(ValueError, match="does not hold"):
        Quantity(unit="byte", source="test", **numbers)


def test_exact_has_no_width() -> None:
    q = Quantity.exact(3, "GPU", "count")
    assert (q.low, q.value, q.high, q.unit, q.source) == (3, 3, 3, "GPU", "count")


def test_quantities_are_values() -> None:
    q = Quantity.exact(3, "GPU", "count")
    assert q == Quantity.exact(3, "GPU", "count")
    assert hash(q) == hash(Quantity.exact(3, "GPU", "count"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        q.value = 4  # type: ignore[misc]
