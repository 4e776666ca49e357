"""``fdbq stream list``, ``finish`` and ``forget``: what Spark's streams and writes have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from typer import Argument, Option

import fdbqueue

from .. import context, json_schema, listings, terminal
from ..parameters import ChangeOptions, ListOutput, PageOptions, QueueName, grouped

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


def _streams(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str | None = None
) -> list[StreamPlans | SinkProgress]:
    """The streams of a queue, or those of a name; raises ``CommandError`` if there is none."""
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.streams import SinkState

    known, staged = queue.streams.sinks(db), queue.streams.undecided(db)
    found: list[StreamPlans | SinkProgress] = [
        SinkProgress(each, known.get(each, SinkState()), staged.get(each, Undecided()))
        for each in {*known, *staged}
    ]
    # A reader and a writer may have the same name: both are meant by it.
    found += [StreamPlans(each.name, each) for each in queue.streams.plans.list(db)]
    found = sorted((s for s in found if name in (None, s.name)), key=lambda s: (s.name, str(s)))
    if name is not None and not found:
        raise terminal.CommandError(f"queue {queue.name!r} has no stream {name!r}", 1)
    return found


@grouped
def list_(
    name: QueueName,
    unfinished: Annotated[
        bool,
        Option("--unfinished", help="Only those that have rows to enqueue, or hold messages."),
    ] = False,
    *,
    page: PageOptions,
    output: ListOutput,
) -> None:
    """List the streams that write to a queue or read from it, and their latest batches.

    A writer is a streaming query, or a batch write: each write with an id, and the latest ones
    without. An interrupted batch continues when you restart the query, when you repeat the write
    with its name as its id, or with fdbq stream finish. A reader holds the messages of its plan
    until it acknowledges the batch, and their leases never expire: fdbq message find --state leased
    --consumer STREAM shows them.

    \b
    Examples:
      fdbq stream list orders
      fdbq stream list orders --unfinished --json
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().wall_ms()
        streams = [each for each in _streams(db, queue) if each.left or not unfinished]
        found, more = listings.page(streams, lambda each: each.name, "stream", page)
        return listings.table(
            ["stream", "does", "batch", "rows", "left", "state", "age"],
            [row for each in found for row in each.rows(now_ms)],
            [each.json() for each in found],
            f"queue {queue.name} has no {'unfinished ' * unfinished}streams",
            more,
        )

    listings.show(look, output)


@grouped
def finish(name: QueueName, stream: StreamName, *, change: ChangeOptions) -> None:
    """Finish what a stream has left: enqueue the rest of a write, or return what a reader holds.

    Each row of a write is enqueued once, even if the query continues at the same time. Return the
    messages of a reader only if it does not run and will not restart: its checkpoint becomes
    useless, and messages of the batch that its sink has written are delivered again. The attempt
    does not count. A stream that was only stopped resumes its plan when it starts.

    \b
    Examples:
      fdbq stream finish orders 'load of Monday'
      fdbq stream finish orders billing --yes
    """
    db, queue = context.open_queue(name)
    for each in _streams(db, queue, stream):
        done, left = ("released", each.left) if isinstance(each, StreamPlans) else _rows_left(each)
        if not change.dry_run:
            left = (
                _returned(db, queue, each, change)
                if isinstance(each, StreamPlans)
                else _rest(db, queue, each)
            )
        noun = "message" if isinstance(each, StreamPlans) else "row"
        verb = "release" if isinstance(each, StreamPlans) else "enqueue"
        change.print_result(
            {"queue": name, "stream": stream, **change.counted(done, left)},
            f"{change.verb(verb, done)} {terminal.count(left, noun)} of stream {stream}",
        )
        if isinstance(each, SinkProgress) and each.staged.rows:
            terminal.note(
                f"{terminal.count(each.staged.rows, 'row')} remain staged: repeat the write that "
                "staged them, because only that write can tell which of them count"
            )


def _rows_left(writer: SinkProgress) -> tuple[str, int]:
    return "enqueued", writer.state.rows - writer.state.published


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


@grouped
def forget(name: QueueName, stream: StreamName, *, change: ChangeOptions) -> None:
    """Forget a stream: remove the staged rows of a write, or return what a reader holds.

    A write with the same name then starts from scratch and enqueues every row again; so does a
    streaming query that starts with its first batch. See fdbq stream finish about readers.

    \b
    Example:
      fdbq stream forget orders 'load of Monday' --yes
    """
    db, queue = context.open_queue(name)
    for each in _streams(db, queue, stream):
        left = each.left
        if isinstance(each, StreamPlans):
            what = {"released": left}
            told = f"{terminal.count(left, 'message')} that it holds"
            if not change.dry_run:
                what["released"] = _returned(db, queue, each, change)
                queue.streams.plans.forget(db, stream)
        else:
            what = {"lost": left}
            told = f"{terminal.count(left, 'row')} not enqueued"
            if not change.dry_run:
                change.confirm(f"Forget stream {stream!r} of queue {name!r}, with {told}?")
                queue.streams.sink(stream).forget(db)
        change.print_result(
            {"queue": name, "stream": stream, **what, "forgotten": not change.dry_run},
            f"{change.verb('forget', 'forgot')} stream {stream}, with {told}",
        )
