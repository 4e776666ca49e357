"""Durations on the command line."""

from __future__ import annotations

import pytest

from fdbqueue.cli import durations
from fdbqueue.cli.terminal import CommandError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("2w", 1_209_600),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1x", "h", "1 h", "1h-2m", "one"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="not a duration"):
        durations.seconds(text)
