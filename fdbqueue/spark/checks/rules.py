"""The rules of a run of tools/chaos: what holds for its queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from ...errors import CorruptData
from ...values.records import record


@record
class Rules:
    """What must hold in a run of tools/chaos.

    max_attempts: of every queue. min_lease_ns: a little less than the shortest lease. lease_ns:
    how long a killed process may still hold messages. early_ms: how early a delivery may seem,
    since clocks differ. strict: queues that keep order. exact: those that keep it at every commit.
    handled: queues with a handler, which may see a delivery several times. filtered: the queue
    with selectors. watched: the queue that is browsed. browsers: the browsers, with the region of
    each, or empty. relaxed: queues that keep order within a window, and its initial size.
    """

    max_attempts: int
    min_lease_ns: int
    lease_ns: int
    early_ms: int
    strict: tuple[str, ...]
    exact: tuple[str, ...]
    handled: tuple[str, ...]
    filtered: str
    watched: str
    browsers: Mapping[str, str] = field(default_factory=dict)
    relaxed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, recorded: Mapping[str, Any]) -> Rules:
        """From the rules recorded in a history. Raises ``CorruptData``."""
        try:
            values: dict[str, Any] = {each.name: recorded[each.name] for each in fields(cls)}
        except KeyError as error:
            raise CorruptData(what="the rules of a run", problem=f"no {error.args[0]}") from None
        made: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**made)
