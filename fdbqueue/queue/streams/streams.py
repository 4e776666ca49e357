"""``Queue.streams``: the only way to imports, sinks and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..enqueue import Enqueuing
from ..handle import Transactor

if TYPE_CHECKING:  # imported by those who use them: most programs use none
    from ...messages.streams.undecided import Undecided
    from ...schema.codec.sinks import SinkState
    from .imports import Import
    from .plans import Plans
    from .sinks import Sink


class Streams:
    """What Spark and imports need of one queue; get it from ``Queue.streams``."""

    def __init__(self, queue: Enqueuing[Any]) -> None:
        self._queue = queue

    @property
    def plans(self) -> Plans:
        """The plans of the queue: what streams have in hand."""
        from .plans import Plans

        return Plans(self._queue)

    def importer(self, name: str) -> Import:
        """The import of a name, which can be resumed. Raises ``InvalidArgument``."""
        from .imports import Import

        return Import(self._queue, name)

    def sink(self, name: str | None = None) -> Sink:
        """The sink of a name; without one, a sink with a name of its own, for one batch.

        Raises ``InvalidArgument``.
        """
        from .sinks import Sink, anonymous

        return Sink(self._queue, anonymous(self._queue._clock.wall_ms()) if name is None else name)

    def sinks(self, tr: Transactor) -> dict[str, SinkState]:
        """The sinks of the queue, and how far they have come.

        A snapshot read: no conflicts. Raises ``QueueNotFound``.
        """
        from .sinks import sinks

        return sinks(tr, self._queue)

    def undecided(self, tr: Transactor) -> dict[str, Undecided]:
        """The undecided rows of each sink: of running writes, and of writes whose driver has died.

        Snapshot reads in pages of 1,000 attempts: no conflicts. Raises ``QueueNotFound``.
        """
        from .sinks import undecided

        return undecided(tr, self._queue)
