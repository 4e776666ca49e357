"""What operators may do: to how many, and how, through the methods of ``Queue``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from ..consumers.registry import Consumer
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
GIVEN = ("target", "message", "consumer", "schedule", "group", "dimension", "limit")


class ActionTerms(Struct, frozen=True):
    """What an action is about.

    state: of which messages; empty for other actions. target: the queue to move
        to. message: only the one with this id. consumer: the id of a consumer. schedule: the name
        of one; group: of one; dimension, limit: of a limit that queues share.
    queue: empty where the action is about all. until_ms: when somebody was asked: no message that
        was enqueued, and no dead letter that died, after that. by: who was asked.
    """

    queue: str
    filter: Filter
    state: str = ""
    target: str = ""
    message: str = ""
    consumer: str = ""
    schedule: str = ""
    group: str = ""
    dimension: str = ""
    limit: str = ""
    until_ms: int | None = None
    by: str = ""

    @classmethod
    def of(cls, query: Query) -> ActionTerms:
        """The terms in a query or a form; raises ``InvalidArgument``, ``InvalidSelector``."""
        given: dict[str, Any] = {name: query.get(name, "") for name in GIVEN}
        state = query.get("state", "ready") if query.get("action") in OF_A_STATE else ""
        if state and state not in STATES:
            problem = f"must be one of {', '.join(STATES)}"
            raise InvalidArgument(argument="state", value=state, problem=problem)
        queue = "" if query.get("action") in OF_THE_ROOT else check_name(query.get("queue", ""))
        return cls(queue, Filter.of(query), state, **given)

    def given(self) -> dict[str, str]:
        """The terms that say something, as a part of a form and of the audit log."""
        terms = {"state": self.state, **self.filter.query()}
        terms |= {name: getattr(self, name) for name in GIVEN}
        return {name: text for name, text in terms.items() if text}


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
        if (terms.filter.reason or terms.filter.error) and states != DEAD:
            raise InvalidArgument(
                argument="filter",
                value=terms.filter.reason or terms.filter.error,
                problem="only dead letters have one: give a selector",
            )
        if verb == "retry" and not states and terms.state not in LATER:
            problem = f"must be one of {', '.join(LATER)}"
            raise InvalidArgument(argument="state", value=terms.state, problem=problem)
        return states or (terms.state,)

    def count(site: Site, terms: ActionTerms) -> Counted:
        queue, those = site.queue(terms.queue), which(terms)
        if verb == "move":
            _target(site, terms)
        if terms.message:
            found = queue.get(site.db, terms.message)
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
        those: dict[str, Any] = {"states": which(terms)}
        if terms.message:
            those["ids"] = terms.message
        else:
            those["match"] = _wanted(terms)
            those["progress"] = lambda progress: told(progress.taken)
        if verb == "move":
            those["target"] = _target(site, terms)
        taken: Progress = getattr(site.queue(terms.queue), verb)(site.db, **those)
        return taken.taken

    return Action(question, done, unit, count, run, lost, takes=verb != "cancel")


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

    def counted(site: Site, terms: ActionTerms) -> Counted:
        return count(site, terms), True

    def ran(site: Site, terms: ActionTerms, _: Told) -> int:
        before = count(site, terms)
        done = run(site, terms)
        return done if type(done) is int else before

    return Action(question, done, unit, counted, ran, lost)


def _running(site: Site, terms: ActionTerms) -> int:
    """A message that is leased, and not by a plan, unless it was cancelled already."""
    found = site.queue(terms.queue).get(site.db, terms.message)
    return int(found is not None and found.lease_expires_at_ms is not None and not found.cancelled)


def _cancel_running(site: Site, terms: ActionTerms) -> int:
    queue = site.queue(terms.queue)
    taken = queue.cancel(site.db, terms.message).taken
    found = queue.get(site.db, terms.message)
    # Somebody else may have been faster: it is cancelled, as was wanted.
    return int(taken > 0 or (found is not None and found.cancelled))


def _evict(site: Site, terms: ActionTerms) -> int:
    queue = site.queue(terms.queue)
    return sum(len(queue.admin.evict(site.db, each)) for each in _consumers(site, terms))


def _unsettled(site: Site, terms: ActionTerms) -> int:
    return site.queue(terms.queue).depth(site.db).unsettled


def _schedule(site: Site, terms: ActionTerms) -> int:
    if site.queue(terms.queue).schedules.get(site.db, terms.schedule) is None:
        raise NotFound(kind="schedule", queue=terms.queue, name=terms.schedule)
    return 1


def _of_schedule(question: str, done: str, verb: str) -> Action:
    def run(site: Site, terms: ActionTerms) -> None:
        getattr(site.queue(terms.queue).schedules, verb)(site.db, terms.schedule)

    return _of_one(question, done, "schedules", _schedule, run)


def _group(site: Site, terms: ActionTerms) -> int:
    if site.queue(terms.queue).groups.get(site.db, terms.group) is None:
        raise NotFound(kind="group", queue=terms.queue, name=terms.group)
    return 1


def _forget_group(site: Site, terms: ActionTerms) -> int:
    return int(site.queue(terms.queue).groups.forget(site.db, terms.group))


def _limited(site: Site, terms: ActionTerms) -> int:
    """How many messages wait for a limit."""
    return _limit(site, terms).state(site.db).waiting


def _resume_limit(site: Site, terms: ActionTerms) -> int:
    before = _limited(site, terms)
    # Others may have come to wait meanwhile.
    return before - min(before, _limit(site, terms).resume(site.db).waiting)


def _wanted(terms: ActionTerms) -> Callable[[Message], bool]:
    """Whether an action takes a message."""
    matches, until_ms = terms.filter.predicate(), terms.until_ms

    def wanted(message: Message) -> bool:
        came_ms = message.enqueued_at_ms if message.death is None else message.death.died_at_ms
        # What came after somebody was asked was not in the number that they agreed to.
        return (until_ms is None or came_ms <= until_ms) and matches(message)

    return wanted


def _target(site: Site, terms: ActionTerms) -> str:
    if terms.target == terms.queue:
        raise InvalidArgument(argument="target", value=terms.target, problem="name another queue")
    site.queue(terms.target).options(site.db)  # raises QueueNotFound
    return terms.target


def _limit(site: Site, terms: ActionTerms) -> SharedLimit:
    return site.limits()[terms.dimension, terms.limit]


def _consumers(site: Site, terms: ActionTerms) -> list[Consumer]:
    found = site.queue(terms.queue).admin.consumers(site.db)
    return [each for each in found if each.id.hex() == terms.consumer]


ACTIONS = {
    "redrive": _of_messages("retry", "Deliver {} again?", "ready again", "dead letters", DEAD),
    "purge-dead": _of_messages("purge", "Remove {}?", "removed", "dead letters", DEAD, lost=True),
    "move-dead": _of_messages("move", "Move {}?", "moved", "dead letters", DEAD),
    "move": _of_messages("move", "Move {}?", "moved", "messages"),
    "purge": _of_messages("purge", "Remove {}?", "removed", "messages", lost=True),
    "retry": _of_messages("retry", "Deliver {} now?", "due now", "messages"),
    "cancel": _of_messages("cancel", "Remove {}?", "removed", "messages", STATES, lost=True),
    "cancel-running": _of_one(
        "Cancel {}, so that nothing is delivered again?",
        "cancelled",
        "running messages",
        _running,
        _cancel_running,
        lost=True,
    ),
    "evict": _of_one(
        "Remove {}, and end what it holds?",
        "removed",
        "consumers",
        lambda site, terms: len(_consumers(site, terms)),
        _evict,
    ),
    "pause": _of_one(
        "Pause delivery of {}?",
        "waiting",
        "messages",
        _unsettled,
        lambda site, terms: site.queue(terms.queue).admin.pause(site.db, by=terms.by),
    ),
    "resume": _of_one(
        "Resume delivery of {}?",
        "in delivery",
        "messages",
        _unsettled,
        lambda site, terms: site.queue(terms.queue).admin.resume(site.db),
    ),
    "pause-schedule": _of_schedule("Pause {}?", "paused", "pause"),
    "resume-schedule": _of_schedule("Resume {}?", "resumed", "resume"),
    "run-schedule": _of_schedule("Run {} now?", "run", "run"),
    "forget-group": _of_one(
        "Forget {}, so that no message follows?",
        "forgotten",
        "groups",
        _group,
        _forget_group,
        lost=True,
    ),
    "pause-limit": _of_one(
        "Pause the limit, for which {} wait?",
        "waiting",
        "messages",
        _limited,
        lambda site, terms: _limit(site, terms).pause(site.db).waiting,
    ),
    "resume-limit": _of_one(
        "Resume the limit, for which {} wait?", "let out", "messages", _limited, _resume_limit
    ),
}
"""The actions, by the names that the audit log has for them."""
