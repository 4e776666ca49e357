"""Written by tools/reference.py, from the signatures of the blocking API."""

import asyncio
import builtins
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, Unpack, overload

from typing_extensions import TypeVar

from ..messages.run import Held
from ..queue.admin.admin import Admin as _Admin
from ..queue.bulk.producer import ProducerTerms
from ..queue.consume import Leasing, Receiving
from ..queue.continuations.groups import Groups as _Groups
from ..queue.dead_letters import DeadLetters as _DeadLetters
from ..queue.keys.message_keys import Key as _Key
from ..queue.keys.message_keys import Keys as _Keys
from ..queue.keys.shared_limits import Limits as _Limits
from ..queue.keys.shared_limits import SharedLimit as _SharedLimit
from ..queue.line import Line as _Line
from ..queue.queue import Queue as _Queue
from ..queue.schedules.schedules import Schedules as _Schedules
from ..queue.selection import Chosen, Ids
from ..queue.streams.imports import Import as _Import
from ..queue.streams.planner import Planner
from ..queue.streams.plans import Plans as _Plans
from ..queue.streams.sinks import Sink as _Sink
from ..queue.streams.streams import Streams as _Streams
from ..queue.subscription.subscription_handle import Subscription as _Subscription
from ..queue.subscription.subscriptions import Subscriptions as _Subscriptions
from ..queue.subscription.subscriptions import SubscriptionTerms
from ..schema.streams import StagingAttempt
from ..store.binding import fdb
from ..store.clocks import Clock
from ..values import backoff as backoffs
from ..values.durations import Seconds
from ..values.groups import Then
from ..values.limits import Limit
from ..values.model import (
    Delivery,
    Enqueued,
    Headers,
    Message,
    MessageTerms,
    NewMessage,
    OnConflict,
    Progress,
)
from ..values.options import Options
from ..values.schedules import Schedule, ScheduleTerms
from ..values.serializers import Serializer
from .handlers import Coroutines
from .transactions import Database, Transaction
from .twins import Twin

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
S = TypeVar("S", default=Any)
T = TypeVar("T", default=Any)
B = TypeVar("B", bound="Batch[Any]")
Transactor = Database | Transaction

# What the twin of a method is, by what it takes first: the other arguments are the same.
def _both(
    method: Callable[Concatenate[Any, Any, P], R],
) -> Callable[Concatenate[Any, Transactor, P], Coroutine[Any, Any, R]]: ...
def _db(
    method: Callable[Concatenate[Any, Any, P], R],
) -> Callable[Concatenate[Any, Database, P], Coroutine[Any, Any, R]]: ...
def _tr(
    method: Callable[Concatenate[Any, Any, P], R],
) -> Callable[Concatenate[Any, Transaction, P], Coroutine[Any, Any, R]]: ...
def _rows(
    method: Callable[Concatenate[Any, Any, P], Iterator[R]],
) -> Callable[Concatenate[Any, Database, P], AsyncIterator[R]]: ...

class JobDecorator(Protocol):
    @overload
    def __call__(self, function: Callable[[V], R], /) -> Job[V, R]: ...
    @overload
    def __call__(
        self, function: Callable[[Transaction, V], Coroutines[R]], /
    ) -> Job[V, Coroutines[R]]: ...
    @overload
    def __call__(self, function: Callable[[fdb.Transaction, V], R], /) -> Job[V, R]: ...

