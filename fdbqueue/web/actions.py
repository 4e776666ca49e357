"""What operators may do: to how many, and how, through the methods of ``Queue``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..consumers.registry import Consumer
from ..errors import InvalidArgument, NotFound
from ..queue.keys.shared_limits import SharedLimit
from ..values.model import Message
from ..values.options import check_name
from ..values.selector import Selector
from . import filters
from .filters import Filter, Query
from .site import Site

LATER = ("retrying", "scheduled")
STATES = ("ready", "waiting", *LATER)
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


def _dead(site: Site, terms: ActionTerms) -> Counted:
    queue = site.queue(terms.queue)
    if terms.message:
        return int(queue.dead.show(site.db, terms.message) is not None), True
    if not terms.filter:
        return queue.depth(site.db).dead, True
    matches = terms.filter.predicate()
    return filters.count(
        lambda limit, after: queue.dead.list(site.db, limit, after),
        lambda each: matches(replace(each.message, death=each.death)),
    )


def _waiting(site: Site, terms: ActionTerms) -> Counted:
    queue = site.queue(terms.queue)
    if _selector(terms) is None:
        return int(getattr(queue.depth(site.db), terms.state)), True
    matches = terms.filter.predicate()
    return filters.count(
        lambda limit, after: queue.messages(site.db, terms.state, limit, after),
        lambda each: matches(each.message),
    )


def _later(site: Site, terms: ActionTerms) -> Counted:
    if terms.state not in LATER:
        problem = f"must be one of {', '.join(LATER)}"
        raise InvalidArgument(argument="state", value=terms.state, problem=problem)
    return _message(site, terms) if terms.message else _waiting(site, terms)


def _moved(site: Site, terms: ActionTerms) -> Counted:
    _target(site, terms)
    return _waiting(site, terms)


def _moved_dead(site: Site, terms: ActionTerms) -> Counted:
    _target(site, terms)
    return _dead(site, terms)


def _message(site: Site, terms: ActionTerms) -> Counted:
    found = site.queue(terms.queue).get(site.db, terms.message)
    return int(found is not None and found.state.value in STATES), True


def _running(site: Site, terms: ActionTerms) -> Counted:
    """A message that is leased, and not by a plan, unless it was cancelled already."""
    found = site.queue(terms.queue).get(site.db, terms.message)
    leased = found is not None and found.lease_expires_at_ms is not None
    return int(leased and found is not None and not found.cancelled), True


def _consumer(site: Site, terms: ActionTerms) -> Counted:
    return len(_consumers(site, terms)), True


def _whole(site: Site, terms: ActionTerms) -> Counted:
    return site.queue(terms.queue).depth(site.db).unsettled, True


def _schedule(site: Site, terms: ActionTerms) -> Counted:
    if site.queue(terms.queue).schedules.get(site.db, terms.schedule) is None:
        raise NotFound(kind="schedule", queue=terms.queue, name=terms.schedule)
    return 1, True


def _group(site: Site, terms: ActionTerms) -> Counted:
    if site.queue(terms.queue).groups.get(site.db, terms.group) is None:
        raise NotFound(kind="group", queue=terms.queue, name=terms.group)
    return 1, True


def _limited(site: Site, terms: ActionTerms) -> Counted:
    """How many messages wait for a limit."""
    return _limit(site, terms).state(site.db).waiting, True


def _redrive(site: Site, terms: ActionTerms, told: Told) -> int:
    return site.queue(terms.queue).retry(site.db, **_which(terms, "dead", told)).taken


def _purge_dead(site: Site, terms: ActionTerms, told: Told) -> int:
    return site.queue(terms.queue).purge(site.db, **_which(terms, "dead", told)).taken


def _move_dead(site: Site, terms: ActionTerms, told: Told) -> int:
    return _move_all(site, terms, "dead", told)


def _move(site: Site, terms: ActionTerms, told: Told) -> int:
    _selector(terms)
    return _move_all(site, terms, terms.state, told)


def _move_all(site: Site, terms: ActionTerms, state: str, told: Told) -> int:
    queue, target = site.queue(terms.queue), _target(site, terms)
    return queue.move(site.db, target, **_which(terms, state, told)).taken


def _purge(site: Site, terms: ActionTerms, told: Told) -> int:
    _selector(terms)
    return site.queue(terms.queue).purge(site.db, **_which(terms, terms.state, told)).taken


def _retry(site: Site, terms: ActionTerms, told: Told) -> int:
    _selector(terms)
    return site.queue(terms.queue).retry(site.db, **_which(terms, terms.state, told)).taken


def _which(terms: ActionTerms, state: str, told: Told) -> dict[str, Any]:
    """The messages of an action, as the verbs of a queue take them."""
    if terms.message:
        return {"ids": terms.message, "states": state}
    return {
        "match": _wanted(terms),
        "states": state,
        "progress": lambda progress: told(progress.taken),
    }


def _cancel(site: Site, terms: ActionTerms, _: Told) -> int:
    return site.queue(terms.queue).cancel(site.db, terms.message, states=STATES).taken


def _cancel_running(site: Site, terms: ActionTerms, _: Told) -> int:
    queue = site.queue(terms.queue)
    taken = queue.cancel(site.db, terms.message).taken
    found = queue.get(site.db, terms.message)
    # Somebody else may have been faster: it is cancelled, as was wanted.
    return int(taken > 0 or (found is not None and found.cancelled))


def _evict(site: Site, terms: ActionTerms, _: Told) -> int:
    queue = site.queue(terms.queue)
    return sum(len(queue.admin.evict(site.db, each)) for each in _consumers(site, terms))


def _pause(site: Site, terms: ActionTerms, _: Told) -> int:
    ready, _all = _whole(site, terms)
    site.queue(terms.queue).admin.pause(site.db, by=terms.by)
    return ready


def _resume(site: Site, terms: ActionTerms, _: Told) -> int:
    ready, _all = _whole(site, terms)
    site.queue(terms.queue).admin.resume(site.db)
    return ready


def _pause_schedule(site: Site, terms: ActionTerms, _: Told) -> int:
    site.queue(terms.queue).schedules.pause(site.db, terms.schedule)
    return 1


def _resume_schedule(site: Site, terms: ActionTerms, _: Told) -> int:
    site.queue(terms.queue).schedules.resume(site.db, terms.schedule)
    return 1


def _run_schedule(site: Site, terms: ActionTerms, _: Told) -> int:
    site.queue(terms.queue).schedules.run(site.db, terms.schedule)
    return 1


def _forget_group(site: Site, terms: ActionTerms, _: Told) -> int:
    return int(site.queue(terms.queue).groups.forget(site.db, terms.group))


def _pause_limit(site: Site, terms: ActionTerms, _: Told) -> int:
    return _limit(site, terms).pause(site.db).waiting


def _resume_limit(site: Site, terms: ActionTerms, _: Told) -> int:
    before, _all = _limited(site, terms)
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


def _selector(terms: ActionTerms) -> Selector | None:
    if terms.filter.reason or terms.filter.error:
        raise InvalidArgument(
            argument="filter",
            value=terms.filter.reason or terms.filter.error,
            problem="only dead letters have one: give a selector",
        )
    return Selector(terms.filter.selector) if terms.filter.selector else None


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
    "redrive": Action(
        "Deliver {} again?", "ready again", "dead letters", _dead, _redrive, takes=True
    ),
    "purge-dead": Action(
        "Remove {}?", "removed", "dead letters", _dead, _purge_dead, lost=True, takes=True
    ),
    "move-dead": Action("Move {}?", "moved", "dead letters", _moved_dead, _move_dead, takes=True),
    "move": Action("Move {}?", "moved", "messages", _moved, _move, takes=True),
    "purge": Action("Remove {}?", "removed", "messages", _waiting, _purge, lost=True, takes=True),
    "retry": Action("Deliver {} now?", "due now", "messages", _later, _retry, takes=True),
    "cancel": Action("Remove {}?", "removed", "messages", _message, _cancel, lost=True),
    "cancel-running": Action(
        "Cancel {}, so that nothing is delivered again?",
        "cancelled",
        "running messages",
        _running,
        _cancel_running,
        lost=True,
    ),
    "evict": Action("Remove {}, and end what it holds?", "removed", "consumers", _consumer, _evict),
    "pause": Action("Pause delivery of {}?", "waiting", "messages", _whole, _pause),
    "resume": Action("Resume delivery of {}?", "in delivery", "messages", _whole, _resume),
    "pause-schedule": Action("Pause {}?", "paused", "schedules", _schedule, _pause_schedule),
    "resume-schedule": Action("Resume {}?", "resumed", "schedules", _schedule, _resume_schedule),
    "run-schedule": Action("Run {} now?", "run", "schedules", _schedule, _run_schedule),
    "forget-group": Action(
        "Forget {}, so that no message follows?",
        "forgotten",
        "groups",
        _group,
        _forget_group,
        lost=True,
    ),
    "pause-limit": Action(
        "Pause the limit, for which {} wait?", "waiting", "messages", _limited, _pause_limit
    ),
    "resume-limit": Action(
        "Resume the limit, for which {} wait?", "let out", "messages", _limited, _resume_limit
    ),
}
"""The actions, by the names that the audit log has for them."""
