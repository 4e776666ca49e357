"""Durations and times on the command line: ``90``, ``250ms``, ``15m``, ``1h30m``, ``7d``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from typer import Option

from fdbqueue.values import durations

from . import terminal


def seconds(text: str | float) -> float:
    """Parse a duration option; raises ``CommandError``."""
    found = durations.parse(str(text))
    if found is None:
        raise terminal.CommandError(
            f"{text!r} is not a duration: write seconds, or for example 250ms, 15m, 1h30m, 7d"
        )
    return found


def at_least(least: float | None) -> Callable[[str | float], float]:
    """What parses a duration option that is at least so many seconds."""

    def limited(text: str | float) -> float:
        found = seconds(text)
        if least is not None and not found >= least:
            raise terminal.CommandError(f"{text!r} is too short: the minimum is {least:g} s")
        return found

    return limited


def option(help: str, default: float | None = None, least: float | None = None) -> Any:
    """Declare an option that is a duration."""
    return Option(default, metavar="DURATION", parser=at_least(least), help=help)


def moment_option(help: str) -> Any:
    """Declare an option that is a time, or how long ago."""
    return Option(None, metavar="TIME", parser=moment, help=help)


def moment(text: str | datetime) -> datetime:
    """Parse an option that is a time, or how long ago; raises ``CommandError``."""
    if isinstance(text, datetime):
        return text
    ago = durations.parse(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(seconds=ago)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise terminal.CommandError(
            f"{text!r} is not a time: write 2030-01-31T08:00+01:00, or how long ago: 90m"
        ) from None


def instant(text: str) -> datetime:
    """Parse a time that has a zone; raises ``CommandError``."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise terminal.CommandError(
            f"--at {text}: write a time with its zone, for example 2030-01-31T08:00+01:00"
        )
    return found
