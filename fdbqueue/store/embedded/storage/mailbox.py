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
known by its lock on the box, which the system drops. What the dead one had posted is wiped.

Those that wait sleep until the holder has answered them, and the holder, while it waits for those
that took part last time, until the last of them has posted: both on numbers in the sidecar.

A post says how durable its commit must be, and a holder takes none that asks for more than its own
commits are. What the memory holds is checked before it is used: a post that makes no sense is left
to its own process. An owner wipes what it has posted when it knows the outcome.
"""

from __future__ import annotations

import fcntl
import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from ... import world
from ..codes import Fault
from ..transactions.commit_requests import CommitRequest
from ..transactions.ranges import KeySet
from .conflicts import decode
from .futex import Futex
from .versions import BOX_BYTES, BOXES, EXPECTED, FIRST_BOX, MOST_BOXES, POSTS, ROUND, Sidecar

# The words of a box: the newest post and answer, by number; the newest post that a holder has
# taken; a checksum of the answer; the length and checksum of what is posted; the version that the
# holder's commit was to get, or _WITHDRAWN; outcomes.
_POSTED, _ANSWERED, _TAKEN, _SUM, _LENGTH, _CHECKSUM, _VERSION, _OUTCOMES = range(8)
_WITHDRAWN = -1
_POSTS = 1 << 62
"""From which number posts are counted anew, whatever the memory says."""
_MOST_REQUESTS = 32
_DATA = 8 * (_OUTCOMES + _MOST_REQUESTS)
_ORDER_BITS = 16
_PAUSE_SECONDS, _POLL_SECONDS = 0.001, 0.0001
# struct flock of 64-bit Linux. Its locks on open files, unlike those of POSIX, are kept when the
# process closes another descriptor of the file.
_FLOCK = struct.Struct("hhqqi4x")
# A poster writes its data before its number, and a holder its answer before its own. The other side
# reads without a lock, and may see them in another order where the processor keeps none, as Arm
# does. So a checksum goes with the data, and with the answer, that covers the number, too: until it
# fits, there is no post, or no answer. An aligned word of eight bytes is never half written. What
# is read and written under the lock needs nothing more: the system's own locks keep the order.
_MACHINES = ("x86_64", "aarch64")
AVAILABLE = sys.platform == "linux" and platform.machine() in _MACHINES and sys.maxsize > 1 << 32


class Post(NamedTuple):
    """What the holder of the lock has taken out of a box."""

    box: int
    number: int
    requests: list[CommitRequest]


class Mailbox:
    """The boxes of one store, of which this process owns at most one.

    Args:
        durable: whether the commits of this process survive a crash of the machine.

    Attributes:
        before: the number of the last post before the group that is committed now, or None if it
            was not to be posted.
    """

    def __init__(self, shared: Sidecar, durable: bool) -> None:
        self._shared = shared
        self._durable = durable
        self._own: int | None = None
        self.before: int | None = None

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
                self._wipe(box)
                self._own = box
                break
        return self._own

    def _lock_of(self, box: int, command: int) -> int:
        """Take the lock that an owner holds on its box, or ask whether it could be taken."""
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _bytes_of(box), 1, 0)
        found = fcntl.fcntl(self._shared.descriptor, command, request)
        return int(_FLOCK.unpack(found)[0])

    def wake(self) -> None:
        """Wake the processes that wait: they are answered, or the lock is free."""
        self._shared.words[ROUND] = world.monotonic_ns()
        rounds = self._shared.rounds  # None from the moment that another thread closes the store.
        if rounds is not None:
            rounds.wake()

    def sleeper(self) -> Callable[[], None]:
        """A function that sleeps until the next ``wake``, if there was none since the last call.

        Not for long: who held the lock may have died.
        """
        shared = self._shared
        seen = shared.words[ROUND]

        def sleep() -> None:
            nonlocal seen
            _sleep_on(shared.rounds, seen, _PAUSE_SECONDS)
            seen = shared.words[ROUND]

        return sleep

    def gather(self, others: int, seconds: float) -> None:
        """Wait until so many other processes have posted, for so many seconds at most; only under
        the lock."""
        words, posts = self._shared.words, self._shared.posts
        deadline = world.monotonic() + seconds
        words[EXPECTED] = others
        while True:
            seen, left = words[POSTS], deadline - world.monotonic()
            if self.waiting() >= others or left <= 0:
                break
            _sleep_on(posts, seen, left)
        words[EXPECTED] = 0

    def post(self, group: Sequence[CommitRequest]) -> bool:
        """Post a group before waiting for the lock; returns whether it could be posted."""
        if len(group) > _MOST_REQUESTS or self._shared.closed:
            return False
        for request in group:
            # These need their own process while they commit: to be withdrawn, to report conflicts,
            # or to go first.
            if not request.plain or request.report or request.deadline or request.its_turn:
                return False
        data = _encode((self._durable, [_fields(request) for request in group]))
        box = self._claim() if len(data) <= BOX_BYTES - _DATA else None
        if box is None:
            return False
        words, at = self._shared.words, _words_of(box)
        begin = _bytes_of(box) + _DATA
        self._shared.map[begin : begin + len(data)] = data
        self.before = words[at + _POSTED]
        number = self.before % _POSTS + 1
        words[at + _LENGTH] = len(data)
        words[at + _CHECKSUM] = crc32(data, number)
        # Last of all: from here on a holder may take it.
        words[at + _POSTED] = number
        if words[BOXES] <= box:
            words[BOXES] = box + 1
        words[POSTS] = world.monotonic_ns()
        expected, posts = words[EXPECTED], self._shared.posts
        # Only the last one that is waited for wakes the holder: each wake-up is a system call.
        if expected and posts is not None and self.waiting() + 1 >= expected:
            posts.wake()
        return True

    def is_posted(self) -> bool:
        """Whether the group that is committed now is posted."""
        if self.before is None or self._own is None:
            return False
        return self._shared.words[_words_of(self._own) + _POSTED] != self.before

    def is_used(self) -> bool:
        """Whether another process may have a box."""
        return self._shared.words[BOXES] > (self._own == 0) and self._shared.has_boxes

    def waiting(self) -> int:
        """How many other processes wait with a post."""
        words = self._shared.words
        starts = (_words_of(box) for box in self._used() if box != self._own)
        return sum(words[at + _POSTED] != words[at + _ANSWERED] for at in starts)

    def collect(self, oldest: int, was_made: Callable[[int], bool]) -> list[Post]:
        """What other processes have posted; only under the lock.

        oldest: the version that a transaction must have read at, or after, to be judged here.
        was_made: whether the commit of a version was made.
        """
        posts: list[Post] = []
        words = self._shared.words
        for box in self._used():
            at = _words_of(box)
            number = words[at + _POSTED]
            if number == words[at + _ANSWERED] or box == self._own:
                continue
            # The owner may have died after it posted: nobody waits for the outcome, and it may
            # never have been meant to commit.
            owned = self._lock_of(box, fcntl.F_OFD_GETLK) != fcntl.F_UNLCK
            if not owned:
                self._wipe(box)
            if not owned or self._was_taken(box, number, was_made):
                words[at + _ANSWERED] = number
                continue
            # What a holder noted that died before its commit; another commit may get its version.
            words[at + _TAKEN] = 0
            requests = self._read(box, number)
            # The holder's log of conflicts does not reach back further: what is older must be
            # judged by its own process.
            if requests and all(oldest <= (one.read_version or oldest) for one in requests):
                posts.append(Post(box, number, requests))
        return posts

    def _read(self, box: int, number: int) -> list[CommitRequest]:
        """The requests of a post; none if they are not to be committed here."""
        words, at, begin = self._shared.words, _words_of(box), _bytes_of(box) + _DATA
        length = words[at + _LENGTH]
        if not 0 < length <= BOX_BYTES - _DATA:
            return []
        data = self._shared.map[begin : begin + length]
        try:
            # A process that was interrupted may be posting something else, as the next number.
            if crc32(data, number) != words[at + _CHECKSUM]:
                return []
            durable, posted = _decode(data)
            if (durable and not self._durable) or len(posted) > _MOST_REQUESTS:
                return []
            return [_request(fields) for fields in posted]
        except (msgspec.MsgspecError, ValueError, struct.error):
            # No process writes such a thing.
            return []

    def _used(self) -> range:
        """The boxes that may be in use."""
        return range(min(self._shared.words[BOXES], MOST_BOXES))

    def _wipe(self, box: int) -> None:
        """Leave nothing of what was posted."""
        begin = _bytes_of(box) + _DATA
        length = self._shared.words[_words_of(box) + _LENGTH]
        # The memory is shared with processes that may be damaged: no length in it is trusted.
        length = min(max(length, 0), BOX_BYTES - _DATA)
        self._shared.map[begin : begin + length] = bytes(length)

    def note(self, posts: Sequence[Post], version: int) -> None:
        """Note the outcomes of posts that a commit is about to make; only under the lock."""
        words = self._shared.words
        for box, number, requests in posts:
            at = _words_of(box)
            words[at + _VERSION] = version
            for index, request in enumerate(requests, at + _OUTCOMES):
                code = request.error.code if isinstance(request.error, Fault) else 0
                words[index] = code << _ORDER_BITS | request.order
            words[at + _SUM] = self._sum_of(box, number, len(requests))
            # After the outcomes and their checksum: if the holder dies here, the next one knows
            # that these were to be the answer.
            words[at + _TAKEN] = number

    def answer(self, posts: Sequence[Post], done: bool) -> None:
        """Tell that what was noted is so, or is not; only under the lock."""
        for box, number, _ in posts:
            if done:
                self._shared.words[_words_of(box) + _ANSWERED] = number
            else:
                self._shared.words[_words_of(box) + _TAKEN] = 0

    def is_answered(self, requests: int) -> bool:
        """Whether the own post, of so many requests, is answered, which stays so."""
        assert self._own is not None
        words, at = self._shared.words, _words_of(self._own)
        number = words[at + _ANSWERED]
        if number != words[at + _POSTED]:
            return False
        return bool(words[at + _SUM] == self._sum_of(self._own, number, requests))

    def _sum_of(self, box: int, number: int, requests: int) -> int:
        """The checksum of an answer."""
        begin = _bytes_of(box) + 8 * _VERSION
        return crc32(self._shared.map[begin : begin + 8 * (1 + requests)], number & 0xFFFFFFFF)

    def take_answer(self, group: Sequence[CommitRequest], was_made: Callable[[int], bool]) -> bool:
        """Give the requests of the own post their outcomes; under the lock, or once answered.

        Returns whether they have been committed or refused. If not, the post is withdrawn. Whoever
        was interrupted in it calls it again.
        """
        assert self._own is not None
        words, at = self._shared.words, _words_of(self._own)
        number = words[at + _POSTED]
        if words[at + _ANSWERED] != number:
            if not self._was_taken(self._own, number, was_made):
                words[at + _VERSION] = _WITHDRAWN
            words[at + _ANSWERED] = number
        if self._shared.has_boxes:
            self._wipe(self._own)
        version = words[at + _VERSION]
        if version == _WITHDRAWN:
            return False
        for index, request in enumerate(group, at + _OUTCOMES):
            code, request.order = divmod(words[index], 1 << _ORDER_BITS)
            if code:
                request.error = Fault(code)
            else:
                request.version = version
        return True

    def _was_taken(self, box: int, number: int, was_made: Callable[[int], bool]) -> bool:
        """Whether a holder of the lock has committed a post, and died before it answered."""
        words, at = self._shared.words, _words_of(box)
        return words[at + _TAKEN] == number and was_made(words[at + _VERSION])


def _sleep_on(futex: Futex | None, value: int, seconds: float) -> None:
    """Sleep until a number is another, for so many seconds at most; less without a futex."""
    if futex is None:
        world.sleep(min(seconds, _POLL_SECONDS))
    else:
        futex.wait(value, seconds)


def _bytes_of(box: int) -> int:
    """Where a box begins in the shared memory."""
    return FIRST_BOX + box * BOX_BYTES


def _words_of(box: int) -> int:
    """The index of the first word of a box."""
    return (FIRST_BOX + box * BOX_BYTES) // 8


_Fields = tuple[
    int | None,
    Sequence[bytes],
    Sequence[tuple[bytes, bytes]],
    Sequence[tuple[bytes, bytes, int]],
    Sequence[tuple[int, bytes, bytes | None]],
    Sequence[tuple[bytes]],
    Sequence[int],
    Sequence[tuple[bytes, int | None]],
    bytes,
    int,
]
"""What the holder of the lock has to know of a request."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bool, list[_Fields]]).decode


def _fields(request: CommitRequest) -> _Fields:
    return (
        request.read_version,
        list(request.reads.keys),
        list(request.reads.ranges),
        request.rows,
        request.changes,
        request.clears,
        list(request.slots),
        request.sampled,
        request.record,
        request.size,
    )


def _request(fields: _Fields) -> CommitRequest:
    read_version, keys, ranges, rows, changes, clears, slots, sampled, record, size = fields
    reads = KeySet()
    reads.keys.update(keys)
    for begin, end in ranges:
        reads.add_range(begin, end)
    request = CommitRequest(read_version, reads, decode(record), (), size)
    request.rows, request.changes, request.clears = rows, changes, clears
    request.slots, request.sampled, request.record = slots, sampled, record
    request.plain = True
    return request
