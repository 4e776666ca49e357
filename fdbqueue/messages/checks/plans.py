"""Checks of plans, page by page; see ``verification``."""

from __future__ import annotations

from functools import partial

from ...errors import CorruptData
from ...schema.keys import QueueKeys
from ...schema.leases import CLAIM_BYTES, pack_expiry
from ...schema.streams import Planned
from ...store import world
from .. import run
from ..run import Claim, One
from ..streams import plans
from .verification import Audit


def leases(audit: Audit, begin: bytes) -> bytes:
    """Every lease that never expires belongs to a plan."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.lease, begin)
    planned = [one for one in audit.leases(rows) if one.row.lease.planned]
    reads = {
        name: plans.reads(audit.reads, keys, name)
        for name in sorted({one.row.lease.consumer for one in planned})
    }
    claims: set[bytes] = set()
    for read in reads.values():
        for kv in read.plans:
            try:
                claims.update(claimed.claim for claimed in Planned.unpack(kv.value).claims)
            except CorruptData:
                return following  # reported by ``complete``; any lease may belong to it
    for one in planned:
        if run.plan_claim(keys, one) not in claims:
            audit.report(
                "lease without plan",
                one.position.to_id(),
                f"{one.row.lease.consumer!r} holds it forever, but has no plan with it",
                partial(_expire, audit, one),
            )
    return following


def complete(audit: Audit, begin: bytes) -> bytes:
    """Every plan has the leases that it lists. Raises ``TooLong``."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.plan, begin)
    for kv in rows:
        plan = Planned.unpack(kv.value)
        listed = sum(claimed.messages for claimed in plan.claims)
        found = sum(
            sum(1 for _ in audit.messages(run.planned(keys, claimed.claim)))
            for claimed in plan.claims
        )
        if found != listed:
            consumer, batch = keys.plan.parse(kv.key)
            told = f"only {found:,} of its {listed:,} leases exist"
            audit.report("plan incomplete", f"{consumer}, batch {batch}", told)
    return following


def _expire(audit: Audit, one: One) -> None:
    """Turn a lease of a plan into an expired one; the next receive returns the message. The others
    of its row have no plan either."""
    keys = audit.scope.keys
    version, now_ms = audit.scope.version(audit.tr), audit.scope.now_ms(audit.tr)
    claim = world.urandom(CLAIM_BYTES)
    run.give_up(
        audit.tr, keys, one, Claim(claim, version, now_ms, one.row.lease.consumer, False, 1)
    )
    audit.tr[keys.expiry(version, claim)] = pack_expiry(now_ms, [one.place])
