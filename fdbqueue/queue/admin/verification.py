"""Verification and repair of what a queue stores, while it is in use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...consumers import checks as waiting
from ...errors import CorruptData
from ...messages.checks import plans as auditplans
from ...messages.checks import rates, results, side_records, sinks, verification
from ...messages.checks import schedules as ticking
from ...messages.checks.verification import Audit
from ...schema.key_kinds import Kind
from ...schema.keys import KINDS, QueueKeys
from ...store.binding import fdb
from ...subscriptions import cursor_checks
from ...values.model import Deviation, Verification
from ..queue_base import Handle

__all__ = ["Deviation", "Verification", "rebuild_counters", "verify"]

Check = Callable[[Audit], None]
Pages = Callable[[Audit, bytes], bytes]


def verify(db: fdb.Database, queue: Handle, *, repair: bool = False) -> Verification:
    """Check a queue, see ``Admin.verify``. repair: whether to repair it, see ``Admin.repair``."""
    return _Verifier(db, queue, repair).run()


def rebuild_counters(db: fdb.Database, queue: Handle) -> Verification:
    """Set the counters of a queue to what a scan finds, as ``verify`` with ``repair`` does."""
    verifier = _Verifier(db, queue, repair=True)
    verifier.counters()
    return verifier.result()


class _Verifier:
    """One run over a queue."""

    def __init__(self, db: fdb.Database, queue: Handle, repair: bool) -> None:
        self.db = db
        self.queue = queue
        self.repair = repair
        self.found: list[Deviation] = []
        self.unchecked: list[str] = []
        self.messages = 0
        self.staged = 0

    def run(self) -> Verification:
        for kind in KINDS:
            read = kind not in (*_WHOLE, *_UNREAD) and any(
                callable(form.value) for form in kind.forms
            )
            if kind in verification.HOLDERS:
                self.messages += self.pages(partial(verification.messages, kind))
            elif kind in _CHECKS or read:
                rows = self.pages(_CHECKS.get(kind, partial(verification.rows, kind)))
                self.staged += rows if kind is QueueKeys.attempt else 0
        for check in (verification.leases, auditplans.leases, ticking.waiting_ticks):
            self.pages(check)
        self.plans()
        self.whole("the pace of the queue", rates.pace)
        self.whole("keys of no kind", verification.strays)
        self.whole("owners of chunks, names, pointers and turns", side_records.check)
        self.counters()
        return self.result()

    def result(self) -> Verification:
        found, unchecked = tuple(self.found), tuple(self.unchecked)
        return Verification(found, unchecked, self.messages, self.staged)

    def counters(self) -> None:
        """The states come first: the number of enqueued messages is their sum."""
        for level in range(self.queue._read(self.db, self.queue._options).levels):
            check = partial(verification.counted, kind=QueueKeys.ready, level=level)
            self.whole(f"counters of the ready messages of level {level}", check)
        for kind in verification.COUNTED:
            if kind is not QueueKeys.ready:
                check = partial(verification.counted, kind=kind, level=None)
                self.whole(f"counters of kind {kind.name.lower()}", check)
        self.whole("sums of the counters", verification.conserved)

    def plans(self) -> None:
        """Each plan with its leases at one version."""
        try:
            self.pages(auditplans.complete)
        except verification.TooLong:
            self.unchecked.append("leases of plans")

    def pages(self, check: Pages) -> int:
        begin, rows = b"", 0
        while True:
            try:
                done, following = self.attempt(partial(_page, check, begin))
            except CorruptData as error:
                self.unreadable(error)
                return rows
            rows += done
            if not following:
                return rows
            begin = following

    def whole(self, name: str, check: Check) -> None:
        try:
            self.attempt(check)
        except verification.TooLong:
            self.unchecked.append(name)
        except CorruptData as error:
            self.unreadable(error)

    def unreadable(self, error: CorruptData) -> None:
        """A check has met a value that it needs, and ends."""
        self.found.append(Deviation("unreadable", error.what, error.problem))
        self.unchecked.append(f"what depends on {error.what}")

    def attempt(self, check: Callable[[Audit], bytes | None]) -> tuple[int, bytes | None]:
        def body(tr: fdb.Transaction, fix: bool) -> tuple[Audit, bytes | None]:
            done = Audit(tr, self.queue._scope(tr), fix)
            return done, check(done)

        done, following = self.queue._read(self.db, body, False)
        if done.found and self.repair:
            # Checked once more, with conflicts: what the snapshot showed may have been mended
            # since, by its owner.
            done, following = self.queue._run(self.db, body, True, wrote=_repaired)
        self.found += done.found
        return done.rows, following


def _repaired(result: tuple[Audit, bytes | None]) -> bool:
    return any(each.repaired for each in result[0].found)


def _page(check: Pages, begin: bytes, page: Audit) -> bytes:
    return check(page, begin)


_CHECKS: dict[Kind, Pages] = {
    QueueKeys.tail: verification.tails,
    QueueKeys.expiry: verification.expiries,
    QueueKeys.until: verification.ends,
    QueueKeys.attempt: sinks.attempts,
    QueueKeys.staged: sinks.pieces,
    QueueKeys.cursor: cursor_checks.cursors,
    QueueKeys.schedule: ticking.schedules,
    QueueKeys.consumer: waiting.consumers,
    QueueKeys.state: waiting.states,
    QueueKeys.sleeper: waiting.sleepers,
    QueueKeys.led: waiting.lines,
    QueueKeys.result: results.results,
}
"""What is checked of the rows of a kind, besides that they can be read."""
_WHOLE = (QueueKeys.rate, QueueKeys.plan, QueueKeys.limits, QueueKeys.backlog, QueueKeys.pace)
"""Checks of all that there is at one version report what cannot be read of these."""
_UNREAD = (QueueKeys.event,)
"""The history may be longer than everything else, and nothing depends on it."""
