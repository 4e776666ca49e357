"""The worker: it calls handlers for the messages of queues."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Self, TypeVar

from msgspec.structs import asdict

from ..consumers.credit import Credit
from ..consumers.receiving.try_receive import MAX_MESSAGES
from ..consumers.sessions import DEAD_SECONDS
from ..errors import InvalidArgument
from ..queue.internals import Internals, SubscriptionInternals
from ..queue.queue import Queue
from ..queue.subscription import Subscription
from ..schema.consumers import Mode, Work
from ..store import world
from ..store.binding import describe, fdb
from ..store.connection import Connection
from ..values import backoff as backoffs
from ..values.durations import Seconds, patience
from ..values.options import (
    MAX_ATTEMPTS,
    MAX_LEASE_SECONDS,
    check_lease,
    check_name,
    check_seconds,
)
from ..values.text import names_meant
from . import handlers
from .browser import Browsed
from .channel import Channel
from .decisions import RUN as MESSAGES_IN_A_ROW
from .handler_threads import HandlerThreads
from .handlers import Handler
from .health import Address, Notices, Probes, Server, Systemd, check_address, routes, url
from .policy import Policy
from .runtime import Runtime
from .served import Served
from .shared_state import SharedState
from .terms import FAIL, FIELDS, RUN, TAKE, Fail, Run, Take

T = TypeVar("T")

log = logging.getLogger("fdbqueue.worker")

SHUTDOWN_SECONDS, ASKING_SECONDS = 30.0, 10.0


class Worker:
    """Handles the messages of one or several queues.

    concurrency: how many messages are handled at once, each in a thread.
    name: shown in listings of consumers and leases; host and process by default.
    priority: a consumer receives only while none of higher priority can take more.
    prefetch: how many messages of a queue it may hold besides those that it handles. Where None, as
        many as it handles, and while handlers are fast, as many as they finish in 50 ms.
    shutdown: seconds that a graceful stop gives to running messages.
    metrics: a ``fdbqueue.metrics.WorkerMetrics``, if any.
    health: a host and a port, as ``("127.0.0.1", 8080)``, where it answers GET /livez, /readyz and,
        if it has metrics, /metrics while it runs. With port 0, ``health`` tells the port then.

    It runs from ``run`` to ``stop``, or as a context manager.
    """

    @names_meant()
    def __init__(
        self,
        db: fdb.Database,
        concurrency: int = 8,
        *,
        name: str | None = None,
        priority: int = 0,
        prefetch: int | None = None,
        shutdown: Seconds = SHUTDOWN_SECONDS,
        metrics: Any = None,
        health: Address | None = None,
    ) -> None:
        self.db = db
        self._runtime: Runtime | None = None
        self._server: Server | None = None
        self._systemd: Systemd | None = None
        """Whom it tells that it is ready, lives and stops, if anybody."""
        self.tells: Callable[[Sequence[Work]], object] | None = None
        """Who else is to know what it handles, at each sign of life."""
        self._notices: Notices | None = None
        self._concurrency = _whole("concurrency", concurrency, 1, 1_000)
        self._prefetch = None if prefetch is None else _whole("prefetch", prefetch, 0, 10_000)
        self.priority = _whole("priority", priority, -1_000_000, 1_000_000)
        self.name = check_name(name or f"{socket.gethostname()}-{os.getpid()}")
        self.shutdown = patience("shutdown", shutdown)
        self.metrics = metrics
        self.health = health
        # Heartbeats ask more often, and have it ask at once if they fail.
        self.connection = Connection(db, interval=ASKING_SECONDS)
        self._served: list[Served] = []
        self._browsed: list[Browsed] = []
        self._stops = 0
        self._signal: int | None = None
        self._wake: Callable[[], object] | None = None
        """Ends the wait in ``run``. A lock cannot: the signal may come while that is held."""

    @property
    def concurrency(self) -> int:
        """How many messages are handled at once. Raises ``InvalidArgument`` when set while the
        worker runs."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, count: int) -> None:
        if self._runtime is not None:
            raise InvalidArgument(
                argument="concurrency", value=count, problem="the worker runs already"
            )
        before, self._concurrency = self._concurrency, _whole("concurrency", count, 1, 1_000)
        try:
            self._served = [
                each.resized(count, self._window(each.policy.handler.batch))
                for each in self._served
            ]
        except InvalidArgument:
            self._concurrency = before
            raise

    @property
    def prefetch(self) -> int:
        """How many messages of a queue it may hold besides those that it handles; where none is
        given, more while handlers are fast."""
        return self._concurrency if self._prefetch is None else self._prefetch

    @property
    def health(self) -> Address | None:
        """Where it answers probes; the port is that at which it listens, while it runs. Raises
        ``InvalidArgument`` when set while the worker runs."""
        return self._health if self._server is None else self._server.address

    @health.setter
    def health(self, address: Address | None) -> None:
        if self._runtime is not None:
            raise InvalidArgument(
                argument="health", value=address, problem="the worker runs already"
            )
        self._health = None if address is None else check_address("health", address)

    def described(self) -> list[str]:
        """The worker in one line, and each of its queues in another."""
        lines = [
            f"worker {self.name} on {describe(self.db)}: {self.concurrency:,} at once, "
            f"{self.prefetch:,} prefetched"
        ]
        for served in self._served:
            handler = served.policy.handler
            name = getattr(handler.function, "__qualname__", repr(handler.function))
            subscription = served.subscription
            details = [
                *([f"subscription {subscription.name}"] if subscription else []),
                *(["transactional"] if handler.transactional else []),
                *([f"batches of {handler.batch:,}"] if handler.batch else []),
                f"lease {served.policy.lease:g} s",
            ]
            lines.append(f"queue {served.queue.name}: {name} ({', '.join(details)})")
        for each in self._browsed:
            name = getattr(each.handler.function, "__qualname__", repr(each.handler.function))
            lines.append(f"queue {each.queue.name}: {name} (browses {each.subscription.name})")
        if self.health is not None:
            lines.append(f"health at {url(self.health)}")
        return lines

    @names_meant(**FIELDS)
    def add(
        self,
        queue: Queue[T],
        handler: handlers.Handling[T] | None = None,
        *,
        take: Take = TAKE,
        run: Run = RUN,
        fail: Fail = FAIL,
    ) -> Worker:
        """Handle the messages of ``queue`` with ``handler``; returns the worker.

        handler: ``(value)``, acknowledged after it returns; or ``(tr, value)``, whose writes in
            that transaction commit together with the acknowledgement, exactly once, and which may
            run several times for it. The value is decoded as by ``Queue.value``. If its last
            parameter is annotated with ``Message`` or ``Delivery``, it gets that instead. Any
            exception fails the attempt, one of the decoding, too; see also ``Retry``, ``Snooze``
            and ``Reject``. Where None, the jobs of ``queue``.
        take: which messages it takes, and when. run: how it calls the handler. fail: what follows
            when that fails.

        Raises ``InvalidArgument``, ``InvalidOptions``, ``QueueNotFound``.
        """
        if self._runtime is not None:
            raise InvalidArgument(argument="queue", value=queue, problem="the worker runs already")
        if not isinstance(queue, Queue):
            problem = "must be a Queue of fdbqueue"
            raise InvalidArgument(argument="queue", value=queue, problem=problem)
        for given, group in ((take, Take), (run, Run), (fail, Fail)):
            if not isinstance(given, group):
                argument = group.__name__.lower()
                problem = f"write {argument}={group.__name__}(…)"
                raise InvalidArgument(argument=argument, value=given, problem=problem)
        subscription, channel = take.subscription, _channel(take.credit)
        if not isinstance(subscription, Subscription | None):
            problem = "must be a Subscription of fdbqueue"
            raise InvalidArgument(argument="subscription", value=subscription, problem=problem)
        place = _place(queue, subscription)
        if subscription and SubscriptionInternals(subscription).access.keys.prefix != place[0]:
            problem = f"belongs to another queue than {queue.name!r}"
            raise InvalidArgument(argument="subscription", value=subscription, problem=problem)
        others: list[Served | Browsed] = [*self._served, *self._browsed]
        if any(place == _place(each.queue, each.subscription) for each in others):
            raise InvalidArgument(argument="queue", value=queue, problem="it has a handler already")
        call = self._handler(queue, handler, run)
        if subscription is not None and subscription.definition(self.db).mode is Mode.BROWSE:
            _check_browsing(subscription, call, take, run, fail)
            self._browsed.append(Browsed(queue, subscription, call, backoffs.store(fail.backoff)))
            return self
        policy = self._policy(queue, call, take, run, fail)
        # Once the store was silent for as long as the shortest lease, others may have the messages.
        self.connection.lost_after = min(
            policy.lease, *(each.policy.lease for each in self._served), DEAD_SECONDS
        )
        channel = channel or Channel(Credit(messages=policy.window))
        channel.own(self)
        self._served.append(Served(queue, policy, channel, subscription))
        return self

    def _policy(self, queue: Queue[Any], call: Handler, take: Take, run: Run, fail: Fail) -> Policy:
        """How the messages of a queue are taken and handled, checked."""
        if type(take.at_most_once) is not bool:
            problem = "must be True or False"
            raise InvalidArgument(argument="at_most_once", value=take.at_most_once, problem=problem)
        if take.at_most_once and (call.transactional or fail != FAIL):
            raise InvalidArgument(
                argument="at_most_once",
                value=True,
                problem="goes with no transactional handler, max_attempts or backoff: what is "
                "acknowledged before it is handled is not tried again",
            )
        lease, timeout, after = take.lease, run.timeout, take.refresh_after
        usual = queue.options(self.db)
        return Policy(
            handler=call,
            lease=usual.lease if lease is None else check_lease("lease", lease),
            window=self._window(run.batch),
            run=MESSAGES_IN_A_ROW * _whole("weight", take.weight, 1, 1_000),
            refresh_after=None
            if after is None or after == "auto"
            else _whole("refresh_after", after, 1, 1_000_000),
            max_attempts=None
            if fail.max_attempts is None
            else _whole("max_attempts", fail.max_attempts, 1, MAX_ATTEMPTS),
            backoff=backoffs.store(fail.backoff),
            timeout=None
            if timeout is None
            else check_seconds("timeout", timeout, 0.001, MAX_LEASE_SECONDS),
            handlers=self.concurrency,
            adapts=self._prefetch is None and take.credit is None,
            settles_before=take.at_most_once,
            bounds=take.credit is None,
            refreshes=after == "auto" and run.batch is None,
            usual_attempts=usual.max_attempts,
            usual_backoff=usual.backoff,
        )

    def _handler(self, queue: Queue[Any], handler: Callable[..., Any] | None, run: Run) -> Handler:
        """What handles the messages of a queue, checked."""
        if handler is None:
            return handlers.of_jobs(queue, self._called, run)
        called = self._called(handler)
        return Handler.of(called, queue, transactional=run.transactional, batch=run.batch)

    def _called(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return handler

    def _handlers(self, state: SharedState) -> HandlerThreads:
        """What calls the handlers."""
        return HandlerThreads(state)

    def _window(self, batch: int | None) -> int:
        window = self.concurrency * (batch or 1) + self.prefetch
        if window > MAX_MESSAGES:
            raise InvalidArgument(
                argument="batch",
                value=batch,
                problem=f"with a concurrency of {self.concurrency:,} and a prefetch of "
                f"{self.prefetch:,} the worker would hold {window:,} messages of the queue, and "
                f"{MAX_MESSAGES:,} are the most",
            )
        return window

    def channel(self, queue: Queue, subscription: Subscription | None = None) -> Channel:
        """The credit of a queue or subscription that the worker handles, to grant more or to flush.

        Raises ``InvalidArgument``.
        """
        for each in self._served:
            if _place(each.queue, each.subscription) == _place(queue, subscription):
                return each.channel
        raise InvalidArgument(argument="queue", value=queue, problem="it has no handler")

    @names_meant(**FIELDS)
    def handler(
        self, queue: Queue[T], *, take: Take = TAKE, run: Run = RUN, fail: Fail = FAIL
    ) -> handlers.Decorator[T]:
        """A decorator: ``add`` the function as the handler of ``queue``; arguments as there."""

        def register(function: Any) -> Any:
            self.add(queue, function, take=take, run=run, fail=fail)
            return function

        return register

    def run(self) -> None:
        """Handle messages until ``stop`` is called, or SIGTERM or SIGINT arrives.

        The first of them stops gracefully: the worker takes no more, gives prefetched messages
        back, and finishes the running ones, for at most ``shutdown`` seconds. The second stops at
        once. Running messages are then given back, if the store answers; else their leases expire.
        """
        # A socket wakes the main thread from a signal handler and from any thread, without a lock
        # that the interrupted code may hold.
        sleeper, waker = socket.socketpair()
        # A full socket has woken it already: the signal handler must not wait.
        waker.setblocking(False)
        self._wake = partial(_send, waker)
        # In short turns: a signal handler runs only between two of them on some platforms.
        sleeper.settimeout(0.5)
        try:
            with _signals(self._signalled), self:
                while not self._stops:
                    with contextlib.suppress(TimeoutError):
                        sleeper.recv(1)
                if self._signal is not None:
                    log.info("%s: stopping", signal.Signals(self._signal).name)
        finally:
            self._wake = None
            sleeper.close()
            waker.close()

    def stop(self) -> None:
        """Stop gracefully; the second call stops at once. Returns immediately; any thread."""
        self._stops += 1
        runtime, wake = self._runtime, self._wake
        if self._stops > 1 and runtime is not None:
            runtime.stop_at_once()
        if wake is not None:
            wake()

    def over(self) -> None:
        """All subscriptions that it handles have ended: so does ``run``. For its own threads."""
        if not self._stops:
            self.stop()

    def __enter__(self) -> Self:
        if not (self._served or self._browsed):
            raise InvalidArgument(argument="worker", value=self.name, problem="it has no handler")
        # Before anything starts: a port that is taken fails the start, and not a worker that runs.
        self._listen()
        try:
            # Fresh ones, since a worker may run again after it has stopped.
            served = [each.empty() for each in self._served]
            runtime = Runtime(self, served, self._browsed, self._handlers)
            runtime.start()
        except BaseException:
            self._close()
            raise
        self._runtime = runtime
        probes = Probes(
            runtime.state.loops,
            self.connection,
            lambda: bool(self._stops) or runtime.state.stopping,
        )
        if self._server is not None:
            self._server.serve(routes(probes, self.metrics, partial(_doing, runtime.state)))
        if self._systemd is not None:
            self._notices = Notices(self._systemd, probes)
            self._notices.start()
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._runtime is not None
        self._stops = max(1, self._stops)
        if self._notices is not None:
            self._notices.stopping()
        try:
            self._runtime.stop(self.shutdown)
        finally:
            self._close()
            self._runtime, self._stops, self._signal = None, 0, None

    def _listen(self) -> None:
        """Take the port of ``health``, if that is not done yet. Probes that come are answered once
        the worker runs. Raises ``InvalidArgument`` if it cannot be taken."""
        if self._server is None and self._health is not None:
            self._server = Server(self._health)

    def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        notices, self._notices = self._notices, None
        if notices is not None:
            notices.close()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        # No lock here, nor a log line: the code that it interrupts may hold one.
        self._signal = number
        self.stop()


def _doing(state: SharedState) -> list[Work]:
    with state.lock:
        return state.doing()


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if not world.in_main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _send(waker: socket.socket) -> None:
    with contextlib.suppress(OSError):
        waker.send(b".")


def _channel(given: object) -> Channel | None:
    """Where the credit of a handler comes from, checked."""
    if isinstance(given, Credit):
        if not given.window:
            raise InvalidArgument(
                argument="credit",
                value=given,
                problem="only a Channel can grant more of it: give Channel(credit)",
            )
        return Channel(given)
    if not isinstance(given, Channel | None):
        problem = "must be a Credit or a Channel of fdbqueue"
        raise InvalidArgument(argument="credit", value=given, problem=problem)
    return given


def _place(queue: Queue, subscription: Subscription | None) -> tuple[bytes, str]:
    """Which queue, or subscription, a handler is for."""
    return Internals(queue).keys.prefix, subscription.name if subscription else ""


def _whole(argument: str, value: object, low: int, high: int) -> int:
    """A whole number within bounds; raises ``InvalidArgument``."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(
            argument=argument, value=value, problem=f"must be an int from {low:,} to {high:,}"
        )
    return value


def _check_browsing(
    subscription: Subscription, call: Handler, take: Take, run: Run, fail: Fail
) -> None:
    """Check that a browsing subscription has no terms of leases and attempts; raises
    ``InvalidArgument``."""
    usual = (
        (take, Take(subscription)),
        (run, Run(run.transactional, run.batch, RUN.timeout if run.timeout else None)),
        (fail, Fail(backoff=fail.backoff)),
    )
    for given, plain in usual:
        for name, value in asdict(plain).items():
            if getattr(given, name) != value:
                raise InvalidArgument(
                    argument=name,
                    value=subscription,
                    problem="goes with no browsing subscription, which takes no messages: they "
                    "have no leases and no attempts there",
                )
    if call.takes == "delivery":
        raise InvalidArgument(
            argument="handler",
            value=call.function,
            problem="takes a Delivery, which a browsing subscription does not have: take a Message",
        )
