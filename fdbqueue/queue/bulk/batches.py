"""Messages of several callers that share a transaction."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import (
    CorruptData,
    InvalidInput,
    QueueError,
    QueueFull,
    TransactionTooLarge,
    TransactionTooSlow,
)
from ...store.binding import FAILURES

S = TypeVar("S")

PARTIAL = (InvalidInput, QueueFull, TransactionTooLarge, TransactionTooSlow, CorruptData)
"""Errors that a part of a batch may have caused; nothing of it was written."""


def store(
    batch: Sequence[S],
    enqueue: Callable[[Sequence[S]], object],
    lose: Callable[[Sequence[S], Exception], object],
) -> None:
    """Enqueue a batch, in its order. What cannot be enqueued together is tried in halves.

    lose: is told which messages cannot be enqueued, and why.
    """
    try:
        enqueue(batch)
        return
    except (QueueError, *FAILURES) as error:
        # Any other error is of the store, not of a message: halves would fail in the same way, each
        # after its own timeout.
        if len(batch) == 1 or not isinstance(error, PARTIAL):
            lose(batch, error)
            return
    # One bad message costs logarithmically many transactions, and fails alone; the order stays.
    middle = len(batch) // 2
    store(batch[:middle], enqueue, lose)
    store(batch[middle:], enqueue, lose)


def own(error: BaseException) -> BaseException:
    """The error for one more of the callers: to raise an error adds to its traceback, whose frames
    hold messages."""
    mine = copy.copy(error) if isinstance(error, QueueError) else error
    return mine.with_traceback(None)
