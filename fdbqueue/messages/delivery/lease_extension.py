"""Extending leases: those of one claim may end at different times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...schema.keys import QueueKeys
from ...schema.leases import CLAIM_BYTES, unpack_until
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...store.clocks import Moment
from ...values.model import Delivery
from .. import run
from ..run import One
from . import lease


class Extended(NamedTuple):
    """What an extension tells: the new end, in milliseconds of the wall clock, and the tokens of
    those whose messages were cancelled."""

    until_ms: int
    cancelled: Collection[bytes] = ()

    def of(self, delivery: Delivery) -> Delivery:
        """A delivery that was extended."""
        ended = delivery.token in self.cancelled
        return replace(delivery, expires_at_ms=self.until_ms, cancelled=ended)


@transactional
def extend(
    tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery], seconds: float
) -> Extended:
    """Let leases end ``seconds`` from now.

    One round trip. Fails if one of the leases is settled or expires meanwhile, or one of its claim
    is extended; aborts only expiries, and such extensions. Raises what ``lease.end`` raises.
    """
    keys = scope.keys
    reads = run.Leases(tr, keys, [each.token for each in deliveries])
    claims = dict.fromkeys(one.token[:CLAIM_BYTES] for one in deliveries)
    # With a conflict: two extensions of one claim write the same value, and the one that lost would
    # vanish.
    ends = {claim: tr.get(keys.until(claim)) for claim in claims}
    # Reads its row with a conflict and leaves that as it is: so it conflicts with what settles the
    # lease, or cuts the row, and makes no settlement fail.
    leases = reads.held(deliveries)
    reads.conflict(range(len(leases)))
    together: dict[bytes, list[One]] = {}
    for held in leases:
        together.setdefault(held.row.lease.claim, []).append(held)
    until = lease.ending(tr, scope, seconds)
    for claim, some in together.items():
        _extend(tr, keys, claim, some, unpack_until(ends[claim].value), until)
    if "cancels" not in scope.noted:
        return Extended(until.wall_ms)
    found = zip(deliveries, leases, strict=True)
    return Extended(until.wall_ms, [one.token for one, held in found if held.cancelled])


def _extend(
    tr: fdb.Transaction,
    keys: QueueKeys,
    claim: bytes,
    leases: Sequence[One],
    ends: dict[bytes, Moment],
    until: Moment,
) -> None:
    """Let leases of a claim end at ``until``.

    ends: of the claim, as they are stored. An EXPIRY that no lease needs any more is removed.
    """
    first = leases[0].row.lease
    original, count = first.expiry_version, first.together
    before, known = {end.version for end in ends.values()}, len(ends)
    if until.version == original and original not in before:
        # Its EXPIRY also has the places of others.
        until = Moment(original + 1, until.wall_ms)
    lease.end_at(tr, keys, claim, ends, (each.place for each in leases), until)
    # Now all leases of the claim end by UNTIL, so none needs the first EXPIRY any more.
    if known < count == len(ends):
        before.add(original)
    for version in before - {end.version for end in ends.values()}:
        del tr[keys.expiry(version, claim)]
