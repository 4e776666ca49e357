"""The request to commit a transaction, and its outcome."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .ranges import KeySet

Mutation = tuple[int, bytes, bytes | None]
"""Type, key, and operand; for CLEAR_RANGE the end of the range, or None for the one key."""


class CommitRequest:
    """One transaction's part of a commit.

    Args:
        read_version: what it read at, or None if it read nothing.
        size: roughly how many bytes it writes.
        report: whether to find out which ranges conflict.

    Attributes:
        deadline: when to give up waiting for the commit lock, by the monotonic clock; 0 for never.
        turn: held until the request is done, or it is its thread's turn to lead.
        leads: whether its thread is to commit the next group.
        begun: whether its group holds the lock; kept only if there is a deadline.
        withdrawn: whether its thread gave up waiting before that.
    """

    # The outcome; class attributes, because most requests change few of them.
    conflicting: Sequence[KeySet] = ()
    version = -1
    order = 0
    error: BaseException | None = None
    done = False
    deadline = 0.0
    turn: threading.Lock | None = None
    leads = False
    begun = False
    withdrawn = False

    def __init__(
        self,
        read_version: int | None,
        reads: KeySet,
        writes: KeySet,
        mutations: Sequence[Mutation],
        size: int,
        report: bool = False,
    ) -> None:
        self.read_version = read_version
        self.reads = reads
        self.writes = writes
        self.mutations = mutations
        self.size = size
        self.report = report
