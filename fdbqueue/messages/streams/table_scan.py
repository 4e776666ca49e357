"""Reading many messages range by range, for tables, at one version for as long as possible."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec.structs import replace

from ...errors import TransactionTooSlow
from ...schema import once
from ...schema.envelope import KEPT_FAILURES, Envelope
from ...schema.keys import QueueKeys
from ...schema.leases import Lease
from ...schema.scope import StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Failure
from .. import payloads, run
from ..delivery import failures as failed_attempts
from ..run import NOWHERE, Leased

R = TypeVar("R")

PAGE_BYTES = 8_000_000
"""How much of a range is read at once."""
FAILURES = 4_000
"""How many failed attempts are read at once; each has up to some 4 kB."""


class ScanPage:
    """Messages that were read, in the order of their keys.

    values: what is stored of each: of a ready or leased one, its envelope.
    """

    def __init__(self, keys: QueueKeys, rows: Sequence[fdb.KeyValue], within: slice) -> None:
        self._keys = keys
        self._rows = list(run.scanned(keys, rows, within))
        self.values = [value for row in self._rows for value in row.values]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keys(self) -> list[bytes]:
        """The keys of all messages, as if each stood alone."""
        return [key for row in self._rows for key in row.keys]

    @property
    def leases(self) -> list[Lease | None]:
        """What their leases say of leased messages; None of one that cannot be read."""
        found = ((row.lease if isinstance(row, Leased) else None, row) for row in self._rows)
        return [lease for lease, row in found for _ in row.values]

    def places(self) -> tuple[list[int | None], list[str | None]]:
        """The levels of ready or leased messages, and the ids that name their positions; None for
        those of a lease that cannot be read."""
        return run.places(self._keys, self._rows)

    def behind(self, count: int) -> bytes:
        """The first key behind that of the last of ``count`` messages."""
        last = self.keys[count - 1] if count < len(self) else self._rows[-1].key
        return last + b"\x00"


@transactional
def split(tr: fdb.Transaction, keys: QueueKeys, ranges: Sequence[slice], size: int) -> list[slice]:
    """Split ranges into parts of about ``size`` bytes, without empty ranges or parts of rows.

    Two snapshot reads for each range, all in one round trip; no conflicts.
    """
    # The row with the last messages of a range may have its key behind it.
    stops = [run.behind(keys, each.stop) for each in ranges]
    found = [
        tr.snapshot.get_range(each.start, stop, limit=1)
        for each, stop in zip(ranges, stops, strict=True)
    ]
    cuts = [tr.get_range_split_points(each.start, each.stop, size) for each in ranges]
    pieces = []
    for within, first, cut in zip(ranges, found, cuts, strict=True):
        if first.to_list():
            # The store splits by bytes, perhaps within a run: two tasks would then read, and
            # return, the same row.
            inner = {run.before(keys, bytes(each)) for each in cut.wait()}
            points = sorted(each for each in inner if within.start < each < within.stop)
            pairs = itertools.pairwise([within.start, *points, within.stop])
            pieces += [slice(*pair) for pair in pairs]
    return pieces


def pages(
    db: fdb.Database,
    keys: QueueKeys,
    within: slice,
    read: Callable[[fdb.Transaction, ScanPage], tuple[R, int]],
    *,
    check: Callable[[fdb.Transaction, bytes], object] = lambda tr, begin: None,
    size: int = PAGE_BYTES,
) -> Iterator[R]:
    """What ``read`` makes of a range, in pages of about ``size`` bytes, in key order.

    read: takes messages, may read more in the transaction, and returns its result and how many
        messages it used, at least one. It may be called again for the same messages.
    check: is called in the transaction of each page, with the key where that begins.

    All pages have the version of the first for the five seconds that a transaction lasts; a slower
    caller gets the rest at a later version. A message that does not move during the read appears
    exactly once. Snapshot reads, no conflicts. Raises ``TransactionTooSlow`` if one page repeatedly
    takes too long.
    """
    begin: bytes | None = within.start
    tr = db.create_transaction()
    too_old = 0
    while begin is not None:
        try:
            # In the page's own transaction: what it checks holds for exactly the rows that the page
            # reads.
            check(tr, begin)
            with uncollected():
                page, more = _page(tr, keys, slice(begin, within.stop), size)
                if not page:
                    return
                made, taken = read(tr, page)
        except fdb.FDBError as error:
            too_old += error.code == once.TOO_OLD
            if too_old == once.MAX_TOO_OLD:
                raise TransactionTooSlow(times=too_old) from error
            tr.on_error(error).wait()
            continue
        too_old = 0
        more = more or taken < len(page)
        begin = page.behind(taken) if more else None
        yield made


def _page(tr: fdb.Transaction, keys: QueueKeys, within: slice, size: int) -> tuple[ScanPage, bool]:
    """The first messages of a range, and whether there may be more."""
    rows: list[fdb.KeyValue] = []
    stop, more = run.behind(keys, within.stop), False
    mode = fdb.StreamingMode.want_all
    for kv in tr.snapshot.get_range(within.start, stop, streaming_mode=mode):
        rows.append(kv)
        if kv.key >= within.stop:
            break
        size -= len(kv.key) + len(kv.value)
        if size < 0:
            more = True
            break
    return ScanPage(keys, rows, within), more


def contents(
    tr: fdb.Transaction,
    keys: QueueKeys,
    envelopes: Sequence[Envelope],
    ids: Sequence[str | None],
) -> list[bytes | None]:
    """The payloads, as they were enqueued, of envelopes; None of one that cannot be read.

    One more round trip if some have chunks. Raises ``CorruptData``.
    """
    found = [each.payload if each.readable else None for each in envelopes]
    special = [n for n, each in enumerate(envelopes) if each.raw_size is not None]
    if special:
        messages = [StoredMessage(NOWHERE, replace(envelopes[n], id=ids[n] or "")) for n in special]
        loaded = payloads.load(messages, payloads.reads(tr, keys, messages))
        for n, message in zip(special, loaded, strict=True):
            found[n] = message.payload
    return found


def failures(
    tr: fdb.Transaction,
    keys: QueueKeys,
    envelopes: Sequence[Envelope],
    ids: Sequence[str | None],
) -> list[tuple[Failure, ...]]:
    """The failed attempts of messages, the oldest first. One more round trip if some have any."""
    messages = [
        StoredMessage(NOWHERE, replace(each, id=id_ or ""))
        for each, id_ in zip(envelopes, ids, strict=True)
    ]
    return [*map(failed_attempts.opened, failed_attempts.reads(tr, keys, messages))]


def fitting_failures(envelopes: Sequence[Envelope], most: int = FAILURES) -> int:
    """How many messages have at most so many failed attempts in all; at least one."""
    for n, each in enumerate(envelopes):
        most -= min(each.failures, KEPT_FAILURES)
        if most < 0 and n:
            return n
    return len(envelopes)


def fitting(envelopes: Sequence[Envelope], size: int = PAGE_BYTES) -> int:
    """How many envelopes have at most ``size`` bytes of chunks in all; at least one."""
    for n, each in enumerate(envelopes):
        size -= each.chunk_bytes
        if each.chunk_bytes and size < 0 and n:
            return n
    return len(envelopes)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector of cycles: it would traverse the growing rows again and again, and they
    have no cycles."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
