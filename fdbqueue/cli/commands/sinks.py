"""``fdbq sink …``: what writes of many tasks have not published yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import fdbqueue

from ...values.records import record
from .. import home, json_schema, listings, terminal
from ..declarations import Argument, Group, Option
from ..parameters import AfterName, AsCsv, AsJson, DryRun, MostOrAll, QueueName, Watch, Yes

if TYPE_CHECKING:
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.schema.codec.sinks import SinkState

app = Group(
    name="sink",
    help="Look at writes of Spark and the like, and finish what was interrupted.",
    no_args_is_help=True,
)

SinkName = Annotated[str, Argument(metavar="SINK", help="Name of the sink.")]


@app.command("list")
def list_(
    name: QueueName,
    unfinished: Annotated[
        bool, Option("--unfinished", help="Only those with rows that are not enqueued yet.")
    ] = False,
    at_most: MostOrAll = None,
    after: AfterName = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List the sinks of a queue, and how far the latest batch of each has come.

    A sink is a streaming query that writes into the queue, or a batch write: one with an id, or
    the latest ones without. What is not enqueued to its end is gone on with when the query is
    started again, when the write is made again with the sink's name as its id, or by fdbq sink
    finish.

    \b
    Examples:
      fdbq sink list orders
      fdbq sink list orders --unfinished --json
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Listing:
        now_ms = fdbqueue.Clock().wall_ms()
        sinks = [each for each in _found(db, queue).items() if each[1].left or not unfinished]
        found, more = listings.page(sinks, lambda each: each[0], "sink", at_most, after)
        return listings.Listing(
            ["sink", "batch", "rows", "enqueued", "staged", "state", "age"],
            [
                (
                    sink,
                    each.batch if each.batch >= 0 else "",
                    each.state.rows,
                    each.state.published,
                    each.staged.rows,
                    each.word,
                    terminal.age(now_ms - each.changed_at_ms),
                )
                for sink, each in found
            ],
            [_json(sink, each) for sink, each in found],
            f"queue {name} has no sinks" + (" that are unfinished" if unfinished else ""),
            more,
        )

    listings.show(look, as_json, watch, as_csv)


@record
class _Found:
    """A sink as it is found: how far it has come, and what is staged beyond that."""

    state: SinkState
    staged: Undecided

    @property
    def batch(self) -> int:
        return max(self.state.batch, self.state.done)

    @property
    def left(self) -> int:
        """Rows that are not enqueued."""
        return self.state.rows - self.state.published + self.staged.rows

    @property
    def word(self) -> str:
        if self.state.batch >= 0:
            return "unfinished"
        return "staged" if self.staged.rows else "complete"

    @property
    def changed_at_ms(self) -> int:
        return max(self.state.changed_at_ms, self.staged.changed_at_ms)


def _found(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> dict[str, _Found]:
    from fdbqueue.messages.streams.undecided import Undecided
    from fdbqueue.queue.bulk.sinks import sinks, undecided_rows
    from fdbqueue.schema.codec.sinks import SinkState

    known, staged = sinks(db, queue), undecided_rows(db, queue)
    return {
        sink: _Found(known.get(sink, SinkState()), staged.get(sink, Undecided()))
        for sink in sorted({*known, *staged})
    }


def _json(sink: str, found: _Found) -> dict[str, object]:
    state, staged = found.state, found.staged
    return {
        "sink": sink,
        "batch": found.batch if found.batch >= 0 else None,
        "rows": state.rows,
        "enqueued": state.published,
        "new": state.new,
        "complete": state.batch < 0 and not staged.rows,
        "staged": {"attempts": staged.attempts, "rows": staged.rows, "bytes": staged.size},
        "state": found.word,
        "changed_at": json_schema.when(found.changed_at_ms),
    }


@app.command()
def finish(name: QueueName, sink: SinkName, as_json: AsJson = False) -> None:
    """Enqueue what is left of a batch that was interrupted while it was enqueued.

    Each row once, also if the query or the write goes on at the same time.

    \b
    Example:
      fdbq sink finish orders 'load of Monday'
    """
    db = home.opened()
    queue = home.queue(name)
    found = _sink(db, queue, sink)
    before = found.state
    done = 0
    with terminal.progress("rows enqueued", before.rows or None) as bar:
        for state in fdbqueue.Sink(queue, sink).finishing(db):
            done = state.published - before.published
            bar.update(bar.task_ids[0], completed=state.published, done=done)
    if as_json:
        terminal.print_json({"queue": name, "sink": sink, "enqueued": done})
    else:
        print(f"enqueued {terminal.count(done, 'row')} of sink {terminal.visible(sink)}")
    if found.staged.rows:
        terminal.note(
            f"{terminal.count(found.staged.rows, 'row')} are staged, and only the write that "
            "brought them can say which count: make it again"
        )


@app.command()
def forget(
    name: QueueName,
    sink: SinkName,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a sink, and what is staged for it and not enqueued.

    A write that is made again under its name begins anew, and enqueues everything again; so does a
    streaming query that begins with its first batch.

    \b
    Examples:
      fdbq sink forget orders 'load of Monday' --dry-run
      fdbq sink forget orders 'load of Monday' --yes
    """
    db = home.opened()
    queue = home.queue(name)
    left = _sink(db, queue, sink).left
    if not dry_run:
        lost = f", and {terminal.count(left, 'row')} that are not enqueued" if left else ""
        terminal.confirm(f"Forget sink {sink!r} of queue {name!r}{lost}?", yes)
        fdbqueue.Sink(queue, sink).forget(db)
    if as_json:
        terminal.print_json({"queue": name, "sink": sink, "lost": left, "forgotten": not dry_run})
    else:
        verb = "would forget" if dry_run else "forgot"
        print(f"{verb} sink {terminal.visible(sink)}, and {terminal.count(left, 'row')} of it")


def _sink(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, sink: str) -> _Found:
    found = _found(db, queue)
    if sink not in found:
        raise terminal.Refused(f"queue {queue.name!r} has no sink {sink!r}", 1)
    return found[sink]
