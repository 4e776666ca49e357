"""Groups of messages, and the message that follows each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from .records import record

ThenOn = Literal["done", "settled"]
"""What the last member of a group must be before the callback comes: done, or at an end at all."""
Outcome = Literal["complete", "failed", "blocked"]
GroupState = Literal["open", "running", "complete", "failed", "blocked"]


@record
class Group:
    """A group of messages, and how far it has come.

    state: "open" while members are still enqueued, "running" while some are left, "complete" once
        the callback is enqueued, "failed" if one will never be done for which the callback would
        have to wait, and "blocked" while the callback's queue is gone or does not take it.
    total: how many members there are; while it is open, so far. left: how many the callback waits
    for. done: how many are done. dead: how many are dead letters; with ``then_on="settled"`` how
    many died. failed: how many ended in another way.
    queue: the name of the callback's queue. callback_id: the id of the callback, once it is
    enqueued. created_ms, ended_ms: wall clock in milliseconds; None while it has not ended.
    retry_ms: when the callback is tried again; None unless the group is blocked.
    """

    name: str
    then_on: ThenOn
    state: GroupState
    total: int
    left: int
    done: int
    dead: int
    failed: int
    queue: str
    callback_id: str | None
    created_ms: int
    ended_ms: int | None
    retry_ms: int | None = None


class Grouped(list[str]):
    """The ids that ``Queue.enqueue_group`` returns: those of the messages that this call has
    enqueued, in their order.

    name: of the group.
    """

    def __init__(self, ids: Iterable[str], name: str) -> None:
        super().__init__(ids)
        self.name = name

    def __reduce__(self) -> tuple[type[Grouped], tuple[list[str], str]]:
        return Grouped, (list(self), self.name)
