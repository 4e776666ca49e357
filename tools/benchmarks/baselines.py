"""Baselines on the same store.

The plain recipe is FoundationDB's queue recipe: keys (index, random), an index from a snapshot
read of the last key, and a pop of the first one. The published staged scheme is its variant for
high contention. A consumer whose pop conflicts registers a request. Every waiting consumer fulfils
a hundred requests at a time, and polls for its own answer after 10 ms, then 20, and so on up to a
second. The limit is the best that the store can do: one blind write per transaction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from fdbqueue.store.binding import fdb, transactional

FULFILLED_AT_ONCE = 100
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 1.0
CONFLICT = 1020


def _items(space: fdb.Subspace) -> fdb.Subspace:
    return space.subspace(("item",))


def _requests(space: fdb.Subspace) -> fdb.Subspace:
    return space.subspace(("request",))


def _answers(space: fdb.Subspace) -> fdb.Subspace:
    return space.subspace(("answer",))


def _next_index(tr: fdb.Transaction, part: fdb.Subspace) -> int:
    every = part.range()
    for kv in tr.snapshot.get_range(every.start, every.stop, limit=1, reverse=True):
        return int(part.unpack(kv.key)[0]) + 1
    return 0


@transactional
def put_all(tr: fdb.Transaction, space: fdb.Subspace, payloads: Sequence[bytes]) -> None:
    """Enqueue messages as in the plain recipe."""
    part = _items(space)
    first = _next_index(tr, part)
    for n, payload in enumerate(payloads):
        tr[part.pack((first + n, os.urandom(20)))] = payload


def items(db: fdb.Database, space: fdb.Subspace) -> list[bytes]:
    """All messages in the queue."""
    left: list[bytes] = []
    every = _items(space).range()
    begin = every.start
    while found := db.get_range(begin, every.stop, limit=10_000):
        left += [kv.value for kv in found]
        begin = found[-1].key + b"\0"
    return left


def pop_plain(db: fdb.Database, space: fdb.Subspace) -> bytes | None:
    """Pop the first item; retry after a conflict."""
    found: list[bytes] = pop_first(db, space, 1)
    return found[0] if found else None


@transactional
def pop_first(tr: fdb.Transaction, space: fdb.Subspace, most: int) -> list[bytes]:
    """Pop the first items."""
    every = _items(space).range()
    found = tr.get_range(every.start, every.stop, limit=most).to_list()
    for kv in found:
        del tr[kv.key]
    return [bytes(kv.value) for kv in found]


def pop_staged(db: fdb.Database, space: fdb.Subspace) -> bytes | None:
    """Pop the first item, or request one if others are waiting or the pop conflicts."""
    tr = db.create_transaction()
    try:
        request = _register(tr, space, only_behind_others=True)
        found = pop_first(tr, space, 1) if request is None else []
        tr.commit().wait()
        if request is None:
            return found[0] if found else None
    except fdb.FDBError:
        request = _registered(db, space)
    answer = _answers(space).pack((_requests(space).unpack(request)[1],))
    pause = FIRST_PAUSE
    while True:
        _fulfil_all(db, space)
        done, item = _collect(db, request, answer)
        if done:
            return item
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


def _register(
    tr: fdb.Transaction, space: fdb.Subspace, *, only_behind_others: bool
) -> bytes | None:
    part = _requests(space)
    index = _next_index(tr, part)
    if only_behind_others and index == 0:
        return None
    key = part.pack((index, os.urandom(20)))
    tr[key] = b""
    return key


@transactional
def _registered(tr: fdb.Transaction, space: fdb.Subspace) -> bytes:
    request = _register(tr, space, only_behind_others=False)
    assert request is not None
    return request


def _fulfil_all(db: fdb.Database, space: fdb.Subspace) -> None:
    """Fulfil requests until none is left, or another consumer did it."""
    tr = db.create_transaction()
    while True:
        try:
            if _fulfil(tr, space):
                return
            tr.reset()
        except fdb.FDBError as error:
            if error.code == CONFLICT:
                return
            tr.on_error(error).wait()


def _fulfil(tr: fdb.Transaction, space: fdb.Subspace) -> bool:
    requests, waiting = _requests(space), _requests(space).range()
    every = _items(space).range()
    asking = tr.snapshot.get_range(waiting.start, waiting.stop, limit=FULFILLED_AT_ONCE)
    found = tr.snapshot.get_range(every.start, every.stop, limit=FULFILLED_AT_ONCE)
    supply = iter(found.to_list())
    asked = asking.to_list()
    for request in asked:
        tr.add_read_conflict_key(request.key)
        del tr[request.key]
        item = next(supply, None)
        if item is not None:
            tr.add_read_conflict_key(item.key)
            del tr[item.key]
            tr[_answers(space).pack((requests.unpack(request.key)[1],))] = item.value
    tr.commit().wait()
    return len(asked) < FULFILLED_AT_ONCE


@transactional
def _collect(tr: fdb.Transaction, request: bytes, answer: bytes) -> tuple[bool, bytes | None]:
    """Whether the request was fulfilled, and the item."""
    waiting, found = tr.get(request), tr.get(answer)
    if waiting.present():
        return False, None
    if found.present():
        del tr[answer]
        return True, bytes(found.value or b"")
    return True, None


@transactional
def set_blindly(
    tr: fdb.Transaction, space: fdb.Subspace, names: Sequence[bytes], payloads: Sequence[bytes]
) -> None:
    """Set keys blindly."""
    for name, payload in zip(names, payloads, strict=True):
        tr[space.pack((name,))] = payload
