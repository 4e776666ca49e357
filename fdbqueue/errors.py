"""Every error that fdbqueue raises, in one tree.

::

    QueueError
     +-- InvalidInput (ValueError)
     |    +-- InvalidName
     |    +-- InvalidOptions
     |    +-- InvalidPriority
     |    +-- InvalidPayload
     |    |    +-- PayloadTooLarge
     |    +-- InvalidHeaders
     |    +-- InvalidSelector
     |    +-- InvalidArgument
     |    +-- CheckpointMismatch
     |    +-- InvalidSchema
     |    +-- InvalidRow
     |    +-- NoSuchWorker
     +-- StoreError
     |    +-- StoreMismatch
     |    +-- StoreNotFound
     |    +-- StoreNotWritable
     |    +-- NotAStore
     |    +-- StoreUnreachable
     |    +-- StoreForked
     |    +-- StoreNotShared
     |    +-- UnsupportedVersion
     |    +-- MissingPackage
     |    +-- MissingJava
     +-- CatalogueError
     |    +-- QueueNotFound
     |    |    +-- QueueReplaced
     |    +-- QueueExists
     |    +-- OptionsMismatch
     |    |    +-- LevelsFixed
     +-- SubscriptionError
     |    +-- SubscriptionNotFound
     |    +-- SubscriptionMismatch
     |    +-- SubscriptionHeld
     +-- PlanError
     |    +-- PlanNotFound
     |    +-- PlanTaken
     |    +-- PlanLost
     |    +-- PlanHeld
     |    +-- MessagePlanned
     +-- BrowsedLost
     +-- OperationTimedOut
     +-- FormatTooNew
     +-- CorruptData
     +-- UnknownContentType
     +-- LeaseLost
     +-- QueueFull
     +-- ImportMoved
     +-- SinkError
     |    +-- SinkBehind
     |    +-- SinkLost
     |    +-- SinkUnfinished
     +-- ExpiredBacklog
     +-- TransactionTooLarge
     +-- TransactionTooSlow
     +-- OwnWritesUnseen
     +-- OutcomeUnknown
     +-- HandlerTooSlow
     +-- JobFailed

The text of an error is made from its attributes, so programs never need to parse it.
``fdb.FDBError`` passes through wherever the caller's own transaction is used: it belongs to the
caller's retry loop.
"""

from __future__ import annotations

from typing import ClassVar


class QueueError(Exception):
    """The root: raised for nothing by itself; catch it to catch all errors of the package."""

    text: ClassVar[str] = "fdbqueue error"

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        self.__dict__.update(attributes)

    def __str__(self) -> str:
        return self.text.format(**self.__dict__)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), dict(self.__dict__))


def _restore(kind: type[QueueError], attributes: dict[str, object]) -> QueueError:
    return kind(**attributes)


# -- input ------------------------------------------------------------------------------------


class InvalidInput(QueueError, ValueError):
    """Raised when an argument cannot be used; nothing was read or written."""

    text = "{problem}"


class InvalidName(InvalidInput):
    """Raised when a name of a queue, a consumer or a subscription is not allowed."""

    text = "{name!r} is not a name: {problem}"


class InvalidOptions(InvalidInput):
    """Raised when an option of a queue or of its data source is unknown, out of range, or
    contradicts another."""

    text = "option {option!r}: {problem}"


class InvalidPriority(InvalidInput):
    """Raised when a priority is not an integer within the range of the queue."""

    text = "priority {priority!r} is out of range: it must be an integer from 0 to {maximum}"


class InvalidPayload(InvalidInput):
    """Raised when a payload is of a type that the queue's serializer does not take."""

    text = "a payload must be {expected}, not {kind}"


class PayloadTooLarge(InvalidPayload):
    """Raised when a payload exceeds what one message may carry."""

    text = "the payload has {size:,} bytes; at most {limit:,} are allowed"


class InvalidHeaders(InvalidInput):
    """Raised when headers are not a flat mapping of str to str, int, float, bool or None."""

    text = "header {header!r}: {problem}"


