"""Watches: how a consumer that sleeps notices that a key has changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ..schema import once
from ..schema.keys import OnceKeys
from ..store import tasks, world
from ..store.binding import FAILURES, fdb

UNWATCHED_SECONDS = 1.0
"""After so long a sleeper looks whose watch has failed: its process may have as many as it may."""


class Watched(NamedTuple):
    """A key to watch, and its value when the consumer went to sleep."""

    key: bytes
    seen: bytes | None


Signal: TypeAlias = tuple[Watched, ...]
"""What a sleeper waits for: a change of one of these keys. ``arm`` sets the watches."""


class ArmedWatch(Protocol):
    """An armed watch: a future of the bindings, or a change that has happened already."""

    def on_ready(self, callback: Callable[[ArmedWatch], object]) -> object:
        """Call back once the key has changed."""

    def cancel(self) -> object:
        """Stop waiting."""


class _Fired:
    """A watch of a key that changed before it was armed."""

    def on_ready(self, callback: Callable[[ArmedWatch], object]) -> object:
        return callback(self)

    def cancel(self) -> object:
        return None


def arm(db: fdb.Database, signal: Signal, timeout: float | None = None) -> list[ArmedWatch]:
    """Watch what a sleeper waits for, in a transaction of its own. A key that has changed counts as
    fired. Raises ``OperationTimedOut`` after ``timeout`` seconds."""
    if not signal:
        return []
    unrecorded = OnceKeys.unrecorded(timeout)
    return once.run(db, unrecorded, lambda tr: _watch(tr, signal), wrote=lambda _: False)


def watch(db: fdb.Database, key: bytes, timeout: float) -> ArmedWatch:
    """Watch a key as it is now. Raises ``OperationTimedOut`` after ``timeout`` seconds."""
    unrecorded = OnceKeys.unrecorded(timeout)
    armed: ArmedWatch = once.run(db, unrecorded, lambda tr: tr.watch(key), wrote=lambda _: False)
    return armed


def has_failed(watch: object) -> bool:
    """Whether a watch that is ready has not fired."""
    try:
        if hasattr(watch, "wait"):  # else it had fired before it was armed
            watch.wait()
    except FAILURES:
        return True
    return False


def _watch(tr: fdb.Transaction, signal: Signal) -> list[ArmedWatch]:
    # Read in the transaction that arms the watches: between the fetch and here a key may have
    # changed, and its watch would never fire.
    values = [tr.snapshot.get(key) for key, _ in signal]
    return [
        tr.watch(key) if value.value == seen else _Fired()
        for (key, seen), value in zip(signal, values, strict=True)
    ]


def wait(
    watches: Sequence[ArmedWatch],
    seconds: float,
    beat: Callable[[], bool] = lambda: True,
    every: float = math.inf,
) -> bool:
    """Wait until a watch fires, for at most ``seconds``; returns whether one did. One that fails
    counts as fired after a while: the sleeper fetches again, and loses nothing.

    beat: called every so many seconds meanwhile; the wait ends if it returns False.
    """
    ended, fired = tasks.Event(), tasks.Event()

    def end(watch: ArmedWatch) -> None:
        if not has_failed(watch):
            fired.set()
        ended.set()

    until = world.monotonic() + seconds
    for watch in watches:
        watch.on_ready(end)
    try:
        left = seconds
        while not (woken := ended.wait(min(every, left))):
            left = until - world.monotonic()
            if left <= 0 or not beat():
                break
        if woken and not fired.is_set():
            fired.wait(max(0.0, min(UNWATCHED_SECONDS, until - world.monotonic())))
    finally:
        for watch in watches:
            watch.cancel()
    return woken
