"""What operators may do: to how many, and how, through the methods of ``Queue``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import InvalidArgument, NotFound
from ..queue.keys.shared_limits import SharedLimit
from ..values.model import Message, Progress
from ..values.options import check_name
from .filters import Filter, Query
from .site import Site

LATER = ("retrying", "scheduled")
STATES = ("ready", "waiting", *LATER)
DEAD = ("dead",)
COUNT_SECONDS = 5.0
"""How long messages are counted before an action."""
OF_A_STATE = ("move", "purge", "retry")
"""The actions that take messages of a state."""
OF_THE_ROOT = ("pause-limit", "resume-limit")
"""The actions that are about no queue."""
NAMED = ("target", "message", "consumer", "schedule", "group", "dimension", "limit")
"""What an action may name: the queue to move to, only the message with this id, and others."""


class ActionTerms(Struct, frozen=True):
    """What an action is about.

    queue: empty where the action is about all. named: what else it names; see ``NAMED``.
    state: of which messages; empty for other actions. until_ms: when somebody was asked: no message
    that was enqueued, and no dead letter that died, after that. by: who was asked.
    """

    queue: str
    filter: Filter
    named: Mapping[str, str] = {}
    state: str = ""
    until_ms: int | None = None
    by: str = ""

    @classmethod
    def of(cls, query: Query) -> ActionTerms:
        """The terms in a query or a form; raises ``InvalidArgument``, ``InvalidSelector``."""
        state = query.get("state", "ready") if query.get("action") in OF_A_STATE else ""
        if state:
            _check_state(state, STATES)
        queue = "" if query.get("action") in OF_THE_ROOT else check_name(query.get("queue", ""))
        named = {name: query[name] for name in NAMED if query.get(name)}
        return cls(queue, Filter.of(query), named, state)

    def __getitem__(self, name: str) -> str:
        return self.named.get(name, "")

    def given(self) -> dict[str, str]:
        """The terms that say something, as a part of a form and of the audit log."""
        terms = {"state": self.state, **self.filter.query(), **self.named}
        return {name: text for name, text in terms.items() if text}


def _check_state(state: str, known: Sequence[str]) -> None:
    if state not in known:
        problem = f"must be one of {', '.join(known)}"
        raise InvalidArgument(argument="state", value=state, problem=problem)


Counted: TypeAlias = tuple[int, bool]
"""How many, and whether that is all."""
Told: TypeAlias = Callable[[int], bool]
"""Is told how many are done so far; says whether to go on."""


class Action(Struct, frozen=True):
    """One thing to do. question, done: with the number and the unit between. unit: of what.

    run: does it; returns how many are done. lost: whether nothing brings back what it takes.
    takes: whether it takes messages, of which more may come after somebody was asked.
    """

    question: str
    done: str
    unit: str
    count: Callable[[Site, ActionTerms], Counted]
    run: Callable[[Site, ActionTerms, Told], int]
    lost: bool = False
    takes: bool = False

    def of(self, count: int) -> str:
        """The unit, of so many."""
        return self.unit.removesuffix("s") if count == 1 else self.unit


def _of_messages(
    verb: str, question: str, done: str, unit: str, states: Sequence[str] = (), lost: bool = False
) -> Action:
    """What a verb of a queue does to those in some states; by default in the state of the terms."""

    def which(terms: ActionTerms) -> Sequence[str]:
        of_death = terms.filter.reason or terms.filter.error
        if of_death and states != DEAD:
            problem = "only dead letters have one: give a selector"
            raise InvalidArgument(argument="filter", value=of_death, problem=problem)
        if verb == "retry" and not states:
            _check_state(terms.state, LATER)
        return states or (terms.state,)

    def count(site: Site, terms: ActionTerms) -> Counted:
        queue, those = site.queue(terms.queue), which(terms)
        if verb == "move":
            _target(site, terms)
        if terms["message"]:
            found = queue.get(site.db, terms["message"])
            return int(found is not None and found.state.value in those), True
        if not terms.filter:
            depth = queue.depth(site.db)
            return sum(int(getattr(depth, each)) for each in those), True
        until, whole = time.monotonic() + COUNT_SECONDS, True

        def goes_on(_: Progress) -> bool:
            nonlocal whole
            whole = time.monotonic() < until
            return whole

        match = terms.filter.predicate()
        return queue.count(site.db, match=match, states=those, progress=goes_on).taken, whole

    def run(site: Site, terms: ActionTerms, told: Told) -> int:
        those: dict[str, Any] = {"states": which(terms), "ids": terms["message"]}
        if not terms["message"]:
            those["ids"], those["match"] = None, _wanted(terms)
            those["progress"] = lambda progress: told(progress.taken)
        if verb == "move":
            those["target"] = _target(site, terms)
        taken: Progress = getattr(site.queue(terms.queue), verb)(site.db, **those)
        return taken.taken

    return Action(question, done, unit, count, run, lost, takes=verb != "cancel")


def _wanted(terms: ActionTerms) -> Callable[[Message], bool]:
    """Whether an action takes a message."""
    matches, until_ms = terms.filter.predicate(), terms.until_ms

    def wanted(message: Message) -> bool:
        came_ms = message.enqueued_at_ms if message.death is None else message.death.died_at_ms
        # What came after somebody was asked was not in the number that they agreed to.
        return (until_ms is None or came_ms <= until_ms) and matches(message)

    return wanted


def _target(site: Site, terms: ActionTerms) -> str:
    target = terms["target"]
    if target == terms.queue:
        raise InvalidArgument(argument="target", value=target, problem="name another queue")
    site.queue(target).options(site.db)  # raises QueueNotFound
    return target


def _of_one(
    question: str,
    done: str,
    unit: str,
    count: Callable[[Site, ActionTerms], int],
    run: Callable[[Site, ActionTerms], object],
    lost: bool = False,
) -> Action:
    """What is done to one thing, or to all messages that it concerns; ``run`` returns how many, or
    nothing where it is as many as were counted before."""

    def ran(site: Site, terms: ActionTerms, _: Told) -> int:
        before = count(site, terms)
        done = run(site, terms)
        return done if type(done) is int else before

    return Action(question, done, unit, lambda *of: (count(*of), True), ran, lost)


def _running(site: Site, terms: ActionTerms) -> int:
    """A message that is leased, and not by a plan, unless it was cancelled already."""
    found = site.queue(terms.queue).get(site.db, terms["message"])
    return int(found is not None and found.lease_expires_at_ms is not None and not found.cancelled)


def _cancel_running(site: Site, terms: ActionTerms) -> int:
    queue = site.queue(terms.queue)
    taken = queue.cancel(site.db, terms["message"]).taken
    found = queue.get(site.db, terms["message"])
    # Somebody else may have been faster: it is cancelled, as was wanted.
    return int(taken > 0 or (found is not None and found.cancelled))


def _evict(site: Site, terms: ActionTerms, *, evicts: bool = True) -> int:
    """Evict the consumer, or only count it."""
    admin = site.queue(terms.queue).admin
    found = [each for each in admin.consumers(site.db) if each.id.hex() == terms["consumer"]]
    return sum(len(admin.evict(site.db, each)) for each in found) if evicts else len(found)


def _of_part(kind: str, question: str, done: str, verb: str, lost: bool = False) -> Action:
    """What a verb does to a schedule or a group."""

    def part(site: Site, terms: ActionTerms) -> Any:
        return getattr(site.queue(terms.queue), f"{kind}s")

    def count(site: Site, terms: ActionTerms) -> int:
        if part(site, terms).get(site.db, terms[kind]) is None:
            raise NotFound(kind=kind, queue=terms.queue, name=terms[kind])
        return 1

    def run(site: Site, terms: ActionTerms) -> int:
        done = getattr(part(site, terms), verb)(site.db, terms[kind])
        return int(done) if isinstance(done, bool) else 1

    return _of_one(question, done, f"{kind}s", count, run, lost)


def _of_queue(question: str, done: str, run: Callable[[Site, ActionTerms], object]) -> Action:
    """What is done to a queue as a whole."""

    def count(site: Site, terms: ActionTerms) -> int:
        return site.queue(terms.queue).depth(site.db).unsettled

    return _of_one(question, done, "messages", count, run)


def _pause(site: Site, terms: ActionTerms) -> None:
    site.queue(terms.queue).admin.pause(site.db, by=terms.by)


def _resume(site: Site, terms: ActionTerms) -> None:
    site.queue(terms.queue).admin.resume(site.db)


def _limit(site: Site, terms: ActionTerms) -> SharedLimit:
    return site.limits()[terms["dimension"], terms["limit"]]


def _limited(site: Site, terms: ActionTerms) -> int:
    """How many messages wait for a limit."""
    return _limit(site, terms).state(site.db).waiting


def _pause_limit(site: Site, terms: ActionTerms) -> int:
    return _limit(site, terms).pause(site.db).waiting


def _resume_limit(site: Site, terms: ActionTerms) -> int:
    before = _limited(site, terms)
    # Others may have come to wait meanwhile.
    return before - min(before, _limit(site, terms).resume(site.db).waiting)


CANCEL = "Cancel {}, so that nothing is delivered again?"
LET_OUT = "Resume the limit, for which {} wait?"
ACTIONS = {
    "redrive": _of_messages("retry", "Deliver {} again?", "ready again", "dead letters", DEAD),
    "purge-dead": _of_messages("purge", "Remove {}?", "removed", "dead letters", DEAD, lost=True),
    "move-dead": _of_messages("move", "Move {}?", "moved", "dead letters", DEAD),
    "move": _of_messages("move", "Move {}?", "moved", "messages"),
    "purge": _of_messages("purge", "Remove {}?", "removed", "messages", lost=True),
    "retry": _of_messages("retry", "Deliver {} now?", "due now", "messages"),
    "cancel": _of_messages("cancel", "Remove {}?", "removed", "messages", STATES, lost=True),
    "cancel-running": _of_one(
        CANCEL, "cancelled", "running messages", _running, _cancel_running, lost=True
    ),
    "evict": _of_one(
        *("Remove {}, and end what it holds?", "removed", "consumers"),
        *(partial(_evict, evicts=False), _evict),
    ),
    "pause": _of_queue("Pause delivery of {}?", "waiting", _pause),
    "resume": _of_queue("Resume delivery of {}?", "in delivery", _resume),
    "pause-schedule": _of_part("schedule", "Pause {}?", "paused", "pause"),
    "resume-schedule": _of_part("schedule", "Resume {}?", "resumed", "resume"),
    "run-schedule": _of_part("schedule", "Run {} now?", "run", "run"),
    "forget-group": _of_part(
        "group", "Forget {}, so that no message follows?", "forgotten", "forget", lost=True
    ),
    "pause-limit": _of_one(
        "Pause the limit, for which {} wait?", "waiting", "messages", _limited, _pause_limit
    ),
    "resume-limit": _of_one(LET_OUT, "let out", "messages", _limited, _resume_limit),
}
"""The actions, by the names that the audit log has for them."""
