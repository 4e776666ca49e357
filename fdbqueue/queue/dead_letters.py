"""The dead letters of a queue, as ``Queue.dead`` offers them: list, redrive, purge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ..consumers import wakeups
from ..errors import InvalidArgument
from ..messages import bulk, dead_letters, lookup
from ..schema.codec.lookup import DeadRecord
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.content import check_count
from ..values.model import DeadMessage, Message, MessageState
from ..values.selector import Selector
from .handle import Handle, Transactor, finished

MAX_LISTED = 10_000

Which = Selector | str | Callable[[Message], bool]
Wanted = Which | None
Records = Sequence[tuple[DeadRecord, StoredMessage]]
Step = Callable[[fdb.Transaction, Scope, Records], int]


class DeadLetters(Handle):
    """The dead letters that a queue keeps itself.

    Those that ``dead_letter_queue`` sends to another queue are ordinary messages of that queue.
    """

    def list(
        self,
        tr: Transactor,
        limit: int = 100,
        after: str | None = None,
    ) -> list[DeadMessage]:
        """Up to ``limit`` dead letters in the order of their deaths. Stops at 8 MB, but always
        returns at least one if there are any.

        after: the id of the last one of the previous page.

        Snapshot reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        check_count("limit", limit, MAX_LISTED)
        return self._read(tr, lambda tr: dead_letters.read(tr, self._scope(tr), limit, after))

    def show(self, tr: Transactor, message_id: str) -> DeadMessage | None:
        """The dead letter with an id; None if there is none. Snapshot reads: no conflicts.

        Raises ``InvalidArgument`` if it is not an id, ``QueueNotFound``.
        """

        def read(tr: fdb.Transaction) -> MessageState | None:
            scope = self._scope(tr)
            reads = lookup.reads(tr.snapshot, self._keys, message_id)
            found = lookup.find(tr.snapshot, scope, reads)
            return None if found is None else lookup.state(tr, scope, found)

        found = self._read(tr, read)
        if found is None or found.death is None:
            return None
        return DeadMessage(found.message, found.death)

    def redrive(
        self,
        db: fdb.Database,
        wanted: Wanted = None,
        *,
        at_once: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Make dead letters ready again; returns how many.

        wanted: which ones: a selector, or a function of the message, which sees its ``death`` but
            not its payload and must not raise; None for all.
        at_once: how many dead letters one transaction reads, 1 to 100; None for 100.
        progress: called after each transaction with how many are ready so far; stops by returning
            False. One that waits sets the pace.

        Each keeps its id and goes behind all others of its level, with no attempts made; it stays
        dead if another message now has its unique key. Spans transactions of up to 100 dead
        letters; leaves those that die meanwhile. Raises ``InvalidArgument``, ``InvalidSelector``,
        ``QueueNotFound``.
        """
        at_once = dead_letters.BATCH if at_once is None else at_once
        check_count("at_once", at_once, dead_letters.BATCH)
        wants = predicate(wanted, partial(self._clock.now_ms, db))
        return finished(self._through(db, wants, self._redriven, at_once), progress, 0)

    def redrive_ids(self, tr: Transactor, message_ids: Iterable[str]) -> int:
        """Make the dead letters with these ids ready again, as ``redrive`` does; returns how many.

        Ignores ids of other messages. One transaction; three round trips. Conflicts with whatever
        changes these dead letters. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        wanted = _ids(message_ids)
        return self._run(tr, lambda tr: self._by_id(tr, wanted, self._redriven), wrote=bool)

    def purge(
        self,
        db: fdb.Database,
        wanted: Wanted = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Remove dead letters for good; returns how many. Arguments, transactions and errors as
        ``redrive``."""
        wants = predicate(wanted, partial(self._clock.now_ms, db))
        steps = self._through(db, wants, dead_letters.purge, dead_letters.BATCH)
        return finished(steps, progress, 0)

    def purge_ids(self, tr: Transactor, message_ids: Iterable[str]) -> int:
        """Remove the dead letters with these ids; returns how many. As ``redrive_ids``."""
        wanted = _ids(message_ids)
        return self._run(tr, lambda tr: self._by_id(tr, wanted, dead_letters.purge), wrote=bool)

    def move_ids(
        self,
        db: fdb.Database,
        target: Handle | str,
        message_ids: Iterable[str],
    ) -> int:
        """Move the dead letters with these ids into another queue, as ``Queue.move`` does; returns
        how many.

        Ignores ids of other messages. Spans transactions of up to 100 ids, and reads nothing of
        other dead letters. Conflicts with other takers of these. Raises ``InvalidArgument``,
        ``QueueNotFound``, and ``QueueFull``: those moved until then stay moved.
        """
        return sum(self._moving_ids(db, self._other(target), message_ids))

    # -- parts -------------------------------------------------------------------------------

    def _moving_ids(
        self, db: fdb.Database, target: Handle, message_ids: Iterable[str]
    ) -> Iterator[int]:
        wanted = _ids(message_ids)

        def one(tr: fdb.Transaction) -> tuple[int, int]:
            scope, there = self._scope(tr), target._scope(tr)
            some = wanted[: dead_letters.BATCH]
            waiting = wakeups.reads(tr, there.keys, max(1, len(some)))
            done = bulk.move_dead(tr, scope, there, some)
            if done[0]:
                wakeups.wake(tr, there.keys, waiting)
            return done

        while wanted:
            moved, looked = self._run(db, one, wrote=lambda done: done[0] > 0)
            wanted = wanted[looked:]
            yield moved

    def _redriven(self, tr: fdb.Transaction, scope: Scope, records: Records) -> int:
        waiting = wakeups.reads(tr, self._keys, max(1, len(records)))
        count = dead_letters.redrive(tr, scope, records)
        if count:
            wakeups.wake(tr, self._keys, waiting)
        return count

    def _by_id(self, tr: fdb.Transaction, message_ids: Sequence[str], step: Step) -> int:
        scope = self._scope(tr)
        reads = [lookup.reads(tr, self._keys, message_id) for message_id in message_ids]
        records = []
        for issued in reads:
            match lookup.find(tr, scope, issued):
                case lookup.Found(place=DeadRecord() as record, message=message):
                    records.append((record, message))
        return step(tr, scope, records) if records else 0

    def _through(
        self,
        db: fdb.Database,
        wanted: Callable[[Message], bool],
        step: Step,
        at_once: int,
    ) -> Iterator[int]:
        begin, until, total = b"", None, 0

        def one(tr: fdb.Transaction) -> tuple[int, bytes, int]:
            scope = self._scope(tr)
            last = dead_letters.newest_version(tr, scope) if until is None else until
            records, following = dead_letters.page(tr, scope, begin, last, wanted, at_once)
            return step(tr, scope, records) if records else 0, following, last

        while True:
            count, begin, until = self._run(db, one, wrote=lambda done: done[0] > 0)
            if count:
                total += count
                yield total
            if not begin:
                return


def predicate(wanted: Wanted, now_ms: Callable[[], int]) -> Callable[[Message], bool]:
    """Whether a message is wanted, by a clock in milliseconds."""
    if wanted is None:
        return lambda _: True
    if isinstance(wanted, str):
        wanted = Selector(wanted)
    if isinstance(wanted, Selector):
        selector = wanted
        return lambda message: selector.matches(message, now_ms())
    return wanted


def _ids(message_ids: Iterable[str]) -> list[str]:
    if isinstance(message_ids, str):
        raise InvalidArgument(
            argument="message_ids", value=message_ids, problem="pass a list of ids"
        )
    return list(dict.fromkeys(message_ids))
