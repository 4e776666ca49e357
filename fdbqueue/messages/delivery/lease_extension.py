"""Extending leases: those of one claim may end at different times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...schema.codec.leases import Lease, pack_expiry, pack_until, unpack_until
from ...schema.keys import CLAIM_BYTES, QueueKeys
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...store.clocks import Moment
from ...values.model import Delivery
from . import lease, lease_rows


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
    issued = lease_rows.reads(tr, keys, deliveries)
    claims = dict.fromkeys(one.token[:CLAIM_BYTES] for one in deliveries)
    ends = {claim: tr.get(keys.until(claim)) for claim in claims}
    leases = lease_rows.all_held(tr, keys, deliveries, issued)
    lease_rows.conflict(tr, issued)
    together: dict[bytes, list[Lease]] = {}
    for held in leases:
        together.setdefault(held.claim, []).append(held)
    until = lease.ending(tr, scope, seconds)
    for claim, some in together.items():
        _extend(tr, keys, claim, some, unpack_until(ends[claim].value), until)
    if "cancels" not in scope.noted:
        return Extended(until.wall_ms)
    found = zip(deliveries, leases, strict=True)
    cancelled = [one.token for one, held in found if lease_rows.is_cancelled(held)]
    return Extended(until.wall_ms, cancelled)


def _extend(
    tr: fdb.Transaction,
    keys: QueueKeys,
    claim: bytes,
    leases: Sequence[Lease],
    ends: dict[bytes, Moment],
    until: Moment,
) -> None:
    """Let leases of a claim end at ``until``.

    ends: of the claim, as they are stored. An EXPIRY that no lease needs any more is removed.
    """
    original, count = leases[0].expiry_version, leases[0].together
    before, known = {end.version for end in ends.values()}, len(ends)
    if until.version == original and original not in before:
        # Its EXPIRY also has the places of others.
        until = Moment(original + 1, until.wall_ms)
    ends |= dict.fromkeys((each.place for each in leases), until)
    # One that was extended to the same version ends no earlier.
    same = [place for place, end in ends.items() if end.version == until.version]
    until = Moment(until.version, max(ends[place].wall_ms for place in same))
    ends |= dict.fromkeys(same, until)
    after = {end.version for end in ends.values()}
    if known < count == len(ends):
        before.add(original)
    for version in before - after:
        del tr[keys.expiry(version, claim)]
    tr[keys.until(claim)] = pack_until(ends)
    tr[keys.expiry(until.version, claim)] = pack_expiry(until.wall_ms, same)
