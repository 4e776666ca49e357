"""Queue options on the command line, as ``NAME=VALUE``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fdbqueue.values import durations
from fdbqueue.values.options import QueueOptions, unknown

from .. import terminal

DURATIONS = ("lease", "dedup_window", "history_seconds", "auto_delete")
NAMES = [each for each in QueueOptions().flat() if each not in ("paused", "keys.paused")]


def parse(settings: Iterable[str]) -> dict[str, Any]:
    """Parse texts such as ``max_attempts=3`` and ``bounds.messages=none``."""
    return dict(map(_setting, settings))


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise terminal.CommandError(f"{text}: write NAME=VALUE")
    if name == "paused":
        raise terminal.CommandError("paused: use fdbq queue pause and fdbq queue resume")
    if name not in NAMES:
        raise unknown(name, NAMES)
    seconds = durations.parse(value.strip()) if name in DURATIONS else None
    found = _value(value.strip()) if seconds is None else seconds
    if name == "backoff" and isinstance(found, str):
        example = '{"wait": "wait_exponential_jitter", "max": 60}'
        raise terminal.CommandError(f"{text}: write none, or JSON such as backoff='{example}'")
    return name, found


def _value(text: str) -> Any:
    if text.lower() in ("none", ""):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    # What JSON takes for a text or null was meant as it stands.
    return value if isinstance(value, dict | int | float | bool) else text


def shown(value: Any) -> str:
    """The value of an option as text."""
    return terminal.dumps(value) if isinstance(value, dict) else terminal.cell(value)
