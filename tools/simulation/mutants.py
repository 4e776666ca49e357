"""Faults that are planted in the layer: a simulation that finds none of them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fdbqueue.consumers import sessions
from fdbqueue.messages import transitions
from fdbqueue.messages.delivery import lease_expiry
from fdbqueue.messages.slots import hand_over
from fdbqueue.schema import once
from fdbqueue.store import world
from fdbqueue.worker import session as process_session
from fdbqueue.worker.session import ProcessSession

TABLE: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    """A row of the table."""
    TABLE[plant.__name__] = plant
    return plant


@mutant
def forgets_outcomes() -> None:
    """After an unknown outcome an operation is repeated, also where it has committed."""
    vars(once)["Operation"]._look_back = lambda operation: None


@mutant
def keeps_expired_leases() -> None:
    """What a dead consumer held never returns."""
    vars(lease_expiry)["_over"] = lambda tr, scope, reads: []


@mutant
def miscounts() -> None:
    """One change in a hundred is counted twice."""
    tally = transitions._tally

    def wrong(messages: Iterable[Any]) -> dict[int, tuple[int, int]]:
        found = tally(messages)
        if world.random.random() < 0.01:
            return {level: (2 * count, size) for level, (count, size) in found.items()}
        return found

    vars(transitions)["_tally"] = wrong


@mutant
def keeps_slots() -> None:
    """The end of a message lets out none that waits for its slot."""
    vars(hand_over)["ended"] = lambda tr, scope, messages, ready: 0


@mutant
def holds_a_lock() -> None:
    """A thread that begins a session of its process holds a lock over the transaction."""

    def held(session: ProcessSession) -> bytes:
        with session._lock:
            return session._run(lambda tr: sessions.start(tr, session._root, session._clock))

    vars(process_session)["ProcessSession"]._begin = held
