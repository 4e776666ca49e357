"""Requests of processes that wait for the commit lock, where its holder finds them.

A process that finds the lock taken posts its group in a box of its own, in the shared memory of the
sidecar, and waits for the lock as before. The holder commits what it finds posted with its own
group, in one SQLite transaction with one fsync, and answers. So a process that gets the lock has
usually nothing left to do. Each word of a box has one writer: its owner posts, and the holder of
the commit lock writes the rest.

No outcome is ever lost or doubled when a process dies. Before the holder lets SQLite commit, it
notes the version and every outcome in the boxes. If it dies then, the next holder finds a post
that was taken and not answered, and looks for that version in the log of commits: if it is there,
what is noted is the answer; if not, nothing was committed. The box of a process that died is
known by its lock on the box, which the system drops. What the dead one had posted is discarded.

Those that wait sleep until the holder has answered them all: a *round*. The holder locks a byte of
the sidecar meanwhile, and they ask for a shared lock of it. Rounds take turns with two bytes, so
that none waits for those that the last one has woken.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from ..codes import Fault
from ..transactions.commit_requests import CommitRequest
from ..transactions.ranges import KeySet
from .conflicts import decode
from .versions import BOX_BYTES, BOXES, FIRST_BOX, MOST_BOXES, ROUND, Shared

# The words of a box: the newest post and answer, by number; the newest post that a holder has
# taken, and the version that it was to get; the length and checksum of what is posted; outcomes.
_POSTED, _ANSWERED, _TAKEN, _VERSION, _LENGTH, _CHECKSUM, _OUTCOMES = range(7)
_MOST_REQUESTS = 32
_DATA = 8 * (_OUTCOMES + _MOST_REQUESTS)
_ORDER_BITS = 16
# struct flock of 64-bit Linux. Its locks on open files, unlike those of POSIX, are kept when the
# process closes another descriptor of the file.
_FLOCK = struct.Struct("hhqqi4x")
AVAILABLE = sys.platform == "linux" and struct.calcsize("P") == 8


class Post(NamedTuple):
    """What the holder of the lock has taken out of a box."""

    box: int
    number: int
    requests: list[CommitRequest]


class Mailbox:
    """The boxes of one store, of which this process owns at most one."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._own: int | None = None

    def _claim(self) -> int | None:
        """The box of this process, or None if there is none left."""
        if self._own is None and AVAILABLE and self._shared.has_boxes:
            for box in range(MOST_BOXES):
                try:
                    self._lock_of(box, fcntl.F_OFD_SETLK)
                except OSError:
                    continue
                words, at = self._shared.words, _words_of(box)
                # What a dead owner had posted is nobody's.
                words[at + _ANSWERED] = words[at + _POSTED]
                self._own = box
                break
        return self._own

    def _lock_of(self, box: int, command: int) -> int:
        """Take the lock that an owner holds on its box, or ask whether it could be taken."""
        return self._lock(fcntl.F_WRLCK, _bytes_of(box), command)

    def _lock(self, kind: int, byte: int, command: int) -> int:
        request = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        found = fcntl.fcntl(self._shared.descriptor, command, request)
        return int(_FLOCK.unpack(found)[0])

    def begin_round(self) -> int:
        """Let others sleep until `end_round`; only under the lock. Returns the round's number, or 0
        if there can be none."""
        words = self._shared.words
        number = words[ROUND] + 1
        try:
            self._lock(fcntl.F_WRLCK, number % 2, fcntl.F_OFD_SETLK)
        except OSError:
            # One that the last round but one has woken has not yet come to itself.
            return 0
        words[ROUND] = number
        return number

    def end_round(self, number: int) -> None:
        """Wake those that have slept during a round."""
        # A store that has been closed meanwhile has no lock left.
        with contextlib.suppress(OSError):
            self._lock(fcntl.F_UNLCK, number % 2, fcntl.F_OFD_SETLK)

    def wait_for_rounds(self, pause: float) -> Callable[[], None]:
        """A function that waits for the end of a round, for each only once; else so many seconds.

        The lock may be held without a round, and a round be over.
        """
        seen = 0

        def wait() -> None:
            nonlocal seen
            number = self._shared.words[ROUND]
            if number == seen:
                time.sleep(pause)
                return
            seen = number
            try:
                self._lock(fcntl.F_RDLCK, number % 2, fcntl.F_OFD_SETLKW)
                self._lock(fcntl.F_UNLCK, number % 2, fcntl.F_OFD_SETLK)
            except OSError:
                # The store has been closed, or the system is out of locks.
                time.sleep(pause)

        return wait

    def post(self, group: Sequence[CommitRequest]) -> bool:
        """Post a group before waiting for the lock; returns whether it could be posted."""
        if len(group) > _MOST_REQUESTS or self._shared.closed:
            return False
        for request in group:
            if not request.plain or request.report or request.deadline:
                return False
        data = msgpack.packb([_fields(request) for request in group])
        box = self._claim() if len(data) <= BOX_BYTES - _DATA else None
        if box is None:
            return False
        words, at = self._shared.words, _words_of(box)
        begin = _bytes_of(box) + _DATA
        self._shared.map[begin : begin + len(data)] = data
        number = words[at + _POSTED] + 1
        words[at + _LENGTH] = len(data)
        words[at + _CHECKSUM] = crc32(data, number)
        words[at + _POSTED] = number
        if words[BOXES] <= box:
            words[BOXES] = box + 1
        return True

    def is_used(self) -> bool:
        """Whether another process may have a box."""
        return self._shared.words[BOXES] > (self._own == 0) and self._shared.has_boxes

    def waiting(self) -> int:
        """How many other processes wait with a post."""
        words = self._shared.words
        starts = (_words_of(box) for box in range(words[BOXES]) if box != self._own)
        return sum(words[at + _POSTED] != words[at + _ANSWERED] for at in starts)

    def collect(self, oldest: int, was_made: Callable[[int], bool]) -> list[Post]:
        """What other processes have posted; only under the lock.

        oldest: the version that a transaction must have read at, or after, to be judged here.
        was_made: whether the commit of a version was made.
        """
        posts: list[Post] = []
        words = self._shared.words
        for box in range(words[BOXES]):
            at = _words_of(box)
            number = words[at + _POSTED]
            if number == words[at + _ANSWERED] or box == self._own:
                continue
            owned = self._lock_of(box, fcntl.F_OFD_GETLK) != fcntl.F_UNLCK
            if not owned or self._was_taken(box, number, was_made):
                words[at + _ANSWERED] = number
                continue
            # What a holder noted that died before its commit; another commit may get its version.
            words[at + _TAKEN] = 0
            begin = _bytes_of(box) + _DATA
            data = self._shared.map[begin : begin + words[at + _LENGTH]]
            # A process that was interrupted may be posting something else, as the next number.
            if crc32(data, number) == words[at + _CHECKSUM]:
                requests = [_request(fields) for fields in msgpack.unpackb(data, use_list=False)]
                if all(oldest <= (request.read_version or oldest) for request in requests):
                    posts.append(Post(box, number, requests))
        return posts

    def note(self, posts: Sequence[Post], version: int) -> None:
        """Note the outcomes of posts that a commit is about to make; only under the lock."""
        words = self._shared.words
        for box, number, requests in posts:
            at = _words_of(box)
            words[at + _VERSION] = version
            for index, request in enumerate(requests, at + _OUTCOMES):
                code = request.error.code if isinstance(request.error, Fault) else 0
                words[index] = code << _ORDER_BITS | request.order
            words[at + _TAKEN] = number

    def answer(self, posts: Sequence[Post], done: bool) -> None:
        """Tell that what was noted is so, or is not; only under the lock."""
        for box, number, _ in posts:
            if done:
                self._shared.words[_words_of(box) + _ANSWERED] = number
            else:
                self._shared.words[_words_of(box) + _TAKEN] = 0

    def is_answered(self) -> bool:
        """Whether the own post is answered, which stays so."""
        assert self._own is not None
        words, at = self._shared.words, _words_of(self._own)
        return words[at + _ANSWERED] == words[at + _POSTED]

    def take_answer(self, group: Sequence[CommitRequest], was_made: Callable[[int], bool]) -> bool:
        """Give the requests of the own post their outcomes; under the lock, or once answered.

        Returns whether they have been committed or refused. If not, the post is withdrawn.
        """
        assert self._own is not None
        words, at = self._shared.words, _words_of(self._own)
        number = words[at + _POSTED]
        known = words[at + _ANSWERED] == number or self._was_taken(self._own, number, was_made)
        words[at + _ANSWERED] = number
        if known:
            for index, request in enumerate(group, at + _OUTCOMES):
                code, request.order = divmod(words[index], 1 << _ORDER_BITS)
                if code:
                    request.error = Fault(code)
                else:
                    request.version = words[at + _VERSION]
        return known

    def _was_taken(self, box: int, number: int, was_made: Callable[[int], bool]) -> bool:
        """Whether a holder of the lock has committed a post, and died before it answered."""
        words, at = self._shared.words, _words_of(box)
        return words[at + _TAKEN] == number and was_made(words[at + _VERSION])


def _bytes_of(box: int) -> int:
    """Where a box begins in the shared memory."""
    return FIRST_BOX + box * BOX_BYTES


def _words_of(box: int) -> int:
    """The index of the first word of a box."""
    return (FIRST_BOX + box * BOX_BYTES) // 8


def _fields(request: CommitRequest) -> tuple[Any, ...]:
    return (
        request.read_version,
        list(request.reads.keys),
        list(request.reads.ranges),
        list(request.rows),
        request.clears,
        list(request.slots),
        request.sampled,
        request.record,
        request.size,
    )


def _request(fields: tuple[Any, ...]) -> CommitRequest:
    read_version, keys, ranges, rows, clears, slots, sampled, record, size = fields
    reads = KeySet()
    reads.keys.update(keys)
    for begin, end in ranges:
        reads.add_range(begin, end)
    request = CommitRequest(read_version, reads, decode(record), (), size)
    request.rows, request.clears, request.slots = rows, clears, slots
    request.sampled, request.record = sampled, record
    request.plain = True
    return request
