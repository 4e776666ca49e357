"""``fdbq doctor``: looks for what is wrong, and says what to do."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Exit

import fdbqueue

if TYPE_CHECKING:
    from fdbqueue.schema.consumers import Session

from ...errors import CorruptData, QueueNotFound, StoreError
from .. import context, terminal
from ..output import Done, Result
from ..parameters import AnyQueueNames, flag
from ..queues import queue_list, worker_list
from . import diagnosis, incidents, status
from .diagnosis import OK, PROBLEM, Finding
from .incidents import Seen

PACE_SECONDS = 1.0
"""How long the database's version is observed."""
MAX_LEASES = 10_000
SAMPLE = 200
"""How many messages of a state are looked at."""


def doctor(
    names: AnyQueueNames = None,
    full: bool = flag("Also verify queues and the store, which reads all data.", "--full"),
    repair: bool = flag("As --full, and repair what can be without guessing.", "--repair"),
) -> Done:
    """Look for what is wrong with the store, queues and workers, and say what to do.

    For the store: its health, latency, space and clock. For workers: processes that are stopped or
    gone, handlers that do not end or always fail, messages that kill them. For each queue: whether
    nobody takes its messages, what holds them back, late schedules, groups that wait for dead
    letters, subscriptions that nobody reads; and whether it is paused, full or has dead letters.

    With --full it also verifies counters, leases, chunks of payloads and all else that is stored,
    while it is in use: see docs/verify.md. It changes nothing without --repair. The exit code is 1
    if there is a problem, which needs a person, and 0 if there are only warnings.

    Examples:
      fdbq doctor
      fdbq doctor orders --json
      fdbq doctor orders --full
      fdbq doctor orders --repair
    """
    try:
        db = context.connect()
        every = names or context.queue_names(db)
        with terminal.progress("queues", len(every)) as update:
            findings = examine(db, names or [], every, full or repair, repair, update)
    except StoreError as error:
        if context.full(error) is None:
            raise
        findings = [diagnosis.commits(str(error), full=True), *_disk()]
    ok = all(finding.state != PROBLEM for finding in findings)
    value = {"ok": ok, "findings": [finding.to_json() for finding in findings]}
    lines = [line for finding in findings for line in finding.lines()]
    return Result(value, lines, failed=None if ok else Exit(1))


def examine(
    db: fdbqueue.fdb.Database,
    asked: Sequence[str],
    names: Sequence[str],
    full: bool,
    repair: bool,
    update: Callable[[int], object],
) -> list[Finding]:
    """All findings. asked: queues that must be there."""
    from fdbqueue.queue import overview
    from fdbqueue.store.binding import DEFAULT

    findings = [Finding(OK, "set-up", "store", str(DEFAULT)), *_store(db, full)]
    sessions = overview.processes(db, root=context.subspace())
    now_ms, here = fdbqueue.Clock().now_ms(db), socket.gethostname()
    looked: list[Seen | Finding] = []
    for name, found in queue_list.surveyed(db, names):
        try:
            if found.unreadable is not None:
                looked.append(diagnosis.unreadable(name, found.unreadable))
            else:
                queue = context.queue(name)
                seen = Looking(db, queue, found.depth).seen(found, sessions)
                if full:
                    admin = queue.admin
                    seen.verified = admin.repair(db) if repair else admin.verify(db)
                looked.append(seen)
        except QueueNotFound:  # it was deleted a moment ago
            continue
        except CorruptData as error:
            looked.append(diagnosis.unreadable(name, str(error)))
        update(len(looked))
    held = [each for seen in looked if isinstance(seen, Seen) for each in seen.holding]
    for one in sessions:
        if one.waits is None:
            state = _state(one.process) if one.host == here else ""
            has = [what for place, what in held if place == (one.host, one.process)]
            findings += incidents.silent(one, now_ms - one.wall_ms, state, has)
    for each in looked:
        findings += [each] if isinstance(each, Finding) else incidents.of(each)
    checked = len(looked)
    if asked and checked < len(set(asked)):
        known = fdbqueue.survey(db, asked, root=context.subspace())
        raise QueueNotFound(name=next(name for name in asked if name not in known))
    noted = {finding.subject for finding in findings if finding.state != OK} & {*names}
    if checked:
        queues, well = terminal.count(checked, "queue"), f"{checked - len(noted):,}"
        detail = f"{queues} {'verified' if full else 'checked'}, {well} without findings"
        findings.append(Finding(OK, "queues", "store", detail))
    return findings


def _store(db: fdbqueue.fdb.Database, full: bool) -> Iterator[Finding]:
    from fdbqueue.store import embedded
    from fdbqueue.store.binding import DEFAULT, FAILURES, Engine
    from fdbqueue.store.cluster_status import cluster_status

    try:
        measured = status.measure(db)
        yield diagnosis.latency(measured.commit_ms, measured.begin_ms)
        ahead = status.skew(db)
        if ahead is not None:
            yield diagnosis.skew(ahead)
    except (*FAILURES, StoreError) as error:
        yield diagnosis.commits(str(error), context.full(error) is not None)
    if DEFAULT.engine is Engine.EMBEDDED:
        yield from _disk()
        if full and DEFAULT.path is not None:
            yield diagnosis.data(embedded.damages(DEFAULT.path))
        yield diagnosis.durability(os.environ.get("FDBQUEUE_SYNCHRONOUS") or "full")
        return
    yield from diagnosis.cluster(cluster_status(db))
    if full:
        yield _pace(db)


