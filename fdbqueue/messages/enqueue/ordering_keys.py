"""Ordering keys: the messages of one key are delivered one after another, in their order.

Only one message of a key is out: ready, leased, or resting after an attempt that failed. The
others stand in the line of the key, where no consumer looks, and count as ready all the same.
GROUP_HEAD has the id of the one that is out. When it has come to its end, whatever end, the next
of the line becomes ready behind all others of its level, so that no cursor misses it and keys take
turns. All of it reads and writes keys of one ordering key only: operations of different keys do
not conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...schema.codec.atomic import pack_index
from ...schema.codec.delayed import pack_delayed, unpack_delayed
from ...schema.codec.envelopes import Envelope, pack_envelope
from ...schema.codec.lookup import Turn
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from .. import lookup
from . import index_allocation


class Reads(NamedTuple):
    """The reads of one key's line, issued with conflicts and not awaited."""

    head: fdb.Value
    last: fdb.FDBRange


def reads(tr: fdb.Transaction, keys: QueueKeys, envelopes: Sequence[Envelope]) -> dict[str, Reads]:
    """Issue the reads of the lines that messages belong to."""
    found = {}
    for key in {envelope.key for envelope in envelopes if envelope.key}:
        line = keys.turn.under(key)
        last = tr.get_range(line.start, line.stop, limit=1, reverse=True)
        found[key] = Reads(tr.get(keys.head(key)), last)
    return found


def line_up(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], lines: dict[str, Reads]
) -> list[StoredMessage]:
    """Let each message wait whose key has another one out; returns all, those with their turns."""
    keys = scope.keys
    last = {
        key: max((keys.turn.parse(kv.key)[1] for kv in line.last), default=0)
        for key, line in lines.items()
    }
    out = {key for key, line in lines.items() if line.head.present()}
    lined = []
    for message in messages:
        key = message.envelope.key
        if not key or key not in out:
            lined.append(message)
            if key:
                out.add(key)
                tr[keys.head(key)] = message.id.encode()
            continue
        last[key] += 1
        turn = Turn(key, last[key])
        envelope = replace(message.envelope, id=message.id)
        lined.append(replace(message, envelope=envelope, turn=turn))
        tr[lookup.key(keys, turn)] = pack_delayed(message.position, envelope)
        lookup.point(tr, keys, lined[-1], turn)
    return lined


def line_up_first(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Let messages wait again, before all others of their keys and in their order; returns them
    with their turns.

    One round trip. Conflicts with whoever takes the first of the same keys.
    """
    keys = scope.keys
    firsts = _firsts(tr, keys, {message.envelope.key or "" for message in messages})
    next_turn = {
        key: min((keys.turn.parse(kv.key)[1] for kv in first), default=1)
        for key, first in firsts.items()
    }
    lined = []
    for message in reversed(messages):
        key = message.envelope.key or ""
        next_turn[key] -= 1
        turn = Turn(key, next_turn[key])
        tr[lookup.key(keys, turn)] = pack_delayed(message.position, message.envelope)
        lined.append(replace(message, turn=turn))
        lookup.point(tr, keys, lined[-1], turn)
    return lined


def advance(tr: fdb.Transaction, scope: Scope, ended: Sequence[StoredMessage]) -> None:
    """Let the next of a line become ready where the message that was out has come to its end.

    One round trip if any of the messages has an ordering key, another if a line goes on.
    Conflicts with appends and other ends of the same keys.
    """
    keys = scope.keys
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for message in ended:
        if message.envelope.key:
            ids[message.envelope.key].add(message.id)
    heads = {key: tr.get(keys.head(key)) for key in ids}
    firsts = _firsts(tr, keys, ids)
    freed = {}
    for key, head in heads.items():
        out = head.value
        # A message that ends while it waits, or as a dead letter, is not the one that is out.
        if out is not None and out.decode() in ids[key]:
            freed[key] = firsts[key]
    _release(tr, scope, freed)


@transactional
def restart(tr: fdb.Transaction, scope: Scope, key: str) -> None:
    """Let a line go on whose message that was out is no more: a repair. As ``advance``."""
    _release(tr, scope, _firsts(tr, scope.keys, [key]))


def _firsts(
    tr: fdb.Transaction, keys: QueueKeys, ordering: Iterable[str]
) -> dict[str, fdb.FDBRange]:
    lines = {key: keys.turn.under(key) for key in ordering}
    return {key: tr.get_range(line.start, line.stop, limit=1) for key, line in lines.items()}


def _release(tr: fdb.Transaction, scope: Scope, freed: dict[str, fdb.FDBRange]) -> None:
    """Let the first of each line become ready."""
    keys = scope.keys
    entries = []
    for key, first in freed.items():
        rows = first.to_list()
        if not rows:
            del tr[keys.head(key)]
            continue
        position, envelope = unpack_delayed(rows[0].value)
        del tr[rows[0].key]
        tr[keys.head(key)] = (envelope.id or "").encode()
        entries.append((position.level, envelope))
    if not entries:
        return
    for message in index_allocation.assign(tr, scope, entries):
        tr[keys.ready(message.position)] = pack_envelope(message.envelope)
        lookup.point(tr, keys, message, message.position)
    tr.add(keys.change, pack_index(1))
