"""Faults that are planted in the layer: a simulation that finds none of them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from fdbqueue.consumers import promotion, sessions
from fdbqueue.messages import transitions
from fdbqueue.messages.delivery import lease_expiry, redelivery
from fdbqueue.messages.delivery import promotion as due_messages
from fdbqueue.messages.slots import hand_over, rates
from fdbqueue.schema import once
from fdbqueue.schema.codec import envelopes
from fdbqueue.schema.codec.envelopes import Envelope
from fdbqueue.store import world
from fdbqueue.values.options import QueueOptions
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
def weighs_nothing() -> None:
    """What falls due together is made ready in one transaction, however large it is."""
    vars(due_messages)["fitting"] = lambda items, room: iter(items)


@mutant
def steps_once() -> None:
    """A bounded step of what is due counts as all of it."""
    due_messages.MAX_PROMOTED = 1
    vars(promotion)["promote_all"] = lambda tr, scope, issued, **_: promotion.promote(
        tr, scope, issued
    )


@mutant
def blames_the_dead() -> None:
    """Who holds a lease that lapses has begun with its message."""
    after = redelivery.after_expiry
    vars(redelivery)["after_expiry"] = lambda *given, begun: after(*given, begun=True)


@mutant
def moves_without_attempts() -> None:
    """A message that moves to another queue forgets its own number of attempts."""
    elsewhere = Envelope.elsewhere

    def forgets(envelope: Envelope, options: QueueOptions) -> Envelope:
        return replace(elsewhere(envelope, options), max_attempts=None)

    vars(envelopes)["Envelope"].elsewhere = forgets


@mutant
def needs_a_sweep() -> None:
    """What is kept of the rate of a key that rests stays for ever."""
    vars(rates)["tidy"] = lambda tr, scope, keys, rested: 0


@mutant
def holds_a_lock() -> None:
    """A thread that begins a session of its process holds a lock over the transaction."""

    def held(session: ProcessSession) -> bytes:
        with session._lock:
            return session._run(lambda tr: sessions.start(tr, session._root, session._clock))

    vars(process_session)["ProcessSession"]._begin = held
