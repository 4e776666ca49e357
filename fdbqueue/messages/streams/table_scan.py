"""Reading many messages range by range, for tables, at one version for as long as possible."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from msgspec.structs import replace

from ...errors import CorruptData, TransactionTooSlow
from ...schema import once
from ...schema.codec import blocks
from ...schema.codec.blocks import Block
from ...schema.codec.envelopes import Envelope
from ...schema.codec.leases import Lease
from ...schema.keys import QueueKeys
from ...schema.scope import StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from .. import payloads
from ..delivery import lease_rows

R = TypeVar("R")

PAGE_BYTES = 8_000_000
"""How much of a range is read at once."""
NOWHERE = Position(0, 0, b"")
"""Of a message whose position cannot be read."""


class Page:
    """Messages that were read, in the order of their keys.

    values: what is stored of each: of a ready or leased one, its envelope. leases: the leases of
    the rows that leased ones are in, for each message.
    """

    def __init__(self, keys: QueueKeys, rows: Sequence[fdb.KeyValue], within: slice) -> None:
        self._keys = keys
        self._parts: list[bytes | Block | _Alone] = []
        self.values: list[bytes] = []
        self.leases: list[Lease] = []
        if within.start.startswith(keys.ready_prefix):
            self._read_ready(rows, within)
        elif within.start.startswith(keys.lease_prefix):
            self._read_leased(rows, within)
        else:
            self._parts += [kv.key for kv in rows]
            self.values += [kv.value for kv in rows]

    def _read_ready(self, rows: Sequence[fdb.KeyValue], within: slice) -> None:
        for kv in rows:
            key, value = kv.key, kv.value
            block = None
            if blocks.shared(kv):
                block = blocks.open_block(key, self._keys.parse_ready(key), value)
            if block is not None:
                self._add(block, within)
            elif key < within.stop:
                self._parts.append(key)
                self.values.append(value)

    def _read_leased(self, rows: Sequence[fdb.KeyValue], within: slice) -> None:
        for kv in rows:
            try:
                lease = Lease.unpack(kv.value)
                block = lease_rows.block_of(self._keys, kv.key, lease)
            except CorruptData:
                lease, block = Lease(NOWHERE, 0, 0, "", kv.value), None
            self.leases += [lease] * self._add(block or _Alone(kv.key, lease), within)

    def _add(self, part: Block | _Alone, within: slice) -> int:
        part.keep(within)
        self._parts.append(part)
        self.values += part.left.values()
        return len(part.left)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keys(self) -> list[bytes]:
        """The keys of all messages, as if each stood alone."""
        found: list[bytes] = []
        for part in self._parts:
            found += [part] if isinstance(part, bytes) else part.keys
        return found

    def places(self) -> tuple[list[int | None], list[str | None]]:
        """The levels of ready or leased messages, and the ids that name their positions; None for
        those of a lease that cannot be read."""
        levels: list[int | None] = []
        ids: list[str | None] = []
        for stored, parts in itertools.groupby(self._parts, lambda part: isinstance(part, bytes)):
            if stored:
                each = self._keys.ready_ids(cast("Iterator[bytes]", parts))
                levels += each[0]
                ids += each[1]
                continue
            for part in cast("Iterator[Block | _Alone]", parts):
                levels += [part.level] * len(part.left)
                ids += part.ids
        return levels, ids

    def behind(self, count: int) -> bytes:
        """The first key behind that of the last of ``count`` messages."""
        if count < len(self):
            return self.keys[count - 1] + b"\x00"
        last = next(part for part in reversed(self._parts) if isinstance(part, bytes) or part.left)
        return (last if isinstance(last, bytes) else last.keys[-1]) + b"\x00"


class _Alone:
    """A row of LEASE with one lease, as if it were a block."""

    __slots__ = ("_key", "_position", "left")

    def __init__(self, key: bytes, lease: Lease) -> None:
        self._key = key
        self._position = lease.position
        self.left = {0: lease.envelope}

    @property
    def level(self) -> int | None:
        return None if self._position is NOWHERE else self._position.level

    @property
    def keys(self) -> list[bytes]:
        return [self._key] * len(self.left)

    @property
    def ids(self) -> list[str | None]:
        each = None if self._position is NOWHERE else self._position.to_id()
        return [each] * len(self.left)

    def keep(self, within: slice) -> None:
        if not within.start <= self._key < within.stop:
            self.left.clear()


@transactional
def split(tr: fdb.Transaction, keys: QueueKeys, ranges: Sequence[slice], size: int) -> list[slice]:
    """Split ranges into parts of about ``size`` bytes, without empty ranges or parts of blocks.

    Two snapshot reads for each range, all in one round trip; no conflicts.
    """
    stops = [blocks.behind(keys, each.stop) for each in ranges]
    found = [
        tr.snapshot.get_range(each.start, stop, limit=1)
        for each, stop in zip(ranges, stops, strict=True)
    ]
    cuts = [tr.get_range_split_points(each.start, each.stop, size) for each in ranges]
    pieces = []
    for within, first, cut in zip(ranges, found, cuts, strict=True):
        if first.to_list():
            inner = {blocks.before(keys, bytes(each)) for each in cut.wait()}
            points = sorted(each for each in inner if within.start < each < within.stop)
            pairs = itertools.pairwise([within.start, *points, within.stop])
            pieces += [slice(*pair) for pair in pairs]
    return pieces


def pages(
    db: fdb.Database,
    keys: QueueKeys,
    within: slice,
    read: Callable[[fdb.Transaction, Page], tuple[R, int]],
    *,
    size: int = PAGE_BYTES,
) -> Iterator[R]:
    """What ``read`` makes of a range, in pages of about ``size`` bytes, in key order.

    read: takes messages, may read more in the transaction, and returns its result and how many
        messages it used, at least one. It may be called again for the same messages.

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


def _page(tr: fdb.Transaction, keys: QueueKeys, within: slice, size: int) -> tuple[Page, bool]:
    """The first messages of a range, and whether there may be more."""
    rows: list[fdb.KeyValue] = []
    stop, more = blocks.behind(keys, within.stop), False
    mode = fdb.StreamingMode.want_all
    for kv in tr.snapshot.get_range(within.start, stop, streaming_mode=mode):
        rows.append(kv)
        if kv.key >= within.stop:
            break
        size -= len(kv.key) + len(kv.value)
        if size < 0:
            more = True
            break
    return Page(keys, rows, within), more


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
