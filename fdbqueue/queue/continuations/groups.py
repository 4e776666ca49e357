"""Groups of messages, and the message that follows when all of a group have ended."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...errors import InvalidArgument
from ...messages.enqueue import level_order
from ...messages.enqueue.admission import Draft
from ...messages.enqueue.bounds import Room
from ...messages.groups import callbacks, group_state, members
from ...messages.transaction_budget import STEP_BYTES, fitting
from ...schema.records import Callback, GroupRecord
from ...store import world
from ...store.binding import fdb
from ...values.content import check_count, check_headers
from ...values.durations import Seconds
from ...values.groups import Group, Then, ThenOn
from ...values.model import Enqueued, NewMessage, T
from ...values.options import check_behind, check_name
from ...values.schedules import check_choice
from ...values.text import names_meant
from ..bulk import back_pressure
from ..bulk.back_pressure import ROOM_SECONDS
from ..enqueue import MAX_BATCH, Enqueuing
from ..queue_base import Handle, Transactor
from ..validation import check_inline, check_several, draft

STEP = 1_000
"""The most messages of a group that one transaction enqueues, where there are several."""
MAX_LISTED = 1_000
_NAME_BYTES = 8


@names_meant()
def enqueue_many(
    queue: Enqueuing[T],
    tr: Transactor,
    messages: Iterable[NewMessage[T] | T],
    *,
    group: Then | None = None,
    room: Seconds = ROOM_SECONDS,
) -> Enqueued:
    """Enqueue several messages in one transaction; returns their ids, in the same order.

    A message is a ``NewMessage``, or just its payload. The result also says how many messages are
    ``new``: the others were known by their dedup ids or unique keys.

    group: another message, the callback, follows when the last of them has ended; the result has
        the name of the group. ``Then`` says which, when and where. Messages of a group have no
        ``dedup_id`` and ``unique``.
    room: as in ``enqueue``.

    One round trip for all; conflicts as in ``enqueue``. Raises what ``enqueue`` raises,
    ``InvalidArgument`` for no messages at all, and with a database ``TransactionTooLarge`` for more
    than a transaction takes. After an error nothing is written, but in your own transaction after
    ``QueueFull`` if some replace others.

    With a transaction, a group is part of it, and has at most 10,000 messages. With a database,
    more than 1,000 messages of a group, or 4 MB, take several transactions, and need a name; those
    of earlier transactions stay after an error. The callback does not come before all are enqueued.

    The callback is enqueued exactly once, in the transaction that ends the last message. It comes
    in a full queue, too. If its queue is gone, or does not take it, the group is blocked: whoever
    receives, and a sweep, tries again after a minute, and after pauses that double to ten minutes.
    Ends of messages conflict as without the group, and besides with a chance of one in how many
    messages are left. The enqueue conflicts with others of a group of the same name.
    """
    if group is None:
        return Enqueuing.enqueue_many(queue, tr, messages, room=room)
    if not isinstance(group, Then):
        raise InvalidArgument(argument="group", value=group, problem="write group=Then(…)")
    check_choice("on", group.on, ThenOn)
    named = world.urandom(_NAME_BYTES).hex() if group.name is None else check_name(group.name)
    follows = queue if group.queue is None else group.queue
    if not isinstance(follows, Enqueuing):
        raise InvalidArgument(argument="queue", value=follows, problem="must be a Queue")
    envelope, delay_ms, ttl_ms = _callback(follows, group.message)
    root = follows._root.key()
    given = GroupRecord(
        group.on,
        0,
        False,
        0,
        Callback(
            b"" if root == queue._root.key() else root, follows.name, delay_ms, ttl_ms, envelope
        ),
    )
    check_several(messages)
    now_ms = queue._clock.now_ms(tr)
    drafts = [_member(queue, each, named, now_ms) for each in messages]
    if not drafts:
        problem = "give at least one message: nothing would ever end"
        raise InvalidArgument(argument="messages", value=0, problem=problem)
    if isinstance(tr, fdb.Transaction):
        if len(drafts) > MAX_BATCH:
            problem = f"a transaction takes up to {MAX_BATCH:,}: give the database, and a name"
            raise InvalidArgument(argument="messages", value=len(drafts), problem=problem)
        _, ids = _put(tr, queue, follows, named, given, drafts, len(drafts))
        return Enqueued(ids, len(ids), named)
    if len(_step(drafts, 0)) < len(drafts) and group.name is None:
        problem = "so many messages take several transactions: give a name, to continue them"
        raise InvalidArgument(argument="name", value=None, problem=problem)
    grouped, done = list[str](), 0
    while done < len(drafts):
        put = partial(queue._run, tr, _put, queue, follows, named, given, drafts, None)
        done, ids = back_pressure.patiently(queue, tr, put, room)
        grouped += ids
    return Enqueued(grouped, len(grouped), named)


def _put(
    tr: fdb.Transaction,
    queue: Enqueuing[Any],
    follows: Enqueuing[Any],
    name: str,
    given: GroupRecord,
    drafts: Sequence[Draft],
    count: int | None,
    room: Room = Room.UNKNOWN,
) -> tuple[int, list[str]]:
    """Enqueue the next messages of a group, up to ``count``, or what one step takes; returns how
    many have been enqueued, and the ids of these."""
    scope = queue._scope(tr)
    record = group_state.known(tr, scope, name)
    if record is None:
        options, envelope = follows._options(tr), given.callback.envelope
        options.level(envelope.priority)
        if options.ordered:
            level_order.check_sortable(options, envelope.headers, envelope.gate)
        record = replace(given, created_ms=scope.now_ms(tr))
    elif not record.same(given):
        problem = "the queue has another group of this name, with other terms or another callback"
        raise InvalidArgument(argument="group", value=name, problem=problem)
    begin, total = record.members, len(drafts)
    if begin > total or (record.sealed and begin < total):
        problem = f"the queue has another group of this name, of {begin:,} messages, not {total:,}"
        raise InvalidArgument(argument="group", value=name, problem=problem)
    # An earlier call with an unknown outcome, or of a killed process, has enqueued all of it.
    if record.sealed:
        return total, []
    # The record counts what is in: a call that is repeated goes on behind that.
    some = drafts[begin : begin + count] if count is not None else _step(drafts, begin)
    end = begin + len(some)
    ids = queue._put(tr, some, room).ids
    record = replace(record, members=end, sealed=end == total)
    members.count(tr, scope, name, record)
    return end, ids


def _step(drafts: Sequence[Draft], begin: int) -> Sequence[Draft]:
    """The messages that one transaction enqueues."""
    some = drafts[begin : begin + STEP]
    fits = fitting(((each, each.envelope) for each in some), STEP_BYTES)
    return [each for each, _ in fits]


def _member(queue: Enqueuing[Any], message: NewMessage[Any] | Any, name: str, now_ms: int) -> Draft:
    found = draft(message, now_ms, queue._serializer, name)
    for argument, value in (("dedup_id", found.dedup_id), ("unique", found.envelope.unique)):
        if value is not None:
            problem = "a message of a group is always a new one"
            raise InvalidArgument(argument=argument, value=value, problem=problem)
    return found


def _callback(follows: Enqueuing[Any], then: NewMessage[Any] | Any) -> tuple[Any, int, int | None]:
    """The envelope of a callback, its delay and its time to live in milliseconds."""
    message = then if isinstance(then, NewMessage) else NewMessage(then)
    for argument in ("at", "ttl_ends_at", "dedup_id", "unique"):
        value = getattr(message, argument)
        if value is not None:
            problem = "the callback of a group takes none: it comes once, when the group ends"
            raise InvalidArgument(argument=argument, value=value, problem=problem)
    found = draft(message, 0, follows._serializer)
    envelope = found.envelope
    for header in set(callbacks.HEADERS) & envelope.headers.keys():
        raise InvalidArgument(argument="headers", value=header, problem="the group sets it")
    # With the longest headers that the group may add: the callback must not fail at its end.
    check_headers(envelope.headers | dict.fromkeys(callbacks.HEADERS, "x" * 200))
    check_inline("then", envelope)
    envelope = replace(envelope, expires_at_ms=None)
    return envelope, found.due_ms or 0, found.envelope.expires_at_ms


class Groups:
    """The groups of one queue; get it from ``Queue.groups``."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def get(self, tr: Transactor, name: str) -> Group | None:
        """What is known of a group, and how far it has come; None if there is none.

        One round trip, however large the group is. Snapshot reads, no conflicts. Raises
        ``QueueNotFound``, ``InvalidArgument``, ``CorruptData``.
        """
        check_name(name)
        queue = self._queue
        return queue._read(tr, lambda tr: group_state.find(tr, queue._scope(tr), name))

    def list(
        self,
        tr: Transactor,
        limit: int = 100,
        *,
        after: str | None = None,
    ) -> builtins.list[Group]:
        """The groups by name.

        limit: how many, up to 1,000. after: the name to continue behind. Two round trips for each
        group. Snapshot reads, no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        check_count("limit", limit, MAX_LISTED)
        queue = self._queue
        begin = check_behind(after)
        return queue._read(tr, lambda tr: group_state.page(tr, queue._scope(tr), limit, begin))

    def forget(self, tr: Transactor, name: str) -> bool:
        """Forget a group; returns whether there was one. Its messages stay, and no callback comes.

        Conflicts with ends of its messages. Raises ``QueueNotFound``, ``InvalidArgument``.
        """
        check_name(name)
        queue = self._queue
        return queue._run(tr, lambda tr: group_state.forget(tr, queue._scope(tr), name))
