"""``fdbq sink …``: what writes of many tasks have not published yet."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import fdbqueue

from . import listing, shapes, terminal
from .params import AsJson, DryRun, QueueName, Watch, Yes

app = typer.Typer(
    name="sink",
    help="Look at writes of Spark and the like, and finish what was interrupted.",
    no_args_is_help=True,
)

SinkName = Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.")]


@app.command("list")
def list_(
    name: QueueName,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only those with rows that are not enqueued yet.")
    ] = False,
    as_json: AsJson = False,
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
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)

    def look() -> listing.Listing:
        from fdbqueue.sinks import sinks

        now_ms = fdbqueue.clock.Clock().wall_ms()
        found = {
            sink: state
            for sink, state in sinks(db, queue).items()
            if state.batch >= 0 or not unfinished
        }
        return listing.Listing(
            ["sink", "batch", "rows", "enqueued", "state", "age"],
            [
                (
                    sink,
                    max(state.batch, state.done),
                    state.rows,
                    state.published,
                    "complete" if state.batch < 0 else "unfinished",
                    terminal.age(now_ms - state.changed_at_ms),
                )
                for sink, state in found.items()
            ],
            [_json(sink, state) for sink, state in found.items()],
            f"queue {name} has no sinks" + (" that are unfinished" if unfinished else ""),
        )

    listing.show(look, as_json, watch)


def _json(sink: str, state: Any) -> dict[str, object]:
    return {
        "sink": sink,
        "batch": max(state.batch, state.done),
        "rows": state.rows,
        "enqueued": state.published,
        "new": state.new,
        "complete": state.batch < 0,
        "changed_at": shapes.when(state.changed_at_ms),
    }


@app.command()
def finish(name: QueueName, sink: SinkName, as_json: AsJson = False) -> None:
    """Enqueue what is left of a batch that was interrupted while it was enqueued.

    Each row once, also if the query or the write goes on at the same time.

    \b
    Example:
      fdbq sink finish orders 'load of Monday'
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
    before = _state(db, queue, sink)
    done = 0
    with terminal.progress("rows enqueued", before.rows or None) as bar:
        for state in fdbqueue.sinks.Sink(queue, sink).finishing(db):
            done = state.published - before.published
            bar.update(bar.task_ids[0], completed=state.published, done=done)
    if as_json:
        terminal.print_json({"queue": name, "sink": sink, "enqueued": done})
    else:
        print(f"enqueued {terminal.count(done, 'row')} of sink {terminal.visible(sink)}")


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
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
    state = _state(db, queue, sink)
    left = state.rows - state.published
    if not dry_run:
        lost = f", and {terminal.count(left, 'row')} that are not enqueued" if left else ""
        terminal.confirm(f"Forget sink {sink!r} of queue {name!r}{lost}?", yes)
        fdbqueue.sinks.Sink(queue, sink).forget(db)
    if as_json:
        terminal.print_json({"queue": name, "sink": sink, "lost": left, "forgotten": not dry_run})
    else:
        verb = "would forget" if dry_run else "forgot"
        print(f"{verb} sink {terminal.visible(sink)}, and {terminal.count(left, 'row')} of it")


def _state(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, sink: str) -> Any:
    from fdbqueue.sinks import sinks

    found = sinks(db, queue)
    if sink not in found:
        raise terminal.Refused(f"queue {queue.name!r} has no sink {sink!r}", 1)
    return found[sink]
