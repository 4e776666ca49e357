"""The thread that hands the messages of a browsing subscription to its handler.

Each message is handed over once, in order, and stays in the queue. The cursor is durable and moves
after the handler: in a transaction of its own, which also finds the next message, or in that of the
handler. Until then, nothing can appear in front of the message. One worker at a time holds the
subscription; the others stand by.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from ..consumers import promotion, registry, wakeups, watching
from ..errors import HandlerTooSlow, Held, InvalidArgument, QueueError, QueueNotFound
from ..errors import NotFound as NotFound
from ..messages import agenda
from ..queue.admin.housekeeping import past_backlog
from ..queue.internals import Internals, SubscriptionInternals
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..schema import once
from ..schema.consumers import ConsumerRef
from ..schema.leases import CLAIM_BYTES
from ..schema.scope import Scope
from ..store import world
from ..store.binding import FAILURES, fdb
from ..subscriptions import acquire, browse, exclusive
from ..values import backoff
from ..values.model import Message
from ..values.verdicts import Reject, Retry, Snooze, text
from . import tracing
from .attempt import MAX_SLOW, TRANSACTION_SECONDS
from .consumer import QueueConsumer
from .fetcher import AFTER_FAILURE, POLL_SECONDS, RETRY_SECONDS, SOON_SECONDS
from .handlers import Handler
from .health import Loop
from .shared_state import SharedState

R = TypeVar("R")

log = logging.getLogger("fdbqueue.worker")

MIN_WAIT_SECONDS = 0.02
"""How long a message waits at least after its handler has failed."""


class Browsed(Struct, frozen=True):
    """A browsing subscription that a worker handles. backoff: how long a message waits after its
    handler has failed; as the queue's options say where None."""

    queue: Queue
    subscription: Subscription
    handler: Handler
    backoff: backoff.Stored | None


class _Browsed(Struct, frozen=True):
    """What one transaction found. over: whether the subscription has closed itself."""

    messages: list[Message]
    passage: browse.Passage
    unfinished: bool
    over: bool
    signal: watching.Signal
    seconds: float


class _Failed(Exception):
    """Raised when a handler has failed, perhaps in a transaction that is then given up."""

    def __init__(
        self, error: BaseException, messages: Sequence[Message], passage: browse.Passage
    ) -> None:
        super().__init__()
        self.error, self.messages, self.passage = error, messages, passage


class _Consumer(QueueConsumer):
    """A browser as it is listed: it takes nothing."""

    subscription = ""
    handle = b""

    def _register(self, tr: fdb.Transaction, scope: Scope, session: bytes) -> ConsumerRef:
        return registry.register(
            tr,
            scope,
            session,
            self.name,
            self.priority,
            acquiring=False,
            subscription=self.subscription,
            handle=self.handle,
        )


