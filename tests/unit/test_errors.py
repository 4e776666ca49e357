"""Errors say what was wrong, whatever it was."""

from __future__ import annotations

import pytest

from fdbqueue.errors import InvalidArgument

HUGE = 10**5_000


NESTED: list[object] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize("value", [HUGE, [HUGE], {"a": -HUGE}, NESTED], ids=type)
def test_an_error_about_a_value_that_python_does_not_write_has_a_text(value: object) -> None:
    assert str(InvalidArgument(argument="a", value=value, problem="is odd")) == (
        "a=a value too large to show: is odd"
    )
