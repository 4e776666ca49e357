"""A look at many messages, a range at a time, for tables: one version while a transaction lasts."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import TransactionTooSlow
from ...schema import once
from ...schema.codec.envelopes import FIELDS, unpack_envelope
from ...schema.keys import QueueKeys
from ...schema.scope import StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from .. import payloads

R = TypeVar("R")

PAGE_BYTES = 8_000_000
"""What is held of a range at once."""
_PAYLOAD, _RAW_SIZE = FIELDS["payload"], FIELDS["raw_size"]
_CHUNK_BYTES = FIELDS["chunk_bytes"]
_NOWHERE = Position(0, 0, b"")


@transactional
def split(tr: fdb.Transaction, ranges: Sequence[slice], size: int) -> list[slice]:
    """Cut ranges into pieces of about ``size`` bytes, without those where nothing stands.

    Two snapshot reads for each range, all in one round trip; no conflicts.
    """
    found = [tr.snapshot.get_range(each.start, each.stop, limit=1) for each in ranges]
    cuts = [tr.get_range_split_points(each.start, each.stop, size) for each in ranges]
    pieces = []
    for first, cut in zip(found, cuts, strict=True):
        if first.to_list():
            points = [bytes(each) for each in cut.wait()]
            pieces += [slice(*pair) for pair in itertools.pairwise(points)]
    return pieces


def pages(
    db: fdb.Database,
    within: slice,
    read: Callable[[fdb.Transaction, list[fdb.KeyValue]], tuple[R, int]],
    *,
    size: int = PAGE_BYTES,
) -> Iterator[R]:
    """What ``read`` makes of a range, in pages of about ``size`` bytes, in the order of its keys.

    read: takes rows, maybe reads more in the transaction, and returns what it made, and of how
        many of the rows: one at least. It may be called again for the same rows.

    All pages are of one version, the one at which the first was read, as long as a transaction
    lasts: five seconds. If whoever takes the pages needs longer, the rest is read at a later
    version. So nothing that stays where it is, is missed or comes twice. Snapshot reads, no
    conflicts. Raises ``TransactionTooSlow`` where one page takes longer than that, again and again.
    """
    begin: bytes | None = within.start
    tr = db.create_transaction()
    too_old = 0
    while begin is not None:
        try:
            with uncollected():
                rows, more = _page(tr, begin, within.stop, size)
                if not rows:
                    return
                made, taken = read(tr, rows)
        except fdb.FDBError as error:
            too_old += error.code == once.TOO_OLD
            if too_old == once.MAX_TOO_OLD:
                raise TransactionTooSlow(times=too_old) from error
            tr.on_error(error).wait()
            continue
        too_old = 0
        more = more or taken < len(rows)
        begin = rows[taken - 1].key + b"\x00" if more else None
        yield made


def _page(
    tr: fdb.Transaction, begin: bytes, end: bytes, size: int
) -> tuple[list[fdb.KeyValue], bool]:
    """The first rows of a range, and whether there may be more."""
    rows: list[fdb.KeyValue] = []
    for kv in tr.snapshot.get_range(begin, end, streaming_mode=fdb.StreamingMode.want_all):
        rows.append(kv)
        size -= len(kv.key) + len(kv.value)
        if size < 0:
            return rows, True
    return rows, False


def contents(
    tr: fdb.Transaction,
    keys: QueueKeys,
    fields: Sequence[dict[int, Any]],
    packed: Sequence[bytes],
    ids: Sequence[str],
) -> list[bytes]:
    """The payloads of stored envelopes, given as fields and packed, as they were enqueued.

    A round trip more if some of them have chunks. Raises ``CorruptData``.
    """
    found: list[bytes] = [each.get(_PAYLOAD, b"") for each in fields]
    special = [n for n, each in enumerate(fields) if _RAW_SIZE in each]
    if special:
        messages = [
            StoredMessage(_NOWHERE, replace(unpack_envelope(packed[n]), id=ids[n])) for n in special
        ]
        loaded = payloads.load(messages, payloads.reads(tr, keys, messages))
        for n, message in zip(special, loaded, strict=True):
            found[n] = message.envelope.content or b""
    return found


def fitting(fields: Sequence[dict[int, Any]], size: int = PAGE_BYTES) -> int:
    """How many stored envelopes have at most ``size`` bytes of payloads elsewhere; one at least."""
    for n, each in enumerate(fields):
        if _CHUNK_BYTES in each:
            size -= each[_CHUNK_BYTES]
            if size < 0 and n:
                return n
    return len(fields)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles, which goes through the same rows again and again while
    their number grows, and finds nothing: they have no cycles."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
