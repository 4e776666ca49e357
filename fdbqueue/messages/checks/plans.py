"""Checks of plans, page by page; see ``audit``."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from ...errors import CorruptData
from ...schema.codec.blocks import AnyRow
from ...schema.codec.leases import Lease, pack_expiry
from ...schema.codec.plans import Planned
from ...schema.keys import CLAIM_BYTES, Kind
from ...store import world
from ..streams import plans
from .audit import Audit


def leases(audit: Audit, begin: bytes) -> bytes:
    """Every lease that never expires belongs to a plan."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.LEASE, begin)
    planned: list[tuple[AnyRow, Lease, AnyRow]] = []
    for kv in rows:
        for each in audit.opened(Kind.LEASE, [kv]):
            try:
                lease = Lease.unpack(each.value)
            except CorruptData:
                continue  # reported by ``audit.messages``
            if lease.planned:
                planned.append((each, lease, kv))
    reads = {
        name: plans.reads(audit.reads, keys, name)
        for name in sorted({lease.consumer for _, lease, _ in planned})
    }
    claims: set[bytes] = set()
    for read in reads.values():
        for kv in read.plans:
            try:
                claims.update(claimed.claim for claimed in Planned.unpack(kv.value).claims)
            except CorruptData:
                return following  # reported by ``complete``; any lease may belong to it
    for each, lease, row in planned:
        if keys.planned.parse(each.key)[0] not in claims:
            audit.report(
                "lease without plan",
                lease.position.to_id(),
                f"{lease.consumer!r} holds it forever, but has no plan with it",
                partial(_expire, audit, row.key, lease),
            )
    return following


def complete(audit: Audit, begin: bytes) -> bytes:
    """Every plan has the leases that it lists. Raises ``TooLong``."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.PLAN, begin)
    for kv in rows:
        try:
            plan = Planned.unpack(kv.value)
        except CorruptData:
            audit.report("unreadable", kv.key.hex(), "a value of kind plan")
            continue
        listed = sum(claimed.messages for claimed in plan.claims)
        found = sum(
            sum(1 for _ in audit.messages(Kind.LEASE, keys.planned.under(claimed.claim)))
            for claimed in plan.claims
        )
        if found != listed:
            consumer, batch = keys.plan.parse(kv.key)
            told = f"only {found:,} of its {listed:,} leases exist"
            audit.report("plan incomplete", f"{consumer}, batch {batch}", told)
    return following


def _expire(audit: Audit, row: bytes, lease: Lease) -> None:
    """Turn a lease of a plan into an expired one; the next receive returns the message.

    row: the key of its row, whose other leases have no plan either.
    """
    keys = audit.scope.keys
    version, now_ms = audit.scope.version(audit.tr), audit.scope.now_ms(audit.tr)
    claim = world.urandom(CLAIM_BYTES)
    over = replace(lease, expiry_version=version, expiry_ms=now_ms, begun=False, claim=claim)
    del audit.tr[row]
    audit.tr[keys.lease_at(lease.position)] = over.pack()
    audit.tr[keys.expiry(version, claim)] = pack_expiry(now_ms, [over.place])