class InvalidSelector(InvalidInput):
    """Raised when a selector is not one; ``position`` counts characters from 0."""

    text = "not a selector, at character {position}: {problem}"


class InvalidSchema(InvalidInput):
    """Raised when the columns of a table are not those that can be read or written."""

    text = "column {column!r}: {problem}"


class InvalidRow(InvalidInput):
    """Raised when a row of a table is no message; ``row`` counts from 1 within the partition."""

    text = "row {row:,} of partition {partition}: {problem}"


class InvalidArgument(InvalidInput):
    """Raised when any other argument is out of its range."""

    text = "{argument}={value!r}: {problem}"


class CheckpointMismatch(InvalidInput):
    """Raised when the checkpoint of a stream belongs to something else."""

    text = (
        "the checkpoint belongs to {what} {stored!r}, and the query reads {given!r}: give it the "
        "checkpoint that it had, or a new one"
    )


class BrowsedLost(QueueError):
    """Raised when messages that a browsing stream has passed were gone before it read them."""

    text = (
        "{missing:,} messages of queue {queue!r} were taken before the stream could read them: "
        "with the option failOnDataLoss at false it goes on without"
    )


# -- the store --------------------------------------------------------------------------------


class StoreError(QueueError):
    """Raised when the store under the queues cannot be used."""

    text = "the store {store} cannot be used: {problem}"


class StoreMismatch(StoreError):
    """Raised when one process asks for FoundationDB and for the embedded engine."""

    text = (
        "this process has loaded {loaded}, but {store} needs {wanted}; one process uses one of "
        "them: set FDBQUEUE_STORE={store} before fdbqueue is imported"
    )


class StoreNotFound(StoreError):
    """Raised when a store or cluster file that must exist does not."""

    text = "there is no file {store}: {problem}"


class StoreNotWritable(StoreError):
    """Raised when the file of an embedded store or its directory cannot be written."""

    text = "cannot write the store {store}: {problem}"


class NotAStore(StoreError):
    """Raised when a file is neither an embedded store nor a cluster file."""

    text = "{store} is no store: {problem}"


class StoreUnreachable(StoreError):
    """Raised when the cluster did not answer in time."""

    text = (
        "the cluster of {store} did not answer within {seconds:g} s; check that it runs and that "
        "the cluster file names its coordinators"
    )


class StoreNotShared(StoreError):
    """Raised when an executor of Spark does not see the store that the driver uses."""

    text = "the executor on {host} does not see the store of the driver: {problem}"


class StoreForked(StoreError):
    """Raised in a process that was forked from one that had FoundationDB open.

    FoundationDB's client does not survive a fork: every call would wait for ever.
    """

    text = (
        "this process was forked from one that had {store} open, and FoundationDB's client does "
        "not survive that: open the store after the fork, or start processes by spawn"
    )


class UnsupportedVersion(StoreError):
    """Raised when the API version, the client library or the bindings do not fit."""

    text = "{problem}"


class MissingPackage(StoreError):
    """Raised when something is asked for that needs a package which is not installed."""

    text = "{purpose} needs the package {package}: pip install 'fdbqueue[{extra}]'"


class MissingJava(StoreError):
    """Raised when Spark is asked for and there is no Java that it runs on."""

    text = (
        "Spark needs Java 17 or later, and {found}: install it (Debian and Ubuntu: apt install "
        "openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: brew "
        "install openjdk@17), or set JAVA_HOME to where it is"
    )


# -- the catalogue ----------------------------------------------------------------------------


class CatalogueError(QueueError):
    """Raised when a queue cannot be created or opened."""

    text = "queue {name!r} cannot be opened"


class QueueNotFound(CatalogueError):
    """Raised when a queue does not exist, or was deleted meanwhile."""

    text = "there is no queue {name!r}: create it first"


class QueueReplaced(QueueNotFound):
    """Raised when a queue was deleted, and another one made under its name, since work on it began:
    places, plans and staged rows of the one mean nothing in the other."""

    text = "queue {name!r} was deleted, and made anew: begin anew with it"


class QueueExists(CatalogueError):
    """Raised when a queue to be created exists already."""

    text = "queue {name!r} exists already"


