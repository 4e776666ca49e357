"""Written by tools/reference.py, from the signatures of the blocking API."""

import asyncio
import builtins
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any, Generic, Literal, Self, Unpack, overload

from typing_extensions import TypeVar

from ..consumers.line import Ticket
from ..consumers.registry import Consumer
from ..messages.delivery.lease_rows import Held
from ..queue.bulk.planner import Planner
from ..queue.bulk.producer import Producing
from ..queue.dead_letters import Wanted, Which
from ..queue.handle import Creating, Opening
from ..queue.limits import Shared
from ..queue.subscriptions import Terms
from ..schema.codec.sinks import Attempt, SinkState
from ..schema.subscription_definitions import Definition
from ..store.binding import fdb
from ..store.clocks import Clock
from ..values import backoff as backoffs
from ..values.durations import Seconds
from ..values.groups import Group, Grouped, ThenOn
from ..values.limits import (
    KeyBacklog,
    KeyLimits,
    KeyState,
    Limit,
    LimitState,
    LimitSummary,
    OwnLimits,
)
from ..values.model import (
    DeadMessage,
    Delivery,
    Depth,
    Enqueued,
    Event,
    Headers,
    LeasedMessage,
    Message,
    MessageState,
    NewMessage,
    OnConflict,
    PlanConsumer,
    Progress,
    Swept,
)
from ..values.options import Options, QueueOptions
from ..values.schedules import CatchUp, Overlap, Schedule
from ..values.serializers import Serializer
from .transactions import Database, Transaction
from .twins import Twin

S = TypeVar("S")
T = TypeVar("T", default=Any)
Transactor = Database | Transaction
_Bytes = Literal["bytes"]
_Named = str | type | Serializer[Any]
_Of = Serializer[S] | type[S]