class Queue(Twin, Generic[T]):
    """A queue: the twin of ``fdbqueue.Queue``."""
    def __init__(
        self,
        name: str,
        root: fdb.Subspace = ...,
        *,
        clock: Clock = ...,
        serializer: Serializer[T] | type[T] | None = ...,
    ) -> None: ...
    ack = _both(_Queue.ack)
    @property
    def admin(self) -> Admin: ...
    browse = _rows(_Queue.browse)
    cancel = _both(_Queue.cancel)
    consume = _rows(_Queue.consume)
    async def copy(
        self, tr: Transactor, target: Queue[Any] | str, ids: Ids = ..., **chosen: Unpack[Chosen]
    ) -> Progress: ...
    count = _both(_Queue.count)
    @classmethod
    async def create(
        cls,
        tr: Transactor,
        name: str,
        *,
        root: fdb.Subspace = ...,
        clock: Clock = ...,
        serializer: Serializer[S] | type[S] | None = ...,
        timeout: Seconds | None = ...,
        **options: Unpack[Options],
    ) -> Queue[S]: ...
    @property
    def dead(self) -> DeadLetters: ...
    delete = _both(_Queue.delete)
    depth = _both(_Queue.depth)
    dequeue = _tr(_Queue.dequeue)
    edit = _both(_Queue.edit)
    async def enqueue(
        self,
        tr: Transactor,
        payload: T,
        *,
        priority: int = ...,
        headers: Headers | None = ...,
        delay: Seconds = ...,
        at: datetime | None = ...,
        ttl: Seconds | None = ...,
        max_attempts: int | None = ...,
        backoff: backoffs.Given = ...,
        dedup_id: str | None = ...,
        unique: str | None = ...,
        on_conflict: OnConflict = ...,
        max_delay: Seconds | None = ...,
        key: str | None = ...,
        keep_result: Seconds | None = ...,
        limits: Mapping[str, str] | None = ...,
        room: Seconds = ...,
    ) -> str: ...
    async def enqueue_many(
        self,
        tr: Transactor,
        messages: Iterable[NewMessage[T] | T],
        *,
        group: Then | None = ...,
        room: Seconds = ...,
    ) -> Enqueued: ...
    @overload
    async def extend(
        self, tr: Transactor, deliveries: Delivery, lease: Seconds | None = ...
    ) -> Delivery: ...
    @overload
    async def extend(self, tr: Transactor, deliveries: B, lease: Seconds | None = ...) -> B: ...
    @overload
    async def extend(
        self, tr: Transactor, deliveries: Sequence[Delivery], lease: Seconds | None = ...
    ) -> builtins.list[Delivery]: ...
    get = _both(_Queue.get)
    @property
    def groups(self) -> Groups: ...
    history = _both(_Queue.history)
    @overload
    def job(self, function: Callable[[V], R], /) -> Job[V, R]: ...
    @overload
    def job(
        self, function: Callable[[Transaction, V], Coroutines[R]], /
    ) -> Job[V, Coroutines[R]]: ...
    @overload
    def job(self, function: Callable[[fdb.Transaction, V], R], /) -> Job[V, R]: ...
    @overload
    def job(self, *, name: str) -> JobDecorator: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def line(self) -> Line: ...
    messages = _both(_Queue.messages)
    async def move(
        self, tr: Transactor, target: Queue[Any] | str, ids: Ids = ..., **chosen: Unpack[Chosen]
    ) -> Progress: ...
    @classmethod
    async def open(
        cls,
        tr: Transactor,
        name: str,
        *,
        create: bool = ...,
        root: fdb.Subspace = ...,
        clock: Clock = ...,
        serializer: Serializer[S] | type[S] | None = ...,
        timeout: Seconds | None = ...,
        **options: Unpack[Options],
    ) -> Queue[S]: ...
    options = _both(_Queue.options)
    peek = _both(_Queue.peek)
    async def producer(self, db: Database, **terms: Unpack[ProducerTerms]) -> Producer[T]: ...
    purge = _both(_Queue.purge)
    @overload
    async def receive(
        self, tr: Transactor, *, at_most_once: Literal[False] = ..., **terms: Unpack[Receiving]
    ) -> Delivery | None: ...
    @overload
    async def receive(
        self, tr: Transactor, *, at_most_once: Literal[True], **terms: Unpack[Receiving]
    ) -> Message | None: ...
    @overload
    async def receive_batch(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[False] = ...,
        **terms: Unpack[Receiving],
    ) -> Batch[T]: ...
    @overload
    async def receive_batch(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[True],
        **terms: Unpack[Receiving],
    ) -> builtins.list[Message]: ...
    @overload
    async def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[False] = ...,
        **terms: Unpack[Receiving],
    ) -> builtins.list[Delivery]: ...
    @overload
    async def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[True],
        **terms: Unpack[Receiving],
    ) -> builtins.list[Message]: ...
    reject = _both(_Queue.reject)
    release = _both(_Queue.release)
    result = _both(_Queue.result)
    retry = _both(_Queue.retry)
    @property
    def schedules(self) -> Schedules: ...
    set_options = _both(_Queue.set_options)
    settle = _both(_Queue.settle)
    @property
    def streams(self) -> Streams: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    def value(self, message: Message | Delivery) -> T: ...
    watch = _rows(_Queue.watch)
    def within(self, seconds: Seconds | None) -> Self: ...

