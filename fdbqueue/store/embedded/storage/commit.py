"""Commits: one SQLite transaction for all waiting threads.

A thread that finds no commit in progress becomes the leader. It commits all waiting requests in one
SQLite transaction with one fsync, as the proxies of a cluster batch; later requests form the next
group. A request that conflicts is left out of its group, and a
failure of SQLite in a group is retried request by request, so that it hits only its cause.

A request with a deadline may be withdrawn until its group has the commit lock, which another
process can hold for long. So its thread never waits for that lock itself, nor does an event loop:
if it leads and the lock is not free, the committer's own thread, its lane, leads in its place.

A leader may be interrupted anywhere (see `helpers`). `_leader` says who leads, and changes in the
same breath as somebody is told: so there is always a thread that leads, or was interrupted while
it led. What that one leaves is finished by a thread that nothing interrupts (`_rescue`): if nothing
was written yet, the lane leads in its place, and its own commit is made, too. Else all is as if
the process had died there: what was begun is undone, and the outcomes are unknown.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from typing import Any

from ... import world
from ..codes import COMMIT_UNKNOWN, TIMED_OUT, Fault
from ..helpers import HelperThread, finisher
from ..store_errors import EngineError, StoreFileError, StoreMisplaced
from ..transactions.commit_requests import CommitRequest, CommitTurn
from .file import StoreFile, store_error
from .mailbox import Mailbox, Post
from .snapshots import Snapshots
from .versions import GATHERED, TURN, VersionClock
from .writer import Writer

_GATHER_SHARE = 0.5
_GATHER_SECONDS = 0.001
"""How long others are waited for at most: a part of a commit's time, or so long if that is more."""
_LEAST_SHARE = 1 / 32
_GATHER_STEP = 0.00005
_TURN_STEP = 0.0005
_LOOK_SECONDS = 0.005
_LOOKS = 100
QUICK_SECONDS = 0.0005
"""How long commits may take that a caller makes who does not wait."""
QUICK_COMMITS = 8
"""How many commits must have been as quick before that."""


