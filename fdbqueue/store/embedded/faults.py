"""Fault injection from a seed, so that tests meet what a cluster occasionally does to clients.

Off by default. `FDBQUEUE_FAULTS=SEED:RATE` makes every kind but `kill` happen at that rate;
`FDBQUEUE_FAULTS=SEED:kind=RATE,kind=RATE` names the kinds. The kinds:

======================  ================================================================
``conflict``            a commit fails with 1020 and writes nothing
``unknown_committed``   a commit is made, and fails with 1021
``unknown_lost``        a commit is not made, and fails with 1021
``too_old``             a read or a commit fails with 1007
``future_version``      a read fails with 1009
``behind``              a read fails with 1037
``delay_before``        a commit waits a few milliseconds before it is made
``delay_after``         a commit waits a few milliseconds after it was made
``kill``                the process kills itself, just before or just after a commit
======================  ================================================================
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from .. import world
from .codes import COMMIT_UNKNOWN, FUTURE_VERSION, NOT_COMMITTED, PROCESS_BEHIND, TOO_OLD, Fault
from .helpers import HelperThread
from .storage.commit import Committer
from .transactions.commit_requests import CommitRequest

VARIABLE = "FDBQUEUE_FAULTS"
KINDS = (
    "conflict",
    "unknown_committed",
    "unknown_lost",
    "too_old",
    "future_version",
    "behind",
    "delay_before",
    "delay_after",
    "kill",
)
_LONGEST_DELAY = 0.01
_LISTED = 10_000
_READ_KINDS = {"too_old": TOO_OLD, "future_version": FUTURE_VERSION, "behind": PROCESS_BEHIND}


class Injection(NamedTuple):
    """One fault that was injected: its number in this process, and its kind."""

    number: int
    kind: str


class Faults:
    """A source of faults.

    Args:
        seed: the same seed gives the same decisions, call for call.
        rates: probability of each kind, between 0 and 1; a kind that is not named never happens.
    """

    def __init__(self, seed: int, rates: Mapping[str, float]) -> None:
        unknown = set(rates) - set(KINDS)
        if unknown:
            raise ValueError(f"unknown kinds of faults: {', '.join(sorted(unknown))}")
        if not all(0 <= rate <= 1 for rate in rates.values()):
            raise ValueError("a rate of faults must be between 0 and 1")
        self.seed = seed
        self.rates = dict(rates)
        self.counts: Counter[str] = Counter()
        self.injected: list[Injection] = []
        self._random = random.Random(seed)
        self._lock = world.Lock()

    def _happens(self, kind: str) -> bool:
        rate = self.rates.get(kind, 0.0)
        if not rate:
            return False
        with self._lock:
            if self._random.random() >= rate:
                return False
            self.counts[kind] += 1
            self.injected.append(Injection(sum(self.counts.values()), kind))
            # Long simulations inject millions; the last ones tell how a run failed.
            del self.injected[:-_LISTED]
        return True

    def _delay(self, kind: str) -> None:
        if self._happens(kind):
            with self._lock:
                seconds = self._random.random() * _LONGEST_DELAY
            world.sleep(seconds)

    def _kill(self) -> None:
        if self._happens("kill"):
            os.kill(os.getpid(), signal.SIGKILL)

    def before_read(self) -> None:
        """Called before every read; may raise a fault."""
        for kind, code in _READ_KINDS.items():
            if self._happens(kind):
                raise Fault(code)

    def commit(self, committer: Committer, request: CommitRequest) -> None:
        """Commit or not, and report the true outcome or not."""
        self._delay("delay_before")
        if self._happens("conflict"):
            raise Fault(NOT_COMMITTED)
        if self._happens("too_old"):
            raise Fault(TOO_OLD)
        if self._happens("unknown_lost"):
            raise Fault(COMMIT_UNKNOWN)
        self._kill()
        committer.commit(request)
        # Made, but nobody was told: the program finds out at its next start.
        self._kill()
        self._delay("delay_after")
        # A commit that failed has an error of its own, which is true.
        if request.error is None and self._happens("unknown_committed"):
            raise Fault(COMMIT_UNKNOWN)


background = HelperThread("fdbqueue-faults")
"""Makes the commits of callers that do not wait while faults are injected: not the committer's
lane, which others may need to lead while one of these waits."""

os.register_at_fork(after_in_child=background.reset)

active: Faults | None = None
"""The faults in force in this process, or None."""


def inject(seed: int, rates: Mapping[str, float]) -> Faults:
    """Start injecting faults in this process; returns the source, which counts and lists them."""
    global active
    active = Faults(seed, rates)
    return active


def stop() -> None:
    """Stop injecting faults in this process."""
    global active
    active = None


def parse(text: str) -> Faults:
    """The faults that a setting describes.

    Raises:
        ValueError: the text is not SEED:RATE or SEED:kind=RATE,...
    """
    seed, separator, rest = text.partition(":")
    if not separator:
        raise ValueError(f"{VARIABLE} must be SEED:RATE or SEED:kind=RATE,...: {text!r}")
    if "=" not in rest:
        return Faults(int(seed), {kind: float(rest) for kind in KINDS if kind != "kill"})
    rates: dict[str, float] = {}
    for part in rest.split(","):
        kind, _, rate = part.partition("=")
        rates[kind.strip()] = float(rate)
    return Faults(int(seed), rates)


def from_environment() -> None:
    """Inject the faults that the environment asks for, if any."""
    global active
    text = os.environ.get(VARIABLE)
    if text:
        active = parse(text)
