"""Batches: deliveries that are settled together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from ..errors import InvalidArgument, LeaseLost
from ..messages.delivery.batch import Taken, Together
from ..messages.delivery.lease_rows import Held
from ..store.binding import fdb
from ..values import serializers
from ..values.durations import Seconds
from ..values.model import Delivery
from ..values.serializers import Serializer
from . import settlement
from .handle import Handle, Transactor

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Batch(Together, Generic[T]):
    """Messages that were received together: a sequence of deliveries, to be settled as a whole.

    A delivery is made when it is asked for. A slice is a batch, too. Batches do not change: what is
    settled stays in them.

    All methods take a database, or a transaction of yours. They settle all messages or none: if the
    lease of one is gone, they raise ``LeaseLost``, which names all that are lost, and write
    nothing. ``without`` gives the batch of the others. Each delivery may also be settled by itself,
    by the methods of the queue. One round trip, and one more if some of the batch were settled or
    extended. Conflicts only with other settlements of its messages, and with their expiry.

    As a context manager, for a batch received with a database: acknowledges it at the end of the
    block, unless you have settled all of it. If the block raises, gives back what is not yet
    settled, without a failed attempt.
    """

    def __init__(
        self,
        queue: Handle,
        db: fdb.Database | None,
        deliveries: Sequence[Delivery],
        serializer: Serializer[Any],
    ) -> None:
        self._queue = queue
        self._db = db
        self._deliveries = deliveries
        self._serializer = serializer
        self._settled = False

    def __len__(self) -> int:
        return len(self._deliveries)

    @overload
    def __getitem__(self, n: int) -> Delivery: ...
    @overload
    def __getitem__(self, n: slice) -> Self: ...
    def __getitem__(self, n: int | slice) -> Delivery | Self:
        if isinstance(n, slice):
            return self._of(self._deliveries[n])
        return self._deliveries[n]

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._deliveries)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} messages of {self._queue.name}>"

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the messages."""
        found = self._deliveries
        return found.payloads if isinstance(found, Taken) else [each.payload for each in found]

    @property
    def values(self) -> list[T]:
        """The payloads, each decoded as ``Queue.value`` does. Raises ``UnknownContentType``,
        ``CorruptData``."""
        return [serializers.loads(self._serializer, each.message) for each in self]

    @property
    def expires_at_ms(self) -> int | None:
        """When the first of the leases ends, in milliseconds of the receiver's wall clock; None if
        the batch is empty."""
        found = self._deliveries
        one = isinstance(found, Taken) and bool(found)
        return min((each.expires_at_ms for each in (found[:1] if one else found)), default=None)

    @property
    def held(self) -> Sequence[Held]:
        """What is to be read to settle all of them."""
        found = self._deliveries
        return found.held if isinstance(found, Together) else found

    def without(self, ids: Collection[str]) -> Self:
        """The batch of all others than the messages with these ids, such as ``LeaseLost.lost``."""
        return self._of([each for each in self if each.id not in ids])

    def ack(self, tr: Transactor) -> None:
        """Acknowledge all messages. Commit it together with their effects."""
        settlement.ack_many(self._queue, tr, self)
        self._settled = True

    def settle(
        self,
        tr: Transactor,
        verdicts: Mapping[str, BaseException],
    ) -> None:
        """Settle each message by its verdict; acknowledge those that have none.

        verdicts: by message id, what a handler of a worker would raise: ``Reject``, ``Retry``,
            ``Snooze``, or any other exception, which fails the attempt.

        Raises ``InvalidArgument`` for an id that is not in the batch.
        """
        settlement.settle(self._queue, tr, self, verdicts)
        self._settled = True

    def release(
        self,
        tr: Transactor,
        *,
        delay: Seconds | None = None,
        error: str | None = None,
    ) -> None:
        """Give all messages back, to their old positions. As ``Queue.release``."""
        settlement.release_many(self._queue, tr, self, delay=delay, error=error)
        self._settled = True

    def reject(self, tr: Transactor, reason: str, *, drop: bool = False) -> None:
        """Refuse all messages for good. As ``Queue.reject``."""
        settlement.reject_many(self._queue, tr, self, reason, drop=drop)
        self._settled = True

    def extend(self, tr: Transactor, lease: Seconds | None = None) -> Self:
        """Let the leases end ``lease`` seconds from now; returns the batch with its new end.

        As ``Queue.extend``. This batch can still be settled.
        """
        extended = settlement.extended_until(self._queue, tr, self, lease)
        found = self._deliveries
        if isinstance(found, Taken) and not extended.cancelled:
            return self._of(found.until(extended.until_ms))
        return self._of([extended.of(each) for each in found])

    def __enter__(self) -> Self:
        if self._db is None:
            raise InvalidArgument(
                argument="batch",
                value=self,
                problem="was received in a transaction of yours: settle it by its methods",
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._db is not None
        if kind is None and not self._settled:
            self.ack(self._db)
        elif kind is not None:
            self._give_back(self._db)

    def _give_back(self, db: fdb.Database) -> None:
        left = self
        while left:
            try:
                left.release(db)
                break
            except LeaseLost as error:
                left = left.without(error.lost)

    def _of(self, deliveries: Sequence[Delivery]) -> Self:
        return type(self)(self._queue, self._db, deliveries, self._serializer)
