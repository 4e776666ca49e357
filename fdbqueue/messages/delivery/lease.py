"""Leases: a consumer holds a message until it settles the delivery or the lease expires.

LEASE, at the message's place, names the consumer and the claim: bytes that all leases which were
taken together share, and that end as the id of a registered consumer does. The end of the leases
belongs to the claim. EXPIRY orders claims by their end, and has the places of the leases that end
then. A token is the claim and the place. An extension must not abort a settlement, which may be
part of a long transaction of the user. So it does not touch LEASE, and writes the new end under
UNTIL, below the claim:

| | LEASE | UNTIL | EXPIRY |
|---|---|---|---|
| settling | reads with a conflict, clears | reads at snapshot if extended | |
| settling a whole claim | as well | clears, too | clears |
| extending | reads with a conflict | reads with a conflict, writes | writes, clears |
| shortening | | reads with a conflict, writes | writes, clears |
| expiring | reads with a conflict, clears | reads with a conflict, writes | clears |

A settlement and an expiry conflict, and so do an extension and an expiry. EXPIRY and UNTIL stay
when only some leases of a claim are settled, or when an extension commits during a settlement, or
is unknown to the settled delivery. They are removed when they fall due.

A claim that answers a request in line has UNTIL from the start: its consumer finds its leases
there.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from ...errors import CorruptData
from ...schema.consumers import Request
from ...schema.keys import QueueKeys
from ...schema.leases import (
    CLAIM_BYTES,
    pack_expiry,
    pack_until,
    unpack_until,
)
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...store.clocks import VERSIONS_PER_SECOND, Clock, Moment
from ...values.model import Delivery, LeasedMessage
from .. import payloads, run
from ..run import One
from . import scan

GRANT_SECONDS = 10.0
"""How long a lease lasts that was granted in line, until its consumer looks: longer than it
sleeps."""

MAX_TOGETHER = 1_000
"""The most leases of one claim, so that their places fit into one value."""


class _Given(Struct, frozen=True):
    """What was given under a claim in line: the other ends of its leases, by their places, and the
    leases that are there, by the numbers of their places. found: their reads."""

    claim: bytes
    ends: dict[bytes, Moment]
    found: run.Leases
    there: list[tuple[int, One]]

    @classmethod
    def read(
        cls, tr: fdb.Transaction, keys: QueueKeys, claim: bytes, *, looks: bool = False
    ) -> _Given:
        """Two round trips, one more for one message that shares its row."""
        reads = tr.snapshot if looks else tr
        ends = unpack_until(reads.get(keys.until(claim)).value)
        found = run.Leases(tr, keys, [claim + where for where in ends], looks=looks)
        there = [(n, one) for n in range(len(ends)) if (one := found.get(n))]
        return cls(claim, ends, found, there)

    @property
    def old(self) -> set[Moment]:
        """When the leases would end that were written."""
        leases = [one.row.lease for _, one in self.there]
        return {Moment(lease.expiry_version, lease.expiry_ms) for lease in leases}

    def doubtful(self, version: int) -> bool:
        """Whether its consumer was in doubt, and has not looked before."""
        if not self.there or all(one.row.lease.begun for _, one in self.there):
            return False
        old = self.old
        longest = version + int(GRANT_SECONDS * VERSIONS_PER_SECOND)
        # Collected leases end later than those granted in line, by UNTIL: so a second look finds
        # them no more in doubt.
        return old == set(self.ends.values()) and min(old).version <= longest

    def deliveries(
        self, tr: fdb.Transaction, keys: QueueKeys, until: Moment | None = None, begun: bool = False
    ) -> list[Delivery]:
        """The deliveries. until, begun: what has changed."""
        messages, names = [one.message for _, one in self.there], list(self.ends)
        loaded = payloads.load(messages, payloads.reads(tr, keys, messages))
        return [
            _delivery(
                message,
                self.claim + names[n],
                (until or one.ends(self.ends)).wall_ms,
                begun or one.row.lease.begun,
            )
            for message, (n, one) in zip(loaded, self.there, strict=True)
        ]


def answered(
    tr: fdb.Transaction, keys: QueueKeys, clock: Clock, claim: bytes
) -> list[Delivery] | None:
    """What ``collect`` returns, by snapshot reads; None where it would write something."""
    given = _Given.read(tr, keys, claim, looks=True)
    return None if given.doubtful(clock.version(tr)) else given.deliveries(tr, keys)


def collect(tr: fdb.Transaction, scope: Scope, claim: bytes, request: Request) -> list[Delivery]:
    """The deliveries under a claim that was given in line, from now on in the hands of their
    consumer.

    Who stood in line for long may have died: so a lease that is granted there is short, and
    handling has not begun. Once its consumer looks, the lease lasts as it asked, and a message that
    comes alone is begun. Looking again changes nothing, nor does it where the lease was granted
    whole.

    Two round trips, one more for payloads in chunks, and for one message that shares its row.
    Conflicts with their grant, their expiry and their settlement.
    """
    keys, given = scope.keys, _Given.read(tr, scope.keys, claim)
    # A lease that expires meanwhile is being handed to somebody else: then this must not extend it.
    given.found.conflict(n for n, _ in given.there)
    if not given.doubtful(scope.version(tr)):
        return given.deliveries(tr, keys)
    # The short end that the leader wrote is replaced; left there, it would only be found to name
    # leases that end later.
    for each in given.old:
        del tr[keys.expiry(each.version, claim)]
    until, places = ending(tr, scope, lasts(scope, request)), list(given.ends)
    end_at(tr, keys, claim, {}, places, until)
    _, first = given.there[0]
    begun = len(places) == 1 and (request.begins or first.message.envelope.suspect)
    if begun:
        run.rewrite(tr, first, replace(first.lease, begun=True))
    return given.deliveries(tr, keys, until, begun)


def end_at(
    tr: fdb.Transaction,
    keys: QueueKeys,
    claim: bytes,
    ends: dict[bytes, Moment],
    places: Iterable[bytes],
    until: Moment,
) -> None:
    """Let leases of a claim end then, and others that end at the same version no earlier. Blindly.

    ends: of the claim, as UNTIL has them; they are updated.
    """
    ends |= dict.fromkeys(places, until)
    same = [place for place, end in ends.items() if end.version == until.version]
    # One EXPIRY has one wall clock for all its places. The later one is safe: a lease never ends
    # before it was promised to.
    until = Moment(until.version, max(ends[place].wall_ms for place in same))
    ends |= dict.fromkeys(same, until)
    tr[keys.until(claim)] = pack_until(ends)
    tr[keys.expiry(until.version, claim)] = pack_expiry(until.wall_ms, same)


def by_token(tr: fdb.Transaction, keys: QueueKeys, token: bytes) -> list[Delivery]:
    """The delivery that a token names; none if its lease is gone. Snapshot reads, no conflicts."""
    found = run.Leases(tr, keys, [token], looks=True)
    until = tr.snapshot.get(keys.until(token[:CLAIM_BYTES]))
    one = found.get(0)
    if one is None:
        return []
    (message,) = payloads.load([one.message], payloads.reads(tr, keys, [one.message]))
    end = one.ends(unpack_until(until.value))
    return [_delivery(message, token, end.wall_ms, one.row.lease.begun)]


@transactional
def listed(
    tr: fdb.Transaction, scope: Scope, limit: int, begin: bytes, room: int | None = None
) -> tuple[list[LeasedMessage], bytes]:
    """Up to ``limit`` leases in the order of their keys, as many as one transaction reads.

    begin: the key to continue from; empty for the first. room: after so many bytes no more are
    read; those of a batch by default. Also returns the next key, empty at the end. Snapshot reads,
    no conflicts.
    """
    every, room = scope.keys.lease.rows, scan.BATCH_BYTES if room is None else room
    rows: list[One] = []
    size, following = 0, b""
    mode = fdb.StreamingMode.want_all
    found = tr.snapshot.get_range(
        max(begin, every.start), every.stop, limit=limit, streaming_mode=mode
    )
    for n, kv in enumerate(found, 1):
        with suppress(CorruptData):  # verify reports it
            rows += islice(run.leases(scope.keys, [kv], begin), limit - len(rows))
        size += len(kv.value)
        if len(rows) == limit:
            following = rows[-1].key + b"\x00"
            break
        if size > room or n == limit:
            following = kv.key + b"\x00"
            break
    others = ends_of(tr.snapshot, scope.keys, (one.row.lease.claim for one in rows))
    version, now_ms = scope.version(tr), scope.now_ms(tr)
    leases = []
    for one in rows:
        lease, message = one.row.lease, one.message
        ends = one.ends(others[lease.claim] or {})  # verify reports what it cannot read
        delivery = Delivery(
            message=message.envelope.properties(message.position),
            token=one.token(scope.keys),
            attempt=message.envelope.attempts + 1,
            expires_at_ms=ends.wall_ms,
            cancelled=message.envelope.cancelled,
        )
        expired = not lease.planned and over(ends, version, now_ms)
        leases.append(
            LeasedMessage(delivery, lease.consumer, expired, lease.planned, lease.since_ms)
        )
    return leases, following


def ends_of(
    tr: fdb.TransactionRead, keys: QueueKeys, claims: Iterable[bytes]
) -> dict[bytes, dict[bytes, Moment] | None]:
    """The ends of leases by claim and place, where they are not the original ones; None if they
    cannot be read. One round trip."""
    found: dict[bytes, dict[bytes, Moment] | None] = {}
    for claim, read in {claim: tr.get(keys.until(claim)) for claim in claims}.items():
        try:
            found[claim] = unpack_until(read.value)
        except CorruptData:
            found[claim] = None
    return found


OVERDUE_MS = 120_000
"""How long after its end, by the wall clock, a lease with a version of another cluster expires:
twice as long as two believed clocks can differ."""


def over(ends: Moment, version: int, now_ms: int) -> bool:
    """Whether a lease that ends then has expired: by both clocks, or long ago by the wall clock."""
    # Versions jump ahead at a recovery, and clocks go wrong: only both together may end a lease
    # that somebody holds.
    return ends.wall_ms <= (now_ms if ends.version < version else now_ms - OVERDUE_MS)


def _delivery(message: StoredMessage, token: bytes, wall_ms: int, begun: bool) -> Delivery:
    return Delivery(
        message=message.opened,
        token=token,
        attempt=message.envelope.attempts + 1,
        expires_at_ms=wall_ms,
        begun=begun,
        cancelled=message.envelope.cancelled,
    )


def lasts(scope: Scope, request: Request) -> float:
    """For how many seconds its leases last."""
    return scope.options.lease if request.seconds is None else request.seconds


def ending(tr: fdb.Transaction, scope: Scope, seconds: float) -> Moment:
    """The end of a lease of ``seconds``."""
    return Moment(
        scope.version(tr) + int(seconds * VERSIONS_PER_SECOND),
        scope.now_ms(tr) + int(seconds * 1000),
    )
