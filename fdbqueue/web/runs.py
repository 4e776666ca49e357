"""Runs of actions: each in a thread, with its progress, and with its lines in the audit log."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from typing import Any

from msgspec import Struct

from ..errors import QueueError
from ..queue.admin.audit_trail import AuditTrail
from ..schema.records import AuditLine
from ..store.binding import FAILURES
from .actions import ACTIONS, Action, ActionTerms
from .filters import Filter
from .site import Site
from .users import User

AT_ONCE, KEPT = 8, 100
"""How many runs of a process may be under way, and how many it remembers."""
ASKED_SECONDS = 600.0
"""How long a question can be confirmed."""

log = logging.getLogger("fdbqueue.web")


def new_id() -> str:
    """The id of a run that somebody is asked about now."""
    return f"{round(1000 * time.time()):012x}{secrets.token_hex(10)}"


def asked_ms(id: str) -> int | None:
    """When somebody was asked about a run; None if that is too long ago, or no id."""
    try:
        moment = int(id[:12], 16)
    except ValueError:
        return None
    now_ms = 1000 * time.time()
    fits = len(id) == 32 and now_ms - 1000 * ASKED_SECONDS < moment <= now_ms
    return moment if fits else None


class ActionRun(Struct):
    """One run: its state is "begun", "done" or "failed".

    id: of the confirmation, which is good for one run. most: how many it takes at most, if that was
    said. here: whether this process does it, and so knows how far it has come.
    """

    id: str
    name: str
    terms: ActionTerms
    user: User
    expected: int
    most: int | None = None
    count: int = 0
    state: str = "begun"
    error: str = ""
    here: bool = True

    @property
    def action(self) -> Action:
        """What it does."""
        return ACTIONS[self.name]

    def told(self, count: int) -> bool:
        """Note how many are done so far; returns whether to go on."""
        self.count = count
        return self.most is None or count < self.most

    def line(self) -> AuditLine:
        """The run in the audit log, as it is now."""
        return AuditLine(
            at_ms=round(1000 * time.time()),
            who=self.user.name,
            action=self.name,
            queue=self.terms.queue,
            what={**self.terms.given(), **({"error": self.error[:1_000]} if self.error else {})},
            run=self.id,
            state=self.state,
            count=self.expected if self.state == "begun" else self.count,
        )


class Runs:
    """The runs of a process."""

    def __init__(self, site: Site, trail: AuditTrail) -> None:
        self._site, self._trail = site, trail
        self._lock = threading.Lock()
        self._known: OrderedDict[str, ActionRun] = OrderedDict()

    def find(self, id: str) -> ActionRun | None:
        """A run of this process; of others, what the audit log still says."""
        return self._known.get(id) or self._logged(id)

    def _logged(self, id: str) -> ActionRun | None:
        lines = self._trail.newest()
        found = [each for each in lines if each.run == id and each.action in ACTIONS]
        if not found:
            return None
        last, first = found[0], found[-1]
        terms, user = ActionTerms(last.queue, Filter()), User(last.who)
        count, error = 0 if last.state == "begun" else last.count, last.what.get("error", "")
        done: dict[str, Any] = {"count": count, "state": last.state, "error": error, "here": False}
        return ActionRun(id, last.action, terms, user, first.count, **done)

    def start(self, run: ActionRun) -> bool:
        """Begin a run, and note that in the audit log first; False if too many are under way. One
        that was begun before, by whatever process, is not begun again."""
        with self._lock:
            if run.id in self._known:
                return True
            if sum(each.state == "begun" for each in self._known.values()) >= AT_ONCE:
                return False
            self._known[run.id] = run
            while len(self._known) > KEPT:
                oldest = next(each for each in self._known.values() if each.state != "begun")
                del self._known[oldest.id]
        begun = False
        try:
            begun = self._trail.begin(run.line(), asked_ms(run.id) or 0)
        finally:
            if not begun:
                with self._lock:
                    del self._known[run.id]
        if not begun:
            return True
        # No daemon: the process ends once the run has, and its end is in the audit log.
        threading.Thread(target=self._run, args=(run,), name="fdbqueue-web-run").start()
        return True

    def _run(self, run: ActionRun) -> None:
        state = "failed"
        try:
            run.count = run.action.run(self._site, run.terms, run.told)
            state = "done"
        except (*FAILURES, QueueError) as error:
            run.error = str(error)
        except BaseException as error:
            run.error = f"internal error: {error!r}"
            raise
        finally:
            run.state = state
            try:
                self._trail.write(run.line())
            except (*FAILURES, QueueError):
                log.exception("the end of %s is not in the audit log", run.id)
