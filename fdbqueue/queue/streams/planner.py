"""Receiving messages in batches that stay the same until they are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from math import ceil
from typing import NamedTuple, TypeVar

from ...consumers import promotion, wakeups
from ...errors import BatchLost, QueueReplaced
from ...messages import payloads
from ...messages.delivery import scan
from ...messages.streams import planning, plans
from ...messages.streams.planning import BatchLimits
from ...messages.streams.plans import OpenPlans
from ...schema.leases import CLAIM_BYTES
from ...schema.scope import Scope, StoredMessage
from ...schema.streams import Planned, Stage
from ...store import world
from ...store.binding import fdb
from ..queue_base import Handle

R = TypeVar("R")

PAGE = 1_000
"""How many messages of a plan one transaction reads."""
MIN_FILL = 50

_RETURNED = "it was given back, and its messages will be delivered again"
_OTHERS = "another run of the consumer has acknowledged it"
_FORGOTTEN = "the consumer has been forgotten since"


class Mark(NamedTuple):
    """How far a consumer has come: behind a batch.

    line: names the sequence of batches: the identity of the queue and a random part. It changes
        when the queue is created again, or the consumer forgotten.
    """

    line: str
    batch: int


class PlanPiece(NamedTuple):
    """A part of a plan, for one task; small and picklable.

    spans: claims, each with its first lease and the lease behind the last.
    """

    batch: int
    messages: int
    spans: tuple[tuple[bytes, int, int], ...]


class Planner:
    """One run of a consumer that receives messages in numbered batches and acknowledges them.

    A batch has the same messages until it is acknowledged: ``next`` from the same mark gives the
    same batch, also to the next run. At its first call a run takes over the plans of the consumer;
    the run that owned them before gets ``TakenOver`` from then on.
    """

    def __init__(
        self,
        queue: Handle,
        consumer: str,
        lenient: bool,
        begins: Callable[[], Mapping[int, bytes]],
    ) -> None:
        self.consumer = consumer
        self._queue = queue
        self._lenient = lenient
        self._begins = begins
        self._name = world.urandom(plans.NAME_BYTES)
        self._held = False

    def begin(self, db: fdb.Database) -> Mark:
        """The mark behind the last acknowledged batch. Takes over nothing."""
        begins: Mapping[int, bytes] | None = None

        def read(tr: fdb.Transaction) -> tuple[Mark | None, bool]:
            scope = self._queue._scope(tr)
            reads = plans.reads(tr, scope.keys, self.consumer)
            open_plans = plans.parse(scope.keys, self.consumer, reads)
            if open_plans is not None:
                return _mark(open_plans, open_plans.state.acknowledged), False
            if begins is None:
                return None, False
            return Mark(plans.create(tr, scope, self.consumer, begins).line.hex(), 0), True

        while True:
            mark, _ = self._queue._run(db, read, wrote=lambda found: found[1])
            if mark is not None:
                return mark
            begins = self._begins()

    def ends(self, db: fdb.Database) -> dict[int, int]:
        """The end of each level now, for ``next``, after promoting what is due."""

        def promote(tr: fdb.Transaction) -> int:
            scope = self._queue._scope(tr)
            return promotion.promote(tr, scope, promotion.reads(tr, scope)).moved

        while self._queue._run(db, promote, wrote=bool):
            pass
        return self._queue._read(db, lambda tr: planning.ends(tr, self._queue._scope(tr)))

    def next(
        self,
        db: fdb.Database,
        since: Mark,
        messages: int | None = None,
        size: int | None = None,
        ends: Mapping[int, int] | None = None,
    ) -> Mark:
        """Acknowledge batches, and plan the next one; returns ``since`` if nothing is ready.

        since: behind the last batch that is done.
        messages, size: how many messages, and bytes with headers, the batch may hold; it always
            holds at least one message. A batch that was planned before stays as it is.
        ends: the result of ``ends``, to take nothing that came later.

        Takes the first messages in the order of delivery, as each transaction of up to 10,000
        messages sees it; more urgent arrivals go into the next batch. Raises ``TakenOver``,
        ``BatchLost``, ``QueueNotFound``, ``QueueReplaced``.
        """
        return self._through(db, since, BatchLimits(messages, size, ends)) or since

    def acknowledge(self, db: fdb.Database, until: Mark) -> None:
        """Acknowledge all batches up to ``until``; may be repeated.

        Spans transactions. Raises what ``next`` does.
        """
        self._through(db, until, None)

    def pieces(self, db: fdb.Database, since: Mark, until: Mark, parts: int) -> list[PlanPiece]:
        """The batch ``until`` in up to ``parts`` parts with about the same number of messages.

        One round trip. Raises ``TakenOver``, ``BatchLost``, ``QueueNotFound``, ``QueueReplaced``.
        """
        if since == until:
            return []

        def split(tr: fdb.Transaction) -> tuple[list[PlanPiece], bool]:
            scope = self._queue._scope(tr)
            open_plans, took = self._open(tr, scope, until)
            plan = open_plans.plans.get(until.batch)
            problem = _gap(open_plans, until)
            if problem is None and until.batch <= open_plans.state.acknowledged:
                problem = _OTHERS
            elif problem is None and not _sealed(plan):
                problem = _RETURNED
            if problem is None and plan is not None:
                return _split(until.batch, plan, parts), took
            if self._lenient:
                return [], took
            raise self._lost(until, problem or _RETURNED)

        return self._run(db, split, lambda found: found[1])[0]

    def read(self, db: fdb.Database, piece: PlanPiece) -> Iterator[list[StoredMessage]]:
        """The messages of a piece with their payloads, page by page; needs no run.

        Spans transactions, snapshot reads: no conflicts. Raises ``BatchLost`` if they are gone.
        """
        for claim, first, end in piece.spans:
            begin = first
            while begin < end:
                page = self._queue._read(db, partial(self._page, claim=claim, begin=begin, end=end))
                if not page:
                    raise self._lost(Mark("", piece.batch), _RETURNED)
                begin += len(page)
                yield page

    def _page(self, tr: fdb.Transaction, claim: bytes, begin: int, end: int) -> list[StoredMessage]:
        keys = self._queue._scope(tr).keys
        end = min(end, begin + PAGE)
        found: list[StoredMessage] = []
        room = scan.BATCH_BYTES
        for one in plans.leased(tr.snapshot, keys, claim, begin, end):
            message = one.message
            room -= len(one.envelope) + message.envelope.chunk_bytes
            if found and room < 0:
                break
            found.append(message)
        return payloads.load(found, payloads.reads(tr, keys, found))

    def _open(self, tr: fdb.Transaction, scope: Scope, mark: Mark) -> tuple[OpenPlans, bool]:
        """The plans, owned by this run, and whether it has just taken them over.

        Raises ``QueueReplaced`` if the mark belongs to another queue.
        """
        if not mark.line.startswith(scope.identity):
            raise QueueReplaced(name=scope.name)
        reads = plans.reads(tr, scope.keys, self.consumer)
        open_plans = plans.parse(scope.keys, self.consumer, reads)
        if open_plans is None:
            raise self._lost(mark, _FORGOTTEN) if self._held else _NewConsumer
        return open_plans, plans.take_over(tr, scope, open_plans, self._name, held=self._held)

    def _run(
        self, db: fdb.Database, body: Callable[[fdb.Transaction], R], wrote: Callable[[R], bool]
    ) -> R:
        """Run a transaction that opens the plans."""
        while True:
            try:
                done = self._queue._run(db, body, wrote=wrote)
                break
            except _NewConsumer:
                self.begin(db)  # Somebody may forget it again before the next attempt.
        # Committed: from now on, another owner means that somebody has taken over.
        self._held = True
        return done

    def _through(self, db: fdb.Database, mark: Mark, limits: BatchLimits | None) -> Mark | None:
        """Acknowledge up to a mark, and plan the next batch if there are limits, in as many
        transactions as it takes. Returns the mark behind that batch, if there is one."""
        while True:
            attempt = partial(self._step, mark=mark, limits=limits, attempts=count(1))
            step = self._run(db, attempt, lambda step: step.wrote)
            if step.done:
                return step.mark

    def _step(
        self, tr: fdb.Transaction, mark: Mark, limits: BatchLimits | None, attempts: count[int]
    ) -> _PlanStep:
        scope = self._queue._scope(tr)
        open_plans, wrote = self._open(tr, scope, mark)
        # To acknowledge again what is acknowledged is no error: the first answer may have been
        # lost.
        if limits or mark.batch > open_plans.state.acknowledged:
            mark = self._checked(open_plans, mark)
        if mark.batch > open_plans.state.acknowledged:
            plans.acknowledge(tr, scope, open_plans, mark.batch)
            wrote = True
        if open_plans.ended:
            plans.end(tr, scope, open_plans)
            wrote = True
        # More than one transaction removes: the next one goes on.
        if open_plans.ended:
            return _PlanStep(None, False, wrote)
        if limits is None:
            return _PlanStep(None, True, wrote)
        current = open_plans.current
        if current and current[1].stage is Stage.RETURNING:
            # A release that another process began is ended first: its batch must not be delivered
            # half returned.
            give_back(tr, scope, open_plans, current[0])
            return _PlanStep(None, False, True)
        if current and current[1].stage is Stage.SEALED:
            return _PlanStep(_mark(open_plans, current[0]), True, wrote)
        return self._fill(tr, scope, open_plans, limits, next(attempts), wrote)

    def _fill(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        open_plans: OpenPlans,
        limits: BatchLimits,
        attempt: int,
        wrote: bool,
    ) -> _PlanStep:
        promoted = promotion.promote(tr, scope, promotion.reads(tr, scope)).moved
        # While others take the first messages, too, a smaller claim is likelier to commit.
        at_most = max(MIN_FILL, planning.CLAIM_MESSAGES >> (attempt - 1))
        claim, planned = world.urandom(CLAIM_BYTES), open_plans.current
        full = planning.fill(tr, scope, open_plans, limits, claim, at_most)
        current = open_plans.current
        if current and current[1].stage is Stage.SEALED:
            return _PlanStep(_mark(open_plans, current[0]), True, True)
        wrote = wrote or promoted > 0 or planned != current
        return _PlanStep(None, full and not promoted, wrote)

    def _checked(self, open_plans: OpenPlans, mark: Mark) -> Mark:
        """The mark to continue from; raises ``BatchLost`` for an invalid one, unless lenient."""
        acknowledged, plan = open_plans.state.acknowledged, open_plans.plans.get(mark.batch)
        problem = _gap(open_plans, mark)
        if problem is None and mark.batch < acknowledged:
            problem = _OTHERS
        elif problem is None and mark.batch > acknowledged and not _sealed(plan):
            problem = _RETURNED
        if problem is None:
            return mark
        if not self._lenient:
            raise self._lost(mark, problem)
        return _mark(open_plans, acknowledged)

    def _lost(self, mark: Mark, problem: str) -> BatchLost:
        name = self._queue.name
        return BatchLost(
            batch=mark.batch,
            what=f"consumer {self.consumer!r} of queue {name!r}",
            problem=f"is not planned: {problem}",
        )


class _NewConsumer(Exception):
    """The consumer is to be created first."""


class _PlanStep(NamedTuple):
    """One transaction of a run: the next batch, if planned; whether the run is done; whether the
    transaction wrote anything."""

    mark: Mark | None
    done: bool
    wrote: bool


def _sealed(plan: Planned | None) -> bool:
    return plan is not None and plan.stage is Stage.SEALED


def _mark(open_plans: OpenPlans, batch: int) -> Mark:
    return Mark(open_plans.state.line.hex(), batch)


def _gap(open_plans: OpenPlans, mark: Mark) -> str | None:
    """Why a mark does not belong to these plans; None if it does."""
    if mark.line != open_plans.state.line.hex():
        return _FORGOTTEN
    if mark.batch > open_plans.state.last:
        return f"the last one is {open_plans.state.last}: an older state of the store was restored"
    return None


def give_back(tr: fdb.Transaction, scope: Scope, open_plans: OpenPlans, batch: int) -> int:
    waiting = wakeups.reads(tr, scope.keys, planning.CLAIM_MESSAGES)
    given, _ = plans.release(tr, scope, open_plans, batch)
    wakeups.wake(tr, scope.keys, waiting)
    return given


def _split(batch: int, plan: Planned, parts: int) -> list[PlanPiece]:
    """A plan in parts of about the same size, in order; consecutive messages of one ordering key
    stay together."""
    pieces = []
    each = max(1, ceil(plan.messages / max(1, parts)))
    spans: list[tuple[bytes, int, int]] = []
    count = 0
    for claimed in plan.claims:
        begin = 0
        while begin < claimed.messages:
            if count >= each and not claimed.joins(begin):
                pieces.append(PlanPiece(batch, count, tuple(spans)))
                spans, count = [], 0
            end = min(claimed.messages, begin + max(1, each - count))
            while end < claimed.messages and claimed.joins(end):
                end += 1
            spans.append((claimed.claim, begin, end))
            count += end - begin
            begin = end
    if spans:
        pieces.append(PlanPiece(batch, count, tuple(spans)))
    return pieces
