"""A leader that was away comes back: it serves the line in the transaction of its next receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...schema.scope import Scope
from ...store import world
from ...store.binding import fdb
from .. import fulfilment, leader, line, promotion
from ..line import Waiter
from .access import Access, Outcome
from .hints import Hints

RETURN_SECONDS = 0.02
"""A consumer that handled its last messages in less time is expected to ask again soon."""
SERVE_SECONDS = 0.001
"""A leader that asks again sooner after it has served the line takes a message for itself alone.
Those in line notice no sooner that they are served, and serving them one by one costs more."""
MAX_ROUNDS, MAX_ALONE = 32, 8
"""How often a returning leader serves the line before it passes the lead on; and nobody but itself
before the line ends."""


class LeaderReads(NamedTuple):
    """The reads of a leader that was away, issued and not awaited, and the claim of its lead."""

    lead: bytes
    led: fdb.Value
    leader: fdb.Value
    round: fulfilment.RoundReads


def asks(hints: Hints) -> None:
    """Note that a consumer asks again."""
    hints.returns = world.monotonic() - hints.returned < RETURN_SECONDS
    hints.rests -= hints.rests > 0


def asks_in_line(hints: Hints, *, rests: bool = False) -> line.Asks:
    """How often the consumer asks. rests: whether it leaves the lead to others."""
    if not hints.returns:
        return line.Asks.NOW_AND_THEN
    return line.Asks.IN_A_LOOP if rests else line.Asks.IN_A_LOOP_AND_LEADS


def spares(hints: Hints) -> bool:
    """Whether the caller leads, and may take a message without serving the line: it has just done
    so."""
    return (
        hints.lead is not None
        and hints.returns
        and world.monotonic() < hints.served + SERVE_SECONDS
    )


def reads(tr: fdb.Transaction, access: Access, wanted: int) -> LeaderReads | None:
    """Issue the reads of a round, with a conflict on the lead; None if the caller does not lead.

    wanted: how many messages it wants itself.

    The lead is taken out of the hints: set it back if the transaction fails.
    """
    hints = access.hints
    lead, hints.lead = hints.lead, None
    if lead is None:
        return None
    line, hints.expected = access.line, max(hints.expected, wanted)
    round_ = fulfilment.reads(tr, access.supply, hints.expected)
    # Who leads is read with a conflict: if another has taken the line over, this round must not
    # commit.
    return LeaderReads(lead, tr.snapshot.get(line.led), tr.get(line.leader), round_)


def serve(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    own: Sequence[Waiter],
    issued: LeaderReads,
) -> list[Outcome] | None:
    """Serve the line, and the caller's own requests behind all others; pass the lead on.

    Returns what each is given; a ticket if it must wait in line, which the first of these leads;
    None if the caller does not lead any more. Conflicts as ``fulfilment.serve``.
    """
    if issued.leader.value != issued.lead + leader.AWAY:
        return None
    round_, led, supply, hints = issued.round, issued.led.value, access.supply, access.hints
    due = promotion.reads(tr, scope)
    if promotion.promote_all(tr, scope, due, until=supply.until).changed:
        round_ = fulfilment.reads(tr, supply, hints.expected)
    served = fulfilment.serve(tr, scope, supply, round_, own[-1].claim, own=own)
    if served.closed:
        return answers(tr, scope, access, own, served, leads=False)
    successors, ours = served.returning, {one.claim for one in own}
    hints.expected = served.demand
    left = [one for one in own if one.claim not in served.answers]
    if left:
        tr[supply.line.leader] = left[0].claim
        leader.renew(tr, scope, supply.line, led)
        return answers(tr, scope, access, own, served, leads=True)
    hints.served = world.monotonic()
    hints.rounds += 1
    hints.alone = hints.alone + 1 if ours.issuperset(served.answers) else 0
    if hints.rounds < MAX_ROUNDS:
        # Itself, if it returns: that keeps the lead where the reads are known.
        successors = successors[-1:]
    if ours.issuperset(successors) and hints.alone >= MAX_ALONE and scope.scheme != "staged":
        successors = []
    fulfilment.stop_leading(tr, scope, supply, served.unserved, successors, led)
    if successors and successors[0] in ours and not served.unserved:
        hints.lead = successors[0]
    else:
        # The others lead as long as this one did: serving costs its consumer time.
        hints.rests = MAX_ROUNDS * len(served.answers.keys() - ours)
    return answers(tr, scope, access, own, served, leads=False)


def answers(
    tr: fdb.Transaction,
    scope: Scope,
    access: Access,
    own: Sequence[Waiter],
    served: fulfilment.Served,
    *,
    leads: bool,
) -> list[Outcome]:
    """What own requests are given. Those without an answer join the line, and the first of them
    leads it if ``leads``."""
    found: list[Outcome] = []
    for one in own:
        answer = served.answers.get(one.claim)
        if answer is None:
            found.append(line.register(tr, scope, access.line, one, leads))
            leads = False
        else:
            found.append(answer)
    return found
