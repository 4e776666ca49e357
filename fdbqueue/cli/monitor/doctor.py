"""``fdbq doctor``: checks everything, and says what to do."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from typer import Exit, Option

import fdbqueue

from ...errors import CorruptData, QueueNotFound
from .. import context, terminal
from ..parameters import AnyQueueNames, AsJson
from ..queues import consumers, overview
from . import diagnosis, status
from .diagnosis import OK, PROBLEM, Finding, Seen

PACE_SECONDS = 1.0
"""How long the database's version is observed."""
MAX_LEASES = 10_000


def doctor(
    names: AnyQueueNames = None,
    quick: Annotated[
        bool,
        Option(
            "--quick",
            help="Verify neither queues nor the store, which would read all data.",
        ),
    ] = False,
    repair: Annotated[
        bool, Option("--repair", help="Repair what can be repaired without guessing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the store and the queues, and say what to do.

    For the store: its health, its latency, and whether its clock agrees with this machine's. For
    each queue: whether it is paused, full, nearly full or without consumers; dead letters; dead
    consumers; and expired leases that nobody reclaims. It verifies counters, leases, chunks of
    payloads and all else that is stored, while it is in use: see docs/verify.md.

    Changes nothing without --repair. The exit code is 1 if there is a problem, and 0 if there are
    only warnings.

    \b
    Examples:
      fdbq doctor
      fdbq doctor orders --quick --json
      fdbq doctor orders --repair
    """
    if quick and repair:
        raise terminal.CommandError("--repair has to read all: omit --quick")
    from fdbqueue.store.binding import DEFAULT

    db = context.connect()
    began = status.version(db)
    findings = [Finding(OK, "set-up", "store", str(DEFAULT)), *_store(db, quick)]
    every = names or context.queue_names(db)
    checked = 0
    with terminal.progress("queues", len(every)) as update:
        for seen in _look(db, every, quick, repair):
            findings += [seen] if isinstance(seen, Finding) else diagnosis.queue(seen)
            checked += 1
            update(checked)
    if names and checked < len(set(names)):
        known = fdbqueue.survey(db, names, root=context.subspace())
        raise QueueNotFound(name=next(name for name in names if name not in known))
    findings.insert(1, _pace(db, began))
    noted = {finding.subject for finding in findings if finding.state != OK} & {*every}
    if checked:
        how = "checked" if quick else "verified"
        detail = (
            f"{terminal.count(checked, 'queue')} {how}, {checked - len(noted):,} without findings"
        )
        findings.append(Finding(OK, "queues", "store", detail))
    ok = all(finding.state != PROBLEM for finding in findings)
    if as_json:
        terminal.print_json({"ok": ok, "findings": [finding.to_json() for finding in findings]})
    else:
        _print(findings)
    if not ok:
        raise Exit(1)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        about = f"{finding.check} {finding.subject}"
        print(f"{finding.state:<8} {terminal.visible(about)}: {terminal.visible(finding.detail)}")
        if finding.advice:
            print(f"         → {terminal.visible(finding.advice)}")


def _store(db: fdbqueue.fdb.Database, quick: bool) -> Iterator[Finding]:
    from fdbqueue.store import embedded
    from fdbqueue.store.binding import DEFAULT, Engine
    from fdbqueue.store.status import cluster_status

    measured = status.measure(db)
    yield diagnosis.latency(measured.commit_ms, measured.begin_ms)
    if DEFAULT.engine is Engine.EMBEDDED and DEFAULT.path is not None:
        folder = os.path.dirname(DEFAULT.path)
        yield diagnosis.space(shutil.disk_usage(folder).free, folder)
        if not quick:
            yield diagnosis.data(embedded.damages(DEFAULT.path))
        yield diagnosis.durability(os.environ.get("FDBQUEUE_SYNCHRONOUS") or "full")
        return
    yield from diagnosis.cluster(cluster_status(db))
    ahead = status.skew(db)
    if ahead is not None:
        yield diagnosis.skew(ahead)


def _pace(db: fdbqueue.fdb.Database, began: tuple[int, float]) -> Finding:
    time.sleep(max(0.0, began[1] + PACE_SECONDS - time.time()))
    version, wall = status.version(db)
    return diagnosis.pace((version - began[0]) / max(wall - began[1], 0.001))


def _look(
    db: fdbqueue.fdb.Database, names: list[str], quick: bool, repair: bool
) -> Iterator[Seen | Finding]:
    for name, found in overview.surveyed(db, names):
        try:
            if found.unreadable is not None:
                yield diagnosis.unreadable(name, found.unreadable)
            else:
                yield _seen(db, context.queue(name), found, quick, repair)
        except QueueNotFound:  # it was deleted a moment ago
            continue
        except CorruptData as error:
            yield diagnosis.unreadable(name, str(error))


def _seen(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    found: fdbqueue.queue.overview.Surveyed,
    quick: bool,
    repair: bool,
) -> Seen:
    from fdbqueue.consumers.states import ConsumerState
    from fdbqueue.queue.admin.finding import leases

    now_ms = fdbqueue.Clock().wall_ms()
    oldest = queue.admin.ready_since_ms(db)
    present = queue.admin.consumers(db)
    target = found.options.dead_letter_queue
    return Seen(
        name=queue.name,
        options=found.options,
        depth=found.depth,
        waiting_ms=None if oldest is None else now_ms - oldest,
        overdue_ms=[
            now_ms - each.delivery.expires_at_ms
            for each in islice(leases(db, queue), MAX_LEASES)
            if each.expired
        ],
        consumers=sum(each.state is not ConsumerState.NON_ACQUIRING for each in present),
        stale=len(consumers.stale(db, present)),
        target_exists=target is None
        or bool(fdbqueue.survey(db, [target], root=context.subspace())),
        staged=[
            (sink, each.rows, now_ms - each.changed_at_ms)
            for sink, each in queue.streams.undecided(db).items()
        ],
        verified=None if quick else queue.admin.repair(db) if repair else queue.admin.verify(db),
    )
