"""What goes before the ready messages: a line of consumers, and what is due."""

from __future__ import annotations

from ...messages import agenda
from ...messages.delivery import lease_expiry
from ...schema import due
from ...schema.scope import Scope
from ...store import world
from ...store.binding import fdb
from .. import leader, line, promotion
from .access import Access


class Ahead:
    """The reads that tell it, issued and not awaited.

    The agenda, the lines and the ends of leases follow each other, so the first key of all tells
    that there is nothing. Where there was something the last time, each is read at once; where
    there was a line, only that.

    first: a read that was issued; None if only the line is read.
    """

    __slots__ = ("_access", "_agenda", "_expiry", "_line", "_queued", "_tr", "first")

    def __init__(self, tr: fdb.Transaction, access: Access, *, crowded: bool) -> None:
        self._tr, self._access = tr, access
        self._queued: line.LineReads | None = None
        self._agenda: fdb.FDBRange | None = None
        self._line: fdb.Key | None = None
        self._expiry: fdb.Key | None = None
        self.first: fdb.Key | None = None
        if crowded:
            self._queued = line.reads(tr, access.line, first=False)
        elif access.busy:
            self.first = self._each()
        else:
            self.first = tr.snapshot.get_key(access.keys.earliest.first)

    def _each(self) -> fdb.Key:
        """Read what there is of each."""
        snapshot, keys = self._tr.snapshot, self._access.keys
        self._agenda = due.reads(self._tr, keys)
        self._line = snapshot.get_key(self._access.line.first)
        self._expiry = expiry = snapshot.get_key(keys.expiry.first)
        return expiry

    def _look(self) -> fdb.Key:
        """The first lease to expire, once it is known what there is."""
        if self._expiry is None:
            if self.first is None or self.first.value < self._access.keys.request.end:
                return self._each()
            self._line = self._expiry = self.first
        return self._expiry

    def _reads(self, *, first: bool) -> line.LineReads | None:
        """Those of the line; None if there is none."""
        if self._queued is None:
            self._look()
            assert self._line is not None
            if self._line.value < self._access.line.all.stop:
                self._queued = line.reads(self._tr, self._access.line, first=first)
        return self._queued

    @property
    def led(self) -> bytes | None:
        """Until when the line has a leader."""
        queued = self._reads(first=False)
        return None if queued is None else queued.led.value

    def line_stands(self, scope: Scope) -> bool:
        """Whether there is a line. Removes what a leader has left whose time is over."""
        queued = self._reads(first=True)
        if queued is None:
            return False
        stands = line.formed(self._tr, scope, self._access.line, queued)
        if not stands and queued.led.value is not None:
            leader.leave_expired(self._tr, self._access.line)
        return stands

    def due(self, scope: Scope) -> promotion.DueReads | None:
        """The reads of what is due; None if nothing is."""
        tr, keys, expiry = self._tr, scope.keys, self._look().value
        coming = None if self._agenda is None else agenda.AgendaReads(tr, scope, self._agenda)
        self._access.busy = self._queued is not None or (coming is not None and coming.some)
        if (coming is not None and coming.over(scope.now_ms(tr))) or (
            expiry < keys.expiry.end
            and (
                expiry < keys.expiry.begin(scope.version(tr))
                or (scope.strays is not None and scope.strays.next < world.monotonic())
            )
        ):
            return promotion.DueReads(
                lease_expiry.reads(tr, scope), coming or agenda.AgendaReads(tr, scope)
            )
        return None
