"""Groups of messages, and the message that follows each."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

ThenOn = Literal["done", "settled"]
"""What the last member of a group must be before the callback comes: done, or at an end at all."""
Outcome = Literal["complete", "failed", "blocked"]
GroupState = Literal["open", "running", "complete", "failed", "blocked"]


class Group(Struct, frozen=True):
    """A group of messages, and how far it has come.

    state: "open" while members are still enqueued, "running" while some are left, "complete" once
        the callback is enqueued, "failed" if one will never be done for which the callback would
        have to wait, and "blocked" while the callback's queue is gone or does not take it.
    total: how many members there are; while it is open, so far. left: how many the callback waits
    for. done: how many are done. dead: how many are dead letters; with ``on="settled"`` how
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


class Then(Struct, frozen=True):
    """What follows when all messages of a group have ended: another one, the callback.

    message: the callback, a ``NewMessage`` or just its payload of up to 90,000 bytes, without
        ``at``, ``ttl_ends_at``, ``dedup_id`` and ``unique``. It has the headers ``group``, the
        name, ``group_total``, how many messages there were, and ``group_undone``, how many of them
        were not done. ``delay`` and ``ttl`` begin with the end of the group.
    queue: the queue of the callback, below any root of the same database; None for that of the
        group.
    on: "done" if the callback comes only once all are done: a dead letter has to be redriven first,
        and if a message ends in another way (expired, cancelled, purged, moved away, or forwarded
        as a dead letter), it never comes. "settled" if dead letters and all other ends count, too.
    name: of the group, up to 200 characters; random where None. With the name of a group that was
        enqueued with the same arguments, only those messages are enqueued that were not, so an
        interrupted call can be continued; the ids are then those of the rest. A group is known for
        seven days after its end.
    """

    message: Any
    queue: Any = None
    on: ThenOn = "done"
    name: str | None = None