class Job(Twin, Generic[V, R]):
    """A function that workers call for messages of a queue; made by ``Queue.job``."""
    async def enqueue(self, tr: Transactor, value: V, **terms: Unpack[MessageTerms]) -> str: ...
    @property
    def name(self) -> str: ...
    async def schedule(
        self, tr: Transactor, name: str, value: V, **terms: Unpack[ScheduleTerms]
    ) -> Schedule: ...
    def __call__(self, *given: Any) -> R: ...

class Subscription(Twin):
    """A subscription: the twin of ``fdbqueue.Subscription``."""

    browse = _both(_Subscription.browse)
    close = _both(_Subscription.close)
    definition = _both(_Subscription.definition)
    positions = _both(_Subscription.positions)
    @overload
    async def receive(
        self, tr: Transactor, *, at_most_once: Literal[False] = ..., **terms: Unpack[Leasing]
    ) -> Delivery | None: ...
    @overload
    async def receive(
        self, tr: Transactor, *, at_most_once: Literal[True], **terms: Unpack[Leasing]
    ) -> Message | None: ...
    @overload
    async def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[False] = ...,
        **terms: Unpack[Leasing],
    ) -> builtins.list[Delivery]: ...
    @overload
    async def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        at_most_once: Literal[True],
        **terms: Unpack[Leasing],
    ) -> builtins.list[Message]: ...
    remove = _both(_Subscription.remove)
    seek = _both(_Subscription.seek)
    set_selector = _both(_Subscription.set_selector)

class Subscriptions(Twin):
    """The subscriptions of a queue."""

    list = _both(_Subscriptions.list)
    async def open(
        self, tr: Transactor, name: str, *, create: bool = ..., **terms: Unpack[SubscriptionTerms]
    ) -> Subscription: ...
    remove = _both(_Subscriptions.remove)

class DeadLetters(Twin):
    """The dead letters of a queue."""

    list = _both(_DeadLetters.list)
    show = _both(_DeadLetters.show)

class Streams(Twin):
    """What imports need of a queue, and Spark."""
    def importer(self, name: str) -> Import: ...
    @property
    def plans(self) -> Plans: ...
    def sink(self, name: str | None = ...) -> Sink: ...
    sinks = _both(_Streams.sinks)
    undecided = _both(_Streams.undecided)

class Plans(Twin):
    """The plans of a queue."""

    forget = _both(_Plans.forget)
    list = _both(_Plans.list)
    messages = _both(_Plans.messages)
    def planner(
        self, consumer: str, *, lenient: bool = ..., begins: Callable[[], Mapping[int, bytes]] = ...
    ) -> Planner: ...
    release = _db(_Plans.release)
    show = _both(_Plans.show)

class Keys(Twin):
    """The keys of a queue."""

    limited = _both(_Keys.limited)
    waiting = _both(_Keys.waiting)
    def __getitem__(self, key: str) -> Key: ...

class Key(Twin):
    """One key of a queue."""

    pause = _both(_Key.pause)
    reset = _both(_Key.reset)
    resume = _both(_Key.resume)
    set = _both(_Key.set)
    state = _both(_Key.state)

