"""An overview of many queues in one read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

from msgspec import Struct

from ..consumers import registry, sessions
from ..consumers.consumer_states import ConsumerState
from ..consumers.watching import ArmedWatch
from ..errors import CorruptData, InvalidArgument
from ..messages.delivery import age
from ..schema import catalogue, counters, once
from ..schema.catalogue import Pause
from ..schema.consumers import Session, WaitingCalls
from ..schema.keys import DEFAULT_ROOT, QueueKeys, RootKeys
from ..store import world
from ..store.binding import fdb
from ..store.clocks import Clock
from ..values import durations
from ..values.durations import Seconds
from ..values.model import Depth
from ..values.options import QueueOptions, check_name
from .queue_base import Transactor, composed

NAMES = 10_000
"""How many names of queues one transaction reads."""
BATCH = 1_000
"""How many queues one transaction reads."""
PREPARED = 2_000
"""Of how many queues keys and options stay prepared: making them takes longer than reading."""

NON_ACQUIRING = ConsumerState.NON_ACQUIRING

Found: TypeAlias = "dict[str, Surveyed]"
Watches: TypeAlias = dict[str, list[ArmedWatch]]


class Surveyed(Struct, frozen=True):
    """A queue in a ``survey``: its options, and the depth of its levels.

    unreadable: why the queue cannot be used, for instance because it has another format;
        its options are then the defaults. None if it can.
    pause: since when it is paused, and by whom.
    """

    options: QueueOptions
    levels: dict[int, Depth]
    unreadable: str | None = None
    pause: Pause | None = None

    @property
    def depth(self) -> Depth:
        """How many messages are in which state."""
        return Depth.total(self.levels.values())


def list_queues(
    tr: Transactor, *, root: fdb.Subspace = DEFAULT_ROOT, timeout: Seconds | None = None
) -> list[str]:
    """The names of all queues below ``root``, sorted. Snapshot reads: no conflicts.

    timeout: how long it may take, in seconds, with a database; None for no limit.

    With a database it spans transactions of 10,000 names each. Raises ``OperationTimedOut``,
    ``InvalidArgument``.
    """
    limit = durations.limit("timeout", timeout)
    started = world.monotonic()
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
            keys = RootKeys(root, max(0.0, limit - (world.monotonic() - started)))


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
    Raises ``InvalidArgument``, ``OperationTimedOut``.
    """
    root_keys = RootKeys(root, durations.limit("timeout", timeout))
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidArgument(argument="names", value=names, problem="give a list of names")
    keys = {name: _keys(root.key(), check_name(name, "names")) for name in names}
    return composed(tr, root_keys.once, _survey, keys, wrote=lambda _: False)


