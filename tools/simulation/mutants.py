"""Faults that are planted in the layer: a simulation that finds none of them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from fdbqueue.consumers import fulfilment, line, promotion, sessions, supply, wakeups
from fdbqueue.messages import (
    agenda,
    dead_letters,
    lookup,
    payloads,
    place,
    run,
    settle,
    transitions,
)
from fdbqueue.messages.delivery import (
    failures,
    head,
    lease_expiry,
    queue_limits,
    results,
    scan,
    take,
)
from fdbqueue.messages.enqueue import append, last_values
from fdbqueue.messages.groups import members
from fdbqueue.messages.schedules import ticks
from fdbqueue.messages.slots import backlog, hand_over, permits, rates
from fdbqueue.messages.streams import planning, staging
from fdbqueue.messages.transaction_budget import Done
from fdbqueue.schema import catalogue, change_counters, counters, due, once
from fdbqueue.schema import envelope as envelopes
from fdbqueue.schema.envelope import Envelope
from fdbqueue.schema.keys import What
from fdbqueue.store import world
from fdbqueue.store.binding import fdb
from fdbqueue.subscriptions import cursors
from fdbqueue.values import schedules
from fdbqueue.values.model import Due
from fdbqueue.values.options import QueueOptions
from fdbqueue.worker import process_session
from fdbqueue.worker.process_session import ProcessSession

TABLE: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    """A row of the table."""
    TABLE[plant.__name__] = plant
    return plant


def _blind(*places: tuple[Any, str]) -> None:
    """Let functions, of modules or classes, add no read conflict."""
    for owner, name in places:
        setattr(owner, name, _without_conflicts(getattr(owner, name)))


def _without_conflicts(function: Callable[..., Any]) -> Callable[..., Any]:
    def blind(first: Any, *given: Any, **named: Any) -> Any:
        tr = (
            first if isinstance(first, fdb.Transaction) else getattr(first, "_tr", None) or first.tr
        )
        muted = ("add_read_conflict_key", "add_read_conflict_range")
        vars(tr).update(dict.fromkeys(muted, lambda *range: None))
        try:
            return function(first, *given, **named)
        finally:
            for name in muted:
                vars(tr).pop(name, None)

    return blind


BLIND: dict[str, list[tuple[Any, str]]] = {
    # Two may take one message.
    "takes_blindly": [
        (head, "first"),
        (run, "watch"),
    ],
    # A queue is told to be empty although a message comes meanwhile.
    "says_empty_blindly": [(scan, "rely_on_emptiness"), (head, "first")],
    # One of many leases is settled by two, or lapses as it is.
    "settles_blindly": [(run.Leases, "conflict"), (run.Leases, "remove")],
    # A lease lapses as it is settled or extended.
    "lapses_blindly": [(lease_expiry, "return_expired"), (run.Leases, "conflict")],
    # An enqueue does not conflict with a cursor that passes its index: FENCE.
    "enqueues_behind_cursors": [(place, "behind")],
    # A subscription passes what comes in while it reads.
    "reads_levels_blindly": [
        (cursors.CursorScan, "_exclude"),
        (cursors.CursorScan, "rely_on_ends"),
    ],
    # A commit that comes late does not conflict with what was found out about it: ONCE.
    "records_blindly": [(once.Operation, "commit")],
    # An entry of the agenda comes in ahead of all others as somebody looks at it.
    "raises_blindly": [(due, "rise")],
    # Two messages get one slot.
    "gives_slots_twice": [(permits.Permits, "take")],
    # A message waits though the last slot becomes free meanwhile.
    "waits_beside_free_slots": [(permits.Permits, "rely")],
    # A slot is handed to a message that is cancelled meanwhile, or gets another.
    "hands_over_blindly": [(hand_over, "_hand_over")],
    # The last two of a group end at once, and neither ends the group.
    "counts_members_blindly": [(members, "_rely_on_another")],
    # A plan takes what another takes at once.
    "plans_blindly": [(planning, "_remove")],
}
"""Functions, of modules or classes, that add no read conflict."""
LEFT_OUT: dict[str, tuple[Any, str, object]] = {
    # What a dead consumer held never returns.
    "keeps_expired_leases": (lease_expiry, "return_expired", Done()),
    # What returns behind a cursor stays behind it.
    "leaves_cursors_ahead": (place, "take_cursors_back", None),
    # What becomes ready wakes nobody who sleeps: a lost wake-up.
    "tells_nobody": (change_counters, "announce", None),
    # A guard that leaves or takes no more hands its role to nobody.
    "leaves_no_guard": (wakeups, "_hand_over", None),
    # A large payload stays when its message ends.
    "keeps_chunks": (payloads, "remove", None),
    # An id leads to where its message was.
    "keeps_a_stale_place": (lookup, "point", None),
    # A new message replaces none of its value.
    "keeps_older_values": (last_values, "replace_older", None),
    # Requests of processes that were killed stay in their line.
    "believes_in_the_dead": (line, "alive", True),
    # What has failed too often is gone.
    "loses_dead_letters": (dead_letters, "add", 0),
    # How an attempt has ended is not kept.
    "loses_results": (results, "put", None),
    # What went wrong in an attempt is not kept.
    "loses_failures": (failures, "write", None),
    # What went wrong in one queue is not known in another.
    "leaves_failures": (failures, "put", None),
    # What was taken does not count in the rate of its queue.
    "takes_beyond_the_rate": (queue_limits, "_set", None),
    # A leader that leaves passes the lead to nobody.
    "keeps_the_lead": (fulfilment, "stop_leading", None),
    # After an unknown outcome an operation is repeated, also where it has committed.
    "forgets_outcomes": (once.Operation, "_look_back", None),
    # Who holds a lease that lapses has begun with its message.
    "blames_the_dead": (lease_expiry, "Lapse", settle.Lapse(begun=True, ended_ms=0)),
    # Nobody looks when the next message may come by its rate.
    "forgets_timers": (rates.Pace, "rely", None),
    # The rest of a row that is cut is lost.
    "cuts_a_row_away": (run.MessageRun, "without", ()),
    # An index that was passed may be given again: TAIL.
    "uses_indexes_again": (cursors, "fence", None),
}
"""Functions, of modules or classes, that do nothing, and return so much."""


def _without(feature: str) -> None:
    del transitions.STEPS[feature]


def _left_out(owner: Any, name: str, value: object) -> None:
    assert callable(getattr(owner, name))
    setattr(owner, name, lambda *given, **named: value)


TABLE |= {name: partial(_blind, *places) for name, places in BLIND.items()}
TABLE |= {name: partial(_left_out, *step) for name, step in LEFT_OUT.items()}
TABLE |= {f"without_{feature}": partial(_without, feature) for feature in transitions.STEPS}


@mutant
def fails_the_dead() -> None:
    """A death uses an attempt."""
    died = Envelope.after_expiry

    def fails(envelope: Envelope, *, begun: bool) -> Envelope:
        return replace(died(envelope, begun=begun), attempts=envelope.attempts + begun)

    vars(envelopes)["Envelope"].after_expiry = fails


@mutant
def needs_a_sweep() -> None:
    """What is kept of the rate of a key that rests stays for ever."""
    sorts = vars(agenda)["_SORTS"]

    def kept(tr: object, scope: object, entries: Sequence[object], room: int) -> Done:
        return Done(handled=len(entries))

    sorts[What.REST] = sorts[What.REST]._replace(handle=kept)


@mutant
def keeps_turns() -> None:
    """A message that ends while it waits keeps its turn at a limit that queues share."""
    vars(backlog)["take_out"] = lambda tr, scope, turn: tr.clear(scope.keys.waiting(*turn))


@mutant
def miscounts() -> None:
    """One change in a hundred is counted twice."""
    total = counters.total

    def wrong(*given: Any) -> dict[int, int]:
        found = total(*given)
        twice = world.random.random() < 0.01
        return {level: 2 * added for level, added in found.items()} if twice else found

    vars(counters)["total"] = wrong


@mutant
def keeps_windows() -> None:
    """A message that is taken frees no place in the window of its key."""
    freed = hand_over.freed
    vars(hand_over)["freed"] = lambda tr, scope, messages, transition: (
        freed(tr, scope, messages, transition) if transition.leaves else 0
    )


@mutant
def lowers_no_time() -> None:
    """An entry of the agenda is added without the time at which to look for it."""
    vars(due)["add"] = lambda tr, keys, key, value=b"": tr.set(key, value)


@mutant
def forgets_what_is_later() -> None:
    """Who looks at the agenda takes what is due for all that there is."""
    rise = due.rise
    vars(due)["rise"] = lambda tr, keys, seen, following: rise(tr, keys, seen, None)


@mutant
def weighs_nothing() -> None:
    """What falls due together, or is let out by one end, is one transaction's, however large."""
    vars(agenda)["SIDE_BYTES"] = vars(once)["LET_OUT_BYTES"] = 1 << 30


