"""Batches: deliveries that are settled together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from ..errors import InvalidArgument, LeaseLost
from ..messages.delivery.batch import TakenTogether, Together
from ..messages.delivery.lease_extension import Extended
from ..messages.run import Held
from ..store.binding import fdb
from ..values import serializers
from ..values.model import Delivery
from ..values.serializers import Serializer
from . import settlement
from .enqueue import Enqueuing

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

    ``Queue.ack``, ``release``, ``reject``, ``extend`` and ``settle`` take a batch, a slice of it or
    one of its deliveries. ``without`` gives the batch of those that are left when ``LeaseLost``
    names the lost ones. One round trip, and one more if some of the batch were settled or extended.

    As a context manager, for a batch received with a database: acknowledges it at the end of the
    block, unless you have settled all of it. If the block raises, gives back what is not yet
    settled, without a failed attempt.
    """

    def __init__(
        self,
        queue: Enqueuing[Any],
        db: fdb.Database | None,
        deliveries: Sequence[Delivery],
        serializer: Serializer[Any] | None,
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
        return (
            found.payloads if isinstance(found, TakenTogether) else [each.payload for each in found]
        )

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
        one = isinstance(found, TakenTogether) and bool(found)
        return min((each.expires_at_ms for each in (found[:1] if one else found)), default=None)

    @property
    def held(self) -> Sequence[Held]:
        """What is to be read to settle all of them."""
        found = self._deliveries
        return found.held if isinstance(found, Together) else found

    def without(self, ids: Collection[str]) -> Self:
        """The batch of all others than the messages with these ids, such as ``LeaseLost.lost``."""
        return self._of([each for each in self if each.id not in ids])

    def _extended(self, extended: Extended) -> Self:
        """The same batch after an extension of all of it."""
        found = self._deliveries
        # Its rows stay whole: only their end has changed, for all alike.
        if isinstance(found, TakenTogether) and not extended.cancelled:
            return self._of(found.until(extended.until_ms))
        return self._of([extended.of(each) for each in found])

    def _ended(self) -> None:
        """Called when all of it has been settled together."""
        self._settled = True

    def __enter__(self) -> Self:
        if self._db is None:
            raise InvalidArgument(
                argument="batch",
                value=self,
                problem="was received in a transaction of yours: settle it there",
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._db is not None
        if kind is None and not self._settled:
            settlement.ack(self._queue, self._db, self)
        elif kind is not None:
            self._give_back(self._db)

    def _give_back(self, db: fdb.Database) -> None:
        left = self
        while left:
            try:
                settlement.release(self._queue, db, left)
                break
            except LeaseLost as error:
                left = left.without(error.lost)

    def _of(self, deliveries: Sequence[Delivery]) -> Self:
        return type(self)(self._queue, self._db, deliveries, self._serializer)
