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


class FirstKey:
    """The first key from one on and before an end, read at snapshot isolation; the end if there is
    none.

    Not a key selector: that may go on into events of the history that this transaction has
    written, whose keys are not known before its commit.
    """

    __slots__ = ("_end", "_found", "_reads")

    def __init__(self, tr: fdb.Transaction, begin: bytes, end: bytes) -> None:
        mode = fdb.StreamingMode.exact
        self._reads = tr.snapshot.get_range(begin, end, limit=1, streaming_mode=mode)
        self._end = end
        self._found: bytes | None = None

    @property
    def value(self) -> bytes:
        """The key."""
        if self._found is None:  # Asked for the second time, it would be opened again.
            self._found = next((bytes(kv.key) for kv in self._reads.to_list()), self._end)
        return self._found


class Ahead:
    """The reads that tell it, issued and not awaited.

    The agenda, the lines and the ends of leases follow each other, so the first key of all tells
    that there is nothing. Where there was something the last time, each is read at once; where
    there was a line, only that.

    first: a read that was issued; None if only the line is read.
    """

    __slots__ = ("_access", "_agenda", "_found", "_queued", "_reads", "_tr", "first")

    def __init__(self, tr: fdb.Transaction, access: Access, *, crowded: bool) -> None:
        self._tr, self._access = tr, access
        self._queued: line.LineReads | None = None
        self._agenda: fdb.FDBRange | None = None
        self._reads: tuple[FirstKey, FirstKey] | None = None
        self._found: tuple[bytes, bytes] | None = None
        self.first: FirstKey | None = None
        if crowded:
            self._queued = line.reads(tr, access.line, first=False)
        elif access.hints.busy:
            self._issue()
        else:
            keys = access.keys
            self.first = FirstKey(tr, keys.earliest.prefix, keys.expiry.end)

    def _issue(self) -> None:
        """Read what there is of each."""
        tr, keys, line = self._tr, self._access.keys, self._access.line
        self._agenda = due.reads(tr, keys)
        self.first = FirstKey(tr, keys.expiry.prefix, keys.expiry.end)
        self._reads = FirstKey(tr, line.led, line.all.stop), self.first

    def _keys(self) -> tuple[bytes, bytes]:
        """The first key at or behind the line, and the first lease to expire."""
        if self._found is None:
            if self._reads is None and self.first is not None:
                first = self.first.value
                if first >= self._access.keys.request.end:
                    self._found = first, first
                    return self._found
            if self._reads is None:
                self._issue()
            assert self._reads is not None
            behind_line, expiry = self._reads
            self._found = behind_line.value, expiry.value
        return self._found

    def _line(self, *, first: bool) -> line.LineReads | None:
        """The reads of the line; None if there is none."""
        if self._queued is None and self._keys()[0] < self._access.line.all.stop:
            self._queued = line.reads(self._tr, self._access.line, first=first)
        return self._queued

    @property
    def led(self) -> bytes | None:
        """Until when the line has a leader."""
        queued = self._line(first=False)
        return None if queued is None else queued.led.value

    def line_stands(self, scope: Scope) -> bool:
        """Whether there is a line. Removes what a leader has left whose time is over."""
        queued = self._line(first=True)
        if queued is None:
            return False
        stands = line.formed(self._tr, scope, self._access.line, queued)
        if not stands and queued.led.value is not None:
            leader.leave_expired(self._tr, self._access.line)
        return stands

    def due(self, scope: Scope) -> promotion.DueReads | None:
        """The reads of what is due; None if nothing is."""
        tr, keys, expiry = self._tr, scope.keys, self._keys()[1]
        coming = None if self._agenda is None else agenda.AgendaReads(tr, scope, self._agenda)
        self._access.hints.busy = self._queued is not None or (coming is not None and coming.some)
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
