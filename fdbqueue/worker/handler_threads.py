"""The threads that call handlers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from ..queue.continuations.successors import Successors
from ..store import world
from ..values.model import Delivery
from ..values.states import Outcome
from .attempt import Ended, attempt, failed, follow, handle_settled
from .shared_state import Assignment, SharedState

log = logging.getLogger("fdbqueue.worker")


class HandlerThreads:
    """Calls handlers, each in a thread, and replaces threads whose handler takes too long."""

    def __init__(self, state: SharedState) -> None:
        self.state = state
        self.db = state.worker.db

    def start(self) -> None:
        """Start a thread for each message that may be handled at once."""
        for n in range(self.state.worker.concurrency):
            self.state.spawn(self._run, f"handler-{n}")

    def abandon(self) -> None:
        """End what still runs, as far as it can be ended: threads cannot."""

    def ended(self, seconds: float) -> None:
        """Wait for so long at most until what has been abandoned has ended."""

    def replace_stuck(self) -> None:
        """Put another thread in the place of each whose handler takes longer than it may."""
        late, state = [], self.state
        with state.lock:
            now = world.monotonic()
            for job in list(state.jobs):
                limit = job.served.policy.timeout
                if limit is None or now - job.began < limit or job.finished:
                    continue
                if not self._interrupts(job, limit):
                    job.overdue = True
                    state.jobs.discard(job)
                    state.stuck.add(job)
                    # A thread cannot be ended: the stuck one keeps what it was called with, and
                    # another one settles that as failed.
                    held = [each for each in job.deliveries if job.served.stock.holds(each)]
                    late.append(Assignment(job.served, held, job.began, job.current))
            state.jobs.update(late)
        for job in late:
            log.error("%s: a handler is stuck; it is replaced", job.served.queue.name)
            job.began = now
            self._replace(job)

    def _interrupts(self, job: Assignment, limit: float) -> bool:
        """Whether a handler that takes too long is interrupted, so that nothing has to replace it.
        The lock is held."""
        return False

    def _replace(self, job: Assignment) -> None:
        """Go on with a job that another thread is stuck in."""
        self.state.spawn(partial(self._run, job), "handler-again")

    def _run(self, first: Assignment | None = None) -> None:
        """Handle messages until it is time to go; ``first`` is a job another thread is stuck in."""
        job = first or self._wait()
        while job is not None and self.do(job, again=job is first):
            job = self._wait()

    def do(self, job: Assignment, *, again: bool = False) -> bool:
        """Do a job to its end; returns whether its place is free then, or another thread has it.

        again: whether another thread is stuck in it.
        """
        state = self.state
        try:
            if again:
                self._continue(job)
            else:
                self._handle(job)
        except BaseException:
            name = job.served.queue.name
            log.exception("%s: a settlement failed; its lease will expire", name)
            state.worker.connection.suspect()
        with state.lock:
            # The stuck handler has returned at last: its messages are settled by the other thread,
            # and this thread is one too many.
            if job.overdue:
                state.stuck.discard(job)
                return False
            state.end(job)
        return True

    def _wait(self) -> Assignment | None:
        """Wait for something to handle; None when it is time to go."""
        state = self.state
        with state.lock:
            while (found := state.next_job()) is None and not state.stopping:
                state.work.wait()
        return found

    def _handle(self, job: Assignment) -> None:
        served = job.served
        if served.policy.settles_before:
            self._settle_and_handle(job)
            return
        self._begin(job, job.deliveries)
        later = partial(self._finish, job)
        joined = served.rows.joined(job.deliveries)
        ended = attempt(
            self.db,
            served.queue,
            served.policy,
            joined,
            later,
            partial(self._cancelled, job, job.deliveries),
        )
        if ended is None:
            self._one_by_one(job, job.deliveries)
        elif ended:
            self._report(job, ended)

    def _settle_and_handle(self, job: Assignment) -> None:
        """Acknowledge messages, and then handle those whose leases held."""
        served = job.served
        settled = follow(self.db, served.queue, served.policy, job.deliveries)
        with self.state.lock:
            self.state.settled(served, job.deliveries)
            job.began = world.monotonic()
        held = [delivery for delivery, outcome in settled if outcome is Outcome.DONE]
        self._report(job, [each for each in settled if each[1] is not Outcome.DONE])
        if held:
            self._report(job, handle_settled(served.queue, served.policy, held))

    def _finish(self, job: Assignment, successors: Successors) -> bool:
        with self.state.lock:
            return self.state.finish(job, successors)

    def _one_by_one(self, job: Assignment, deliveries: Sequence[Delivery]) -> None:
        """Handle the messages of a batch by themselves, as far as they are still held."""
        served, state = job.served, self.state
        for n, delivery in enumerate(deliveries):
            if state.stopping and served.consumer is not None:
                with state.lock:
                    rest = [each for each in deliveries[n:] if served.stock.holds(each)]
                    state.settled(served, rest)
                served.consumer.give_back(rest)
                return
            if self._begin(job, [delivery]):
                ended = attempt(
                    self.db,
                    served.queue,
                    served.policy,
                    [delivery],
                    cancelled=partial(self._cancelled, job, [delivery]),
                )
                self._report(job, ended or [])
                with state.lock:
                    if not job.overdue:
                        state.settled(served, [delivery])

    def _continue(self, job: Assignment) -> None:
        """Continue with a job that another thread is stuck in."""
        served, late = job.served, list(job.current)
        rest = [each for each in job.deliveries if each not in late]
        if len(late) > 1:
            # A batch: which of its messages is at fault is not known, so they are handled one by
            # one.
            rest = late + rest
        elif late:
            error = too_late(served.policy.timeout)
            self._report(job, failed(self.db, served.queue, served.policy, late, error, job.began))
        self._one_by_one(job, rest)

    def _begin(self, job: Assignment, deliveries: Sequence[Delivery]) -> bool:
        """Note that a handler is called; false if what it is called with is not held any more."""
        with self.state.lock:
            job.began, job.current = world.monotonic(), deliveries
            return not job.overdue and all(job.served.stock.holds(each) for each in deliveries)

    def _cancelled(self, job: Assignment, deliveries: Sequence[Delivery]) -> bool:
        return job.served.stock.cancelled(deliveries)

    def _report(self, job: Assignment, ended: Ended) -> None:
        self.state.report(job.served, ended, world.monotonic() - job.began)


def too_late(limit: float | None) -> TimeoutError:
    """The error of a handler that takes longer than it may."""
    return TimeoutError(f"the handler took longer than {limit:g} s")
