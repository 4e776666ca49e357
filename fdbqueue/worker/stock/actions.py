"""What follows an event: for whom it happened to carry out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ...consumers.credit import Credit
from ...values.model import Delivery
from .held import Finished
from .states import Supply


class Fetch(NamedTuple):
    """Acknowledge jobs, and fetch up to ``most`` messages, as far as the credit goes.

    offered: what may be given back for more urgent ones, the least urgent last. begins: whether a
    message that comes can be begun beside no other.
    """

    number: int
    credit: Credit
    most: int
    finished: Sequence[Finished]
    offered: Sequence[Delivery]
    begins: bool


class Settle(NamedTuple):
    """Acknowledge jobs."""

    finished: Sequence[Finished]


class Check(NamedTuple):
    """Find out which messages were cancelled. watches: after arming a watch that tells it."""

    deliveries: Sequence[Delivery]
    watches: bool


class Begin(NamedTuple):
    """Handle a message, or a batch."""

    deliveries: list[Delivery]


class Look(NamedTuple):
    """Find out whether a message more urgent than a level is ready."""

    level: int


class GiveBack(NamedTuple):
    """Return messages to the queue."""

    deliveries: Sequence[Delivery]


class Took(NamedTuple):
    """A fetch took messages, and left what ``supply`` says; None if it failed."""

    deliveries: Sequence[Delivery]
    supply: Supply | None


class Released(NamedTuple):
    """The credit of some messages comes back, and tokens are held no more.

    began: whether a handler had begun with them; if not, they are in the queue again.
    """

    deliveries: Sequence[Delivery]
    tokens: Iterable[bytes]
    began: bool


Action: TypeAlias = Fetch | Settle | Check | Begin | Look | GiveBack | Took | Released