def surveyed(
    db: fdb.Database,
    names: Sequence[str],
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> Iterator[tuple[str, Surveyed]]:
    """``survey`` any number of queues, a thousand in each transaction."""
    for start in range(0, len(names), BATCH):
        yield from survey(db, names[start : start + BATCH], root=root, timeout=timeout).items()


def watch(
    db: fdb.Database,
    names: Iterable[str],
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> tuple[Found, Watches]:
    """``survey`` queues, and watch each: its watches fire when its messages have moved since.

    Two watches for a queue with messages in one level, and one more for each further level. They do
    not see the first message of a level that comes delayed, nor new options. Cancel them.
    """
    root_keys = RootKeys(root, durations.limit("timeout", timeout))
    keys = {name: _keys(root.key(), check_name(name)) for name in names}

    def read(tr: fdb.Transaction) -> tuple[Found, Watches]:
        found = _survey(tr, keys)
        # At the version of the survey: what moves right after it fires the watch, and is not lost
        # between two looks.
        watched = {
            name: [keys[name].change, *map(keys[name].count, seen.levels)]
            for name, seen in found.items()
        }
        return found, {name: [*map(tr.watch, watched[name])] for name in found}

    return composed(db, root_keys.once, read, wrote=lambda _: False)


def ready_since_ms(
    tr: Transactor,
    found: Iterable[tuple[str, Surveyed]],
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> dict[str, int]:
    """``Queue.admin.ready_since_ms`` of several queues at once, as a survey has just found them.

    One round trip; pass at most some hundred. Leaves out those where nothing is ready. Snapshot
    reads: no conflicts.
    """
    root_keys = RootKeys(root, durations.limit("timeout", timeout))
    wanted = [
        (
            name,
            _keys(root.key(), name),
            [level for level, depth in seen.levels.items() if depth.ready],
        )
        for name, seen in found
        if seen.unreadable is None
    ]

    def read(tr: fdb.Transaction) -> dict[str, int]:
        reads = [(name, keys, age.reads(tr, keys, levels)) for name, keys, levels in wanted]
        oldest = {name: age.oldest_ms(keys, firsts) for name, keys, firsts in reads}
        return {name: at_ms for name, at_ms in oldest.items() if at_ms is not None}

    return composed(tr, root_keys.once, read, wrote=lambda _: False)


def workers(
    tr: Transactor,
    names: Iterable[str],
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> dict[str, int]:
    """How many consumers of several queues take messages: workers, and those that wait for one.

    One round trip; pass at most some hundred names. Snapshot reads: no conflicts.
    """
    root_keys = RootKeys(root, durations.limit("timeout", timeout))
    wanted = [(name, _keys(root.key(), name)) for name in names]

    def read(tr: fdb.Transaction) -> dict[str, int]:
        reads = [(name, keys, registry.list_reads(tr, keys)) for name, keys in wanted]
        at = sessions.now(tr, Clock())
        found = {name: registry.counted(keys, each, at) for name, keys, each in reads}
        return {name: each.total() - each[NON_ACQUIRING] for name, each in found.items()}

    return composed(tr, root_keys.once, read, wrote=lambda _: False)


def processes(
    tr: Transactor, *, root: fdb.Subspace = DEFAULT_ROOT, timeout: Seconds | None = None
) -> list[Session]:
    """The processes that have workers or other consumers, or wait for room, by host and number;
    also dead ones that nobody has removed. A snapshot read."""
    keys = RootKeys(root, durations.limit("timeout", timeout))
    found = composed(tr, keys.once, sessions.listed, keys, wrote=lambda _: False)
    return sorted((each for _, each in found), key=lambda each: (each.host, each.process))


def producing(
    processes: Iterable[Session], queue: str, now_ms: int
) -> Iterator[tuple[str, WaitingCalls]]:
    """The living ones whose producers wait for room in a queue: host and number, and how many calls
    wait, since when."""
    for each in processes:
        waits, lives = each.waits, now_ms - each.wall_ms <= 1000 * sessions.DEAD_SECONDS
        if waits is not None and waits.queue == queue and lives:
            yield f"{each.host}:{each.process}", waits


def natural(name: str) -> list[tuple[bool, int, str, str]]:
    """A sort key that orders numbers within names by value: mail-2 comes before mail-10."""
    key = []
    for part in re.findall(r"[0-9]+|[^0-9]+", name):
        is_number = part[0] in "0123456789"
        # Its digits tell the value of a number, however many there are.
        digits = part.lstrip("0") if is_number else ""
        key.append((not is_number, len(digits), digits, part))
    return key


@lru_cache(PREPARED)
def _keys(root: bytes, name: str) -> QueueKeys:
    """The keys of a queue, for reads in transactions of others."""
    return _root(root).queue(name)


@lru_cache(1)
def _root(root: bytes) -> RootKeys:
    return RootKeys(fdb.Subspace(rawPrefix=root))


_parsed = lru_cache(PREPARED)(catalogue.parsed)


def _survey(tr: fdb.Transaction, keys: dict[str, QueueKeys]) -> Found:
    reads = [
        (name, tr.snapshot.get(queue.meta), counters.reads(tr, queue))
        for name, queue in keys.items()
    ]
    found = {}
    for name, meta, counts in reads:
        value = meta.value
        if value is not None:
            try:
                stored, options = _parsed(value, name)
                pause, unreadable = stored.pause, None
            except CorruptData as error:
                # One queue of another format must not hide all others.
                options, pause, unreadable = QueueOptions(), None, str(error)
            found[name] = Surveyed(options, counters.parse(keys[name], counts), unreadable, pause)
    return found
