"""Every error that fdbqueue raises, in one tree.

The text of an error is made from its attributes, so programs never need to parse it. In the
caller's own transaction ``fdb.FDBError`` passes through, for the caller's retry loop.

A class for each reaction of a caller; what varies is an attribute::

    QueueError
        InvalidInput
            InvalidPayload
                PayloadTooLarge
            InvalidOptions, InvalidSelector, InvalidSchema, InvalidArgument
        StoreError
            StoreNotFound, NotAStore, StoreUnreachable, StoreNotShared, StoreForked,
            UnsupportedVersion, MissingPackage
        QueueNotFound
            QueueReplaced
        NoResult
            ResultPending
        RowsLost, QueueExists, OptionsMismatch, NotFound, TakenOver, Held, BatchLost,
        MessagePlanned, CorruptData, UnknownContentType, UnknownJob, LeaseLost, QueueFull,
        ProducerFull, ProducerClosed, Unfinished, SinkBehind, SinkUnfinished, ExpiredBacklog,
        TransactionTooLarge, TransactionTooSlow, OwnWritesUnseen, TransactionShared,
        OperationTimedOut, OutcomeUnknown, HandlerTooSlow, JobFailed
"""

from __future__ import annotations

from typing import ClassVar


class QueueError(Exception):
    """The root: catch it to catch every error of the package."""

    text: ClassVar[str] = "fdbqueue error"

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        self.__dict__.update(attributes)

    def __str__(self) -> str:
        try:
            return self.text.format(**self.__dict__)
        except (ValueError, RecursionError):  # an int of too many digits, a list in too many lists
            attributes = {name: shown(value) for name, value in self.__dict__.items()}
            return self.text.format(**attributes)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), dict(self.__dict__))


class _Unshown:
    """Stands in the text of an error for a value that has none."""

    def __repr__(self) -> str:
        return "a value too large to show"

    def __format__(self, spec: str) -> str:
        return repr(self)


def shown(value: object) -> object:
    """A value, or what stands for it in a text if Python does not write it."""
    try:
        repr(value)
    except (ValueError, RecursionError):
        return _Unshown()
    return value


def _restore(kind: type[QueueError], attributes: dict[str, object]) -> QueueError:
    return kind(**attributes)


class InvalidInput(QueueError, ValueError):
    """Raised when an argument is invalid. Nothing was read or written."""

    text = "{problem}"


class InvalidOptions(InvalidInput):
    """Raised when an option of a queue or of its data source is unknown, out of range, or
    contradicts another."""

    text = "option {option!r}: {problem}"


class InvalidPayload(InvalidInput):
    """Raised when the queue's serializer does not take the type of a payload."""

    text = "a payload must be {expected}, not {kind}"


class PayloadTooLarge(InvalidPayload):
    """Raised when a payload, or the result of a message, is larger than allowed."""

    text = "{what} has {size:,} bytes; at most {limit:,} are allowed"

    def __init__(self, **attributes: object) -> None:
        super().__init__(**{"what": "the payload", **attributes})


class InvalidSelector(InvalidInput):
    """Raised when a selector has a syntax or type error at character ``position``, from 0."""

    text = "invalid selector, at character {position}: {problem}"


class InvalidSchema(InvalidInput):
    """Raised when a table cannot be read or written with these columns."""

    text = "column {column!r}: {problem}"


class InvalidArgument(InvalidInput):
    """Raised when any other argument is invalid."""

    text = "{argument}={value!r}: {problem}"


class RowsLost(QueueError):
    """Raised when rows that Spark planned to read are gone before it does: messages of a batch of a
    browsing stream, or lines of history."""

    text = "{what} of queue {queue!r} were {gone} before they could be read: {remedy}"


class StoreError(QueueError):
    """Raised when the store under the queues cannot be used: it cannot be written, or the process
    has loaded the other engine."""

    text = "cannot use the store {store}: {problem}"


class StoreNotFound(StoreError):
    """Raised when a store or cluster file does not exist."""

    text = "there is no file {store}: {problem}"


class NotAStore(StoreError):
    """Raised when a file is neither an embedded store nor a cluster file."""

    text = "{store} is not a store: {problem}"


class StoreUnreachable(StoreError):
    """Raised when the cluster does not answer in time."""

    text = (
        "the cluster of {store} did not answer within {seconds:g} s; check that it runs and that "
        "the cluster file names its coordinators"
    )


class StoreNotShared(StoreError):
    """Raised when an executor of Spark does not see the driver's store."""

    text = "the executor on {host} does not see the driver's store: {problem}"


class StoreForked(StoreError):
    """Raised in a process that was forked after its parent had opened a store.

    FoundationDB's client does not survive a fork: every call would wait for ever.
    """

    text = (
        "this process was forked after its parent had opened {store}, which FoundationDB's client "
        "does not survive: open the store after the fork, or start processes with spawn"
    )