class Committer:
    """Commits requests to one store, one group at a time.

    Args:
        made: called after each group, outside of all locks, with the commits that were made.

    Attributes:
        section: held by whoever uses the file under the commit lock, and by whoever keeps all
            threads of this process from that.
        lane: the thread that leads where no other can.
    """

    def __init__(
        self,
        file: StoreFile,
        clock: VersionClock,
        snapshots: Snapshots,
        made: Callable[[list[CommitRequest]], None],
    ) -> None:
        self._file = file
        self._made = made
        self._snapshots = snapshots
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        self.section = world.Lock()
        self.lane = HelperThread("fdbqueue-commits")
        self._writer = Writer(self._file, self._clock, self._snapshots)
        self._mailbox = Mailbox(self._file.shared, durable=self._file.synchronous == "full")
        self._mutex = world.Lock()
        self._waiting: list[CommitRequest] = []
        # The request whose thread leads, or the lane, and what it commits.
        self._leader: CommitRequest | HelperThread | None = None
        self._group: list[CommitRequest] = []
        # Whether some of the group may be written.
        self._writing = False
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
        if not finisher.helper.running:
            # Without a thread left for it commits still work; only an interrupt in the middle of
            # one would not be finished.
            with contextlib.suppress(EngineError):
                finisher.start()
        try:
            with self._mutex:
                self._waiting.append(request)
                if self._leader is None:
                    self._leader = request
                else:
                    request.turn = _taken()
            if request.turn is not None:
                self._wait(request)
            if self._leader is request and not self._lead(wait=not request.deadline):
                request.turn = _taken()
                self._lead_elsewhere()
                self._wait(request)
        except BaseException:
            finisher.put((self._rescue, request))
            raise

    def begin(self, request: CommitRequest, turn: CommitTurn) -> bool:
        """Begin to commit a request of a caller who does not wait; returns whether it is done.

        It is, if that was likely to take but a moment: commits have been quick, and nobody else in
        any process commits now. Otherwise `turn` is released when it is done, or is to lead.
        """
        alone = self._expected == 1 and self._file.shared.words[GATHERED] <= 1
        quick = alone and self._quick >= QUICK_COMMITS
        self.lane.start()
        finisher.start()
        try:
            with self._mutex:
                self._waiting.append(request)
                leads = self._leader is None
                if leads:
                    self._leader = request
                else:
                    request.turn = turn
            if leads and not (quick and self._lead(wait=False)):
                request.turn = turn
                self._lead_elsewhere()
        except BaseException:
            finisher.put((self._rescue, request))
            raise
        return request.turn is None

    def lead(self) -> None:
        """Lead on the lane, for a request whose turn it is and that no thread waits for."""
        self._leader = self.lane
        self._lead_for_others()

    def _wait(self, request: CommitRequest) -> None:
        """Wait until a request is done, or withdrawn, or it is its thread's turn to lead."""
        turn: Any = request.turn
        if request.deadline:
            remaining = max(request.deadline - world.monotonic(), 0.0)
            if turn.acquire(timeout=remaining) or self.withdraw(request):
                return
        turn.acquire()

    def withdraw(self, request: CommitRequest) -> bool:
        """Take back a request, unless it is being committed or its thread must lead."""
        with self._mutex:
            # Begun means that it may be written: to report a timeout then would be a lie.
            if request.begun or request.done or self._leader is request:
                return False
            request.withdrawn = request.done = True
            request.error = Fault(TIMED_OUT)
            if request in self._waiting:
                self._waiting.remove(request)
            return True

    def _lead_elsewhere(self) -> None:
        """Let the lane lead in place of this thread."""
        try:
            self.lane.start()
        except EngineError:
            # No thread available: better late than never.
            self._lead_for_others()
        else:
            self._leader = self.lane
            self.lane.put((self._lead_for_others,))

    def _lead_for_others(self) -> None:
        """Lead, on a thread that nothing interrupts, for whoever cannot."""
        try:
            self._lead(wait=True)
        except BaseException as error:
            for request in self._group:
                if request.version < 0 and request.error is None:
                    request.error = error
            self._start_over()

    def _lead(self, wait: bool) -> bool:
        """Commit those that wait as one group; returns False if somebody else must lead it.

        wait: whether to wait for the commit lock.
        """
        shared, mailbox = self._file.shared, self._mailbox
        if not self._group:
            if self._expected > 1:
                self._expect()
            with self._mutex:
                self._group, self._waiting = self._waiting, []
        made: list[CommitRequest] = []
        wakes = False
        try:
            locked = self._lock(wait)
            while locked and shared.words[TURN] and not self._may_commit():
                flock(shared.descriptor, LOCK_UN)
                if wait:
                    world.sleep(_TURN_STEP)
                locked = wait and self._lock(wait)
            if locked:
                with self.section:
                    made, wakes = self._commit_locked()
            elif wait:
                mailbox.take_answer(self._group, self._writer.made)
                made = [request for request in self._group if request.error is None]
        finally:
            # At once, and if it was not locked, too: nothing can come between.
            if not shared.closed:
                flock(shared.descriptor, LOCK_UN)
        if not locked and not wait:
            return False
        if wakes:
            mailbox.wake()
        if made:
            self._made(made)
        self._finish()
        return True

    def _may_commit(self) -> bool:
        """Whether no transaction has its turn, or one of the group has; that one is then first."""
        shared, group = self._file.shared, self._group
        turn = shared.words[TURN]
        found = [request for request in group if request.its_turn == turn]
        if not found and shared.is_turn():
            return False
        # First, so that nothing of its own group can conflict with it.
        self._group = found + [request for request in group if request.its_turn != turn]
        shared.words[TURN] = 0
        return True

    def _expect(self) -> None:
        """Wait for those that took part last time, and come in a moment: else two half groups
        alternate, and each pays for a whole fsync."""
        if self._file.synchronous == "full":
            deadline = world.monotonic() + self._writer.seconds * _GATHER_SHARE
            # Only with an fsync to share: without one, waiting costs more than a second commit.
            while len(self._waiting) < self._expected and world.monotonic() < deadline:
                world.sleep(_GATHER_STEP)

    def _lock(self, wait: bool) -> bool:
        """Take the commit lock; returns False if it is taken and not waited for, or its holder has
        made the commits of this process."""
        shared, mailbox = self._file.shared, self._mailbox
        if shared.closed:
            return True
        try:
            flock(shared.descriptor, LOCK_EX | LOCK_NB)
            return True
        except BlockingIOError:
            if not wait:
                return False
        # An open snapshot would block a checkpoint that holds the lock and waits for readers.
        self._snapshots.drop_idle(also_kept=False)
        sleep = mailbox.sleeper()
        if mailbox.is_posted() or mailbox.post(self._group):
            # Not in line for the lock: who stands there is woken only to see it taken again by the
            # one that left it, and would learn late that it has nothing to do. After many looks all
            # the same: the holder may be paused for long.
            for _ in range(_LOOKS):
                if mailbox.is_answered(len(self._group)):
                    return False
                with contextlib.suppress(BlockingIOError):
                    flock(shared.descriptor, LOCK_EX | LOCK_NB)
                    return True
                sleep()
        flock(shared.descriptor, LOCK_EX)
        return True

    def _finish(self) -> None:
        """Release the threads of the group, and let the next thread lead.

        If it is interrupted, it can be called again.
        """
        for member in self._group:
            if not member.done:
                if member.version < 0 and member.error is None:
                    member.error = Fault(COMMIT_UNKNOWN)
                member.done = True
            if member.turn is not None and member.turn.locked():
                member.turn.release()
        with self._mutex:
            self._expected = len(self._group) + len(self._waiting)
            self._group, self._writing, self._mailbox.before = [], False, None
            if not self._waiting:
                self._leader = None
            else:
                self._leader = successor = self._waiting[0]
                if successor.turn is not None:
                    successor.turn.release()

    def _rescue(self, request: CommitRequest) -> None:
        """Finish what an interrupted thread has left; called where nothing interrupts."""
        with self._mutex:
            if request is not self._leader:
                if request in self._waiting:
                    self._waiting.remove(request)
                return
        if self._writing:
            self._start_over()
        else:
            self._lead_elsewhere()

    def _start_over(self) -> None:
        """End a group as if the process had died in its middle."""
        try:
            self._writer.give_up()
        finally:
            self._writer = Writer(self._file, self._clock, self._snapshots)
            self._finish()

    def _commit_locked(self) -> tuple[list[CommitRequest], bool]:
        """Commit the group under the commit lock; returns what was made, and whether others wait to
        be told."""
        group, mailbox, words = self._group, self._mailbox, self._file.shared.words
        shares = mailbox.is_used()
        gathered = 1
        made: list[CommitRequest] = []
        # Another process may have committed it by now.
        if (
            mailbox.before is not None
            and mailbox.is_posted()
            and mailbox.take_answer(group, self._writer.made)
        ):
            made = [request for request in group if request.error is None]
        else:
            for request in group:
                if request.deadline:
                    group = self._begin(group)
                    break
            if group:
                made = self._write(group, shares)
        if shares:
            words[GATHERED] += mailbox.waiting()
            gathered = words[GATHERED]
        self._quick = self._quick + 1 if self._writer.seconds < QUICK_SECONDS else 0
        # Who has no company wakes nobody.
        return made, shares and (gathered > 1 or bool(mailbox.waiting()))

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
        # From here on an interrupt leaves the outcome unknown, and nobody may lead the same group
        # again.
        self._writing = True
        # Under the lock and before anything is written: a commit to a file that was moved away
        # would be lost with it.
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
        except (sqlite3.Error, StoreFileError) as error:
            # Each process finds out for itself whose request it is.
            mailbox.answer(posts, done=False)
            # One request of the group is the cause: by themselves all others succeed.
            if len(group) > 1 or posts:
                return self._write_singly(group)
            group[0].error = store_error(self._file.path, error)
            return []

    def _misplaced(self) -> StoreMisplaced | None:
        """Whether a commit would be lost, as others do not find the file.

        Looks now and then: for a link from another directory, which nobody can open, or another
        directory in the place of its own. Before each commit that must not be lost it looks whether
        any name in the directory has changed since.
        """
        now, file = world.monotonic(), self._file
        if now - self._looked < _LOOK_SECONDS and (
            file.synchronous != "full" or file.undisturbed()
        ):
            return None
        self._looked = now
        return file.misplaced()

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
            except (sqlite3.Error, StoreFileError) as error:
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
