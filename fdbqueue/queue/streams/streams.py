"""``Queue.streams``: the only way to imports, sinks and plans."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...messages.streams import staging, undecided
from ...messages.streams.undecided import Undecided
from ...schema.streams import SinkState
from ...store.binding import fdb
from ..enqueue import Enqueuing
from ..queue_base import Transactor
from .imports import Import
from .plans import Plans
from .sinks import Sink, anonymous


class Streams:
    """What Spark and imports need of one queue; get it from ``Queue.streams``."""

    def __init__(self, queue: Enqueuing[Any]) -> None:
        self._queue = queue

    @property
    def plans(self) -> Plans:
        """The plans of the queue: what streams have in hand."""
        return Plans(self._queue)

    def importer(self, name: str) -> Import:
        """The import of a name, which can be resumed. Raises ``InvalidArgument``."""
        return Import(self._queue, name)

    def sink(self, name: str | None = None) -> Sink:
        """The sink of a name; without one, a sink with a name of its own, for one batch.

        Raises ``InvalidArgument``.
        """
        return Sink(self._queue, anonymous(self._queue._clock.wall_ms()) if name is None else name)

    def sinks(self, tr: Transactor) -> dict[str, SinkState]:
        """The sinks of the queue, and how far they have come.

        A snapshot read: no conflicts. Raises ``QueueNotFound``.
        """

        def read(tr: fdb.Transaction) -> dict[str, SinkState]:
            self._queue._scope(tr)
            return staging.sinks(tr, self._queue._keys)

        return self._queue._read(tr, read)

    def undecided(self, tr: Transactor) -> dict[str, Undecided]:
        """The undecided rows of each sink: of running writes, and of writes whose driver has died.

        Snapshot reads in pages of 1,000 attempts: no conflicts. Raises ``QueueNotFound``.
        """

        def page(tr: fdb.Transaction, begin: bytes) -> tuple[list[undecided.Staged], bytes]:
            return undecided.page(tr, self._queue._scope(tr).keys, begin)

        found: dict[str, Undecided] = {}
        begin = b""
        while True:
            rows, begin = self._queue._read(tr, partial(page, begin=begin))
            for sink, _, _, attempt in rows:
                found[sink] = found.get(sink, Undecided()).plus(attempt)
            if not begin:
                return found
