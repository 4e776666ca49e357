"""The warden: looks at keys while everything goes on, and notes what their limits do not allow."""

from __future__ import annotations

import time
from collections import defaultdict

from workload.history import Recorder
from workload.place import KEYS, LIMITS, QUEUES, TAKEN, Place

from fdbqueue.queue.keys.limits import Shared
from fdbqueue.values.limits import KeyLimits, KeyState, Limit, LimitState, OwnLimits

WARDEN = "warden"
LATE_SECONDS = 20.0
"""How long a message whose rate lets it come may wait until somebody is there who looks."""


class Warden:
    """Changes the limits of single keys, and compares each key at one version with its limits.

    Only it changes limits, so it knows how many may be out: when a limit falls, messages stay out,
    and none follows until fewer are out than it allows.
    """

    def __init__(self, place: Place, recorder: Recorder) -> None:
        self._place = place
        self._recorder = recorder
        self._most: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._shared = {limit: place.queues[TAKEN[0]].limits[limit] for limit in LIMITS}
        self._shared_most = dict.fromkeys(LIMITS, 0)
        self._in_flight: dict[str, tuple[int, int]] = {}
        self._waits: dict[tuple[str, str], tuple[int | None, float]] = {}

    def limit(self, name: str, key: str, own: OwnLimits) -> None:
        """Change limits of a key. Whether or not the commit succeeds, what it asked for counts."""
        default: int = QUEUES[name].get("keys", KeyLimits()).concurrency
        asked = own.get("concurrency") or default
        self._most[name, key] = max(asked, self._most[name, key], default)
        self._place.queues[name].keys[key].set(self._place.db, **own)

    def limit_shared(self, limit: Limit, terms: Shared) -> None:
        """Change a limit that queues share."""
        self._shared_most[limit] = max(terms.get("concurrency") or 0, self._shared_most[limit])
        self._shared[limit].set(self._place.db, **terms)

    def limit_queue(self, name: str, limit: int | None, rate: str | None = None) -> None:
        """Change how many messages of a queue may be in flight, and taken in how much time; None
        for as many as come."""
        queue = self._place.queues[name]
        self._in_flight.pop(name, None)
        queue.set_options(self._place.db, max_in_flight=limit, rate=rate)
        if limit is not None:
            # From this version on no more can be than the limit, or than are now.
            self._in_flight[name] = limit, max(limit, queue.depth(self._place.db).leased)

    def look(self) -> None:
        """Look at all keys, and at what is in flight."""
        for name, (limit, most) in self._in_flight.items():
            leased = self._place.queues[name].depth(self._place.db).leased
            if leased > most:
                told = f"{leased} are in flight, and {most} may be"
                self._recorder.note(WARDEN, "limit", name, key="", found=told)
            self._in_flight[name] = limit, max(limit, min(most, leased))
        for gate, one in self._shared.items():
            shared = one.state(self._place.db)
            if found := wrong_shared(shared, self._shared_most[gate]):
                self._recorder.note(WARDEN, "limit", "", key="/".join(gate), found=found)
            if len(shared.out) <= (shared.concurrency or 0):
                self._shared_most[gate] = shared.concurrency or 0
        for name in TAKEN:
            for key in KEYS:
                state = self._place.queues[name].keys[key].state(self._place.db)
                most = self._most[name, key]
                if found := wrong(state, most, self._late(name, state)):
                    self._recorder.note(WARDEN, "limit", name, key=key, found=found)
                slots = state.limits.concurrency or 0
                if len(state.out) <= slots:
                    self._most[name, key] = slots

    def _late(self, name: str, state: KeyState) -> bool:
        """Whether the first message that waits could have come long ago. Where a key has a rate, a
        consumer lets it come, and those are killed and stopped."""
        now = time.monotonic()
        first, since = self._waits.get((name, state.key), (None, now))
        if state.limits.rate is None or state.next_ms is not None or first != state.oldest_ms:
            since = now
        self._waits[name, state.key] = state.oldest_ms, since
        return state.limits.rate is None or now - since > LATE_SECONDS

    def free(self) -> None:
        """Drop all limits of keys, and the shared ones, so that everything can be drained."""
        for one in self._shared.values():
            one.delete(self._place.db)
        for name in TAKEN:
            for key in KEYS:
                self._place.queues[name].keys[key].reset(self._place.db)


def wrong_shared(state: LimitState, most: int) -> str | None:
    """As ``wrong``, for a limit that queues share."""
    out, slots = len(state.out), state.concurrency
    if slots is not None and out > max(slots, most):
        return f"{out} are out, and {max(slots, most)} may be"
    if state.waiting and not state.paused and (slots is None or out < slots):
        return f"{state.waiting} wait, and {out} of {slots} are out"
    return None


def wrong(state: KeyState, most: int, late: bool) -> str | None:
    """What a key's limits do not allow, at one version; None if all is right.

    most: how many were allowed to be out at some time since fewer were. late: whether a message
        that waits and need not is wrong by now.
    """
    out, slots, window = len(state.out), state.limits.concurrency, state.limits.places
    if slots is not None and out > max(slots, most):
        return f"{out} are out, and {max(slots, most)} may be"
    full = slots is not None and out >= slots
    full = full or (window is not None and state.in_window >= window)
    if late and state.waiting and not state.limits.paused and not full:
        return (
            f"{state.waiting} wait, {out} of {slots} are out, {state.in_window} of {window} ready"
        )
    return None
