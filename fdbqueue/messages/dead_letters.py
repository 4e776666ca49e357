"""Dead letters: messages that are not delivered any more, kept for a person to inspect.

The queue keeps them itself, or sends them to another queue, as ordinary messages that remember how
they died. They stay here if that queue does not exist or does not take them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import QueueNotFound
from ..schema import catalogue, once
from ..schema.envelope import Envelope
from ..schema.records import DeadLetter, DeadRecord
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import DeadMessage, Death
from ..values.options import QueueOptions
from ..values.states import ENDINGS, REDRIVE, End, State
from . import lookup, payloads, place, transitions
from .delivery import failures, results, scan
from .delivery.scan import BATCH_BYTES
from .enqueue import append, last_values, level_order

_NUMBER_BYTES = 2
"""Of the number of a death among those of its transaction."""


@transactional
def add(
    tr: fdb.Transaction,
    scope: Scope,
    source: State,
    messages: Sequence[tuple[StoredMessage, str]],
) -> int:
    """Make dead letters of messages, already removed from their places, each with a reason; returns
    how many others became ready, which had waited for their slots.

    source: the state they were in. Dead letters are ordered by the read version at which they died.
    Writes blindly, except to another queue: then two round trips, which conflict with the deletion
    of that queue.
    """
    if not messages:
        return 0
    # Read with a conflict on the other queue's META: its deletion in the meantime would take these
    # letters along.
    other, let_out = _other(tr, scope), 0
    if other is not None:
        stays = [not _fits(other.options, message.envelope) for message, _ in messages]
        leaving = [each for each, here in zip(messages, stays, strict=True) if not here]
        messages = [each for each, here in zip(messages, stays, strict=True) if here]
        # What does not fit the other queue's options stays here; it must not keep the rest from
        # leaving.
        let_out = _forward(tr, scope, other, source, leaving)
    # Ordered by version, not by clock: later pages of a listing never miss a death of another
    # process whose clock is behind.
    version, now_ms, tried = scope.version(tr), scope.now_ms(tr), once.attempt(tr)
    for message, reason in messages:
        # Those that die together are redriven in their order. The random bytes tell apart deaths at
        # one version without reading which are there.
        number = tried.deaths.to_bytes(_NUMBER_BYTES)
        tried.deaths += 1
        record = DeadRecord(version, number + message.position.random)
        letter = DeadLetter(message.position, message.envelope.pack(), reason, now_ms)
        tr[lookup.key(scope.keys, record)] = letter.pack()
        lookup.point(tr, scope.keys, message, record)
        if message.turn is not None:  # It was never ready, so nothing keeps its index.
            place.leave(tr, scope.keys.levels[message.position.level], message.position.index)
    dead = [message for message, _ in messages]
    return let_out + transitions.record(tr, scope, ENDINGS[source, End.REJECT], dead)


@transactional
def read(
    tr: fdb.Transaction, scope: Scope, limit: int, after: str | None = None
) -> list[DeadMessage]:
    """Dead letters in the order of their deaths; stops at 8 MB, but never before the first one.

    Snapshot reads, no conflicts.
    """
    records = scope.keys.dead.rows
    begin = records.start
    if after is not None:
        found = lookup.find(tr.snapshot, scope, lookup.reads(tr.snapshot, scope.keys, after))
        if found is None or not isinstance(found.place, DeadRecord):
            return []
        begin = lookup.key(scope.keys, found.place) + b"\x00"
    rows: list[tuple[DeadLetter, StoredMessage]] = []
    room = BATCH_BYTES
    mode = scan.mode(limit)
    for kv in tr.snapshot.get_range(begin, records.stop, limit=limit, streaming_mode=mode):
        letter = DeadLetter.opened(kv.value, scope.lost(scope.keys.dead.parse(kv.key)[1]))
        message = StoredMessage(letter.position, letter.envelope)
        envelope = message.envelope
        room -= len(kv.value) + envelope.chunk_bytes + envelope.failures_size
        if room < 0 and rows:
            break
        rows.append((letter, message))
    stored = [message for _, message in rows]
    failed = failures.reads(tr, scope.keys, stored)
    loaded = payloads.load(stored, payloads.reads(tr, scope.keys, stored))
    return [
        DeadMessage(
            message.opened, letter.death(scope.name, message.id), failures.opened(has_failed)
        )
        for message, (letter, _), has_failed in zip(loaded, rows, failed, strict=True)
    ]


def newest_version(tr: fdb.Transaction, scope: Scope) -> int:
    """The version after which no dead letter has died: the transaction's, or a later one if the
    dead letters were copied from another cluster. A snapshot read."""
    records = scope.keys.dead.rows
    last = tr.snapshot.get_range(records.start, records.stop, limit=1, reverse=True)
    return max([scope.version(tr), *(scope.keys.dead.parse(kv.key)[0] for kv in last)])


@transactional
def redrive(
    tr: fdb.Transaction, scope: Scope, records: Sequence[tuple[DeadRecord, StoredMessage]]
) -> int:
    """Make dead letters ready again, behind all others of their level, with no attempts made.

    They keep their ids, and lose their times to live. A dead letter stays if another message has
    its unique key, or is a newer one of its last value, or if it cannot be read. Returns
    how many became ready. The caller has read them with a conflict. One round trip.
    """
    keys = scope.keys
    # Ready again, an unreadable one would die at the first receive.
    records = [each for each in records if each[1].envelope.readable]
    held = [
        tr.get(keys.unique(message.envelope.unique)) if message.envelope.unique else None
        for _, message in records
    ]
    values = [last_values.value(scope, message.envelope) for _, message in records]
    newest = [None if value is None else tr.get(keys.latest(value)) for value in values]
    ends = {
        level: place.reads(tr, keys, level)
        for level in {message.position.level for _, message in records}
    }
    taken: set[str] = set()
    entries = []
    for (record, message), holder, newer in zip(records, held, newest, strict=True):
        if newer is not None and newer.present():
            continue
        unique = message.envelope.unique
        if unique and holder is not None:
            # Two dead letters of one page may have the same key: the first one gets it.
            if holder.present() or unique in taken:
                continue
            taken.add(unique)
            # The key was read with a conflict: a producer that enqueues under it meanwhile fails,
            # or this redrive does.
            tr[keys.unique(unique)] = message.id.encode()
        del tr[lookup.key(keys, record)]
        results.forget(tr, scope, message)
        envelope = replace(
            message.envelope, id=message.id, attempts=0, deaths=0, expires_at_ms=None
        )
        entries.append((message.position.level, envelope))
    # At the end of the level: thousands of letters at their old places would all come before what
    # waits now.
    added = list(append.append(tr, scope, entries, REDRIVE, ends).messages())
    for message in added:
        lookup.point(tr, keys, message, message.place)
    last_values.replace_older(tr, scope, added)
    return len(entries)


def _other(tr: fdb.Transaction, scope: Scope) -> Scope | None:
    """The queue that dead letters go to; None if they stay."""
    name = scope.options.dead_letter_queue
    if name is None:
        return None
    try:
        return catalogue.other(tr, scope, name)
    except QueueNotFound:
        return None


def _fits(options: QueueOptions, envelope: Envelope) -> bool:
    """Whether a queue with these options takes a message, which it must be able to read."""
    if not envelope.readable or envelope.size > options.max_payload:
        return False
    return level_order.takes(options, envelope)


def _forward(
    tr: fdb.Transaction,
    scope: Scope,
    other: Scope,
    source: State,
    messages: Sequence[tuple[StoredMessage, str]],
) -> int:
    if not messages:
        return 0
    now_ms = scope.now_ms(tr)
    stored = [message for message, _ in messages]
    # Read before the end of the messages in this queue removes what is beside them.
    failed = failures.reads(tr, scope.keys, stored)
    loaded = payloads.load(stored, payloads.reads(tr, scope.keys, stored))
    along = failures.packed(failed)
    entries = []
    for message, (_, reason), rows in zip(loaded, messages, along, strict=True):
        envelope = payloads.plain(message)
        death = Death(reason, now_ms, envelope.attempts, scope.name, message.id)
        # As a dead letter it waits for no slot, and has no end.
        fresh = replace(
            # What belongs to this queue alone, such as its slots and names, does not go along.
            envelope.elsewhere(other.options),
            expires_at_ms=None,
            key=None,
            former_key=envelope.key or envelope.former_key,
            limits=None,
            former_limits=envelope.limits or envelope.former_limits,
            death=death,
            failures=len(rows),
        )
        arrived = payloads.store(tr, other, fresh)
        entries.append((other.level(arrived.priority), arrived))
    added = append.append(tr, other, entries)
    for message_id, rows in zip(added.ids, along, strict=True):
        failures.bring(tr, other.keys, message_id, rows)
    last_values.replace_older(tr, other, added.alone.values())
    count = transitions.record(tr, scope, ENDINGS[source, End.FORWARD], stored)
    results.keep_where(tr, scope, State.DEAD, stored, other.name, added.ids)
    return count