class OptionsMismatch(CatalogueError):
    """Raised when a queue is opened with other options than the stored ones."""

    text = (
        "queue {name!r} is stored with {option}={stored!r}, but was opened with "
        "{option}={given!r}: leave the option out, or change it with Queue.set_options"
    )


class LevelsFixed(OptionsMismatch):
    """Raised when the number of levels of a queue is to change, by which its messages stand."""

    text = (
        "queue {name!r} has {option}={stored!r}, which cannot become {given!r}: its messages stand "
        "by that; create another queue, and move them there"
    )


# -- subscriptions ----------------------------------------------------------------------------


class SubscriptionError(QueueError):
    """Raised when a subscription cannot be used."""

    text = "subscription {name!r} cannot be used"


class SubscriptionNotFound(SubscriptionError):
    """Raised when a subscription does not exist, was removed, or has closed itself."""

    text = "queue {queue!r} has no subscription {name!r}: it was never made, or it is closed"


class SubscriptionMismatch(SubscriptionError):
    """Raised when a subscription is opened with other properties than the stored ones."""

    text = (
        "subscription {name!r} is stored with {option}={stored!r}, but was opened with "
        "{option}={given!r}"
    )


class SubscriptionHeld(SubscriptionError):
    """Raised when an exclusive subscription serves another consumer."""

    text = (
        "subscription {name!r} is exclusive and serves another consumer, until it closes it or "
        "does not use it for {seconds:g} s"
    )


# -- plans ------------------------------------------------------------------------------------


class PlanError(QueueError):
    """Raised when a plan, which a stream takes messages by, cannot be used."""

    text = "the plans of consumer {consumer!r} of queue {queue!r} cannot be used"


class PlanNotFound(PlanError):
    """Raised when a consumer has no plans, and never had any."""

    text = "queue {queue!r} has no plans of a consumer {consumer!r}"


class PlanTaken(PlanError):
    """Raised when another run of the same consumer has taken over; nothing was written."""

    text = (
        "another run of consumer {consumer!r} of queue {queue!r} has taken over its plans: one "
        "runs at a time; give each stream a consumer of its own"
    )


class PlanLost(PlanError):
    """Raised when the messages of a batch are no longer planned for it.

    They were given back and are delivered again, or another run of the consumer has acknowledged
    them, or the checkpoint that names the batch belongs to something else.
    """

    text = "batch {batch} of consumer {consumer!r} of queue {queue!r} is not planned: {problem}"


class PlanHeld(PlanError):
    """Raised when a consumer is to be forgotten that has messages in hand."""

    text = (
        "consumer {consumer!r} of queue {queue!r} has messages in hand: acknowledge them, or give "
        "them back"
    )


class MessagePlanned(PlanError):
    """Raised when a message of a plan is settled by itself; nothing was written."""

    text = (
        "message {message_id} is in a plan of consumer {consumer!r}: it is settled with the plan, "
        "or given back with Queue.plans.release or fdbq plan release"
    )


class FormatTooNew(QueueError):
    """Raised when stored data has a format version that this release does not know."""

    text = "{what} has format version {found}; this release reads up to {known}: upgrade fdbqueue"


class CorruptData(QueueError):
    """Raised when stored bytes cannot be understood."""

    text = "{what} cannot be read: {problem}"


class UnknownContentType(QueueError):
    """Raised when no serializer at hand can read a message's content type."""

    text = (
        "message {message_id} has content type {content_type!r}: open the queue with a serializer "
        "of that content type, or use the payload's bytes"
    )


# -- operations -------------------------------------------------------------------------------


class LeaseLost(QueueError):
    """Raised when a lease is settled that has expired, or was settled already.

    Nothing was written. The message was delivered again, or will be, or is settled: an effect
    that belongs to this delivery must not be committed.
    """

    text = "the lease of message {message_id} is gone: it expired or was settled already"

    message_id: str