class UnsupportedVersion(StoreError):
    """Raised when the API version, the client library and the bindings do not fit together, or an
    embedded store has another format."""

    text = "{problem}"


class MissingPackage(StoreError):
    """Raised when a feature needs a package, or Java, that is not installed."""

    text = "{purpose} needs {package}: {remedy}"

    def __init__(self, **attributes: object) -> None:
        remedy = f"pip install 'fdbqueue[{attributes.get('extra')}]'"
        super().__init__(**{"remedy": remedy, **attributes})


class QueueNotFound(QueueError):
    """Raised when a queue does not exist or has been deleted."""

    text = "there is no queue {name!r}: create it first"


class QueueReplaced(QueueNotFound):
    """Raised when a queue was deleted and created again during an operation in several steps.

    Places, plans and staged rows of the old queue mean nothing in the new one.
    """

    text = "queue {name!r} was deleted and created again: start the operation over"


class QueueExists(QueueError):
    """Raised when a queue to be created already exists."""

    text = "queue {name!r} already exists: open it, or choose another name"


class OptionsMismatch(QueueError):
    """Raised when a queue or a subscription is opened with options other than the stored ones, or
    one is to change that says how messages are stored: ``option``, ``stored``, ``given``."""

    text = "{kind} {name!r} is stored with {option}={stored!r}, {problem}"


class NotFound(QueueError):
    """Raised when a part of a queue does not exist, was removed, or has ended; ``kind`` is
    "subscription", "schedule", "group" or "plan of a consumer"."""

    text = (
        "queue {queue!r} has no {kind} {name!r}: it was never there, or has ended; list those that "
        "there are"
    )


class TakenOver(QueueError):
    """Raised when another run has taken over what this one was doing: the plans of a consumer, or
    an import. Nothing was written."""

    text = "another run has taken over {what}: {remedy}"


class Held(QueueError):
    """Raised when somebody still uses what is to be used or forgotten: another consumer an
    exclusive subscription, or a consumer its messages."""

    text = "{what} {problem}"


class BatchLost(QueueError):
    """Raised when the messages of a batch are no longer planned for it, or staged rows are gone.

    The messages were given back and will be delivered again, or another run of the consumer has
    acknowledged them, or the checkpoint that names the batch belongs to something else. Of staged
    rows, nothing was enqueued.
    """

    text = "batch {batch} of {what} {problem}"


class MessagePlanned(QueueError):
    """Raised when a message of a plan is settled on its own. Nothing was written."""

    text = (
        "message {message_id} is in a plan of consumer {consumer!r}: settle the plan, or release "
        "it with Queue.streams.plans.release or fdbq stream finish"
    )


class CorruptData(QueueError):
    """Raised when stored bytes cannot be understood, or have another format."""

    text = "cannot read {what}: {problem}"

    what: str
    problem: str


class UnknownContentType(QueueError):
    """Raised when no serializer reads a message's content type."""

    text = (
        "message {message_id} has content type {content_type!r}: open the queue with a serializer "
        "of that content type, or use the payload's bytes"
    )


class UnknownJob(QueueError):
    """Raised when a worker does not know the job of a message; the attempt has failed."""

    text = "the message is of {job}, and queue {queue!r} has here the jobs {known}: {remedy}"


class LeaseLost(QueueError):
    """Raised when a lease has expired or was settled already. Nothing was written.

    The message is settled, or was or will be delivered again: do not commit an effect that
    belongs to this delivery. ``lost`` has the ids of all messages whose leases are gone, of those
    that were to be settled together; ``message_id`` is the first.
    """

    text = (
        "the lease of message {message_id} is gone: it expired or was settled already; drop what "
        "belongs to this delivery, as the message may be delivered again"
    )

    message_id: str
    lost: tuple[str, ...]

    def __init__(self, **attributes: object) -> None:
        super().__init__(**{"lost": (attributes.get("message_id"),), **attributes})


class QueueFull(QueueError):
    """Raised when a bounded queue has no room for what is enqueued. Nothing was written.

    ``waits`` tells whether the queue lets producers wait and could ever have room: it could not
    for messages that exceed the bounds on their own.
    """

    text = (
        "queue {queue!r} is full: it holds {messages:,} messages and {size:,} ready bytes (at most "
        "{bounds}), and cannot take {new_messages:,} more of {new_bytes:,} bytes: wait until "
        "consumers have taken some, or change its bounds"
    )


