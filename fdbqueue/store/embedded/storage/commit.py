"""Commits: one SQLite transaction for all waiting threads.

A thread that finds no commit in progress becomes the leader. It commits all waiting requests in one
SQLite transaction with one fsync, as the proxies of a cluster batch; later requests form the next
group. A request that conflicts is left out of its group, and a
failure of SQLite in a group is retried request by request, so that it hits only its cause.

A request with a deadline may be withdrawn until its group has the commit lock, which another
process can hold for long. So its thread never waits for that lock itself: if it leads and the lock
is not free, another thread waits in its place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from ... import world
from ..codes import COMMIT_UNKNOWN, TIMED_OUT, Fault
from ..errors import StoreMisplaced
from ..transactions.commit_requests import CommitRequest, Turn
from .file import StoreFile, store_error
from .mailbox import Mailbox, Post
from .snapshots import Snapshots
from .versions import GATHERED, Clock
from .writer import Writer

_GATHER_SHARE = 0.5
_GATHER_SECONDS = 0.001
"""How long others are waited for at most: a part of a commit's time, or so long if that is more."""
_LEAST_SHARE = 1 / 32
_GATHER_STEP = 0.00005
_LOOK_SECONDS = 0.005
QUICK_SECONDS = 0.0005
"""How long commits may take that a caller makes who does not wait."""
QUICK_COMMITS = 8
"""How many commits must have been as quick before that."""


