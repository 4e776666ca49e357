"""Exclusive subscriptions: they serve one consumer at a time, and another once that one is dead.

A hold ends like a lease, when both the database's version and the wall clock are past its expiry.
"""

from __future__ import annotations

from ..errors import Held
from ..schema.consumers import Holder
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import VERSIONS_PER_SECOND, Moment

HOLD_SECONDS = 30.0
"""How long a consumer holds an exclusive subscription after its last use."""

_RENEW_MS = 1000 * HOLD_SECONDS / 2


def issue_holder(tr: fdb.Transaction, scope: Scope, subscription: str) -> fdb.Value:
    """Issue the read of a subscription's holder, with a conflict."""
    # With a conflict: of two consumers that find the hold over, one gets it.
    return tr.get(scope.keys.holder(subscription))


def hold(
    tr: fdb.Transaction, scope: Scope, subscription: str, token: bytes, stored: fdb.Value
) -> None:
    """Hold a subscription; raises ``Held`` if another consumer does.

    Writes only if the hold is new or half over.
    """
    version, now_ms = scope.version(tr), scope.now_ms(tr)
    value = stored.value
    if value is not None:
        holder = Holder.unpack(value)
        if holder.token == token:
            # Not renewed at each call: the write would conflict with the other threads of the same
            # consumer.
            if holder.expiry_ms - now_ms > _RENEW_MS:
                return
        elif _lasts(holder, version, now_ms):
            problem = (
                "serves another consumer, until that closes it or leaves it unused for "
                f"{HOLD_SECONDS:g} s"
            )
            raise Held(what=f"the exclusive subscription {subscription!r}", problem=problem)
    expiry_version = version + int(HOLD_SECONDS * VERSIONS_PER_SECOND)
    expiry_ms = now_ms + int(HOLD_SECONDS * 1000)
    holder = Holder(token, expiry_version, expiry_ms)
    tr[scope.keys.holder(subscription)] = holder.pack()


def _lasts(holder: Holder, version: int, now_ms: int) -> bool:
    """Whether a hold is valid by either clock; never if it comes from another cluster, whose
    versions are ahead."""
    if holder.expiry_version > version + int(HOLD_SECONDS * VERSIONS_PER_SECOND):
        return False
    return holder.lasts(Moment(version, now_ms))


def release(tr: fdb.Transaction, scope: Scope, subscription: str, token: bytes) -> None:
    """End the consumer's hold, if it has one."""
    value = issue_holder(tr, scope, subscription).value
    if value is not None and Holder.unpack(value).token == token:
        del tr[scope.keys.holder(subscription)]