class Limits(Twin):
    """The limits that the queues of a root share."""
    def __init__(
        self, root: fdb.Subspace = ..., *, clock: Clock = ..., timeout: Seconds | None = ...
    ) -> None: ...
    list = _both(_Limits.list)
    def __getitem__(self, limit: Limit) -> SharedLimit: ...

class SharedLimit(Twin):
    """One limit that queues share."""

    delete = _both(_SharedLimit.delete)
    pause = _both(_SharedLimit.pause)
    resume = _both(_SharedLimit.resume)
    set = _both(_SharedLimit.set)
    state = _both(_SharedLimit.state)

class Schedules(Twin):
    """The schedules of a queue."""

    delete = _both(_Schedules.delete)
    get = _both(_Schedules.get)
    list = _both(_Schedules.list)
    pause = _both(_Schedules.pause)
    resume = _both(_Schedules.resume)
    run = _both(_Schedules.run)
    set = _both(_Schedules.set)

class Groups(Twin):
    """The groups of a queue."""

    forget = _both(_Groups.forget)
    get = _both(_Groups.get)
    list = _both(_Groups.list)

class Admin(Twin):
    """What operators do to a queue."""

    consumers = _both(_Admin.consumers)
    counters = _both(_Admin.counters)
    delivery = _both(_Admin.delivery)
    evict = _both(_Admin.evict)
    leases = _both(_Admin.leases)
    pause = _both(_Admin.pause)
    ready_since_ms = _both(_Admin.ready_since_ms)
    repair = _db(_Admin.repair)
    resume = _both(_Admin.resume)
    sweep = _db(_Admin.sweep)
    verify = _db(_Admin.verify)

class Line(Twin):
    """The line of a queue."""

    collect = _db(_Line.collect)
    request = _both(_Line.request)
    withdraw = _both(_Line.withdraw)

class Batch(Twin, Generic[T]):
    """A sequence of deliveries, for ``async with``: the twin of ``fdbqueue.Batch``."""
    def count(self, value: Any) -> Any: ...
    @property
    def expires_at_ms(self) -> int | None: ...
    @property
    def held(self) -> Sequence[Held]: ...
    def index(self, value: Any, start: Any = ..., stop: Any = ...) -> Any: ...
    @property
    def payloads(self) -> builtins.list[bytes]: ...
    @property
    def values(self) -> builtins.list[T]: ...
    def without(self, ids: Collection[str]) -> Self: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, n: int) -> Delivery: ...
    @overload
    def __getitem__(self, n: slice) -> Self: ...
    def __iter__(self) -> Iterator[Delivery]: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *how: object) -> None: ...

class Sink(Twin):
    """A stream of numbered batches into a queue."""

    discard = _db(_Sink.discard)
    finish = _db(_Sink.finish)
    forget = _both(_Sink.forget)
    publish = _db(_Sink.publish)
    async def stage(self, db: Database, batch: int, content_type: str = ...) -> Stager: ...
    state = _both(_Sink.state)

class Import(Twin):
    """A named import into a queue."""

    enqueue = _db(_Import.enqueue)
    forget = _both(_Import.forget)
    place = _both(_Import.place)

class Stager(Twin):
    """One attempt to stage rows of a batch, see ``Sink.stage``."""
    async def add(self, message: NewMessage) -> None: ...
    async def discard(self) -> None: ...
    async def finish(self) -> StagingAttempt: ...
    async def plain(self, payload: bytes, priority: int, headers: Headers | None = ...) -> None: ...

class Producer(Twin, Generic[T]):
    """Sends messages of tasks, which share transactions: the twin of ``fdbqueue.Producer``."""
    async def close(self, timeout: Seconds | None = ...) -> None: ...
    async def flush(self, timeout: Seconds | None = ...) -> None: ...
    @property
    def pending(self) -> int: ...
    async def send(
        self, message: NewMessage[T] | T, *, room: Seconds | None = ...
    ) -> asyncio.Future[str]: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *how: object) -> None: ...
