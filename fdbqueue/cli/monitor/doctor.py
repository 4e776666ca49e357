"""``fdbq doctor``: looks at everything, and says what to do."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import fdbqueue

from ...errors import CorruptData, FormatTooNew, QueueNotFound
from .. import home, terminal
from ..commands import consumers, leases, queues
from ..declarations import Argument, Option
from ..parameters import AsJson, complete_queue
from . import diagnosis, status, store_status
from .diagnosis import OK, PROBLEM, Finding, Seen

PACE_SECONDS = 1.0
"""How long the versions of the database are watched."""
LEASES_LOOKED_AT = 10_000


def doctor(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="QUEUE…",
            help="Names of queues; all where none is given.",
            autocompletion=complete_queue,
        ),
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="Do not verify the queues, which reads all of them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the store and the queues, and say what to do.

    Whether the store is well and answers soon; whether the clocks of this machine and of the
    database agree; and of every queue: whether it is paused, unattended, full or nearly so; dead
    letters; consumers that look dead; leases that have lapsed and that nobody takes back; and
    whether the counters equal a scan, and all else is as fdbq queue verify wants it.

    Changes nothing. Ends with 1 if there is a problem; warnings end with 0.

    \b
    Examples:
      fdbq doctor
      fdbq doctor orders --quick --json
    """
    from fdbqueue.store.binding import DEFAULT

    db = home.opened()
    began = store_status.version(db)
    findings = [Finding(OK, "set-up", "store", str(DEFAULT)), *_store(db)]
    every = names or home.names(db)
    looked = 0
    with terminal.progress("queues", len(every) or None) as bar:
        for seen in _look(db, every, quick):
            findings += [seen] if isinstance(seen, Finding) else diagnosis.queue(seen)
            looked += 1
            bar.update(bar.task_ids[0], completed=looked, done=looked)
    if names and looked < len(set(names)):
        known = fdbqueue.survey(db, names, root=home.space())
        raise QueueNotFound(name=next(name for name in names if name not in known))
    findings.insert(1, _pace(db, began))
    ill = {finding.subject for finding in findings if finding.state != OK} & {*every}
    well = looked - len(ill)
    if looked:
        how = "looked at" if quick else "verified"
        detail = f"{terminal.count(looked, 'queue')} {how}, {well:,} without any finding"
        findings.append(Finding(OK, "queues", "store", detail))
    sick = any(finding.state == PROBLEM for finding in findings)
    if as_json:
        terminal.print_json(
            {"ok": not sick, "findings": [finding.to_json() for finding in findings]}
        )
    else:
        _print(findings)
    if sick:
        raise terminal.Exit(1)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        about = f"{finding.check} {finding.subject}"
        print(f"{finding.state:<8} {terminal.visible(about)}: {terminal.visible(finding.detail)}")
        if finding.advice:
            print(f"         → {terminal.visible(finding.advice)}")


def _store(db: fdbqueue.fdb.Database) -> Iterator[Finding]:
    from fdbqueue.store.binding import DEFAULT, Engine

    measured = status.measure(db)
    yield diagnosis.latency(measured.commit_ms, measured.begin_ms)
    if DEFAULT.engine is Engine.EMBEDDED and DEFAULT.path is not None:
        folder = os.path.dirname(DEFAULT.path)
        yield diagnosis.space(shutil.disk_usage(folder).free, folder)
        yield diagnosis.durability(os.environ.get("FDBQUEUE_SYNCHRONOUS") or "full")
        return
    yield from diagnosis.cluster(store_status.status(db))
    ahead = store_status.skew(db)
    if ahead is not None:
        yield diagnosis.skew(ahead)


def _pace(db: fdbqueue.fdb.Database, began: tuple[int, float]) -> Finding:
    time.sleep(max(0.0, began[1] + PACE_SECONDS - time.time()))
    version, wall = store_status.version(db)
    return diagnosis.pace((version - began[0]) / max(wall - began[1], 0.001))


def _look(db: fdbqueue.fdb.Database, names: list[str], quick: bool) -> Iterator[Seen | Finding]:
    for start in range(0, len(names), queues.LISTED_AT_ONCE):
        surveyed = fdbqueue.survey(
            db, names[start : start + queues.LISTED_AT_ONCE], root=home.space()
        )
        for name, found in surveyed.items():
            try:
                if found.unreadable is not None:
                    yield diagnosis.unreadable(name, found.unreadable)
                else:
                    yield _seen(db, home.queue(name), found, quick)
            except QueueNotFound:  # deleted meanwhile
                continue
            except (CorruptData, FormatTooNew) as error:
                yield diagnosis.unreadable(name, str(error))


def _seen(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    found: fdbqueue.queue.overview.Surveyed,
    quick: bool,
) -> Seen:
    from fdbqueue.queue.bulk.sinks import undecided_rows

    now_ms = fdbqueue.Clock().wall_ms()
    oldest = queue.ready_since_ms(db)
    present = queue.consumers(db)
    target = found.options.dead_letter_queue
    return Seen(
        name=queue.name,
        options=found.options,
        depth=found.depth,
        waiting_ms=None if oldest is None else now_ms - oldest,
        overdue_ms=[
            now_ms - each.delivery.expires_at_ms
            for each in islice(leases.pages(db, queue), LEASES_LOOKED_AT)
            if each.lapsed
        ],
        consumers=len(present),
        stale=len(consumers.stale(db, present)),
        target_exists=target is None or bool(fdbqueue.survey(db, [target], root=home.space())),
        staged=[
            (sink, each.rows, now_ms - each.changed_at_ms)
            for sink, each in undecided_rows(db, queue).items()
        ],
        verified=None if quick else fdbqueue.verify(db, queue),
    )