class Browser:
    """Hands over the messages of one browsing subscription, from ``run`` until the worker stops or
    the subscription ends."""

    def __init__(self, state: SharedState, browsed: Browsed) -> None:
        worker = state.worker
        self.state = state
        self.queue, self.subscription = browsed.queue, browsed.subscription
        self.handler, self.backoff = browsed.handler, browsed.backoff
        self.changed = world.Condition(state.lock)
        self.consumer = _Consumer(worker.db, browsed.queue, worker.name, worker.priority, None)
        self._loop = state.watch(Loop(f"browses {self.subscription.name}", takes=True))
        self._token = world.urandom(CLAIM_BYTES)
        self.consumer.subscription, self.consumer.handle = browsed.subscription.name, self._token
        self._handled: browse.Passage | None = None
        """What the handler has been given, until the cursor is behind it."""
        self._tries = self._failures = 0
        self._woken = self._unwatched = self._listed = self._holds = self._stands_by = False

    def run(self) -> None:
        """Hand over messages until it is time to leave."""
        over = False
        while not over and self._may_go_on():
            try:
                over = self._turn()
                self._failures = 0
            except (NotFound, QueueNotFound):
                over = True
            except Held:
                self._stand_by()
            except (*FAILURES, QueueError) as error:
                self._outage(error)
            except BaseException as error:
                log.exception("the worker met an error that it does not know")
                self._outage(error)
        self._leave(over)

    def keep(self) -> None:
        """Hold the subscription for longer, if it is held. Any thread."""
        if self._holds:
            self._run(lambda tr: self._hold(tr, Internals(self.queue).scope(tr)), lambda _: False)

    def _turn(self) -> bool:
        """Hand over the next messages, or wait for some; whether the subscription is over."""
        if self.consumer.evicted or not self._listed:
            self.consumer.join()
            self._listed = True
        try:
            looked = self._transaction() if self.handler.transactional else self._next()
            self._holds, self._stands_by = True, False
            self._loop.took()
            if looked.messages and not self.handler.transactional:
                self._call(looked)
                self._handled = looked.passage
            self._tries = 0
        except _Failed as failed:
            self._holds = True
            self._loop.took()
            self._judge(failed.error, failed.messages, failed.passage)
            return False
        if not (looked.messages or looked.unfinished or looked.over):
            self._sleep(looked)
        return looked.over

    def _next(self) -> _Browsed:
        """Move behind what was handled, and find the next messages. Both may be done twice."""
        # No record of the commit: ``pass_by`` moves only a cursor that is still where it was found,
        # so twice is as good as once.
        look = partial(self._run, lambda tr: self._look(tr, self._handled), lambda _: False)
        looked = past_backlog(self.queue, self.state.worker.db, look)
        self._handled = None
        return looked

    def _transaction(self) -> _Browsed:
        """Find messages, handle them, and move behind them, in one transaction, exactly once."""
        slow = 0

        def body(tr: fdb.Transaction) -> _Browsed:
            nonlocal slow
            began, looked = world.monotonic(), self._look(tr, self._handled)
            if looked.messages:
                self._call(looked, tr)
                browse.pass_by(
                    tr, Internals(self.queue).scope(tr), self.subscription.name, looked.passage
                )
            slow += (seconds := world.monotonic() - began) > TRANSACTION_SECONDS
            if slow >= MAX_SLOW:
                error = HandlerTooSlow(seconds=seconds)
                raise _Failed(error, looked.messages, looked.passage)
            return looked

        db, keys = self.state.worker.db, SubscriptionInternals(self.subscription).once

        def run() -> _Browsed:
            return once.run(db, keys, body, wrote=lambda looked: bool(looked.messages), brief=False)

        looked = past_backlog(self.queue, db, run)
        self._handled = None
        return looked

    def _look(self, tr: fdb.Transaction, handled: browse.Passage | None) -> _Browsed:
        scope, name = Internals(self.queue).scope(tr), self.subscription.name
        definition = SubscriptionInternals(self.subscription).known(tr, scope)
        due, coming = promotion.reads(tr, scope), agenda.coming(tr, scope)
        self._hold(tr, scope)
        # All of it: a subscription closes itself only when nothing is due.
        promotion.promote_all(tr, scope, due, until=promotion.Until.DONE)
        if handled is not None:
            browse.pass_by(tr, scope, name, handled)
        found, passage = browse.next_matching(tr, scope, definition, self.handler.batch or 1)
        over = found.empty and definition.auto_close and not scope.options.paused
        signal: watching.Signal = ()
        seconds: float | None = None
        if over:
            SubscriptionInternals(self.subscription).drop(tr, scope)
        elif found.empty:
            signal = wakeups.browse(tr, scope, self.consumer.ref)
            seconds = agenda.next_seconds(tr, scope, coming)
        return _Browsed(
            acquire.load(tr, scope, found.messages),
            passage,
            found.unfinished,
            over,
            signal,
            POLL_SECONDS if seconds is None else min(POLL_SECONDS, max(SOON_SECONDS, seconds)),
        )

    def _hold(self, tr: fdb.Transaction, scope: Scope) -> None:
        name = self.subscription.name
        exclusive.hold(tr, scope, name, self._token, exclusive.issue_holder(tr, scope, name))

    def _call(self, looked: _Browsed, *tr: fdb.Transaction) -> None:
        messages = looked.messages
        self._loop.turn(math.inf)  # However long the handler takes.
        try:
            with tracing.handling(self.queue.name, messages):
                returned = self.handler.call(self.queue, messages, *tr)
            if self.handler.batch and isinstance(returned, Mapping) and returned:
                raise InvalidArgument(
                    argument="verdicts",
                    value=sorted(map(str, returned)),
                    problem="a browsing subscription takes no messages: there is nothing to settle",
                )
        except BaseException as error:  # whatever it is must not end this thread
            if tr and isinstance(error, fdb.FDBError):
                raise  # for the retry of the transaction
            raise _Failed(error, messages, looked.passage) from error
        finally:
            self._loop.turn()

    def _judge(
        self, error: BaseException, messages: Sequence[Message], passage: browse.Passage
    ) -> None:
        """The handler has failed: try the same messages again later, or pass them."""
        ids = ", ".join(message.id for message in messages)
        if isinstance(error, Reject):
            log.error("%s passes %s: %s", self.subscription.name, ids, text(error))
            self._handled, self._tries = passage, 0
            return
        self._tries += 1
        seconds = error.seconds if isinstance(error, Retry | Snooze) else None
        if seconds is None:
            policy = self.backoff or self.queue.options(self.state.worker.db).backoff
            seconds = backoff.delay_seconds(policy, self._tries, world.random.uniform)
        asked = isinstance(error, Retry | Snooze)
        log.warning(
            "%s handles %s again in %g s: %s",
            self.subscription.name,
            ids,
            seconds,
            text(error),
            exc_info=None if asked else error,
        )
        self._wait(max(MIN_WAIT_SECONDS, seconds))

    def _may_go_on(self) -> bool:
        """Wait for the store to answer; False when it is time to leave."""
        with self.state.lock:
            while not self.state.stopping and not self.state.worker.connection.usable:
                self.changed.wait()
            self._loop.turn()
            return not self.state.stopping

    def _wait(self, seconds: float) -> None:
        self._loop.turn(seconds)
        with self.state.lock:
            self.changed.wait_for(lambda: self.state.stopping, seconds)

    def _sleep(self, looked: _Browsed) -> None:
        """Wait until there may be something to hand over."""
        self._woken = self._unwatched = False
        watches = watching.arm(
            self.state.worker.db,
            looked.signal,
            SubscriptionInternals(self.subscription).once.timeout,
        )
        for watch in watches:
            watch.on_ready(self._ring)
        with self.state.lock:
            self.changed.wait_for(lambda: self._ended or self._unwatched, looked.seconds)
            unwatched = min(looked.seconds, watching.UNWATCHED_SECONDS)
            # The watch failed, so nothing would wake it: it looks again soon, and not at once,
            # since other watches may fail, too.
            self.changed.wait_for(lambda: self._ended or not self._unwatched, unwatched)
        for watch in watches:
            watch.cancel()

    @property
    def _ended(self) -> bool:
        return self.state.stopping or self._woken

    def _ring(self, watch: object) -> None:
        failed = watching.has_failed(watch)
        with self.state.lock:
            self._woken, self._unwatched = self._woken or not failed, self._unwatched or failed
            self.changed.notify()

    def _stand_by(self) -> None:
        if not self._stands_by:
            log.info("%s is held by another consumer; standing by", self.subscription.name)
        # What was handled last is not behind the cursor, and the other consumer goes on with it.
        self._stands_by, self._holds, self._handled = True, False, None
        self._loop.took()
        self._wait(RETRY_SECONDS)

    def _outage(self, error: BaseException) -> None:
        log.warning("cannot browse %s: %s", self.subscription.name, error)
        self.state.worker.connection.suspect()
        self._loop.failed(error)
        self._failures += 1
        self._wait(
            backoff.delay_seconds(AFTER_FAILURE, min(self._failures, 20), world.random.uniform)
        )

    def _leave(self, over: bool) -> None:
        """Move behind what was handled, let others hold the subscription, and unregister."""
        self._loop.end()
        try:
            if not over and self._holds:
                self._run(self._release, lambda _: False)
            self.consumer.leave()
        except (NotFound, QueueNotFound, Held):
            self.consumer.leave()
        except Exception as error:
            log.warning("%s is not told that a worker is gone: %s", self.queue.name, error)
        finally:
            if over:
                log.info("the subscription %s is over", self.subscription.name)
                self.state.over()
            with self.state.lock:
                self.state.fetching -= 1
                self.state.ended.notify_all()

    def _release(self, tr: fdb.Transaction) -> None:
        scope, name = Internals(self.queue).scope(tr), self.subscription.name
        if self._handled is not None:
            self._hold(tr, scope)
            browse.pass_by(tr, scope, name, self._handled)
        exclusive.release(tr, scope, name, self._token)

    def _run(self, body: Callable[[fdb.Transaction], R], wrote: Callable[[R], bool]) -> R:
        return once.run(
            self.state.worker.db, SubscriptionInternals(self.subscription).once, body, wrote=wrote
        )
