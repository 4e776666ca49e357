"""``fdbq debug …``: what is rarely needed, and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

import fdbqueue

from ..errors import QueueNotFound
from . import context, output, terminal
from .commands import Group
from .json_schema import when
from .output import AsJson, Done, Listed, Result, View
from .parameters import AnyQueueNames, QueueName, flag, option

app = Group("debug", "Run housekeeping now, count keys, show the audit log.")


@app.command()
def sweep(
    names: AnyQueueNames = None,
    evict: list[str] | None = option(
        "ID", "Also remove this consumer of the queue, though it seems alive. Repeatable."
    ),
    yes: bool = flag("Do not ask for confirmation of --evict.", "--yes", "-y"),
) -> Done:
    """Run housekeeping now: reclaim expired leases, promote due messages, drop expired ones.

    Also removes consumers of dead processes, which are those without a heartbeat for 15 s, removes
    rows that were staged a week ago and never enqueued, and deletes unused queues that have the
    option auto_delete. Consumers do all of this in passing, so you rarely need it. What a
    removed worker holds comes back, with --evict at once; one that is still alive registers again.
    The IDs are those of "worker list". What a program holds that only receives comes back with
    "message release".

    Examples:
      fdbq debug sweep orders
      fdbq debug sweep
      fdbq debug sweep orders --evict 0f6f3c1e5b9a4d0c8b7a695847362514 --yes
    """
    if evict and len(names or []) != 1:
        raise terminal.CommandError("--evict needs the one QUEUE of the consumer")
    return _swept(names or [], evict or [], yes)


def _swept(names: list[str], evict: list[str], yes: bool) -> Iterator[Result]:
    db = context.connect()
    for name in names or context.queue_names(db):
        queue = context.queue(name)
        try:
            gone = _evicted(db, queue, evict, yes)
            swept = queue.admin.sweep(db)
        except QueueNotFound:
            if names:
                raise
            continue  # it was deleted a moment ago
        consumers = f", {terminal.count(len(gone), 'consumer')} removed" if gone else ""
        staged = f", {swept.staged:,} staged rows removed" if swept.staged else ""
        deleted = "; the queue was unused and is deleted" if swept.deleted else ""
        yield Result(
            {"queue": name, **asdict(swept), "evicted": gone},
            f"{name}: {terminal.count(swept.promoted, 'message')} became ready, "
            f"{swept.expired:,} expired{consumers}{staged}{deleted}",
        )


def _evicted(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: list[str], yes: bool
) -> list[str]:
    """Remove the consumers of dead processes, and those with these ids; returns their ids."""
    gone: list[bytes] = []
    if ids:
        known = {each.id.hex(): each for each in queue.admin.consumers(db)}
        if missing := [each for each in ids if each not in known]:
            raise terminal.CommandError(
                f"queue {queue.name!r} has no consumer {', '.join(missing)}", 1
            )
        consumers = terminal.count(len(ids), "consumer")
        terminal.confirm(f"Remove {consumers} of queue {queue.name!r}?", yes)
        gone += [evicted for each in ids for evicted in queue.admin.evict(db, known[each])]
    # Each call takes as many as fit into a transaction.
    while evicted := queue.admin.evict(db):
        gone += evicted
    return [each.hex() for each in gone]


@app.command()
def keys(name: QueueName, as_json: AsJson = False) -> None:
    """Count what a queue stores: the rows and bytes of each kind of key, and what they are for.

    Reads every row of the queue.

    Examples:
      fdbq debug keys orders
    """
    from ..queue.admin.inventory import inventory  # help and completion need no store

    db, queue = context.open_queue(name)
    found = []
    for kind, count, size in inventory(db, queue):
        each = kind.forms
        uses = "; ".join(form.use for form in each)
        found.append((kind.name, [form.keys for form in each], count, size, uses))
    if as_json:
        names = "kind", "keys", "rows", "bytes", "use"
        terminal.print_json([dict(zip(names, each, strict=True)) for each in found])
        return
    rows = [
        (name, " ".join(keys), f"{count:,}", f"{size:,}", uses)
        for name, keys, count, size, uses in found
    ]
    terminal.print_table(["kind", "keys", "rows", "bytes", "what for"], rows, ["rows", "bytes"])


@app.command()
def audit(
    limit: int = option("N", "Show at most N lines.", 100, "--max", min=1, max=10_000),
    before: str | None = option("STAMP", "Only what is older than the line of this stamp."),
) -> Listed:
    """Show what operators did, by commands and in the web pages, the newest first.

    A command that has changed something has a line; an action of the pages has one when it begins,
    with how many messages were expected, and one when it ends, with how many there were. What
    programs do is not in it. Lines are kept for 400 days.

    Examples:
      fdbq debug audit --max 20
      fdbq debug audit --json | jq '.[] | select(.action == "purge")'
    """
    from fdbqueue.queue.admin.audit_trail import AuditTrail

    try:
        stamp = None if before is None else bytes.fromhex(before)
    except ValueError:
        raise terminal.CommandError(f"--before {before}: a stamp is hexadecimal") from None
    trail = AuditTrail(context.connect(), context.subspace())

    def look() -> View:
        found = trail.newest(limit + 1, stamp)
        values: list[dict[str, Any]] = [
            {
                "stamp": line.stamp.hex(),
                "at": when(line.at_ms),
                **{name: getattr(line, name) for name in ("who", "action", "queue")},
                "what": dict(line.what),
                **{name: getattr(line, name) for name in ("state", "count", "run")},
            }
            for line in found[:limit]
        ]
        rows = [
            (
                *(each["at"], each["who"] or "-"),
                *(each[name] for name in ("action", "queue", "state", "count")),
                " ".join(f"{name}={value}" for name, value in each["what"].items()),
            )
            for each in values
        ]
        more = None
        if len(found) > limit:
            more = f"there are more: continue with --before {values[-1]['stamp']}"
        headers = ["at", "who", "action", "queue", "state", "count", "what"]
        return output.table(headers, rows, values, "the audit log is empty", more)

    return look