class Queue(Twin, Generic[T]):
    """As ``fdbqueue.Queue``."""
    @overload
    def __init__(
        self: Queue[bytes],
        name: str,
        root: fdb.Subspace = ...,
        *,
        clock: Clock = ...,
        serializer: Literal["bytes"] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, root: fdb.Subspace = ..., *, clock: Clock = ..., serializer: _Of[T]
    ) -> None: ...
    @overload
    def __init__(
        self: Queue[Any],
        name: str,
        root: fdb.Subspace = ...,
        *,
        clock: Clock = ...,
        serializer: _Named,
    ) -> None: ...
    async def ack(
        self,
        tr: Transactor,
        delivery: Delivery,
        *,
        result: object = ...,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def ack_many(
        self, tr: Transactor, deliveries: Sequence[Delivery], *, timeout: Seconds | None = ...
    ) -> None: ...
    def browse(
        self, db: Database, *, levels: Iterable[int] | None = ..., timeout: Seconds | None = ...
    ) -> AsyncIterator[Message]: ...
    async def cancel(
        self, tr: Transactor, message_id: str, *, timeout: Seconds | None = ...
    ) -> bool: ...
    async def collect(
        self,
        db: Database,
        ticket: Ticket,
        *,
        wait: Seconds | None = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Delivery]: ...
    def consume(
        self,
        db: Database,
        *,
        max_messages: int = ...,
        lease: Seconds | None = ...,
        wait: Seconds = ...,
        consumer: str = ...,
        timeout: Seconds | None = ...,
    ) -> AsyncIterator[Delivery]: ...
    async def consumers(
        self, tr: Transactor, *, timeout: Seconds | None = ...
    ) -> builtins.list[Consumer]: ...
    async def copy(
        self,
        db: Database,
        target: Queue[Any] | str,
        selector: Wanted = ...,
        *,
        state: str = ...,
        resume: bytes = ...,
        progress: Callable[[Progress], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> Progress: ...
    async def count(
        self,
        db: Database,
        selector: Wanted = ...,
        *,
        state: str = ...,
        resume: bytes = ...,
        progress: Callable[[Progress], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> Progress: ...
    @overload
    @classmethod
    async def create(
        cls, tr: Transactor, name: str, *, serializer: _Bytes = ..., **given: Unpack[Creating]
    ) -> Queue[bytes]: ...
    @overload
    @classmethod
    async def create(
        cls,
        tr: Transactor,
        name: str,
        *,
        serializer: Serializer[S] | type[S],
        **given: Unpack[Creating],
    ) -> Queue[S]: ...
    @overload
    @classmethod
    async def create(
        cls, tr: Transactor, name: str, *, serializer: _Named, **given: Unpack[Creating]
    ) -> Queue[Any]: ...
    @property
    def dead(self) -> DeadLetters: ...
    async def delete(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    async def delivery(
        self, tr: Transactor, token: bytes, *, timeout: Seconds | None = ...
    ) -> Delivery | None: ...
    async def depth(self, tr: Transactor, *, timeout: Seconds | None = ...) -> Depth: ...
    async def depths(
        self, tr: Transactor, *, timeout: Seconds | None = ...
    ) -> dict[int, Depth]: ...
    async def dequeue(self, tr: Transaction) -> Message | None: ...
    async def dequeue_at_most_once(
        self, db: Database, *, wait: Seconds = ..., timeout: Seconds | None = ...
    ) -> Message | None: ...
    async def dequeue_many_at_most_once(
        self, db: Database, max_messages: int, *, wait: Seconds = ..., timeout: Seconds | None = ...
    ) -> builtins.list[Message]: ...
    async def dequeue_matching(self, tr: Transaction, selector: str) -> Message | None: ...
    async def dequeue_matching_at_most_once(
        self, db: Database, selector: str, *, timeout: Seconds | None = ...
    ) -> Message | None: ...
    async def edit(
        self,
        tr: Transactor,
        message_id: str,
        *,
        priority: int | None = ...,
        delay: Seconds | None = ...,
        at: datetime | None = ...,
        timeout: Seconds | None = ...,
    ) -> bool: ...
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
        timeout: Seconds = ...,
    ) -> str: ...
    async def enqueue_group(
        self,
        tr: Transactor,
        messages: Iterable[NewMessage[T] | T],
        *,
        then: NewMessage[Any] | Any,
        then_queue: Queue[Any] | None = ...,
        then_on: ThenOn = ...,
        name: str | None = ...,
        timeout: Seconds = ...,
    ) -> Grouped: ...
    async def enqueue_many(
        self, tr: Transactor, messages: Iterable[NewMessage[T] | T], *, timeout: Seconds = ...
    ) -> Enqueued: ...
    async def evict(
        self, tr: Transactor, consumer: Consumer | None = ..., *, timeout: Seconds | None = ...
    ) -> builtins.list[bytes]: ...
    async def extend(
        self,
        tr: Transactor,
        delivery: Delivery,
        lease: Seconds | None = ...,
        *,
        timeout: Seconds | None = ...,
    ) -> Delivery: ...
    async def extend_many(
        self,
        tr: Transactor,
        deliveries: Sequence[Delivery],
        lease: Seconds | None = ...,
        *,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Delivery]: ...
    async def get(
        self, tr: Transactor, message_id: str, *, timeout: Seconds | None = ...
    ) -> MessageState | None: ...
    @property
    def groups(self) -> Groups: ...
    async def history(
        self, tr: Transactor, limit: int = ..., after: bytes = ..., *, timeout: Seconds | None = ...
    ) -> builtins.list[Event]: ...
    @property
    def keys(self) -> Keys: ...
    async def leases(
        self,
        tr: Transactor,
        limit: int = ...,
        after: bytes | None = ...,
        *,
        timeout: Seconds | None = ...,
    ) -> builtins.list[LeasedMessage]: ...
    @property
    def limits(self) -> Limits: ...
    async def messages(
        self,
        tr: Transactor,
        state: str = ...,
        limit: int = ...,
        after: str | None = ...,
        *,
        timeout: Seconds | None = ...,
    ) -> builtins.list[MessageState]: ...
    async def move(
        self,
        db: Database,
        target: Queue[Any] | str,
        selector: Wanted = ...,
        *,
        state: str = ...,
        resume: bytes = ...,
        progress: Callable[[Progress], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> Progress: ...
    @overload
    @classmethod
    async def open(
        cls, tr: Transactor, name: str, *, serializer: _Bytes = ..., **given: Unpack[Opening]
    ) -> Queue[bytes]: ...
    @overload
    @classmethod
    async def open(
        cls,
        tr: Transactor,
        name: str,
        *,
        serializer: Serializer[S] | type[S],
        **given: Unpack[Opening],
    ) -> Queue[S]: ...
    @overload
    @classmethod
    async def open(
        cls, tr: Transactor, name: str, *, serializer: _Named, **given: Unpack[Opening]
    ) -> Queue[Any]: ...
    async def options(self, tr: Transactor, *, timeout: Seconds | None = ...) -> QueueOptions: ...
    async def pause(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    async def peek(
        self, tr: Transactor, limit: int = ..., *, timeout: Seconds | None = ...
    ) -> builtins.list[Message]: ...
    @property
    def plans(self) -> Plans: ...
    async def producer(
        self, db: Database, *, timeout: Seconds | None = ..., **terms: Unpack[Producing]
    ) -> Producer[T]: ...
    async def purge(
        self,
        db: Database,
        *,
        progress: Callable[[int], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> int: ...
    async def ready_since_ms(
        self, tr: Transactor, *, timeout: Seconds | None = ...
    ) -> int | None: ...
    async def receive(
        self,
        tr: Transactor,
        *,
        lease: Seconds | None = ...,
        wait: Seconds = ...,
        consumer: str = ...,
        ack: Sequence[Delivery] = ...,
        timeout: Seconds | None = ...,
    ) -> Delivery | None: ...
    async def receive_batch(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        lease: Seconds | None = ...,
        wait: Seconds = ...,
        consumer: str = ...,
        ack: Sequence[Delivery] = ...,
        timeout: Seconds | None = ...,
    ) -> Batch[T]: ...
    async def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        lease: Seconds | None = ...,
        wait: Seconds = ...,
        consumer: str = ...,
        ack: Sequence[Delivery] = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Delivery]: ...
    async def receive_matching(
        self,
        tr: Transactor,
        selector: str,
        *,
        lease: Seconds | None = ...,
        consumer: str = ...,
        timeout: Seconds | None = ...,
    ) -> Delivery | None: ...
    async def reject(
        self,
        tr: Transactor,
        delivery: Delivery,
        reason: str,
        *,
        drop: bool = ...,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def reject_many(
        self,
        tr: Transactor,
        deliveries: Sequence[Delivery],
        reason: str,
        *,
        drop: bool = ...,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def release(
        self,
        tr: Transactor,
        delivery: Delivery,
        *,
        delay: Seconds | None = ...,
        error: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def release_many(
        self,
        tr: Transactor,
        deliveries: Sequence[Delivery],
        *,
        delay: Seconds | None = ...,
        error: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def remove(
        self,
        db: Database,
        selector: Which,
        *,
        state: str = ...,
        resume: bytes = ...,
        progress: Callable[[Progress], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> Progress: ...
    async def request(
        self,
        tr: Transactor,
        *,
        max_messages: int = ...,
        lease: Seconds | None = ...,
        wait: bool = ...,
        consumer: str = ...,
        timeout: Seconds | None = ...,
    ) -> Ticket: ...
    async def result(
        self, tr: Transactor, message_id: str, *, wait: Seconds = ..., timeout: Seconds | None = ...
    ) -> Any: ...
    async def resume(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    @property
    def schedules(self) -> Schedules: ...
    async def set_options(
        self, tr: Transactor, *, timeout: Seconds | None = ..., **changes: Unpack[Options]
    ) -> QueueOptions: ...
    async def subscribe(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ..., **terms: Unpack[Terms]
    ) -> Subscription: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    async def sweep(self, db: Database, *, timeout: Seconds | None = ...) -> Swept: ...
    def value(self, message: Message | Delivery) -> T: ...
    async def withdraw(
        self, tr: Transactor, ticket: Ticket, *, timeout: Seconds | None = ...
    ) -> builtins.list[Delivery]: ...
    def within(self, seconds: Seconds | None) -> Self: ...

class Subscription(Twin):
    """As ``fdbqueue.Subscription``."""
    async def browse(
        self,
        tr: Transactor,
        limit: int = ...,
        *,
        wait: Seconds = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Message]: ...
    async def close(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    async def definition(self, tr: Transactor, *, timeout: Seconds | None = ...) -> Definition: ...
    async def get(self, tr: Transaction) -> Message | None: ...
    async def get_at_most_once(
        self, db: Database, *, timeout: Seconds | None = ...
    ) -> Message | None: ...
    async def positions(
        self, tr: Transactor, *, timeout: Seconds | None = ...
    ) -> dict[int, int]: ...
    async def receive(
        self,
        tr: Transactor,
        *,
        lease: Seconds | None = ...,
        wait: Seconds = ...,
        consumer: str = ...,
        ack: Sequence[Delivery] = ...,
        timeout: Seconds | None = ...,
    ) -> Delivery | None: ...
    async def receive_many(
        self,
        tr: Transactor,
        max_messages: int,
        *,
        lease: Seconds | None = ...,
        wait: Seconds = ...,
        consumer: str = ...,
        ack: Sequence[Delivery] = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Delivery]: ...
    async def remove(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    async def seek(self, tr: Transactor, to: str, *, timeout: Seconds | None = ...) -> None: ...
    async def set_selector(
        self, tr: Transactor, selector: str | None, *, timeout: Seconds | None = ...
    ) -> None: ...

class Subscriptions(Twin):
    """The subscriptions of a queue."""
    async def list(
        self, tr: Transactor, *, timeout: Seconds | None = ...
    ) -> builtins.list[Definition]: ...
    async def open(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ...
    ) -> Subscription: ...
    async def remove(self, tr: Transactor, name: str, *, timeout: Seconds | None = ...) -> None: ...
    async def subscribe(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ..., **terms: Unpack[Terms]
    ) -> Subscription: ...

class DeadLetters(Twin):
    """The dead letters of a queue."""
    async def list(
        self,
        tr: Transactor,
        limit: int = ...,
        after: str | None = ...,
        *,
        timeout: Seconds | None = ...,
    ) -> builtins.list[DeadMessage]: ...
    async def move_ids(
        self,
        db: Database,
        target: Queue[Any] | str,
        message_ids: Iterable[str],
        *,
        timeout: Seconds | None = ...,
    ) -> int: ...
    async def purge(
        self,
        db: Database,
        wanted: Wanted = ...,
        *,
        progress: Callable[[int], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> int: ...
    async def purge_ids(
        self, tr: Transactor, message_ids: Iterable[str], *, timeout: Seconds | None = ...
    ) -> int: ...
    async def redrive(
        self,
        db: Database,
        wanted: Wanted = ...,
        *,
        at_once: int | None = ...,
        progress: Callable[[int], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> int: ...
    async def redrive_ids(
        self, tr: Transactor, message_ids: Iterable[str], *, timeout: Seconds | None = ...
    ) -> int: ...
    async def show(
        self, tr: Transactor, message_id: str, *, timeout: Seconds | None = ...
    ) -> DeadMessage | None: ...
    def within(self, seconds: Seconds | None) -> Self: ...

class Plans(Twin):
    """The plans of a queue."""
    async def forget(
        self, tr: Transactor, consumer: str, *, timeout: Seconds | None = ...
    ) -> None: ...
    async def list(
        self, tr: Transactor, *, timeout: Seconds | None = ...
    ) -> builtins.list[PlanConsumer]: ...
    async def messages(
        self, tr: Transactor, consumer: str, limit: int = ..., *, timeout: Seconds | None = ...
    ) -> builtins.list[Message]: ...
    def planner(self, consumer: str, *, lenient: bool = ...) -> Planner: ...
    async def release(
        self,
        db: Database,
        consumer: str,
        *,
        progress: Callable[[int], object] | None = ...,
        timeout: Seconds | None = ...,
    ) -> int: ...
    async def show(
        self, tr: Transactor, consumer: str, *, timeout: Seconds | None = ...
    ) -> PlanConsumer: ...

class Keys(Twin):
    """The keys of a queue."""
    async def limited(
        self,
        tr: Transactor,
        limit: int = ...,
        *,
        after: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> dict[str, OwnLimits]: ...
    async def waiting(
        self,
        tr: Transactor,
        limit: int = ...,
        *,
        after: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[KeyBacklog]: ...
    def __getitem__(self, key: str) -> Key: ...

class Key(Twin):
    """One key of a queue."""
    async def pause(self, tr: Transactor, *, timeout: Seconds | None = ...) -> KeyLimits: ...
    async def reset(self, tr: Transactor, *, timeout: Seconds | None = ...) -> KeyLimits: ...
    async def resume(self, tr: Transactor, *, timeout: Seconds | None = ...) -> KeyLimits: ...
    async def set(
        self, tr: Transactor, *, timeout: Seconds | None = ..., **own: Unpack[OwnLimits]
    ) -> KeyLimits: ...
    async def state(self, tr: Transactor, *, timeout: Seconds | None = ...) -> KeyState: ...

class Limits(Twin):
    """The limits that the queues of a root share."""
    def __init__(
        self, root: fdb.Subspace = ..., *, clock: Clock = ..., timeout: Seconds | None = ...
    ) -> None: ...
    async def list(
        self,
        tr: Transactor,
        limit: int = ...,
        *,
        after: Limit | None = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[LimitSummary]: ...
    def __getitem__(self, limit: Limit) -> SharedLimit: ...

class SharedLimit(Twin):
    """One limit that queues share."""
    async def delete(self, tr: Transactor, *, timeout: Seconds | None = ...) -> LimitState: ...
    async def pause(self, tr: Transactor, *, timeout: Seconds | None = ...) -> LimitState: ...
    async def resume(self, tr: Transactor, *, timeout: Seconds | None = ...) -> LimitState: ...
    async def set(
        self, tr: Transactor, *, timeout: Seconds | None = ..., **shared: Unpack[Shared]
    ) -> LimitState: ...
    async def state(self, tr: Transactor, *, timeout: Seconds | None = ...) -> LimitState: ...

class Schedules(Twin):
    """The schedules of a queue."""
    async def delete(self, tr: Transactor, name: str, *, timeout: Seconds | None = ...) -> bool: ...
    async def get(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ...
    ) -> Schedule | None: ...
    async def list(
        self,
        tr: Transactor,
        limit: int = ...,
        *,
        after: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Schedule]: ...
    async def pause(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ...
    ) -> Schedule: ...
    async def resume(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ...
    ) -> Schedule: ...
    async def run(self, tr: Transactor, name: str, *, timeout: Seconds | None = ...) -> str: ...
    async def set(
        self,
        tr: Transactor,
        name: str,
        payload: Any = ...,
        *,
        cron: str | None = ...,
        every: Seconds | None = ...,
        timezone: str = ...,
        overlap: Overlap = ...,
        catch_up: CatchUp = ...,
        priority: int = ...,
        headers: Headers | None = ...,
        ttl: Seconds | None = ...,
        max_attempts: int | None = ...,
        backoff: backoffs.Given = ...,
        key: str | None = ...,
        limits: Mapping[str, str] | None = ...,
        timeout: Seconds | None = ...,
    ) -> Schedule: ...

class Groups(Twin):
    """The groups of a queue."""
    async def forget(self, tr: Transactor, name: str, *, timeout: Seconds | None = ...) -> bool: ...
    async def get(
        self, tr: Transactor, name: str, *, timeout: Seconds | None = ...
    ) -> Group | None: ...
    async def list(
        self,
        tr: Transactor,
        limit: int = ...,
        *,
        after: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> builtins.list[Group]: ...

class Batch(Twin, Generic[T]):
    """As ``fdbqueue.Batch``: a sequence of deliveries, for ``async with``."""
    async def ack(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    def count(self, value: Any) -> Any: ...
    @property
    def expires_at_ms(self) -> int | None: ...
    async def extend(
        self, tr: Transactor, lease: Seconds | None = ..., *, timeout: Seconds | None = ...
    ) -> Self: ...
    @property
    def held(self) -> Sequence[Held]: ...
    def index(self, value: Any, start: Any = ..., stop: Any = ...) -> Any: ...
    @property
    def payloads(self) -> builtins.list[bytes]: ...
    async def reject(
        self, tr: Transactor, reason: str, *, drop: bool = ..., timeout: Seconds | None = ...
    ) -> None: ...
    async def release(
        self,
        tr: Transactor,
        *,
        delay: Seconds | None = ...,
        error: str | None = ...,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def settle(
        self,
        tr: Transactor,
        verdicts: Mapping[str, BaseException],
        *,
        timeout: Seconds | None = ...,
    ) -> None: ...
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
    """As ``fdbqueue.Sink``."""
    def __init__(self, queue: Queue, name: str) -> None: ...
    async def discard(
        self,
        db: Database,
        batch: int,
        attempts: Iterable[Attempt],
        *,
        timeout: Seconds | None = ...,
    ) -> None: ...
    async def finish(
        self,
        db: Database,
        *,
        timeout: Seconds = ...,
        progress: Callable[[SinkState], object] | None = ...,
    ) -> SinkState: ...
    async def forget(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    async def publish(
        self,
        db: Database,
        batch: int,
        attempts: Iterable[Attempt],
        *,
        timeout: Seconds = ...,
        progress: Callable[[SinkState], object] | None = ...,
    ) -> SinkState: ...
    async def stage(
        self, db: Database, batch: int, content_type: str = ..., *, timeout: Seconds | None = ...
    ) -> Stager: ...
    async def state(self, tr: Transactor, *, timeout: Seconds | None = ...) -> SinkState: ...

class Import(Twin):
    """As ``fdbqueue.Import``."""
    def __init__(self, queue: Queue, name: str) -> None: ...
    async def enqueue(
        self,
        db: Database,
        messages: Iterable[NewMessage | Any],
        *,
        since: bytes,
        until: bytes,
        timeout: Seconds = ...,
    ) -> Enqueued: ...
    async def forget(self, tr: Transactor, *, timeout: Seconds | None = ...) -> None: ...
    async def place(self, tr: Transactor, *, timeout: Seconds | None = ...) -> bytes: ...

class Stager(Twin):
    """One attempt to stage rows of a batch, see ``Sink.stage``."""
    async def add(self, message: NewMessage) -> None: ...
    async def discard(self) -> None: ...
    async def finish(self) -> Attempt: ...
    async def plain(self, payload: bytes, priority: int, headers: Headers | None = ...) -> None: ...

class Producer(Twin, Generic[T]):
    """As ``fdbqueue.Producer``: tasks send messages one by one, and share transactions."""
    async def close(self, timeout: Seconds | None = ...) -> None: ...
    async def flush(self, timeout: Seconds | None = ...) -> None: ...
    @property
    def pending(self) -> int: ...
    async def send(
        self, message: NewMessage[T] | T, *, timeout: Seconds | None = ...
    ) -> asyncio.Future[str]: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *how: object) -> None: ...