def _disk() -> Iterator[Finding]:
    from fdbqueue.store.binding import DEFAULT

    folder = os.path.dirname(DEFAULT.path or "")
    yield diagnosis.space(shutil.disk_usage(folder).free, folder)


def _pace(db: fdbqueue.fdb.Database) -> Finding:
    began = status.version(db)
    time.sleep(PACE_SECONDS)
    version, wall = status.version(db)
    return diagnosis.pace((version - began[0]) / max(wall - began[1], 0.001))


def _state(process: int) -> str:
    """What this system says of a process: "stopped", "gone", or nothing."""
    try:
        letter = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        # Where there is no /proc at all, nothing is known.
        return "gone" if os.path.exists("/proc/self/stat") else ""
    return "stopped" if letter in "Tt" else "gone" if letter in "ZX" else ""


class Looking:
    """Looks at a queue for what ``Seen`` says of it."""

    def __init__(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, depth: fdbqueue.Depth
    ) -> None:
        from fdbqueue.queue.admin.finding import leases

        self.db, self.queue, self.depth = db, queue, depth
        self.now_ms = fdbqueue.Clock().wall_ms()
        self.held = [*islice(leases(db, queue), MAX_LEASES)] if depth.leased else []
        self.retrying = queue.messages(db, "retrying", SAMPLE) if depth.retrying else []
        self.present = queue.admin.consumers(db)
        recent = self.now_ms - incidents.SILENT_MS
        self.living = [each for each in self.present if each.seen_at_ms >= recent]

    def seen(self, found: fdbqueue.queue.overview.Surveyed, sessions: Sequence[Session]) -> Seen:
        """All of it but whether the data are what they should be."""
        from fdbqueue.consumers.consumer_states import ConsumerState
        from fdbqueue.queue.admin import backlogs

        db, queue, now_ms = self.db, self.queue, self.now_ms
        errors = Counter(e.message.last_error for e in self.retrying if e.message.last_error)
        target = found.options.dead_letter_queue
        return Seen(
            name=queue.name,
            options=found.options,
            depth=self.depth,
            now_ms=now_ms,
            pause=found.pause,
            waiting_ms=now_ms - min([now_ms, *self.waiting_since()]),
            consumers=sum(e.state is not ConsumerState.NON_ACQUIRING for e in self.living),
            works=[
                (f"{each.host}:{each.process}", work)
                for each in sessions
                if now_ms - each.wall_ms <= incidents.SILENT_MS
                for work in each.work
                if work.queue == queue.name
            ],
            errors=errors.most_common(1),
            deadly=[*self.deadly()],
            holding=[*self.holding()],
            overdue_ms=[now_ms - e.delivery.expires_at_ms for e in self.held if e.expired],
            held=backlogs.backlogs(db, queue) if self.depth.waiting else [],
            late=[
                (each.name, now_ms - each.next_ms)
                for each in queue.schedules.list(db, SAMPLE)
                if each.next_ms is not None and not each.paused
            ],
            groups=[
                each
                for each in queue.groups.list(db, SAMPLE)
                if each.state in ("failed", "blocked")
                or (each.state == "running" and each.then_on == "done" and each.dead > 0)
            ],
            producing=worker_list.producing(sessions, queue.name, now_ms, incidents.STUCK_MS),
            unread=[*self.unread()],
            target_exists=not target
            or bool(fdbqueue.survey(db, [target], root=context.subspace())),
            staged=[
                (sink, each.rows, now_ms - each.changed_at_ms)
                for sink, each in queue.streams.undecided(db).items()
            ],
        )

    def holding(self) -> Iterator[tuple[tuple[str, int], tuple[str, str]]]:
        """Which processes hold which messages. Of a name that several have, nobody knows which
        does."""
        places: dict[str, set[tuple[str, int]]] = {}
        for each in self.present:
            places.setdefault(each.name, set()).add((each.host, each.process))
        for lease in self.held:
            if len(some := places.get(lease.consumer, ())) == 1:
                yield from ((place, (self.queue.name, lease.delivery.id)) for place in some)

    def unread(self) -> Iterator[tuple[str, int]]:
        """The subscriptions that nobody reads, and how many messages they have not seen."""
        from fdbqueue.queue.admin.finding import lag

        read = {each.subscription for each in self.living}
        for each in self.queue.subscriptions.list(self.db):
            if each.name not in read and (count := lag(self.db, self.queue, each.name)):
                yield each.name, count

    def waiting_since(self) -> Iterator[int]:
        """Since when the first messages could be taken: without a worker, what is due stays where
        it is."""
        if self.depth.ready and (oldest := self.queue.admin.ready_since_ms(self.db)) is not None:
            yield oldest
        scheduled = self.queue.messages(self.db, "scheduled", 1) if self.depth.scheduled else []
        first = (*self.retrying[:1], *scheduled)
        yield from (each.due_at_ms for each in first if each.due_at_ms is not None)

    def deadly(self) -> Iterator[tuple[str, int, str]]:
        """Messages at which processes died, how many, and their states."""
        db, queue, depth = self.db, self.queue, self.depth
        some = {
            "retrying": [each.message for each in self.retrying],
            "dead": [each.message for each in queue.dead.list(db, SAMPLE)] if depth.dead else [],
            "leased": [each.delivery.message for each in self.held],
            "ready": queue.peek(db, SAMPLE) if depth.ready else [],
        }
        for state, messages in some.items():
            yield from ((one.id, one.deaths, state) for one in messages if one.deaths)
