"""The public queue: what users hold."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload

from ..errors import (
    InvalidArgument,
    InvalidOptions,
    OptionsMismatch,
    QueueNotFound,
    TransactionTooLarge,
)
from ..messages.slots import shared_release
from ..schema import catalogue
from ..schema.keys import DEFAULT_ROOT, RootKeys
from ..store.binding import describe, fdb
from ..store.clocks import SYSTEM_CLOCK, Clock
from ..values import compression, durations, serializers
from ..values.durations import Seconds
from ..values.model import Delivery, Message, S, T
from ..values.options import FIXED, SUSPENDING, Options, QueueOptions
from ..values.serializers import Declared, Serializer
from ..values.text import names_meant
from . import consume as receiving
from . import inspection, selection, settlement
from .admin import housekeeping
from .continuations import groups as grouping
from .continuations import results
from .enqueue import Enqueuing
from .jobs import Job, R, V
from .line import Line
from .queue_base import Transactor, composed

if TYPE_CHECKING:  # imported by those who use them: most programs use none
    from .admin.admin import Admin
    from .bulk.producer import Producer, ProducerTerms
    from .continuations.groups import Groups
    from .dead_letters import DeadLetters
    from .keys.message_keys import Keys
    from .keys.shared_limits import Limits
    from .schedules.schedules import Schedules
    from .streams.streams import Streams
    from .subscription.subscriptions import Subscriptions


class JobDecorator(Protocol):
    """Makes a function a ``Job``."""

    @overload
    def __call__(self, function: Callable[[V], R], /) -> Job[V, R]: ...
    @overload
    def __call__(self, function: Callable[[fdb.Transaction, V], R], /) -> Job[V, R]: ...


class Queue(Enqueuing[T]):
    """A light handle on one queue: its name and cached options, no connection.

    Threads can share it, and it can be pickled. A method that takes ``tr`` composes: given a
    transaction, it is part of that, and the caller's retry loop decides what an unknown commit
    result means. Given a database, it runs in a transaction of its own, retries, and takes effect
    exactly once even when the outcome of a commit is unknown.

    For type checkers it is generic over the values: the type that the serializer takes. Without
    one, it is a ``Queue[Any]``.

    Most methods are functions of the modules beside this one, listed here by what they do.
    """

    def __init__(
        self,
        name: str,
        root: fdb.Subspace = DEFAULT_ROOT,
        *,
        clock: Clock = SYSTEM_CLOCK,
        serializer: Serializer[T] | type[T] | None = None,
    ) -> None:
        super().__init__(name, root, clock, serializers.find(serializer))
        self._db: fdb.Database | None = None
        """The database that it was opened with, for who runs its jobs."""

    def __reduce__(self) -> tuple[Callable[..., Queue], tuple[object, ...]]:
        terms = self._root.key(), self._clock, self._serializer, self._keys.once.timeout
        return _restore, (self.name, *terms)

    def __repr__(self) -> str:
        store = "" if self._db is None else f", {str(describe(self._db))!r}"
        return f"Queue({self.name!r}{store})"

    @classmethod
    @names_meant()
    def create(
        cls,
        tr: Transactor,
        name: str,
        *,
        root: fdb.Subspace = DEFAULT_ROOT,
        clock: Clock = SYSTEM_CLOCK,
        serializer: Serializer[S] | type[S] | None = None,
        timeout: Seconds | None = None,
        **options: Unpack[Options],
    ) -> Queue[S]:
        """Create a queue with the given options (see ``QueueOptions``).

        serializer: a type that pydantic knows, such as a model or a dataclass, or a ``Serializer``.
            Without one, bytes are stored as they are, and anything else as JSON, if that gives it
            back in value and type. The queue keeps its name and its content type.
        timeout: seconds that this call may take with a database; None for no limit. ``within``
            gives a handle a deadline for all calls.

        Raises ``QueueExists``, ``InvalidArgument``, ``InvalidOptions``,
        ``MissingPackage``, ``OperationTimedOut``.
        """
        queue: Queue[Any] = Queue(name, root, clock=clock, serializer=serializer)
        keys = RootKeys(root, durations.limit("timeout", timeout))
        wanted = _fitting(name, QueueOptions.of(options))
        # Changes of the catalogue are recorded beside the queues: a queue may be gone by then.
        declared = Declared.of(queue._serializer)
        queue._opening(tr, keys.once, lambda tr: catalogue.create(tr, keys, name, wanted, declared))
        if not isinstance(tr, fdb.Transaction):
            queue._db = tr
        return queue

    @classmethod
    @names_meant()
    def open(
        cls,
        tr: Transactor,
        name: str,
        *,
        create: bool = True,
        root: fdb.Subspace = DEFAULT_ROOT,
        clock: Clock = SYSTEM_CLOCK,
        serializer: Serializer[S] | type[S] | None = None,
        timeout: Seconds | None = None,
        **options: Unpack[Options],
    ) -> Queue[S]:
        """Open a queue, and create it if it does not exist, unless ``create`` is false.

        The given options must equal the stored ones, and so must a serializer, by its name and
        content type, unless the queue has none yet. A queue with one takes only what has its
        content type, also when it is opened without. ``serializer`` and ``timeout`` are as in
        ``create``. With a database, it may be called in a transaction that needs the queue: one
        that began too early to see it runs again. Raises ``QueueNotFound``, ``OptionsMismatch``,
        ``InvalidArgument``, ``InvalidOptions``, ``CorruptData``,
        ``OperationTimedOut``.
        """
        queue: Queue[Any] = Queue(name, root, clock=clock, serializer=serializer)
        keys = RootKeys(root, durations.limit("timeout", timeout))
        given = Declared.of(queue._serializer)

        def find(tr: fdb.Transaction) -> tuple[Declared | None, bool]:
            try:
                scope = queue._scope(tr)
            except QueueNotFound:
                if not create:
                    raise
                wanted = _fitting(name, QueueOptions.of(options))
                catalogue.create(tr, keys, name, wanted, given)
                return given, True
            for each in scope.options.differing(options):
                raise _mismatch(name, *each)
            if given and scope.serializer and given != scope.serializer:
                raise _mismatch(name, "serializer", str(scope.serializer), str(given))
            if scope.serializer or not given:
                return scope.serializer, False
            catalogue.declare(tr, scope, given)
            return given, True

        declared, _ = queue._opening(tr, keys.once, find, lambda found: found[1])
        if declared and not given:
            queue._serializer = declared.stand_in
        if not isinstance(tr, fdb.Transaction):
            queue._db = tr
        return queue

    def options(self, tr: Transactor) -> QueueOptions:
        """The stored options. Raises ``QueueNotFound``."""
        return self._read(tr, self._options)

    def set_options(
        self,
        tr: Transactor,
        *,
        serializer: Serializer[Any] | type | EllipsisType | None = ...,
        **changes: Unpack[Options],
    ) -> QueueOptions:
        """Change some options; returns all of them.

        serializer: the one that handles must have from now on, or None for any. It changes no
            handle, this one included, and no message.

        ``levels``, ``sort`` and ``last_value`` cannot change: they say how messages are stored.
        A group of options changes in the fields that you give: ``bounds=Bounds(messages=10)``
        leaves the other bounds as they are. With a database, new limits of ``keys`` let messages of
        all keys out that no longer have to wait, in as many transactions as that takes; otherwise
        each key follows when one of its messages ends, or at a sweep. Conflicts with every
        operation in flight on the queue. Raises ``InvalidOptions``, ``OptionsMismatch``.
        """

        def change(tr: fdb.Transaction) -> QueueOptions:
            scope = self._scope(tr)
            stored = scope.options
            wanted = _fitting(self.name, stored.changed(changes))
            for option in FIXED:
                before, after = getattr(stored, option), getattr(wanted, option)
                if before != after:
                    problem = (
                        f"which cannot become {after!r}: its messages are stored that way; create "
                        "another queue and move them there"
                    )
                    raise OptionsMismatch(
                        kind="queue",
                        name=self.name,
                        option=option,
                        stored=before,
                        given=after,
                        problem=problem,
                    )
            catalogue.change(tr, scope, wanted)
            if not isinstance(serializer, EllipsisType):
                catalogue.declare(tr, scope, Declared.of(serializers.find(serializer)))
            if any(getattr(stored, each) != getattr(wanted, each) for each in SUSPENDING):
                housekeeping.look_again(tr, scope)
            return wanted

        wanted = self._run(tr, change)
        if "keys" in changes and not isinstance(tr, fdb.Transaction):
            housekeeping.refill(self, tr)
        return wanted

    def delete(self, tr: Transactor) -> None:
        """Delete the queue and everything in it. Raises ``QueueNotFound``.

        What its messages hold of limits that queues share goes to those that wait in other queues,
        in the same transaction. For a thousand messages and more that hold a slot of such a limit
        or wait for one, it takes a database: it purges the queue first, in as many transactions as
        that takes. Raises ``TransactionTooLarge`` in your own transaction, or if so many are
        leased.
        """
        keys = self._root_keys

        def remove(tr: fdb.Transaction) -> None:
            if shared_release.holds(tr, self._keys):
                shared_release.leave(tr, self._scope(tr))
            catalogue.delete(tr, keys, self.name)

        try:
            composed(tr, keys.once, remove)
        except TransactionTooLarge:
            if isinstance(tr, fdb.Transaction):
                raise
            selection.purge(self, tr)
            composed(tr, keys.once, remove)

    enqueue_many = grouping.enqueue_many

    @property
    def groups(self) -> Groups:
        """The groups of the queue: how far they have come."""
        return grouping.Groups(self)

    @overload
    def job(self, function: Callable[[V], R], /) -> Job[V, R]: ...
    @overload
    def job(self, function: Callable[[fdb.Transaction, V], R], /) -> Job[V, R]: ...
    @overload
    def job(self, *, name: str) -> JobDecorator: ...

    def job(self, function: Any = None, *, name: str | None = None) -> Any:
        """A decorator: the function becomes a ``Job``, which ``enqueue`` calls in a worker.

        The function is a handler, ``(value)`` or ``(tr, value)``, of the messages that have its
        name in the header ``job``. A worker runs all jobs of this handle: ``Worker.add(queue)``, or
        ``fdbq worker module:queue``. It fails a message of a job that it does not know.

        name: by default those of the module and the function. Raises ``InvalidArgument``, also
            if there is one of that name.
        """

        def make(function: Callable[..., Any]) -> Job[Any, Any]:
            job: Job[Any, Any] = Job(self, function, name)
            if job.name in self._jobs:
                raise InvalidArgument(argument="name", value=job.name, problem="a job has it")
            self._jobs[job.name] = job
            return job

        return make if function is None else make(function)

    def producer(self, db: fdb.Database, **terms: Unpack[ProducerTerms]) -> Producer[T]:
        """A producer: threads send messages one by one, and share transactions.

        terms: ``linger``, ``max_batch``, ``max_pending`` and ``max_pending_bytes``, as in
            ``Producer``. Raises what that raises.
        """
        from .bulk.producer import Producer

        return Producer(self, db, **terms)

    receive = receiving.receive
    receive_many = receiving.receive_many
    receive_batch = receiving.receive_batch
    consume = receiving.consume
    dequeue = receiving.dequeue

    ack = settlement.ack
    result = results.result
    extend = settlement.extend
    release = settlement.release
    reject = settlement.reject
    settle = settlement.settle

    @property
    def line(self) -> Line:
        """The line of those who wait for messages: to stand in it by a transaction of yours."""
        return Line(self)

    def value(self, message: Message | Delivery) -> T:
        """The payload of a message, decoded by the serializer of its content type.

        That is this handle's serializer, or that of bytes or JSON: a queue can hold messages of
        several content types. Raises ``UnknownContentType``, ``CorruptData``, ``InvalidArgument``.
        """
        found = message.message if isinstance(message, Delivery) else message
        if not isinstance(found, Message):
            problem = "give a Message or a Delivery; receive returns None if there is none"
            raise InvalidArgument(argument="message", value=message, problem=problem)
        value: T = serializers.loads(self._serializer, found)
        return value

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions of the queue: list, open and remove them."""
        from .subscription.subscriptions import Subscriptions

        return Subscriptions(self)

    count = selection.count
    cancel = selection.cancel
    retry = selection.retry
    edit = selection.edit
    move = selection.move
    copy = selection.copy
    purge = selection.purge

    @property
    def dead(self) -> DeadLetters:
        """The dead letters that the queue keeps itself."""
        from .dead_letters import DeadLetters

        return DeadLetters(self)

    @property
    def keys(self) -> Keys:
        """The keys of the queue: their limits, and who waits for whom."""
        from .keys.message_keys import Keys

        return Keys(self)

    @property
    def limits(self) -> Limits:
        """The limits that the queues of the root share."""
        from .keys.shared_limits import Limits

        return Limits(self._root, clock=self._clock, timeout=self._keys.once.timeout)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the queue: messages that come again and again."""
        from .schedules.schedules import Schedules

        return Schedules(self)

    @property
    def streams(self) -> Streams:
        """What Spark and imports need: imports, sinks and plans."""
        from .streams.streams import Streams

        return Streams(self)

    @property
    def admin(self) -> Admin:
        """What operators do: pause, sweep, verify, evict."""
        from .admin.admin import Admin

        return Admin(self)

    get = inspection.get
    peek = inspection.peek
    browse = inspection.browse
    messages = inspection.messages
    depth = inspection.depth
    watch = inspection.watch
    history = inspection.history


def _fitting(name: str, options: QueueOptions) -> QueueOptions:
    """Options that this queue can have here; raises ``InvalidOptions`` and the like."""
    compression.require(options.compression)
    if options.dead_letter_queue == name:
        raise InvalidOptions(option="dead_letter_queue", problem="it is the queue itself")
    return options


def _restore(
    name: str, root: bytes, clock: Clock, serializer: Serializer | None, timeout: float | None
) -> Queue:
    queue = Queue(name, fdb.Subspace(rawPrefix=root), clock=clock, serializer=serializer)
    return queue if timeout is None else queue.within(timeout)


def _mismatch(name: str, option: str, stored: object, given: object) -> OptionsMismatch:
    problem = (
        f"but was opened with {option}={given!r}: leave the option out, or change it with "
        "Queue.set_options"
    )
    return OptionsMismatch(
        kind="queue", name=name, option=option, stored=stored, given=given, problem=problem
    )