class Committer:
    """Commits requests to one store, one group at a time.

    Args:
        made: called after each group, outside of all locks, with the commits that were made.
    """

    def __init__(
        self,
        file: StoreFile,
        clock: Clock,
        snapshots: Snapshots,
        made: Callable[[list[CommitRequest]], None],
    ) -> None:
        self._file = file
        self._made = made
        self._snapshots = snapshots
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        self._writer = Writer(self._file, self._clock, self._snapshots)
        self._mailbox = Mailbox(self._file.shared, durable=self._file.synchronous == "full")
        self._mutex = world.Lock()
        self._waiting: list[CommitRequest] = []
        self._leading = False
        # How many threads took part in the last group or waited behind it.
        self._expected = 1
        # For how many seconds the next commit waits for those of other processes.
        self._patience = _GATHER_SECONDS / 2
        # When the file was last seen in its place.
        self._looked = 0.0
        # How many commits of this process have been quick since the last one that was not.
        self._quick = 0

    def commit(self, request: CommitRequest) -> None:
        """Commit a request; returns when it is done, with its outcome in the request."""
        turn = None
        with self._mutex:
            if self._leading:
                request.turn = turn = _taken()
                self._waiting.append(request)
            else:
                self._leading = request.leads = True
        if turn is not None:
            try:
                self._wait(request, turn)
            except BaseException:
                # Interrupted. If it leads by now, the others still need a leader.
                if not self.withdraw(request) and request.leads:
                    self._pass_on([])
                raise
        if request.leads:
            self.lead(request)

    def begin(self, request: CommitRequest, turn: Turn) -> bool:
        """Begin to commit a request that no thread waits for; whether it is to ``lead`` at once.

        turn: released when the request is done, or is to lead.
        """
        request.turn = turn
        with self._mutex:
            if self._leading:
                self._waiting.append(request)
            else:
                self._leading = request.leads = True
        return request.leads

    def commit_at_once(self, request: CommitRequest) -> bool:
        """Commit a request of a caller who does not wait, if that is likely to take but a moment:
        commits have been quick, and nobody else in any process commits now."""
        alone = self._expected == 1 and self._file.shared.words[GATHERED] <= 1
        if self._quick < QUICK_COMMITS or not alone:
            return False
        with self._mutex:
            if self._leading:
                return False
            self._leading = True
        group: list[CommitRequest] = []
        try:
            if self._file.shared.try_lock():
                group.append(request)
                self._commit_locked(group)
        finally:
            self._pass_on(group)
        return bool(group)

    def _wait(self, request: CommitRequest, turn: world.Lock) -> None:
        """Wait until a request is done, or withdrawn, or it is its thread's turn to lead."""
        if request.deadline:
            remaining = max(request.deadline - world.monotonic(), 0.0)
            if turn.acquire(timeout=remaining) or self.withdraw(request):
                return
        turn.acquire()

    def withdraw(self, request: CommitRequest) -> bool:
        """Take back a request, unless it is being committed or its thread must lead."""
        with self._mutex:
            if request.begun or request.leads or request.done:
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            request.withdrawn = request.done = True
            request.error = Fault(TIMED_OUT)
            return True

    def lead(self, request: CommitRequest) -> None:
        """Commit a group for a request whose turn it is; then it is done."""
        group = [request]
        deputy: world.Thread | None = None
        turn = None
        try:
            if self._expected > 1:
                self._join(group)
            if self._file.shared.try_lock():
                self._commit_locked(group)
            elif not request.deadline:
                self._post_and_wait(group)
            else:
                request.turn = turn = _taken()
                request.leads = False
                deputy = world.Thread(
                    target=self._deputise, args=(group,), name="fdbqueue-commit", daemon=True
                )
        finally:
            if deputy is None:
                self._pass_on(group)
        if deputy is not None and turn is not None:
            try:
                deputy.start()
            except RuntimeError:
                # No thread available: better late than never.
                self._deputise(group)
            self._wait(request, turn)

    def _join(self, group: list[CommitRequest]) -> None:
        """Add to a group the requests that wait, and of those that took part last time who comes in
        a moment: else two half groups alternate, and each pays for a whole fsync."""
        if self._file.synchronous == "full":
            deadline = world.monotonic() + self._writer.seconds * _GATHER_SHARE
            while len(self._waiting) + 1 < self._expected and world.monotonic() < deadline:
                world.sleep(_GATHER_STEP)
        with self._mutex:
            group += self._waiting
            self._waiting = []

    def _post_and_wait(self, group: list[CommitRequest]) -> None:
        """Commit a group when the lock becomes free, unless its holder does."""
        # An open snapshot would block a checkpoint that holds the lock and waits for readers.
        self._snapshots.drop_idle(also_kept=False)
        sleep = self._mailbox.sleeper()
        if not self._mailbox.post(group):
            self._file.shared.lock()
            self._commit_locked(group)
        elif self._file.shared.lock_unless(self._mailbox.is_answered, sleep):
            self._commit_locked(group, posted=True)
        else:
            self._mailbox.take_answer(group, self._writer.made)
            self._made([request for request in group if request.error is None])

    def _deputise(self, group: list[CommitRequest]) -> None:
        """Commit a group in place of a leader that must not wait for the lock."""
        try:
            self._file.shared.lock()
            self._commit_locked(group)
        finally:
            self._pass_on(group)

    def _pass_on(self, group: list[CommitRequest]) -> None:
        """Let the next thread lead, and release the threads of the group."""
        with self._mutex:
            self._expected = len(group) + len(self._waiting)
            successor = self._waiting.pop(0) if self._waiting else None
            if successor is not None:
                successor.leads = True
            self._leading = successor is not None
        if successor is not None and successor.turn is not None:
            successor.turn.release()
        for member in group:
            if not member.done:
                member.done = True
                if member.version < 0 and member.error is None:
                    member.error = Fault(COMMIT_UNKNOWN)
            if member.turn is not None:
                member.turn.release()

    def _commit_locked(self, group: list[CommitRequest], posted: bool = False) -> None:
        """Commit a group under the commit lock, and release the lock.

        posted: whether another process may have committed it by now.
        """
        shares = self._mailbox.is_used()
        gathered = 1
        try:
            if posted and self._mailbox.take_answer(group, self._writer.made):
                made = [request for request in group if request.error is None]
            else:
                for request in group:
                    if request.deadline:
                        group = self._begin(group)
                        break
                made = self._write(group, shares) if group else []
        finally:
            if shares:
                self._file.shared.words[GATHERED] += self._mailbox.waiting()
                gathered = self._file.shared.words[GATHERED]
            self._file.shared.unlock()
            # Who has no company wakes nobody.
            if shares and (gathered > 1 or self._mailbox.waiting()):
                self._mailbox.wake()
        self._quick = self._quick + 1 if self._writer.seconds < QUICK_SECONDS else 0
        if made:
            self._made(made)

    def _begin(self, group: list[CommitRequest]) -> list[CommitRequest]:
        """Close a group to withdrawals; returns what is left of it."""
        with self._mutex:
            left = [request for request in group if not request.withdrawn]
            for request in left:
                request.begun = True
        return left

    def _write(self, group: list[CommitRequest], shares: bool) -> list[CommitRequest]:
        """Commit a group, with what other processes have posted; returns its part that is made.

        shares: whether other processes may have.
        """
        mailbox, writer = self._mailbox, self._writer
        misplaced = self._misplaced()
        if misplaced is not None:
            for request in group:
                request.error = misplaced
            return []
        posts = self._collect() if shares else []
        self._file.shared.words[GATHERED] = 1 + len(posts)
        try:
            if not posts:
                return writer.write(group)
            others = [request for post in posts for request in post.requests]
            writer.write([*group, *others], lambda version: mailbox.note(posts, version))
            mailbox.answer(posts, done=True)
            return [request for request in group if request.error is None]
        except sqlite3.Error as error:
            # Each process finds out for itself whose request it is.
            mailbox.answer(posts, done=False)
            if len(group) > 1 or posts:
                return self._write_singly(group)
            group[0].error = store_error(self._file.path, error)
            return []

    def _misplaced(self) -> StoreMisplaced | None:
        """Whether a commit would be lost, as others do not find the file; looks before each one,
        but where commits may be lost anyway, not so often that it can be measured."""
        now = world.monotonic()
        if self._file.synchronous != "full" and now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        return self._file.misplaced()

    def _collect(self) -> list[Post]:
        """What other processes have posted; waits a moment for those that took part last time.

        The longer, the more often somebody has come meanwhile: not all come at every commit.
        """
        mailbox, here = self._mailbox, self._mailbox.waiting()
        others, took = self._file.shared.words[GATHERED] - 1, self._writer.seconds
        if here < others and self._file.synchronous == "full":
            longest = max(took * _GATHER_SHARE, _GATHER_SECONDS)
            patience = min(max(self._patience, took * _LEAST_SHARE), longest)
            mailbox.gather(others, patience)
            self._patience = patience * (2 if mailbox.waiting() > here else 0.5)
        return mailbox.collect(self._writer.oldest, self._writer.made)

    def _write_singly(self, group: list[CommitRequest]) -> list[CommitRequest]:
        for request in group:
            # A conflict with a failed request of the group may be gone.
            request.error, request.conflicting, request.order = None, (), 0
        made: list[CommitRequest] = []
        for request in group:
            try:
                made += self._writer.write([request])
            except sqlite3.Error as error:
                request.error = store_error(self._file.path, error)
        return made

    def after_fork(self, in_child: bool) -> None:
        """Continue after a fork; the child starts afresh."""
        if in_child:
            self._reset()


def _taken() -> world.Lock:
    lock = world.Lock()
    lock.acquire()
    return lock
