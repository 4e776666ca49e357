"""The order of a level: where a new message stands, and which messages may come in.

By arrival, a message takes the index behind all others of its level (``index_allocation``). With
the option ``sort``, all have one index, and the value of a header stands in their positions, before
the number of their arrival (``codec/sorting``). Everything else works with positions and the order
of keys, and needs not know which order it is.

A new message of a sorted level may come in where a cursor has passed. It is treated like one that
returns there: it takes back the cursors of the subscriptions that want it. So it needs no FENCE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...errors import InvalidArgument, InvalidInput
from ...schema import once
from ...schema.codec import sorting
from ...schema.codec.atomic import pack_index
from ...schema.codec.envelopes import Envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.limits import Gate
from ...values.model import Headers
from ...values.options import QueueOptions
from ..delivery import requeue
from . import index_allocation

MAX_VALUE_BYTES = 1_000
"""The longest value of which a queue keeps the last message, as a key has it."""


def check(options: QueueOptions, headers: Headers, gate: Gate | None) -> None:
    """Raise ``InvalidArgument`` if a queue cannot order such a message."""
    if gate is not None:
        of_key = isinstance(gate, str)
        raise InvalidArgument(
            argument="key" if of_key else "limits",
            value=gate,
            problem="a queue with sort or last_value takes no messages with a "
            + ("key" if of_key else "limit"),
        )
    most = ((options.sort, sorting.MAX_BYTES), (options.last_value, MAX_VALUE_BYTES))
    for header, limit in most:
        if header is not None and (size := sorting.length(headers.get(header))) > limit:
            raise InvalidArgument(
                argument="headers",
                value=header,
                problem=f"the queue goes by it, so its value may have {limit:,} bytes in a key, "
                f"not {size:,}",
            )


def takes(options: QueueOptions, envelope: Envelope) -> bool:
    """Whether ``check`` lets a message in, once it has lost its key and limits."""
    try:
        check(options, envelope.headers, None)
    except InvalidInput:
        return False
    return True


def assign(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    ends: Mapping[int, index_allocation.Reads] | None = None,
) -> list[StoredMessage]:
    """Give messages, as (level, envelope), new positions in the order of their level; writes none
    of them. As ``index_allocation.assign``.

    In a sorted level, a move of a cursor in flight fails that reads such a message's gap, or whose
    subscription wants it; enqueues conflict with nothing else.
    """
    header = scope.options.sort
    if header is None:
        return index_allocation.assign(tr, scope, entries, ends)
    counts = Counter(level for level, _ in entries)
    ends = ends or {level: index_allocation.reads(tr, scope.keys, level) for level in counts}
    arrivals = {
        level: iter(_arrive(tr, scope.keys, level, count, ends[level]))
        for level, count in counts.items()
    }
    placed = [
        StoredMessage(
            sorting.position(level, envelope.headers.get(header), next(arrivals[level])), envelope
        )
        for level, envelope in entries
    ]
    requeue.take_cursors_back(tr, scope, placed)
    return placed


def _arrive(
    tr: fdb.Transaction, keys: QueueKeys, level: int, count: int, end: index_allocation.Reads
) -> range:
    """The numbers of the next arrivals of a sorted level: TAIL has the last of them."""
    tail = keys.tail(level)
    begin = index_allocation.behind(end.tail)
    once.attempt(tr).give(tr, keys, tail, begin, begin + count)
    tr.max(tail, pack_index(begin + count - 1))
    return range(begin, begin + count)


def end(scope: Scope, level: int, reads: index_allocation.Reads) -> bytes:
    """Where the READY keys of a level end now: later messages come behind, unless it is sorted."""
    keys = scope.keys
    if scope.options.sort is None:
        following = index_allocation.next_index(keys.levels[level], *reads)
        return keys.ready_end(level, following)
    return max(bytes(keys.ready_level(level).start), bytes(reads.last.value) + b"\x00")
