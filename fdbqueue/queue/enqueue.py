"""Enqueuing: the methods of ``Queue`` that add messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Generic

from ..consumers import wakeups
from ..errors import InvalidArgument
from ..messages.enqueue import admission
from ..messages.enqueue.bounds import Room
from ..messages.transaction_budget import STEP_BYTES, weight
from ..schema import once
from ..store import tasks
from ..store.binding import fdb
from ..store.clocks import Clock
from ..store.combine import Combiner
from ..values import backoff as backoffs
from ..values import durations
from ..values.durations import Seconds
from ..values.model import Enqueued, Headers, NewMessage, OnConflict, T
from ..values.options import DEFAULT_PRIORITY
from ..values.serializers import Serializer
from ..values.text import names_meant
from .bulk import back_pressure
from .bulk.back_pressure import ROOM_SECONDS
from .queue_base import Handle, Transactor
from .validation import check_several, draft, drafts

MAX_BATCH = 10_000
JOB_HEADER = "job"
"""The header of a message with the name of its job."""
MAX_SHARED = 1_000
"""Messages of tasks that share a transaction, at most."""


class Enqueuing(Handle, Generic[T]):
    """A queue to which messages can be added."""

    def __init__(
        self, name: str, root: fdb.Subspace, clock: Clock, serializer: Serializer[Any] | None
    ) -> None:
        super().__init__(name, root, clock)
        self._serializer = serializer
        self._jobs: dict[str, Any] = {}

    @names_meant()
    def enqueue(
        self,
        tr: Transactor,
        payload: T,
        *,
        priority: int = DEFAULT_PRIORITY,
        headers: Headers | None = None,
        delay: Seconds = 0.0,
        at: datetime | None = None,
        ttl: Seconds | None = None,
        max_attempts: int | None = None,
        backoff: backoffs.Given = None,
        dedup_id: str | None = None,
        unique: str | None = None,
        on_conflict: OnConflict = "keep",
        max_delay: Seconds | None = None,
        key: str | None = None,
        keep_result: Seconds | None = None,
        limits: Mapping[str, str] | None = None,
        room: Seconds = ROOM_SECONDS,
    ) -> str:
        """Enqueue one message; returns its id.

        payload: bytes, or anything that JSON gives back in value and type; of a queue with a
            serializer, what that takes. At most ``max_payload`` bytes; more than 90 kB are stored
            in chunks.
        priority: 0 to 9, the higher the more urgent (0 to levels - 1 if there are more than ten).
        headers: names to str, int, float, bool or None.
        delay, at: deliver it no sooner than after so many seconds, or than a moment with a time
            zone; at most ten years ahead. It takes its place in the queue then.
        ttl: seconds until it expires: it is not delivered any more, and the queue's option
            ``expired`` decides what happens to it.
        max_attempts, backoff: its own redelivery policy, instead of the queue's.
        dedup_id: a name of up to 200 characters. If the queue remembers an enqueue with the same
            one (option ``dedup_window``), nothing is written, and that message's id is returned.
        unique: a name of the same kind. If a message with the same one is ready, delayed or
            leased, nothing is written, and that message's id is returned.
        on_conflict: what happens to a ready or delayed message with the same unique key. "replace"
            gives it what this one says; it keeps its id, place and time. "debounce" also puts it
            off, by ``delay`` or until ``at``. A leased one goes on without the key, which this one
            takes over. See docs/duplicates.md.
        max_delay: seconds after its first enqueue until which a message is put off at most.
        key: what messages share that wait for each other, also a name. At most
            ``keys.concurrency`` messages of one key are out at once, and the next one becomes ready
            when one is done, dead or gone, in the order of their enqueues whatever their
            priorities. By default that is one at a time: an ordering key. Different keys do not
            wait for each other.
        keep_result: seconds for which ``Queue.result`` tells how the message ended, and what its
            handler returned; from 1 second to ten years. See docs/continuations.md.
        limits: up to five limits that it shares with messages of other queues of the root, by
            their dimensions, such as ``{"api": "stripe"}``: at most as many of them are out at once
            as ``Queue.limits`` says. It waits for its key first, then for each limit in the order
            of the dimensions. See docs/limits.md.
        room: seconds to wait for room in a full queue whose ``bounds.when_full`` is "block"; 0
            does not wait, and neither does your own transaction. The deadline of ``within`` counts
            apart.

        One round trip of snapshot reads. Conflicts with no other enqueue and no dequeue, however
        many there are; only with a change of the queue's options, and with enqueues of the same
        dedup id or unique key, or of a key whose messages begin to wait, or cease to. Of two
        messages of one level, the one whose enqueue returned before the other began is delivered
        first. Raises ``InvalidPayload``, ``InvalidArgument``, ``InvalidOptions``,
        ``QueueNotFound``, ``QueueFull``, and ``MessagePlanned`` if it is to replace a message that
        a plan has.
        """
        if room is not ROOM_SECONDS:
            room = durations.patience("room", room)
        message = NewMessage(
            payload,
            priority,
            headers,
            delay=delay,
            at=at,
            ttl=ttl,
            max_attempts=max_attempts,
            backoff=backoff,
            dedup_id=dedup_id,
            unique=unique,
            key=key,
            on_conflict=on_conflict,
            max_delay=max_delay,
            keep_result=keep_result,
            limits=limits,
        )
        given = draft(message, self._clock.now_ms(tr), self._serializer)
        if tasks.used and not isinstance(tr, fdb.Transaction) and tasks.current.get() is not None:
            return self._enqueue_shared(tr, given, room)
        return self._admit(tr, [given], room).ids[0]

    def _enqueue_shared(self, db: fdb.Database, given: admission.Draft, room: Seconds) -> str:
        """Enqueue one message beside other tasks."""

        def attempt(known: Room) -> str:
            if known is Room.REFUSED:
                return self._attempt(db, [given], known).ids[0]
            return self._combiner.ask(db, given, weight(given.envelope))

        return back_pressure.patiently(self, db, attempt, room)

    @cached_property
    def _combiner(self) -> Combiner[admission.Draft, str]:
        """What the tasks of a process share that enqueue single messages."""

        def run(db: fdb.Database, given: Sequence[admission.Draft]) -> Sequence[str]:
            return self._attempt(db, given).ids

        timeout = self._keys.once.timeout
        return Combiner(run, most=MAX_SHARED, most_size=STEP_BYTES, timeout=timeout)

    def enqueue_many(
        self,
        tr: Transactor,
        messages: Iterable[NewMessage[T] | T],
        *,
        room: Seconds = ROOM_SECONDS,
    ) -> Enqueued:
        """``Queue.enqueue_many`` without a group."""
        if room is not ROOM_SECONDS:
            room = durations.patience("room", room)
        admitted = self._admit(tr, self._drafts(tr, messages), room)
        return Enqueued(admitted.ids, admitted.new)

    def _drafts(
        self, tr: Transactor, messages: Iterable[NewMessage[T] | T]
    ) -> list[admission.Draft]:
        """Several messages, checked, for one transaction."""
        check_several(messages)
        given = drafts(messages, self._clock.now_ms(tr), self._serializer)
        if not 0 < len(given) <= MAX_BATCH:
            raise InvalidArgument(
                argument="messages",
                value=len(given),
                problem=f"give 1 to {MAX_BATCH:,} messages in one call",
            )
        return given

    def _admit(
        self, tr: Transactor, given: Sequence[admission.Draft], room: Seconds
    ) -> admission.Admitted:
        """Enqueue valid messages; waits for room, unless it is in the caller's transaction."""
        if isinstance(tr, fdb.Transaction):
            return self._put(tr, given)
        return back_pressure.patiently(self, tr, partial(self._attempt, tr, given), room)

    def _attempt(
        self, db: fdb.Database, given: Sequence[admission.Draft], room: Room = Room.UNKNOWN
    ) -> admission.Admitted:
        """Enqueue valid messages, or raise ``QueueFull``."""
        return once.run(db, self._keys.once, self._put, given, room, wrote=_wrote)

    def _put(
        self, tr: fdb.Transaction, given: Sequence[admission.Draft], room: Room = Room.UNKNOWN
    ) -> admission.Admitted:
        keys, entry = self._keys, self._entry
        known, found, waiting = entry.known, None, None
        if known is not None:
            try:
                # Issued before it is sure that the options are still these, so that nothing waits
                # for that.
                found = admission.reads(tr, known, given)
            except InvalidArgument:
                found = None  # Those that are read will tell.
        if len(given) > 1:
            waiting = wakeups.reads(tr, keys, sum([each.due_ms is None for each in given]))
        # Waiting for this one read, the scope costs no wait of its own.
        beside = next(iter(found.ends.values())).last if found and found.ends else None
        scope = entry.scope(tr, beside)
        # If the options have changed, what was read by the old ones may be of other levels: it is
        # read anew.
        admitted = admission.admit(tr, scope, given, found if scope is known else None, room)
        if waiting is not None and _wrote(admitted):
            wakeups.wake(tr, keys, waiting)
        return admitted


def _wrote(admitted: admission.Admitted) -> bool:
    return admitted.new + admitted.replaced > 0