@mutant
def steps_once() -> None:
    """A bounded step of what is due counts as all of it."""
    agenda.MAX_ENTRIES = 1
    vars(promotion)["promote_all"] = lambda tr, scope, issued, **_: promotion.promote(
        tr, scope, issued
    )


@mutant
def moves_bare() -> None:
    """A message that moves to another queue forgets its own number of attempts, and its key."""
    elsewhere = Envelope.elsewhere

    def forgets(envelope: Envelope, options: QueueOptions) -> Envelope:
        return replace(elsewhere(envelope, options), max_attempts=None, key=None)

    vars(envelopes)["Envelope"].elsewhere = forgets


@mutant
def holds_a_lock() -> None:
    """A thread that begins a session of its process holds a lock over the transaction."""

    def held(session: ProcessSession) -> bytes:
        with session._lock:
            return session._run(lambda tr: sessions.start(tr, session._root, session._clock))

    vars(process_session)["ProcessSession"]._begin = held


@mutant
def passes_cursors_blindly() -> None:
    """Two that take or look by one subscription read one CURSOR."""
    level = cursors.CursorScan._level

    def blind(scan: cursors.CursorScan, *given: Any) -> Any:
        name, scan._subscription = scan._subscription, ""  # Of no subscription, for the conflict.
        for found in level(scan, *given):
            scan._subscription = name
            yield found
        scan._subscription = name

    vars(cursors)["CursorScan"]._level = blind


