"""``fdbq schedule …``: messages that come again and again."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option, Typer

import fdbqueue

from ...errors import NotFound
from .. import context, durations, json_schema, listings, terminal
from ..parameters import (
    AsJson,
    ChangeOptions,
    ListOutput,
    MessageOptions,
    Output,
    PageOptions,
    QueueName,
    grouped,
    typed,
)

if TYPE_CHECKING:
    from ...values.schedules import Schedule

app = Typer(
    name="schedule",
    help="Set, list, pause, run and delete schedules, which enqueue a message again and again.",
    no_args_is_help=True,
)

Name = Annotated[str, Argument(metavar="SCHEDULE", help="The name of the schedule.")]


@app.command("set")
@grouped
def set_(
    name: QueueName,
    schedule: Name,
    payload: Annotated[
        str | None, Argument(metavar="PAYLOAD", help="The payload: JSON, or text that is none.")
    ] = None,
    *,
    cron: Annotated[
        str | None,
        Option(metavar="FIELDS", help="When it ticks, as in cron: '0 3 * * *' is daily at three."),
    ] = None,
    every: Annotated[
        float | None, durations.option("How often it ticks, instead of --cron.")
    ] = None,
    timezone: Annotated[
        str, Option(metavar="ZONE", help="The time zone of --cron, such as Europe/Berlin.")
    ] = "UTC",
    overlap: Annotated[
        Literal["queue", "skip"],
        Option(help="What a tick does while the message before it is not done."),
    ] = "queue",
    catch_up: Annotated[
        Literal["last", "all", "none"],
        Option(help="Which of the ticks that were missed while no consumer ran come late."),
    ] = "last",
    message: MessageOptions,
    as_json: AsJson = False,
) -> None:
    """Make a schedule, or change the one of that name.

    While consumers of the queue run, every tick enqueues a message with PAYLOAD. A change that
    leaves the times as they are leaves the next tick as it is.

    \b
    Examples:
      fdbq schedule set reports nightly all --cron '0 3 * * *' --timezone Europe/Berlin
      fdbq schedule set reports poll --every 30s --overlap skip
    """
    db, queue = context.open_producing(name)
    found = queue.schedules.set(
        db,
        schedule,
        b"" if payload is None else typed(queue, payload),
        cron=cron,
        every=every,
        timezone=timezone,
        overlap=overlap,
        catch_up=catch_up,
        **message.terms(),
    )
    _print(as_json, name, found)


@app.command("list")
@grouped
def list_(name: QueueName, *, page: PageOptions, output: ListOutput) -> None:
    """List the schedules of a queue. Without --max, the first 100 are listed.

    \b
    Examples:
      fdbq schedule list reports
      fdbq schedule list reports --watch 5
    """
    db, queue = context.open_queue(name)

    def read(most: int, after: str | None) -> list[Schedule]:
        return queue.schedules.list(db, most, after=after)

    def row(found: Schedule, now_ms: int) -> tuple[object, ...]:
        return found.name, _ticks(found), *_times(found, now_ms), found.fired

    headers = ["schedule", "ticks", "next", "last", "fired"]
    listed = partial(listings.listing, read, attrgetter("name"), row, _json, headers, "schedule")
    look = partial(listed, f"queue {name} has no schedules", page, page.after)
    listings.show(look, output)


@app.command()
@grouped
def show(name: QueueName, schedule: Name, *, output: Output) -> None:
    """Show a schedule, its next tick and its last.

    \b
    Example:
      fdbq schedule show reports nightly
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        found = queue.schedules.get(db, schedule)
        if found is None:
            raise NotFound(kind="schedule", queue=name, name=schedule)
        after, before = _times(found, fdbqueue.Clock().wall_ms())
        fields = [
            ("schedule", found.name),
            ("ticks", _ticks(found)),
            ("next", after),
            ("last", before),
            ("message", found.last_id or ""),
            *(("overlap", found.overlap), ("catch up", found.catch_up)),
            *(("fired", found.fired), ("skipped", found.skipped)),
            ("payload", terminal.excerpt(found.payload)),
        ]
        return listings.fields(fields, _json(found))

    listings.show(look, output)


@app.command()
def pause(name: QueueName, schedule: Name, as_json: AsJson = False) -> None:
    """Let no more ticks of a schedule come, until it is resumed.

    \b
    Example:
      fdbq schedule pause reports nightly
    """
    db, queue = context.open_queue(name)
    _print(as_json, name, queue.schedules.pause(db, schedule))


@app.command()
def resume(name: QueueName, schedule: Name, as_json: AsJson = False) -> None:
    """End the pause of a schedule. It goes on with the next tick from now.

    \b
    Example:
      fdbq schedule resume reports nightly
    """
    db, queue = context.open_queue(name)
    _print(as_json, name, queue.schedules.resume(db, schedule))


@app.command()
def run(name: QueueName, schedule: Name, as_json: AsJson = False) -> None:
    """Enqueue the message of a schedule now, beside its ticks, and print its id.

    \b
    Example:
      fdbq schedule run reports nightly
    """
    db, queue = context.open_queue(name)
    message_id = queue.schedules.run(db, schedule)
    context.changed = 1
    value = {"queue": name, "schedule": schedule, "id": message_id}
    terminal.print_result(as_json, value, message_id)


@app.command()
@grouped
def delete(name: QueueName, schedule: Name, *, change: ChangeOptions) -> None:
    """Delete a schedule. Messages that it has enqueued stay.

    \b
    Example:
      fdbq schedule delete reports nightly --yes
    """
    db, queue = context.open_queue(name)
    if queue.schedules.get(db, schedule) is None:
        raise NotFound(kind="schedule", queue=name, name=schedule)
    remove = partial(queue.schedules.delete, db, schedule)
    change.remove("delete", "deleted", "schedule", name, schedule, remove)


def _ticks(found: Schedule) -> str:
    if found.every is not None:
        return f"every {found.every:g} s"
    return f"{found.cron} {found.timezone}"


def _times(found: Schedule, now_ms: int) -> tuple[str, str]:
    """In how long the next tick comes, and how long ago the last came."""
    after = "paused" if found.paused else "never"
    if found.next_ms is not None:
        late = now_ms - found.next_ms
        after = f"in {terminal.age(-late)}" if late <= 0 else f"{terminal.age(late)} late"
    before = "" if found.last_ms is None else f"{terminal.age(now_ms - found.last_ms)} ago"
    return after, before


def _json(found: Schedule) -> dict[str, Any]:
    names = (
        *("priority", "headers", "overlap", "catch_up", "paused", "fired", "skipped", "every"),
        *("ttl", "max_attempts", "backoff", "key", "limits", "last_id", "next_ms", "last_ms"),
        *(("cron", "timezone") if found.cron else ()),
    )
    shown = json_schema.payload(found.payload, found.content_type)
    return {"schedule": found.name, **shown, **json_schema.known(found, *names)}


def _print(as_json: bool, queue: str, found: Schedule) -> None:
    after, _ = _times(found, fdbqueue.Clock().wall_ms())
    comes = after if found.paused else f"next {after}"
    text = f"schedule {found.name} of queue {queue}: {_ticks(found)}, {comes}"
    terminal.print_result(as_json, {"queue": queue, **_json(found)}, text)
