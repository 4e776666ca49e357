"""How the messages of one queue are handled, checked."""

from __future__ import annotations

from msgspec import Struct

from ..values.backoff import Stored
from .handlers import Handler


class Policy(Struct, frozen=True):
    """How the messages of one queue are handled; see ``Worker.add``.

    window: how many messages are held at once, at least. handlers: how many threads there are.
    adapts: whether more are held while handlers are fast. settles_before: whether messages are
    acknowledged before they are handled. bounds: whether the credit is ``window`` messages, and
    grows with it. refreshes: whether a look for more urgent messages counts for a while, and not
    for ``refresh_after`` messages.
    """

    handler: Handler
    lease: float
    window: int
    run: int
    refresh_after: int | None
    max_attempts: int | None
    backoff: Stored | None
    timeout: float | None = None
    handlers: int = 1
    adapts: bool = False
    settles_before: bool = False
    bounds: bool = False
    refreshes: bool = False
    usual_attempts: int | None = None
    usual_backoff: Stored | None = None
