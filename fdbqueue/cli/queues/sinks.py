"""``fdbq sink …``: sinks, and rows that are not enqueued yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

import fdbqueue

from ...values.records import record
from .. import context, json_schema, listings, terminal
from ..parameters import AsJson, Change, ListOutput, Page, QueueName, grouped

if TYPE_CHECKING:
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.codec.sinks import SinkState

app = Typer(name="sink", help="List sinks, and finish interrupted writes.", no_args_is_help=True)

SinkName = Annotated[str, Argument(metavar="SINK", help="The sink.")]


@app.command("list")
@grouped
def list_(
    name: QueueName,
    unfinished: Annotated[
        bool, Option("--unfinished", help="Only sinks with rows that are not enqueued yet.")
    ] = False,
    *,
    page: Page,
    output: ListOutput,
) -> None:
    """List the sinks of a queue and their latest batches.

    A sink is a streaming query that writes to the queue, or a batch write: each write with an id,
    and the latest ones without. An interrupted batch continues when you restart the query, when you
    repeat the write with the sink's name as its id, or with fdbq sink finish.

    \b
    Examples:
      fdbq sink list orders
      fdbq sink list orders --unfinished --json
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().wall_ms()
        sinks = [each for each in _sinks(db, queue).items() if each[1].left or not unfinished]
        found, more = listings.page(sinks, lambda each: each[0], "sink", page)
        return listings.table(
            ["sink", "batch", "rows", "enqueued", "staged", "state", "age"],
            [
                (
                    name,
                    sink.batch if sink.batch >= 0 else "",
                    sink.state.rows,
                    sink.state.published,
                    sink.staged.rows,
                    sink.summary,
                    terminal.age(now_ms - sink.changed_at_ms),
                )
                for name, sink in found
            ],
            [_json(name, sink) for name, sink in found],
            f"queue {queue.name} has no {'unfinished ' * unfinished}sinks",
            more,
        )

    listings.show(look, output)


@record
class _Sink:
    """The progress of a sink, and the rows staged beyond it."""

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


def _sinks(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> dict[str, _Sink]:
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.queue.bulk.sinks import sinks, undecided_rows
    from fdbqueue.schema.codec.sinks import SinkState

    known, staged = sinks(db, queue), undecided_rows(db, queue)
    return {
        sink: _Sink(known.get(sink, SinkState()), staged.get(sink, Undecided()))
        for sink in sorted({*known, *staged})
    }


def _open(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str) -> _Sink:
    found = _sinks(db, queue)
    if name not in found:
        raise terminal.CommandError(f"queue {queue.name!r} has no sink {name!r}", 1)
    return found[name]


def _json(name: str, sink: _Sink) -> dict[str, object]:
    state, staged = sink.state, sink.staged
    return {
        "sink": name,
        "batch": sink.batch if sink.batch >= 0 else None,
        "rows": state.rows,
        "enqueued": state.published,
        "new": state.new,
        "complete": state.batch < 0 and not staged.rows,
        "staged": {"attempts": staged.attempts, "rows": staged.rows, "bytes": staged.size},
        "state": sink.summary,
        "changed_at": json_schema.when(sink.changed_at_ms),
    }


@app.command()
def finish(name: QueueName, sink: SinkName, as_json: AsJson = False) -> None:
    """Enqueue the rest of an interrupted batch.

    Each row is enqueued once, even if the query or the write continues at the same time.

    \b
    Example:
      fdbq sink finish orders 'load of Monday'
    """
    db, queue = context.open_queue(name)
    found = _open(db, queue, sink)
    before = found.state.published
    with terminal.progress("rows enqueued", found.state.rows) as update:

        def told(state: SinkState) -> None:
            update(state.published - before, completed=state.published)

        done = fdbqueue.Sink(queue, sink).finish(db, progress=told).published - before
    terminal.print_result(
        as_json,
        {"queue": name, "sink": sink, "enqueued": done},
        f"enqueued {terminal.count(done, 'row')} of sink {sink}",
    )
    if found.staged.rows:
        terminal.note(
            f"{terminal.count(found.staged.rows, 'row')} remain staged: repeat the write that "
            "staged them, because only that write can tell which of them count"
        )


@app.command()
@grouped
def forget(name: QueueName, sink: SinkName, *, change: Change) -> None:
    """Remove a sink, and its staged rows that are not enqueued.

    A write with the same name then starts from scratch and enqueues every row again; so does a
    streaming query that starts with its first batch.

    \b
    Example:
      fdbq sink forget orders 'load of Monday' --yes
    """
    db, queue = context.open_queue(name)
    left = _open(db, queue, sink).left
    rows = f"{terminal.count(left, 'row')} that {'is' if left == 1 else 'are'} not enqueued"
    if not change.dry_run:
        lost = f" and {rows}" if left else ""
        change.confirm(f"Forget sink {sink!r} of queue {name!r}{lost}?")
        fdbqueue.Sink(queue, sink).forget(db)
    change.print_result(
        {"queue": name, "sink": sink, "lost": left, "forgotten": not change.dry_run},
        f"{change.verb('forget', 'forgot')} sink {sink} and {rows}",
    )
