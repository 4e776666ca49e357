"""The plans of a queue, as ``Queue.streams.plans`` offers them: the messages that streams hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...errors import Held, NotFound
from ...messages.streams import plans
from ...messages.streams.plans import OpenPlans
from ...schema.keys import QueueKeys
from ...schema.scope import Scope
from ...schema.streams import Planned
from ...store.binding import fdb
from ...values.content import check_count
from ...values.model import Message, Plan, PlanConsumer
from ...values.options import check_name
from ..queue_base import Handle, Transactor
from .planner import Planner, give_back

MAX_SHOWN = 10_000


class Plans:
    """The plans of one queue; get it from ``Queue.streams``."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def show(self, tr: Transactor, consumer: str) -> PlanConsumer:
        """The plans of one consumer. One round trip, snapshot reads. Raises ``NotFound``."""
        check_name(consumer, "consumer")
        return self._queue._read(
            tr, lambda tr: _told(found(self._queue._scope(tr), consumer, tr.snapshot))
        )

    def messages(self, tr: Transactor, consumer: str, limit: int = 1_000) -> list[Message]:
        """The first messages that a consumer holds, without their payloads.

        Snapshot reads, two round trips. Raises ``NotFound``, ``InvalidArgument``.
        """
        check_name(consumer, "consumer")
        check_count("limit", limit, MAX_SHOWN)

        def read(tr: fdb.Transaction) -> list[Message]:
            scope = self._queue._scope(tr)
            open_plans = found(scope, consumer, tr.snapshot)
            messages: list[Message] = []
            for plan in open_plans.plans.values():
                for claimed in plan.claims:
                    wanted = min(claimed.messages, limit - len(messages))
                    rows = plans.leased(tr.snapshot, scope.keys, claimed.claim, 0, wanted)
                    held = [one.message for one in rows if wanted]
                    messages += [each.envelope.properties(each.position) for each in held]
            return messages

        return self._queue._read(tr, read)

    def release(
        self,
        db: fdb.Database,
        consumer: str,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Return a consumer's messages to their places, without counting the attempt; returns how
        many.

        progress: called after each transaction with how many have returned so far; stops by
            returning False.

        For a consumer that has stopped: one that still runs fails at its next batch. Acknowledged
        batches stay acknowledged. The next release continues an interrupted one. Spans
        transactions of up to 10,000 messages; exactly once. Raises ``NotFound``.
        """
        check_name(consumer, "consumer")
        queue, total, done = self._queue, 0, False
        give_back = partial(self._give_back, consumer=consumer)
        while True:
            given, done = queue._run(db, give_back, wrote=lambda result: not result[1])
            total += given
            if done or (progress is not None and progress(total) is False):
                return total

    def forget(self, tr: Transactor, consumer: str) -> None:
        """Forget a consumer that holds no messages. Its next run starts over, and refuses older
        checkpoints.

        One round trip. Raises ``NotFound``, and ``Held`` while it holds messages.
        """
        check_name(consumer, "consumer")

        def remove(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            if found(scope, consumer, tr).plans:
                raise Held(
                    what=f"the consumer {consumer!r} of queue {scope.name!r}",
                    problem="has messages: acknowledge them, or give them back",
                )
            plans.forget(tr, scope, consumer)

        self._queue._run(tr, remove)

    def planner(
        self,
        consumer: str,
        *,
        lenient: bool = False,
        begins: Callable[[], Mapping[int, bytes]] = dict,
    ) -> Planner:
        """A run of a consumer, which takes over the plans of an earlier one. Writes nothing yet.

        lenient: whether to continue without a batch that is no longer planned. begins: asked if the
        consumer is new, for the places, by level, from which on it takes messages.
        """
        return Planner(self._queue, check_name(consumer, "consumer"), lenient, begins)

    def _give_back(self, tr: fdb.Transaction, consumer: str) -> tuple[int, bool]:
        scope = self._queue._scope(tr)
        open_plans = found(scope, consumer, tr)
        if open_plans.ended:
            plans.end(tr, scope, open_plans)
            return 0, False
        if open_plans.current is None:
            return 0, True
        return give_back(tr, scope, open_plans, open_plans.current[0]), False

    def list(self, tr: Transactor) -> list[PlanConsumer]:
        """The consumers that take messages by plans. One round trip, snapshot reads."""

        def read(tr: fdb.Transaction) -> list[PlanConsumer]:
            return [
                _told(open_plans)
                for open_plans in plans.read_all(tr.snapshot, self._queue._scope(tr).keys)
            ]

        return self._queue._read(tr, read)


def found(scope: Scope, consumer: str, tr: fdb.TransactionRead) -> OpenPlans:
    open_plans = plans.parse(scope.keys, consumer, plans.reads(tr, scope.keys, consumer))
    if open_plans is None:
        raise NotFound(kind="plan of a consumer", queue=scope.name, name=consumer)
    return open_plans


def _told(open_plans: OpenPlans) -> PlanConsumer:
    return PlanConsumer(
        open_plans.consumer,
        open_plans.state.acknowledged,
        tuple(_plan(open_plans, batch, plan) for batch, plan in open_plans.plans.items()),
        {level: QueueKeys.parse_place(at) for level, at in open_plans.state.begins.items()},
    )


def _plan(open_plans: OpenPlans, batch: int, plan: Planned) -> Plan:
    state = "acknowledged" if batch <= open_plans.state.acknowledged else plan.stage.name.lower()
    left = sum(claimed.messages for claimed in plan.claims)
    return Plan(batch, state, plan.messages, plan.size, left, plan.planned_at_ms)
