"""Messages that replace each other: the last that was said of a name is heard, and nothing twice.

What is said of a name is numbered, in the transaction that enqueues it with the name as its unique
key. So the store knows what was said last. A message that nobody has taken must be that. One that
was taken keeps what it says, since its consumer has read it, and what is said next comes behind it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from fdbqueue import Delivery, fdb, verify

from .place import REPLACED, Place

NAMES = ("u0", "u1", "u2")


def say(place: Place, chance: random.Random) -> None:
    """Enqueue what replaces what waits."""
    name, debounces = chance.choice(NAMES), chance.random() < 0.5
    delay = chance.choice([0.0, 0.3]) if debounces else 0.0
    # Under another key the message cannot keep its place, and with another priority it moves.
    key, priority = chance.choice([None, None, None, "k"]), chance.choice([4, 4, 4, 0, 9])

    @fdb.transactional
    def replace(tr: fdb.Transaction) -> None:
        n = _said(tr, place, name) + 1
        tr[_row(place, "said", name)] = b"%d" % n
        place.replaced.enqueue(
            tr,
            f"{name}:{n}".encode(),
            unique=name,
            on_conflict="debounce" if debounces else "replace",
            key=key,
            priority=priority,
            delay=delay,
            max_delay=1.5 if debounces else None,
        )

    replace(place.db)


def hear(place: Place, chance: random.Random) -> None:
    """Take what was said, and end it in one way or another, or forget about it."""

    @fdb.transactional
    def take(tr: fdb.Transaction) -> list[Delivery]:
        found = place.replaced.receive_many(tr, 2)
        for one in found:
            _check(tr, place, one.payload)
            tr[_row(place, "taken", one.payload.decode())] = b""
        return list(found)

    @fdb.transactional
    def remove(tr: fdb.Transaction) -> None:
        message = place.replaced.dequeue(tr)
        if message is not None:
            _check(tr, place, message.payload)
            _hear(tr, place, message.payload)

    @fdb.transactional
    def cancel(tr: fdb.Transaction, held: list[Delivery]) -> None:
        place.replaced.extend_many(tr, held)  # or it is somebody else's by now
        for one in held:
            place.replaced.cancel(tr, one.id)
            tr[_row(place, "cancelled", one.payload.decode())] = b""

    if chance.random() < 0.3:
        remove(place.db)
        return
    held = take(place.db)
    luck = chance.random()
    if not held or luck < 0.05:
        return  # left to lapse
    if luck < 0.3:
        place.replaced.release_many(place.db, held)
        return
    if luck < 0.4:
        cancel(place.db, held)
        return
    _finish(place.db, place, held)


def wrong(place: Place) -> Iterator[str]:
    """What is wrong, once all that was said has been heard."""
    drain(place)
    for one, _ in _rows(place, "wrong"):
        yield f"{one} was taken, though it had been replaced"
    heard = {one: int.from_bytes(count, "little") for one, count in _rows(place, "heard")}
    for one, count in heard.items():
        if count != 1:
            yield f"{one} was heard {count} times"
    ended = heard.keys() | {one for one, _ in _rows(place, "cancelled")}
    for name, n in _rows(place, "said"):
        if f"{name}:{n.decode()}" not in ended:
            yield f"{name}:{n.decode()} was said last, and never heard"
    for deviation in verify(place.db, place.replaced).deviations:
        yield str(deviation)
    depth = place.replaced.depth(place.db)
    if depth.enqueued != depth.done + depth.purged or depth.done < len(heard):
        yield f"{len(heard)} were heard, and the queue has counted {depth}"


def drain(place: Place) -> None:
    """Hear all that is left."""
    while True:
        place.replaced.sweep(place.db)
        held = place.replaced.receive_many(place.db, 10)
        _finish(place.db, place, held)
        depth = place.replaced.depth(place.db)
        if not held and not depth.ready + depth.leased + depth.delayed:
            return


@fdb.transactional
def _finish(tr: fdb.Transaction, place: Place, held: list[Delivery]) -> None:
    place.replaced.ack_many(tr, held)
    for one in held:
        _hear(tr, place, one.payload)


def _hear(tr: fdb.Transaction, place: Place, payload: bytes) -> None:
    tr.add(_row(place, "heard", payload.decode()), (1).to_bytes(8, "little"))


def _check(tr: fdb.Transaction, place: Place, payload: bytes) -> None:
    """Note a message that nobody had taken, and that does not say what was said last."""
    tag = payload.decode()
    name, n = tag.split(":")
    if int(n) == _said(tr, place, name) or tr[_row(place, "taken", tag)].present():
        return
    tr[_row(place, "wrong", tag)] = b""


def _said(tr: fdb.Transaction, place: Place, name: str) -> int:
    return int(tr[_row(place, "said", name)].value or b"0")


def _row(place: Place, kind: str, name: str) -> bytes:
    return place.space.pack((REPLACED, kind, name))


def _rows(place: Place, kind: str) -> Iterator[tuple[str, bytes]]:
    space = place.space.subspace((REPLACED, kind))
    for key, value in place.rows(space):
        yield str(space.unpack(key)[0]), value
