"""Looking at what waits: page by page, and from any message on."""

from __future__ import annotations

from ..errors import InvalidArgument
from ..schema.codec.delayed import unpack_delayed
from ..schema.codec.envelopes import open_envelope
from ..schema.codec.lookup import Turn
from ..schema.keys import Kind
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Due, MessageState, parse_id
from ..values.states import State
from . import lookup, payloads
from .delivery.scan import BATCH_BYTES, PAGE
from .lookup import Found

KINDS = {"ready": Kind.READY, "delayed": Kind.DELAYED, "waiting": Kind.GROUP}
"""Where messages wait: to be delivered, for their time, for others of their ordering key."""


@fdb.transactional
def page(
    tr: fdb.Transaction, scope: Scope, state: str, limit: int, begin: bytes
) -> tuple[list[MessageState], bytes]:
    """Up to ``limit`` messages that wait, in their order, that fit in a batch: one at least.

    begin: the key to begin with; empty: the first. Returns them, and the key behind the last one.
    Snapshot reads: no conflicts.
    """
    every = scope.keys.kind(KINDS[state])
    begin = begin or every.start
    mode = fdb.StreamingMode.exact if limit <= PAGE else fdb.StreamingMode.want_all
    found: list[Found] = []
    room = BATCH_BYTES
    for kv in tr.snapshot.get_range(begin, every.stop, limit=limit, streaming_mode=mode):
        one = _found(scope, state, kv)
        room -= len(kv.value) + one.standing.envelope.chunk_bytes
        if room < 0 and found:
            break
        found.append(one)
        begin = kv.key + b"\x00"
    standing = [one.standing for one in found]
    loaded = payloads.load(standing, payloads.reads(tr, scope.keys, standing))
    states = [
        MessageState(
            message=message.envelope.message(message.position),
            state=State.DELAYED if isinstance(one.place, Due) else State.READY,
            due_at_ms=one.place.due_ms if isinstance(one.place, Due) else None,
            waits_for_key=isinstance(one.place, Turn),
        )
        for one, message in zip(found, loaded, strict=True)
    ]
    return states, begin


def _found(scope: Scope, state: str, kv: fdb.KeyValue) -> Found:
    keys = scope.keys
    if state == "ready":
        position = keys.parse_ready(kv.key)
        return Found(position, StoredMessage(position, open_envelope(kv.value)))
    standing = StoredMessage(*unpack_delayed(kv.value))
    if state == "delayed":
        return Found(keys.parse_delayed(kv.key), standing)
    return Found(Turn(*keys.parse_line(kv.key)), standing)


def behind(tr: fdb.Transaction, scope: Scope, state: str, after: str | None) -> bytes:
    """The key behind a message, to begin a page with; empty where there is none to begin behind.

    after: its id; it may be gone if its id says where it stood. Raises ``InvalidArgument``.
    """
    if after is None:
        return b""
    every = scope.keys.kind(KINDS[state])
    found = lookup.find(tr.snapshot, scope, lookup.look(tr.snapshot, scope.keys, after))
    named = [] if found is None else [found.place]
    for place in (*named, parse_id(after)):
        key = lookup.key(scope.keys, place)
        if every.start <= key < every.stop:
            return key + b"\x00"
    raise InvalidArgument(
        argument="after", value=after, problem="it is no longer there: begin without it"
    )
