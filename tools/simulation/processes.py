"""Simulated processes, with their clients, and the history that they write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workload.clients import Client
from workload.history import Recorder
from workload.place import Place

from .driver import Process, Strand


class Memory(Recorder):
    """A history that is kept in memory."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        super().__init__("")

    def _open(self) -> int:
        return -1

    def _write(self, **line: Any) -> None:
        self.lines.append(line)


MOST_ASKED = 500
"""In so many transactions, and no more, a call reads that waits for messages, for seconds."""


class SimulatedClient(Client):
    """A client in a strand."""

    strand: Strand

    def do(self, name: str, queue: str, body: Callable[[int], Any], **given: Any) -> Any:
        """As every client does; who waits may not ask without pause."""
        before = self.strand.asked
        result = super().do(name, queue, body, **given)
        asked = self.strand.asked - before
        if given.get("wait") and asked > MOST_ASKED:
            raise AssertionError(f"{self.doing} reads in {asked} transactions")
        return result

    def asks(self, rows: int, size: int) -> None:
        """Its transactions may read and write so much more."""
        # A message has side records, each of its rows is removed and written, and read before.
        self.strand.allowance = 40 * rows, 4 * size + 4_000 * rows


class Home:
    """A simulated process with its handles and its clients."""

    def __init__(self, process: Process, place: Place) -> None:
        self.process, self.place = process, place
        self.clients: list[SimulatedClient] = []

    @property
    def at_rest(self) -> bool:
        """Whether everything that it runs has ended."""
        return self.process.dead or not self.process.strands
