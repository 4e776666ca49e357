"""What the demo keeps in the store beside the queue: the effects of its messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import fields

from fdbqueue import fdb

from .table import Totals

PAGE = 10_000


class Ledger:
    """The demo's own keys, below a subspace."""

    def __init__(self, space: fdb.Subspace) -> None:
        self._manifest = space.subspace(("manifest",))  # (producer, batch) -> ids of its messages
        self._effects = space.subspace(("effects",))  # (message id) -> times it took effect
        self._sums = space.subspace(("sums",))  # (carrier, name) -> sum
        self._counts = space.subspace(("counts",))  # (name, n) -> count

    # -- written inside the transactions of producers and workers ------------------------------

    def is_listed(self, tr: fdb.Transaction, producer: int, batch: int) -> bool:
        """Whether a batch was enqueued."""
        return bool(tr.get(self._manifest.pack((producer, batch))).present())

    def list_batch(self, tr: fdb.Transaction, producer: int, batch: int, ids: list[str]) -> None:
        """Note the messages that a producer enqueued."""
        tr[self._manifest.pack((producer, batch))] = " ".join(ids).encode()

    def effect(self, tr: fdb.Transaction, message_id: str) -> None:
        """Count an effect of a message. A second one would show."""
        tr.add(self._effects.pack((message_id,)), _number(1))

    def add(self, tr: fdb.Transaction, carrier: str, totals: Totals) -> None:
        """Add to the sums of a carrier: atomic, so that workers never wait for each other."""
        for field in fields(Totals):
            number = getattr(totals, field.name)
            tr.add(self._sums.pack((carrier, field.name)), _number(number))

    def count(self, tr: fdb.Transaction, name: str, n: int, number: int) -> None:
        """Add to a count."""
        tr.add(self._counts.pack((name, n)), _number(number))

    # -- read by the proof and the report ------------------------------------------------------

    def enqueued(self, db: fdb.Database) -> list[str]:
        """The ids of all messages that were enqueued."""
        return [name for _, value in _scan(db, self._manifest) for name in value.decode().split()]

    def effects(self, db: fdb.Database) -> dict[str, int]:
        """How often each message took effect."""
        return {key[0]: _value(value) for key, value in _scan(db, self._effects)}

    def sums(self, db: fdb.Database) -> dict[str, Totals]:
        """The sums by carrier."""
        sums: dict[str, Totals] = {}
        for (carrier, name), value in _scan(db, self._sums):
            setattr(sums.setdefault(carrier, Totals()), name, _value(value))
        return sums

    def counts(self, db: fdb.Database, name: str) -> dict[int, int]:
        """The counts of one name."""
        space = self._counts.subspace((name,))
        return {key[0]: _value(value) for key, value in _scan(db, space)}


def _scan(db: fdb.Database, space: fdb.Subspace) -> Iterator[tuple[tuple, bytes]]:  # type: ignore[type-arg]
    """Everything in a subspace, a page to a transaction, for a table may take longer than 5 s."""
    begin, end = space.range().start, space.range().stop
    while page := db.get_range(begin, end, limit=PAGE):
        for kv in page:
            yield space.unpack(kv.key), kv.value
        begin = fdb.KeySelector.first_greater_than(page[-1].key)


def _number(number: int) -> bytes:
    return struct.pack("<q", number)


def _value(value: bytes) -> int:
    return int(struct.unpack("<q", value)[0])