class ProducerFull(QueueError, TimeoutError):
    """Raised when a producer holds as many messages as it may, and none was stored in time.

    The message was not taken.
    """

    text = (
        "the producer is full: it holds {messages:,} messages (at most {max_messages:,}) of "
        "{size:,} bytes (at most {max_bytes:,}) that are not stored yet: send the message "
        "later, or let it hold more"
    )

    messages: int
    max_messages: int


class ProducerClosed(QueueError):
    """Raised when a message is sent to a closed producer, and set on one that it had not begun to
    store when its time to close was over. The message is not stored."""

    text = "the producer is closed: the message is not stored; send it by another one"


class Unfinished(QueueError, TimeoutError):
    """Raised when a producer has not stored its messages, or a worker not handled what was there,
    within the time for ``flush`` or ``close``. They go on with it, unless they have stopped.

    messages: of a producer, how many are under way; their futures tell what becomes of them.
    """

    text = "{problem}"


class NoResult(QueueError):
    """Raised when there is no result of a message, and will be none.

    ``state``: "dead" (a dead letter); "purged" (removed, replaced, moved or dropped) or "expired",
    without having been done; "unknown": its result is kept no longer, it was enqueued without
    ``keep_result``, or was never in the queue.
    """

    text = "message {message_id} has no result: {problem}"

    message_id: str
    state: str


class ResultPending(NoResult):
    """Raised when a message has not ended yet; ``state`` is where it is."""

    text = "message {message_id} is not done yet: it is {state}; ask again, or wait for it"


class SinkBehind(QueueError):
    """Raised when a batch is published before the previous one is complete. Nothing was written.

    This happens when a query starts over with a new checkpoint under the id of an older one.
    """

    text = (
        "cannot publish batch {batch} of sink {sink!r}: batch {before} is not fully published; "
        "finish it first (fdbq stream finish), or forget the sink (fdbq stream forget)"
    )


class SinkUnfinished(QueueError):
    """Raised when publishing stopped halfway. What is enqueued stays, and the rest is kept.

    Publish the same batch of the same sink again to continue.
    """

    sink: str
    text = (
        "{published:,} of {rows:,} rows of sink {sink!r} are enqueued, and the rest is kept; "
        "publish the batch again to continue: {problem}"
    )


class ExpiredBacklog(QueueError):
    """Raised when more has to be tidied before the first message than one transaction does: expired
    messages, or what is due and does not become ready.

    Only in the caller's own transaction. A call with a database goes on in further ones.
    """

    text = (
        "queue {name!r} has more than {count:,} messages to remove or to move before the first "
        "one comes: call Queue.admin.sweep, or receive with a database"
    )


class TransactionTooLarge(QueueError):
    """Raised when one call needs more than the 10,000,000 bytes of a transaction."""

    text = "{problem}; nothing was written: split the call into smaller ones"


class TransactionTooSlow(QueueError):
    """Raised when one call repeatedly needs longer than the 5 seconds of a transaction."""

    text = (
        "the transaction took longer than its limit of 5 s, {times} times, and nothing was "
        "written: ask for less in one call, or find out what slows down the store or this process"
    )


class OwnWritesUnseen(QueueError):
    """Raised when a transaction takes a message, or a place, for the second time.

    It does not see its own writes, so the second operation on a queue repeats the first. The
    second wrote nothing; do not commit the transaction.
    """

    text = (
        "the transaction does not see its own writes: two operations on a queue in one "
        "transaction need the options read_your_writes_disable and snapshot_ryw_disable to be off, "
        "of the transaction and of the database"
    )


class TransactionShared(QueueError):
    """Raised when a second thread changes messages in a transaction. Do not commit it.

    Each operation relies on what those before it in the transaction have written, whole.
    """

    text = (
        "another thread has changed messages in this transaction: use each transaction in one "
        "thread"
    )


class OperationTimedOut(QueueError, TimeoutError):
    """Raised when an operation did not end in time. Nothing was written.

    seconds: the limit that ``Queue.within`` or ``timeout`` set; None if the database's own
        option ended the operation.
    """

    text = (
        "the operation did not end in time, and nothing was written: repeat it, or give it longer"
    )


class OutcomeUnknown(QueueError):
    """Raised when nobody can tell any more whether a commit succeeded.

    The operation happened once or not at all.
    """

    text = (
        "the outcome of a commit is unknown, and its record, kept for {minutes} minutes, is gone: "
        "the operation happened once or not at all; look for its effect before you repeat it"
    )


class HandlerTooSlow(QueueError):
    """Raised when a transactional handler repeatedly outlasts its transaction."""

    text = (
        "the transactional handler took {seconds:.1f} s, and a transaction lasts at most 5 s: do "
        "the slow part in a plain handler"
    )


class JobFailed(QueueError):
    """Raised when a job on Spark has failed; ``problem`` is what Spark says."""

    text = "{problem}"
