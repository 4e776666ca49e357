"""``fdbq stream list``, ``finish`` and ``forget``: what Spark's streams and writes have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from typer import Argument

import fdbqueue

from .. import context, json_schema, listings, output, terminal
from ..output import Done, Listed, Result
from ..parameters import ChangeOptions, PageOptions, QueueName, flag

if TYPE_CHECKING:
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.streams import SinkState
    from fdbqueue.values.model import PlanConsumer

StreamName = Annotated[
    str,
    Argument(metavar="STREAM", help="The stream: the id of a write, or the consumer of a reader."),
]
Rows = list[tuple[object, ...]]


class Writer(Struct, frozen=True):
    """The progress of a sink, and the rows staged beyond it."""

    name: str
    state: SinkState
    staged: Undecided
    noun, verb, done, lost = "row", "enqueue", "enqueued", "lost"

    @property
    def left(self) -> int:
        """Rows that are not enqueued yet."""
        return self.unfinished + self.staged.rows

    @property
    def unfinished(self) -> int:
        """Rows of a batch that began to be enqueued."""
        return self.state.rows - self.state.published

    @property
    def told(self) -> str:
        """What is lost if it is forgotten."""
        return f"{terminal.count(self.left, 'row')} not enqueued"

    def shown(self, now_ms: int) -> tuple[Rows, dict[str, Any]]:
        """Its row in a table, and JSON."""
        state, staged = self.state, self.staged
        batch = max(state.batch, state.done)
        changed_at_ms = max(state.changed_at_ms, staged.changed_at_ms)
        summary = "unfinished" if state.batch >= 0 else "staged" if staged.rows else "complete"
        counts = ("" if batch < 0 else batch, state.rows, self.left)
        row = (self.name, "writes", *counts, summary, terminal.age(now_ms - changed_at_ms))
        return [row], {
            "stream": self.name,
            "does": "writes",
            "batch": None if batch < 0 else batch,
            "rows": state.rows,
            "enqueued": state.published,
            "new": state.new,
            "complete": state.batch < 0 and not staged.rows,
            "staged": {"attempts": staged.attempts, "rows": staged.rows, "bytes": staged.size},
            "state": summary,
            "changed_at": json_schema.when(changed_at_ms),
        }

    def finish(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, change: ChangeOptions
    ) -> int:
        """Enqueue the rest of a batch; returns how many rows."""
        before = self.state.published
        with terminal.progress("rows enqueued", self.state.rows) as update:

            def told(state: SinkState) -> None:
                update(state.published - before, completed=state.published)

            return queue.streams.sink(self.name).finish(db, progress=told).published - before

    def forget(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, change: ChangeOptions
    ) -> int:
        """Remove its staged rows, once the user has confirmed it; returns how many are lost."""
        change.confirm(f"Forget stream {self.name!r} of queue {queue.name!r}, with {self.told}?")
        queue.streams.sink(self.name).forget(db)
        return self.left


class Reader(Struct, frozen=True):
    """The plans of a stream that takes messages."""

    name: str
    plans: PlanConsumer
    noun, verb, done, lost = "message", "release", "released", "released"

    @property
    def left(self) -> int:
        """Messages that it holds and has not acknowledged."""
        acknowledged = self.plans.acknowledged
        return sum(plan.left for plan in self.plans.plans if plan.batch > acknowledged)

    @property
    def unfinished(self) -> int:
        """Messages that it holds."""
        return self.left

    @property
    def told(self) -> str:
        """What comes back if it is forgotten."""
        return f"{terminal.count(self.left, 'message')} that it holds"

    def shown(self, now_ms: int) -> tuple[Rows, dict[str, Any]]:
        """Its rows in a table, one for each plan, and JSON."""
        rows: Rows = [
            (
                *(self.name, "reads", plan.batch, plan.messages, plan.left, plan.state),
                terminal.age(now_ms - plan.planned_at_ms),
            )
            for plan in self.plans.plans
        ]
        nothing = (self.name, "reads", self.plans.acknowledged, 0, 0, "no plan", "")
        value = {"stream": self.name, "does": "reads", **json_schema.plans_json(self.plans)}
        return rows or [nothing], value

    def finish(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, change: ChangeOptions
    ) -> int:
        """Return what it holds, once the user has confirmed it; returns how many messages."""
        messages = f"{terminal.count(self.left, 'message')} of queue {queue.name!r}"
        change.confirm(f"Take {messages} away from stream {self.name!r}?")
        with terminal.progress("messages released", self.left) as update:
            return queue.streams.plans.release(db, self.name, progress=update)

    def forget(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, change: ChangeOptions
    ) -> int:
        """Return what it holds, and forget it; returns how many messages."""
        released = self.finish(db, queue, change)
        queue.streams.plans.forget(db, self.name)
        return released


def _streams(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str | None = None
) -> list[Writer | Reader]:
    """The streams of a queue, or those of a name; raises ``CommandError`` if there is none."""
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.streams import SinkState

    known, staged = queue.streams.sinks(db), queue.streams.undecided(db)
    found: list[Writer | Reader] = [
        Writer(each, known.get(each, SinkState()), staged.get(each, Undecided()))
        for each in {*known, *staged}
    ]
    # A reader and a writer may have the same name: both are meant by it.
    found += [Reader(each.name, each) for each in queue.streams.plans.list(db)]
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

    def look() -> output.View:
        now_ms = fdbqueue.Clock().wall_ms()
        streams = [each for each in _streams(db, queue) if each.left or not unfinished]
        found, more = listings.page(streams, lambda each: each.name, "stream", page)
        shown = [each.shown(now_ms) for each in found]
        headers = ["stream", "does", "batch", "rows", "left", "state", "age"]
        rows, values = [row for some, _ in shown for row in some], [value for _, value in shown]
        empty = f"queue {queue.name} has no {'unfinished ' * unfinished}streams"
        return output.table(headers, rows, values, empty, more)

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

    def finished(each: Writer | Reader) -> Result:
        left = each.unfinished if change.dry_run else each.finish(db, queue, change)
        done = change.verb(each.verb, each.done)
        if isinstance(each, Writer) and each.staged.rows:
            terminal.note(
                f"{terminal.count(each.staged.rows, 'row')} remain staged: repeat the write that "
                "staged them, because only that write can tell which of them count"
            )
        return Result(
            {"queue": name, "stream": stream, **change.counted(each.done, left)},
            f"{done} {terminal.count(left, each.noun)} of stream {stream}",
        )

    return map(finished, _streams(db, queue, stream))


def forget(name: QueueName, stream: StreamName, *, change: ChangeOptions) -> Done:
    """Forget a stream: remove the staged rows of a write, or return what a reader holds.

    A write with the same name then starts from scratch and enqueues every row again; so does a
    streaming query that starts with its first batch. See fdbq stream finish about readers.

    Example:
      fdbq stream forget orders 'load of Monday' --yes
    """
    db, queue = context.open_queue(name)

    def forgotten(each: Writer | Reader) -> Result:
        left = each.left if change.dry_run else each.forget(db, queue, change)
        what = {each.lost: left, "forgotten": not change.dry_run}
        done = change.verb("forget", "forgot")
        told = f"{done} stream {stream}, with {each.told}"
        return Result({"queue": name, "stream": stream, **what}, told)

    return map(forgotten, _streams(db, queue, stream))
