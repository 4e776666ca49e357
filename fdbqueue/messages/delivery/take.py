"""Taking: all that ever leases ready messages, for one consumer or for all that stand in line.

Who wants them has read them, from the head or by a selector, with a conflict on each. What is taken
of a row stays one row, and is stored as it was. Bare messages are counted, and nothing else is done
for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...schema.consumers import Request
from ...schema.leases import holder_of, new_claim, pack_expiry, pack_until
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...store.client import pack_bytes, pack_int
from ...values.states import LEASE
from .. import payloads, run, transitions
from ..run import Claim, LeaseRow, ReadyPiece
from . import lease, queue_limits
from .batch import TakenTogether


class Grant(NamedTuple):
    """What a request is given, under its claim.

    in_line: whether its consumer waits in line, and is to find its leases by their claim: see
        ``lease.collect``. doubtful: whether it may have died since it asked.
    """

    claim: bytes
    request: Request
    pieces: Sequence[ReadyPiece]
    in_line: bool = False
    doubtful: bool = False


def take(
    tr: fdb.Transaction,
    scope: Scope,
    given: Sequence[Grant],
    all_until: bytes = b"",
) -> list[TakenTogether]:
    """Lease pieces of rows of READY to consumers; returns what each has.

    all_until: as in ``run.remove``. Writes blindly. One round trip if payloads are in chunks, but
    not for those in line, who collect them. Another if the queue has a rate, or messages leave the
    windows of their keys.
    """
    # Issued before anything is written; who waits in line reads its payloads itself as it collects
    # them, or the leader would carry all of them.
    packed = [None if one.in_line else _packed(tr, scope, one.pieces) for one in given]
    keeps_history = scope.options.history_seconds is not None
    numbers: dict[int, int] = {}
    sizes: dict[int, int] = {}
    pieces: list[ReadyPiece] = []
    others: list[StoredMessage] = []
    for one in given:
        pieces += one.pieces
        for piece in one.pieces:
            if keeps_history or not piece.plain:
                others += piece.messages(one.request.consumer)
                continue
            level, envelopes = piece.row.position.level, piece.envelopes
            numbers[level] = numbers.get(level, 0) + len(envelopes)
            sizes[level] = sizes.get(level, 0) + sum([each.size for each in envelopes])
    if pieces:
        queue_limits.count(tr, scope, len(others) + sum(numbers.values()))
        run.remove(tr, scope.keys, pieces, cut=True, all_until=all_until)
    transitions.record(tr, scope, LEASE, others, numbers, sizes)
    return [_hold(tr, scope, one, read) for one, read in zip(given, packed, strict=True)]


class _Packed(NamedTuple):
    """Messages that have their payloads compressed or elsewhere, by their numbers among those that
    are taken together, and the reads of their payloads."""

    messages: dict[int, StoredMessage]
    reads: list[fdb.FDBRange | None]

    def load(self) -> dict[int, bytes]:
        """Their payloads, as they were enqueued. Raises ``CorruptData``."""
        loaded = payloads.load([*self.messages.values()], self.reads)
        return dict(zip(self.messages, [each.opened.payload for each in loaded], strict=True))


def _packed(tr: fdb.Transaction, scope: Scope, pieces: Sequence[ReadyPiece]) -> _Packed | None:
    """Issue reads of payloads."""
    found: dict[int, StoredMessage] = {}
    begin = 0
    for piece in pieces:
        for n, envelope in enumerate(piece.envelopes, begin):
            if envelope.raw_size is not None:
                found[n] = StoredMessage(piece.row.at(piece.begin + n - begin), envelope)
        begin += len(piece.envelopes)
    return _Packed(found, payloads.reads(tr, scope.keys, [*found.values()])) if found else None


def _hold(tr: fdb.Transaction, scope: Scope, given: Grant, packed: _Packed | None) -> TakenTogether:
    """Write the leases of messages that were removed, in as many claims as it takes."""
    keys, begin, name = scope.keys, scope.keys.place_begin, given.claim
    request, pieces, seconds = given.request, given.pieces, lease.lasts(scope, given.request)
    if given.doubtful:
        # Its consumer may be dead: the message is back soon. A living one extends the lease as it
        # collects.
        seconds = min(seconds, lease.GRANT_SECONDS)
    until = lease.ending(tr, scope, seconds)
    version, wall_ms = until
    envelopes = [each for piece in pieces for each in piece.envelopes]
    left = len(envelopes)
    alone = left == 1 and not given.doubtful
    # Only a message that is handled alone may be blamed for the death of its consumer.
    begun = alone and (request.begins or envelopes[0].suspect)
    rows: list[LeaseRow] = []
    places: list[tuple[bytes, list[bytes]]] = []
    for some in [pieces] if 0 < left <= lease.MAX_TOGETHER else _claims(pieces):
        if places:
            # The places of a claim go into one value, so a large batch is several claims of one
            # holder.
            name = new_claim(holder_of(name))
        together = min(left, lease.MAX_TOGETHER)
        left -= together
        lasts_ms = int(seconds * 1000)
        claim = Claim(name, version, wall_ms, request.consumer, begun, together, lasts_ms)
        names: list[bytes] = []
        for piece in some:
            row = piece.run
            rows.append(run.grant(tr, keys, row, claim, piece.plain))
            names += [key[begin:] for key in row.keys]
        tr.set(
            keys.expiry.prefix + pack_int(version) + pack_bytes(name), pack_expiry(wall_ms, names)
        )
        if given.in_line:
            tr.set(keys.until(name), pack_until(dict.fromkeys(names, until)))
        places.append((name, names))
    return TakenTogether(rows, places, envelopes, packed.load() if packed else {}, wall_ms, begun)


def _claims(pieces: Sequence[ReadyPiece]) -> Iterator[list[ReadyPiece]]:
    """What is taken at once, in as many claims as it takes."""
    some: list[ReadyPiece] = []
    room = lease.MAX_TOGETHER
    for piece in pieces:
        rest = piece
        while len(rest) > room:
            some += [rest.part(0, room)] if room else []
            rest = rest.part(room, len(rest))
            yield some
            some, room = [], lease.MAX_TOGETHER
        some.append(rest)
        room -= len(rest)
    if some:
        yield some
