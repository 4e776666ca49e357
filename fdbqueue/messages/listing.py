"""Reading waiting messages page by page, and taking one out of the queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ..errors import InvalidArgument
from ..schema.key_kinds import Kind
from ..schema.keys import QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.model import MessageState, parse_id
from . import lookup, payloads, run
from .delivery import failures, scan
from .delivery.scan import BATCH_BYTES
from .lookup import FoundMessage

KINDS = {
    "ready": QueueKeys.ready,
    "waiting": QueueKeys.waiting,
    "retrying": QueueKeys.delayed,
    "scheduled": QueueKeys.delayed,
}
"""Where messages wait: for a consumer, for a slot, for their time."""
LOOKED_AT = 1_000
"""The most rows of messages in other states that one transaction looks at."""


@transactional
def page(
    tr: fdb.Transaction, scope: Scope, state: str, limit: int, begin: bytes
) -> tuple[list[MessageState], bytes]:
    """Up to ``limit`` waiting messages, in order; stops at 8 MB, but never before the first one,
    and where it has looked at a thousand others.

    begin: the first key; empty for the beginning. Returns them, and the key to continue from, empty
    at the end. Snapshot reads: no conflicts.
    """
    every = scope.keys.holding(KINDS[state])
    begin = begin or every.start
    mixed = KINDS[state] is QueueKeys.delayed
    # What is tried again and what comes later stand together, by their times: of the others a page
    # skips a thousand, not a whole queue.
    most = max(limit, LOOKED_AT) if mixed else limit + 1
    found: list[FoundMessage] = []
    room, following = BATCH_BYTES, b""
    rows = tr.snapshot.get_range(begin, every.stop, limit=most, streaming_mode=scan.mode(most))
    for looked, (size, one) in enumerate(opened(scope, KINDS[state], rows, begin), 1):
        here = lookup.key(scope.keys, one.place)
        if one.state.value == state:
            envelope = one.message.envelope
            room -= size + envelope.chunk_bytes + envelope.failures_size
            if (room < 0 and found) or len(found) == limit:
                following = here
                break
            found.append(one)
        if mixed and looked == most:
            following = here + b"\x00"
    stored = [one.message for one in found]
    failed = failures.reads(tr, scope.keys, stored)
    loaded = payloads.load(stored, payloads.reads(tr, scope.keys, stored))
    states = zip(map(lookup.described, found, loaded), failed, strict=True)
    return [replace(each, failures=failures.opened(some)) for each, some in states], following


def opened(
    scope: Scope, kind: Kind, rows: Iterable[fdb.KeyValue], begin: bytes
) -> Iterator[tuple[int, FoundMessage]]:
    """The messages in rows of a kind that is not leased, from the key ``begin`` on, each with the
    size of its stored form."""
    if kind is QueueKeys.ready:
        for one in run.ready(scope.keys, rows, begin):
            yield len(one.value), FoundMessage(one.position, one.message)
        return
    for kv in rows:
        found = lookup.parse(scope, lookup.place_of(scope.keys, kv.key), kv.value)
        assert found is not None
        yield len(kv.value), found


def behind(tr: fdb.Transaction, scope: Scope, state: str, after: str | None) -> bytes:
    """The key behind a message, where a page begins; empty if ``after`` is None.

    after: its id. The message may be gone if its id names its place. Raises ``InvalidArgument``.
    """
    if after is None:
        return b""
    every = scope.keys.holding(KINDS[state])
    found = lookup.find(tr.snapshot, scope, lookup.reads(tr.snapshot, scope.keys, after))
    named = [] if found is None else [found.place]
    for place in (*named, parse_id(after)):
        key = lookup.key(scope.keys, place)
        if every.start <= key < every.stop:
            return key + b"\x00"
    raise InvalidArgument(
        argument="after", value=after, problem="it is no longer there: begin without it"
    )
