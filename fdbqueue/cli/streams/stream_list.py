"""``fdbq stream list``, ``finish`` and ``forget``: what Spark's streams and writes have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from typer import Argument

import fdbqueue

from .. import context, json_schema, listings, output, terminal
from ..output import Done, Listed, Result, View
from ..parameters import ChangeOptions, PageOptions, QueueName, flag

if TYPE_CHECKING:
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.streams import SinkState
    from fdbqueue.values.model import PlanConsumer

StreamName = Annotated[
    str,
    Argument(metavar="STREAM", help="The stream: the id of a write, or the consumer of a reader."),
]


class SinkProgress(Struct, frozen=True):
    """The progress of a sink, and the rows staged beyond it."""

    name: str
    state: SinkState
    staged: Undecided

    @property
    def batch(self) -> int:
        return max(self.state.batch, self.state.done)

    @property
    def left(self) -> int:
        """Rows that are not enqueued yet."""
        return self.state.rows - self.state.published + self.staged.rows

    @property
    def summary(self) -> str:
        if self.state.batch >= 0:
            return "unfinished"
        return "staged" if self.staged.rows else "complete"

    @property
    def changed_at_ms(self) -> int:
        return max(self.state.changed_at_ms, self.staged.changed_at_ms)

    def rows(self, now_ms: int) -> list[tuple[object, ...]]:
        """Its row in a table."""
        batch = self.batch if self.batch >= 0 else ""
        age = terminal.age(now_ms - self.changed_at_ms)
        return [(self.name, "writes", batch, self.state.rows, self.left, self.summary, age)]

    def json(self) -> dict[str, Any]:
        """JSON-ready."""
        state, staged = self.state, self.staged
        return {
            "stream": self.name,
            "does": "writes",
            "batch": self.batch if self.batch >= 0 else None,
            "rows": state.rows,
            "enqueued": state.published,
            "new": state.new,
            "complete": state.batch < 0 and not staged.rows,
            "staged": {"attempts": staged.attempts, "rows": staged.rows, "bytes": staged.size},
            "state": self.summary,
            "changed_at": json_schema.when(self.changed_at_ms),
        }


class StreamPlans(Struct, frozen=True):
    """The plans of a stream that takes messages."""

    name: str
    plans: PlanConsumer

    @property
    def left(self) -> int:
        """Messages that it holds and has not acknowledged."""
        acknowledged = self.plans.acknowledged
        return sum(plan.left for plan in self.plans.plans if plan.batch > acknowledged)

    def rows(self, now_ms: int) -> list[tuple[object, ...]]:
        """Its rows in a table, one for each plan."""
        return [
            (
                *(self.name, "reads", plan.batch, plan.messages, plan.left, plan.state),
                terminal.age(now_ms - plan.planned_at_ms),
            )
            for plan in self.plans.plans
        ] or [(self.name, "reads", self.plans.acknowledged, 0, 0, "no plan", "")]

    def json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"stream": self.name, "does": "reads", **json_schema.plans_json(self.plans)}


Stream = StreamPlans | SinkProgress


def _streams(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str | None = None
) -> list[Stream]:
    """The streams of a queue, or those of a name; raises ``CommandError`` if there is none."""
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.streams import SinkState

    known, staged = queue.streams.sinks(db), queue.streams.undecided(db)
    found: list[Stream] = [
        SinkProgress(each, known.get(each, SinkState()), staged.get(each, Undecided()))
        for each in {*known, *staged}
    ]
    # A reader and a writer may have the same name: both are meant by it.
    found += [StreamPlans(each.name, each) for each in queue.streams.plans.list(db)]
    found = sorted((s for s in found if name in (None, s.name)), key=lambda s: (s.name, str(s)))
    if name is not None and not found:
        raise terminal.CommandError(f"queue {queue.name!r} has no stream {name!r}", 1)
    return found


def list_(
    name: QueueName,
    unfinished: bool = flag(
        "Only those that have rows to enqueue, or hold messages.", "--unfinished"
    ),
    *,
    page: PageOptions,
) -> Listed:
    """List the streams that write to a queue or read from it, and their latest batches.

    A writer is a streaming query, or a batch write: each write with an id, and the latest ones
    without. An interrupted batch continues when you restart the query, when you repeat the write
    with its name as its id, or with fdbq stream finish. A reader holds the messages of its plan
    until it acknowledges the batch, and their leases never expire: fdbq message find --state leased
    --consumer STREAM shows them.

    Examples:
      fdbq stream list orders
      fdbq stream list orders --unfinished --json
    """
    db, queue = context.open_queue(name)

    def look() -> View:
        now_ms = fdbqueue.Clock().wall_ms()
        streams = [each for each in _streams(db, queue) if each.left or not unfinished]
        found, more = listings.page(streams, lambda each: each.name, "stream", page)
        return output.table(
            ["stream", "does", "batch", "rows", "left", "state", "age"],
            [row for each in found for row in each.rows(now_ms)],
            [each.json() for each in found],
            f"queue {queue.name} has no {'unfinished ' * unfinished}streams",
            more,
        )

    return look


def finish(name: QueueName, stream: StreamName, *, change: ChangeOptions) -> Done:
    """Finish what a stream has left: enqueue the rest of a write, or return what a reader holds.

    Each row of a write is enqueued once, even if the query continues at the same time. Return the
    messages of a reader only if it does not run and will not restart: its checkpoint becomes
    useless, and messages of the batch that its sink has written are delivered again. The attempt
    does not count. A stream that was only stopped resumes its plan when it starts.

    Examples:
      fdbq stream finish orders 'load of Monday'
      fdbq stream finish orders billing --yes
    """
    db, queue = context.open_queue(name)
    return (_finished(db, queue, each, change) for each in _streams(db, queue, stream))


def _finished(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, each: Stream, change: ChangeOptions
) -> Result:
    staged = 0
    if isinstance(each, StreamPlans):
        verb, done, noun, left = "release", "released", "message", each.left
        if not change.dry_run:
            left = _returned(db, queue, each, change)
    else:
        verb, done, noun = "enqueue", "enqueued", "row"
        left, staged = each.state.rows - each.state.published, each.staged.rows
        if not change.dry_run:
            left = _rest(db, queue, each)
    if staged:
        terminal.note(
            f"{terminal.count(staged, 'row')} remain staged: repeat the write that "
            "staged them, because only that write can tell which of them count"
        )
    return Result(
        {"queue": queue.name, "stream": each.name, **change.counted(done, left)},
        f"{change.verb(verb, done)} {terminal.count(left, noun)} of stream {each.name}",
    )


def _rest(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, writer: SinkProgress) -> int:
    """Enqueue the rest of a batch; returns how many rows."""
    before = writer.state.published
    with terminal.progress("rows enqueued", writer.state.rows) as update:

        def told(state: SinkState) -> None:
            update(state.published - before, completed=state.published)

        return queue.streams.sink(writer.name).finish(db, progress=told).published - before


def _returned(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, reader: StreamPlans, change: ChangeOptions
) -> int:
    """Return what a reader holds, once the user has confirmed it; returns how many messages."""
    messages = f"{terminal.count(reader.left, 'message')} of queue {queue.name!r}"
    change.confirm(f"Take {messages} away from stream {reader.name!r}?")
    with terminal.progress("messages released", reader.left) as update:
        return queue.streams.plans.release(db, reader.name, progress=update)


def forget(name: QueueName, stream: StreamName, *, change: ChangeOptions) -> Done:
    """Forget a stream: remove the staged rows of a write, or return what a reader holds.

    A write with the same name then starts from scratch and enqueues every row again; so does a
    streaming query that starts with its first batch. See fdbq stream finish about readers.

    Example:
      fdbq stream forget orders 'load of Monday' --yes
    """
    db, queue = context.open_queue(name)
    return (_forgotten(db, queue, each, change) for each in _streams(db, queue, stream))


def _forgotten(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, each: Stream, change: ChangeOptions
) -> Result:
    left = each.left
    if isinstance(each, StreamPlans):
        told = f"{terminal.count(left, 'message')} that it holds"
        if not change.dry_run:
            left = _returned(db, queue, each, change)
            queue.streams.plans.forget(db, each.name)
    else:
        told = f"{terminal.count(left, 'row')} not enqueued"
        if not change.dry_run:
            change.confirm(f"Forget stream {each.name!r} of queue {queue.name!r}, with {told}?")
            queue.streams.sink(each.name).forget(db)
    what = {"released" if isinstance(each, StreamPlans) else "lost": left}
    return Result(
        {"queue": queue.name, "stream": each.name, **what, "forgotten": not change.dry_run},
        f"{change.verb('forget', 'forgot')} stream {each.name}, with {told}",
    )
