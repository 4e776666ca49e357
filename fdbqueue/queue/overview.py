"""Many queues at one look, for whoever watches over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ..errors import CorruptData, FormatTooNew
from ..schema import catalogue, counters, once
from ..schema.keys import DEFAULT_ROOT, RootKeys
from ..store.binding import fdb
from ..values.model import Depth
from ..values.options import QueueOptions, check_name
from .handle import Transactor, composed

NAMES = 10_000
"""Names of queues that one transaction reads."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A queue as ``survey`` saw it: its options, and the depth of its levels.

    unreadable: why this release cannot use the queue, such as that a newer one has made it; its
        options are then not known, and stand at their defaults. None where it can.
    """

    options: QueueOptions
    levels: dict[int, Depth]
    unreadable: str | None = None

    @property
    def depth(self) -> Depth:
        """How many messages are in which state."""
        return sum(self.levels.values(), Depth())


def list_queues(tr: Transactor, *, root: fdb.Subspace = DEFAULT_ROOT) -> list[str]:
    """The names of all queues below ``root``, sorted. Snapshot reads: no conflicts.

    With a database it spans transactions, of 10,000 names each.
    """
    keys = RootKeys(root)
    if isinstance(tr, fdb.Transaction):
        return catalogue.names(tr, keys, None, 0)
    found: list[str] = []
    while True:
        read = partial(catalogue.names, root=keys, after=found[-1] if found else None, limit=NAMES)
        some = once.run(tr, keys.once, read, wrote=lambda _: False)
        found += some
        if len(some) < NAMES:
            return found


def survey(
    tr: Transactor, names: Iterable[str], *, root: fdb.Subspace = DEFAULT_ROOT
) -> dict[str, Surveyed]:
    """The options and depths of several queues, read at once; without those that do not exist.

    One round trip, whatever their number: some hundred at most belong into one transaction.
    Snapshot reads: no conflicts. A queue that cannot be read is among them, and hides no other.
    Raises ``InvalidName``.
    """
    keys = {name: RootKeys(root).queue(check_name(name)) for name in names}

    def look(tr: fdb.Transaction) -> dict[str, Surveyed]:
        looks = [
            (name, tr.snapshot.get(queue.meta), counters.look(tr, queue))
            for name, queue in keys.items()
        ]
        found = {}
        for name, meta, counts in looks:
            value = meta.value
            if value is not None:
                options, unreadable = QueueOptions(), None
                try:
                    options = catalogue.parsed(value, name)
                except (CorruptData, FormatTooNew) as error:
                    unreadable = str(error)
                levels = counters.parse(keys[name], counts)
                found[name] = Surveyed(options, levels, unreadable)
        return found

    return composed(tr, RootKeys(root).once, look, lambda _: False)
