"""An overview of many queues in one read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from ..errors import CorruptData, FormatTooNew
from ..schema import catalogue, counters, once
from ..schema.keys import DEFAULT_ROOT, RootKeys
from ..store.binding import fdb
from ..values import durations
from ..values.durations import Seconds
from ..values.model import Depth
from ..values.options import QueueOptions, check_name
from ..values.records import record
from .handle import Transactor, composed

NAMES = 10_000
"""How many names of queues one transaction reads."""


@record
class Surveyed:
    """A queue in a ``survey``: its options, and the depth of its levels.

    unreadable: why this release cannot use the queue, for instance because a newer one created it;
        its options are then the defaults. None if it can.
    """

    options: QueueOptions
    levels: dict[int, Depth]
    unreadable: str | None = None

    @property
    def depth(self) -> Depth:
        """How many messages are in which state."""
        return sum(self.levels.values(), Depth())


def list_queues(
    tr: Transactor, *, root: fdb.Subspace = DEFAULT_ROOT, timeout: Seconds | None = None
) -> list[str]:
    """The names of all queues below ``root``, sorted. Snapshot reads: no conflicts.

    timeout: how long it may take, in seconds, with a database; None for no limit.

    With a database it spans transactions of 10,000 names each. Raises ``OperationTimedOut``,
    ``InvalidArgument``.
    """
    limit = durations.limit("timeout", timeout)
    started = time.monotonic()
    keys = RootKeys(root, limit)
    if isinstance(tr, fdb.Transaction):
        return catalogue.names(tr, keys, None, 0)
    found: list[str] = []
    while True:
        read = partial(catalogue.names, root=keys, after=found[-1] if found else None, limit=NAMES)
        some = once.run(tr, keys.once, read, wrote=lambda _: False)
        found += some
        if len(some) < NAMES:
            return found
        if limit is not None:
            keys = RootKeys(root, max(0.0, limit - (time.monotonic() - started)))


def survey(
    tr: Transactor,
    names: Iterable[str],
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> dict[str, Surveyed]:
    """The options and depths of several queues, read at once; leaves out missing ones.

    timeout: how long it may take, in seconds, with a database; None for no limit.

    One round trip; pass at most some hundred names. Snapshot reads: no conflicts. An unreadable
    queue is listed like the others.
    Raises ``InvalidName``, ``InvalidArgument``, ``OperationTimedOut``.
    """
    root_keys = RootKeys(root, durations.limit("timeout", timeout))
    keys = {name: root_keys.queue(check_name(name)) for name in names}

    def read(tr: fdb.Transaction) -> dict[str, Surveyed]:
        reads = [
            (name, tr.snapshot.get(queue.meta), counters.reads(tr, queue))
            for name, queue in keys.items()
        ]
        found = {}
        for name, meta, counts in reads:
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

    return composed(tr, root_keys.once, read, wrote=lambda _: False)
