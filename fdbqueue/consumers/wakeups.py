"""Waking consumers that wait for messages, without losing a wake-up and without a herd.

A consumer that finds the queue empty reads that emptiness with a conflict range, says that it
waits, and arms its watch, all in one transaction: a message that commits in between makes that
transaction fail and look again. An enqueue finds the first waiting consumers by a snapshot read
and wakes one for each message. Two enqueues at once may wake the same one; so a consumer that was
woken, and leaves something behind, wakes the next.
"""

from __future__ import annotations

import os
import threading

from ..binding import fdb
from ..keys import QueueKeys

MAX_WOKEN = 100
"""Consumers that one transaction wakes at most; those wake the next."""


def look(tr: fdb.Transaction, keys: QueueKeys, count: int) -> fdb.FDBRange:
    """Issue a snapshot read of the consumers to wake for ``count`` messages."""
    waiting = keys.waiting()
    return tr.snapshot.get_range(
        waiting.start,
        waiting.stop,
        limit=min(count, MAX_WOKEN),
        streaming_mode=fdb.StreamingMode.exact,
    )


@fdb.transactional
def wake(tr: fdb.Transaction, keys: QueueKeys, looked: fdb.FDBRange) -> int:
    """Wake the consumers that ``look`` found; returns how many. Writes blindly."""
    woken = 0
    for kv in looked:
        del tr[kv.key]
        tr[keys.wake(keys.parse_state(kv.key))] = os.urandom(8)
        woken += 1
    return woken


@fdb.transactional
def register(
    tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, priority: int = 0
) -> fdb.Future[None]:
    """Say that a consumer waits, and watch for its waking; the watch is armed by the commit.

    The caller has read the queue's emptiness, with a conflict, in the same transaction.
    """
    tr[keys.state(priority, consumer)] = b""
    return tr.watch(keys.wake(consumer))


@fdb.transactional
def withdraw(tr: fdb.Transaction, keys: QueueKeys, consumer: bytes, priority: int = 0) -> None:
    """Say that a consumer no longer waits. Writes blindly."""
    del tr[keys.state(priority, consumer)]
    del tr[keys.wake(consumer)]


def wait(watch: fdb.Future[None], seconds: float) -> bool:
    """Wait for a watch for at most ``seconds``; returns whether it fired. Errors count as fired:
    whoever waits looks again, and so loses nothing."""
    fired = threading.Event()
    watch.on_ready(lambda _: fired.set())
    if fired.wait(seconds):
        return True
    watch.cancel()
    return False