class QueueFull(QueueError):
    """Raised when a bounded queue has no room for what is enqueued; nothing was written.

    ``waits`` is whether the queue lets producers wait, and waiting is not in vain: it is where the
    messages exceed the bounds by themselves.
    """

    text = (
        "the queue is full: it holds {messages:,} messages (at most {max_messages}) and {size:,} "
        "ready bytes (at most {max_bytes}), and {new_messages:,} messages of {new_bytes:,} bytes "
        "are to come in"
    )


class ImportMoved(QueueError):
    """Raised when an import is not where whoever goes on with it left it; nothing was written."""

    text = "import {name!r} was gone on with by somebody else: look where it has come to"


class SinkError(QueueError):
    """Raised when rows that many tasks bring cannot be published as one batch."""

    text = "sink {sink!r} cannot be used"

    sink: str


class SinkBehind(SinkError):
    """Raised when a batch is to be published while the one before is not yet; nothing is written.

    That happens to a query that begins anew, with another checkpoint, under the id of an older one.
    """

    text = (
        "batch {batch} of sink {sink!r} cannot be published: batch {before} is not published to "
        "its end; finish that first (fdbq sink finish), or forget the sink (fdbq sink forget)"
    )


class SinkLost(SinkError):
    """Raised when rows that tasks have staged were removed before they could be published; nothing
    is enqueued."""

    text = (
        "rows that were staged for batch {batch} of sink {sink!r} were removed, by fdbq sink "
        "forget or because that was days ago: write them again"
    )


class SinkUnfinished(SinkError):
    """Raised when publishing stopped halfway: what is enqueued stays, the rest is kept.

    Whoever publishes the same batch of the same sink goes on there.
    """

    text = (
        "{published:,} of {rows:,} rows of sink {sink!r} are enqueued, and the rest is kept: "
        "{problem}"
    )


class ExpiredBacklog(QueueError):
    """Raised when too many messages that have expired stand before the first that has not.

    Only with the caller's own transaction, which cannot dispose of all of them at once.
    """

    text = (
        "queue {name!r} begins with more than {count:,} messages whose time to live is over: "
        "call Queue.sweep"
    )


class TransactionTooLarge(QueueError):
    """Raised when one call needs more than a transaction takes (10,000,000 bytes)."""

    text = "{problem}; nothing was written: split the call into smaller ones"


class TransactionTooSlow(QueueError):
    """Raised when one call needs longer than a transaction lasts (5 seconds), again and again."""

    text = (
        "the transaction took longer than the 5 s that one lasts, {times} times, and nothing was "
        "written: ask for less in one call, or find out what slows the store or this process down"
    )


class OwnWritesUnseen(QueueError):
    """Raised when a transaction takes a message, or a place, for the second time.

    It cannot see its own writes, so of two operations on a queue the second does what the first
    has done. Nothing is written of the second; do not commit the transaction.
    """

    text = (
        "the transaction does not see its own writes: two operations on a queue in one "
        "transaction need the options read_your_writes_disable and snapshot_ryw_disable to be off, "
        "of the transaction and of the database"
    )


class OperationTimedOut(QueueError, TimeoutError):
    """Raised when an operation did not end in time; nothing was written.

    seconds: what ``Queue.within`` or ``timeout`` gave it; None where the database's own option
        ended it.
    """

    text = "the operation did not end in time, and nothing was written"


class OutcomeUnknown(QueueError):
    """Raised when a commit's outcome was unknown for so long that it can no longer be told.

    The operation happened once or not at all.
    """

    text = (
        "the outcome of a commit is unknown, and the store does not tell it any more (its record "
        "is kept for {minutes} minutes): the operation happened once or not at all"
    )


# -- workers ----------------------------------------------------------------------------------


class HandlerTooSlow(QueueError):
    """Raised when a transactional handler takes longer than a transaction may last, repeatedly."""

    text = (
        "the transactional handler took {seconds:.1f} s, and a transaction lasts at most 5 s: do "
        "the slow part in a plain handler"
    )


class JobFailed(QueueError):
    """Raised when a job on Spark has failed; ``problem`` is what Spark says of it."""

    text = "{problem}"


class NoSuchWorker(InvalidInput):
    """Raised when what ``fdbq worker`` is to run cannot be found, or is no worker."""

    text = "{target!r} is no worker: {problem}"
