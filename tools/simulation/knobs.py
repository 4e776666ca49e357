"""Bounds of the layer that a run may have lower: then few messages come to them."""

from __future__ import annotations

import random
from types import ModuleType

from fdbqueue.consumers import eviction, fulfilment
from fdbqueue.messages import agenda, run
from fdbqueue.messages.delivery import lease_expiry, lease_shortening
from fdbqueue.messages.groups import members
from fdbqueue.messages.slots import hand_over
from fdbqueue.messages.streams import planning
from fdbqueue.subscriptions import acquire, cursors

LOWER: list[tuple[ModuleType, str, int]] = [
    (acquire, "MIN_SKIPPED", 1),
    (cursors, "MAX_SCANNED", 20),
    (run, "MIN_MESSAGES", 2),
    (run, "MAX_MESSAGES", 4),
    (run, "MIN_SPAN", 2),
    (hand_over, "STEP_ROWS", 2),
    (hand_over, "MAX_DUE", 2),
    (hand_over, "MAX_FILLED", 3),
    (agenda, "MAX_ENTRIES", 5),
    (agenda, "MAX_RANKS", 2),
    (lease_expiry, "MAX_EXPIRED", 2),
    (eviction, "MAX_EVICTED", 2),
    (lease_shortening, "MAX_SHORTENED", 3),
    (planning, "CLAIM_WATCHED", 3),
    (members, "MAX_ENDED", 1),
    (fulfilment, "MAX_MESSAGES", 3),
]


def turn(seed: int) -> None:
    """Lower some bounds of this process, in most of the runs."""
    chance = random.Random(f"knobs:{seed}")
    if chance.random() < 0.7:
        for module, name, value in LOWER:
            if chance.random() < 0.5:
                setattr(module, name, value)
