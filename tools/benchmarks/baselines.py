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

from .clients import Client, payload

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
def _put(tr: fdb.Transaction, space: fdb.Subspace, payloads: Sequence[bytes]) -> None:
    """Enqueue messages as in the plain recipe."""
    part = _items(space)
    first = _next_index(tr, part)
    for n, data in enumerate(payloads):
        tr[part.pack((first + n, os.urandom(20)))] = data


@transactional
def _pop(tr: fdb.Transaction, space: fdb.Subspace, most: int) -> list[bytes]:
    """Pop the first items."""
    every = _items(space).range()
    found = tr.get_range(every.start, every.stop, limit=most).to_list()
    for kv in found:
        del tr[kv.key]
    return [bytes(kv.value) for kv in found]


def _pop_staged(db: fdb.Database, space: fdb.Subspace) -> bytes | None:
    """Pop the first item, or request one if others are waiting or the pop conflicts."""
    tr = db.create_transaction()
    try:
        request = _register(tr, space, only_behind_others=True)
        found = _pop(tr, space, 1) if request is None else []
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
def set_blindly(tr: fdb.Transaction, space: fdb.Subspace, payloads: Sequence[bytes]) -> None:
    """Set random keys blindly."""
    for data in payloads:
        tr[space.pack((os.urandom(28),))] = data


class PlainRecipe(Client):
    """FoundationDB's queue recipe: it pops messages, and loses what a crash interrupts."""

    def __init__(self, db: fdb.Database, space: fdb.Subspace) -> None:
        self._db = db
        self._space = space

    def put(self, payloads: Sequence[bytes]) -> None:
        _put(self._db, self._space, payloads)

    def take(self, most: int) -> Sequence[bytes]:
        found: list[bytes] = _pop(self._db, self._space, most)
        return found


class PublishedStaged(PlainRecipe):
    """Its variant for high contention, which pops one message at a time."""

    def take(self, most: int) -> Sequence[bytes]:
        found = _pop_staged(self._db, self._space)
        return [] if found is None else [found]

    def rest(self) -> Sequence[bytes]:
        return PlainRecipe(self._db, self._space).rest()


class BlindSets(PlainRecipe):
    """Sets of random keys: one commit to enqueue, two to receive and acknowledge."""

    def put(self, payloads: Sequence[bytes]) -> None:
        set_blindly(self._db, self._space, payloads)

    def take(self, most: int) -> Sequence[bytes]:
        nothing = [payload(0)] * most
        for _ in range(2):
            self.put(nothing)
        return nothing