@mutant
def knows_options_blindly() -> None:
    """What is known of a queue is not checked against a change of its options: META."""
    known, read = catalogue.CachedScope.scope, catalogue.CachedScope._scope

    def scope(entry: catalogue.CachedScope, tr: fdb.Transaction, *given: Any) -> Any:
        return _without_conflicts(lambda tr: known(entry, tr, *given))(tr)

    def blind_read(entry: catalogue.CachedScope, tr: fdb.Transaction) -> Any:
        vars(tr)["get"] = tr.snapshot.get
        try:
            return read(entry, tr)
        finally:
            del vars(tr)["get"]

    vars(catalogue)["Entry"].scope = scope
    vars(catalogue)["Entry"]._scope = blind_read


@mutant
def returns_what_was_replaced() -> None:
    """A message returns though a newer one of its value has come."""
    vars(last_values)["remaining"] = lambda tr, scope, transition, messages: list(messages)


@mutant
def owes_nothing() -> None:
    """What one transaction cannot let out is forgotten: a step that stops at its bound."""
    vars(hand_over)["_owe"] = lambda *_: None
    vars(hand_over)["STEP_ROWS"] = 2


@mutant
def ticks_twice() -> None:
    """One tick in ten comes again."""
    step = schedules.step

    def again(timing: Any, catch_up: Any, due_ms: int, now_ms: int) -> schedules.TickStep:
        found = step(timing, catch_up, due_ms, now_ms)
        return found._replace(next_ms=due_ms) if world.random.random() < 0.1 else found

    vars(schedules)["step"] = again


@mutant
def publishes_twice() -> None:
    """What a sink has published counts as not published yet."""
    ended = staging._ended
    vars(staging)["_ended"] = lambda tr, keys, sink, found: replace(
        ended(tr, keys, sink, found), done=found.done
    )


@mutant
def forgets_the_next_tick() -> None:
    """A schedule ticks once: of its next tick there is nothing but the id."""
    vars(ticks)["arm"] = lambda *given: Due(0, given[-1], bytes(8)).to_id()


@mutant
def counts_backlogs_twice() -> None:
    """Of those that wait, each is counted twice."""
    count = backlog.count
    vars(backlog)["count"] = lambda tr, keys, gate, change: count(tr, keys, gate, 2 * change)


@mutant
def comes_early() -> None:
    """A delayed message is due half a second early."""
    schedule = append.schedule
    vars(append)["schedule"] = lambda tr, scope, due_ms, message: schedule(
        tr, scope, due_ms - 500, message
    )


@mutant
def swaps_the_first_two() -> None:
    """Of a batch, the first two come in the wrong order."""
    lease = take.take

    def swapped(tr: Any, scope: Any, given: Any, all_until: bytes = b"") -> Any:
        swaps = [one._replace(pieces=[*one.pieces[1::-1], *one.pieces[2:]]) for one in given]
        return lease(tr, scope, swaps)

    for module in (supply, fulfilment):
        vars(module)["take"] = swapped
