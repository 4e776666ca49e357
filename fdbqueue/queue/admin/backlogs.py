"""What messages wait for, in words: what the shell and the pages say."""

from __future__ import annotations

from msgspec import Struct

from ...store.binding import fdb
from ...store.clocks import SYSTEM_CLOCK
from ...values import rates
from ...values.limits import Gate, KeyLimits, KeyState, LimitState, gate_text
from ...values.text import age, since
from ..queue import Queue

LOOKED_AT, SHOWN = 1_000, 10
"""At how many keys and limits with a backlog it looks, and how many it shows."""


def waits_for(state: KeyState | LimitState, now_ms: int) -> str:
    """What the messages of a limit wait for, for how long, and in which queues."""
    limits = state.limits if isinstance(state, KeyState) else state
    window = limits.places if isinstance(limits, KeyLimits) else None
    if limits.paused:
        reason = f"the {'key' if isinstance(state, KeyState) else 'limit'} is paused"
    elif limits.concurrency is not None and len(state.out) >= limits.concurrency:
        reason = f"waits for a slot: {len(state.out)} of {limits.concurrency} out"
    elif isinstance(state, KeyState) and window is not None and state.in_window >= window:
        reason = f"waits for a place in the window: {state.in_window} of {window} ready"
    elif limits.rate is not None:
        coming = max(0, (state.next_ms or now_ms) - now_ms)
        reason = f"waits for its rate: next in {age(coming)}"
    else:
        reason = "waits for the end of a message, since the limit has changed"
    if isinstance(state, KeyState):
        oldest = since(state.oldest_ms, now_ms)
        return f"{reason}, the oldest {oldest}" if oldest else reason
    some = sum(state.waiting_in.values())
    queues = ", ".join(f"{count:,} in {name}" for name, count in sorted(state.waiting_in.items()))
    of = "" if some == state.waiting else f"of the first {some:,}, "
    lasts = "" if state.since_ms is None else f", for {since(state.since_ms, now_ms)}"
    return f"{reason}{lasts}; {of}{queues}"


class WaitingMessages(Struct, frozen=True):
    """Messages of a queue that wait for a key or a limit: for which, how many (of a limit, of its
    first thousand), and why. since_ms: for how long, without a break, in milliseconds. paused:
    whether the key or the limit is. last_ms: in how long its rate lets the last one come."""

    gate: str
    waiting: int
    why: str
    since_ms: int | None = None
    paused: bool = False
    last_ms: int | None = None


def backlogs(db: fdb.Database, queue: Queue) -> list[WaitingMessages]:
    """What the messages of a queue wait for: the keys and limits for which the most wait."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    keys = sorted(queue.keys.waiting(db, LOOKED_AT), key=lambda each: -each.waiting)[:SHOWN]
    states = [queue.keys[each.key].state(db) for each in keys]
    found = [_backlog(each.key, each.waiting, each, now_ms) for each in states]
    # Limits are of all queues: only those for which this one's messages wait count here.
    for limit in queue.limits.list(db, LOOKED_AT):
        if limit.waiting:
            state = queue.limits[limit.dimension, limit.name].state(db)
            if queue.name in state.waiting_in:
                gate = limit.dimension, limit.name
                found.append(_backlog(gate, state.waiting_in[queue.name], state, now_ms))
    return sorted(found, key=lambda each: -each.waiting)[:SHOWN]


def _backlog(
    gate: Gate, waiting: int, state: KeyState | LimitState, now_ms: int
) -> WaitingMessages:
    limits = state.limits if isinstance(state, KeyState) else state
    last_ms = None
    if limits.rate is not None:
        coming = max(0, (state.next_ms or now_ms) - now_ms)
        last_ms = coming + (state.waiting - 1) * rates.parse(limits.rate).interval_us // 1000
    since_ms = None if state.since_ms is None else now_ms - state.since_ms
    about = gate_text(gate), waiting, waits_for(state, now_ms)
    return WaitingMessages(*about, since_ms, limits.paused, last_ms)
