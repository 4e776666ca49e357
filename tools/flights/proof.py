"""The proof: what the store says at the end, against the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fdbqueue import Queue, fdb

from .ledger import Ledger
from .table import Flight, totals


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that must hold, and whether it does."""

    text: str
    holds: bool


def prove(db: fdb.Database, queue: Queue, ledger: Ledger, flights: list[Flight]) -> list[Claim]:
    """Everything that must hold if every message had its effect exactly once."""
    enqueued = ledger.enqueued(db)
    effects = ledger.effects(db)
    depth = queue.depth(db)
    times = Counter(effects.values())
    open_messages = depth.ready + depth.delayed + depth.leased + depth.dead
    return [
        Claim(
            f"{len(flights):,} flights were enqueued as {len(set(enqueued)):,} messages",
            len(flights) == len(enqueued) == len(set(enqueued)) == depth.enqueued,
        ),
        Claim(
            f"{len(set(enqueued) & effects.keys()):,} messages had an effect, "
            f"and nothing else had one",
            set(enqueued) == effects.keys(),
        ),
        Claim(
            f"{times[1]:,} messages had it once, {len(effects) - times[1]:,} more than once",
            times[1] == len(effects) == len(enqueued),
        ),
        Claim(
            f"the queue counts {depth.done:,} done and {open_messages:,} in any other state",
            depth.done == len(flights) and open_messages == 0,
        ),
        Claim(
            "the sums of every carrier equal those of the table, taken without a queue",
            ledger.sums(db) == totals(flights),
        ),
    ]
