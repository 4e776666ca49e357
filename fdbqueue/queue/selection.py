"""One selection, six verbs: ``cancel``, ``retry``, ``edit``, ``move``, ``copy`` and ``purge`` are
methods of ``Queue``, and ``count`` tells beforehand how many they would take.

All take ids, or what ``Chosen`` names, and return a ``Progress``. They raise ``InvalidSelector``,
``InvalidArgument`` and ``QueueNotFound``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

from ..consumers import wakeups
from ..errors import InvalidArgument
from ..messages import selection_pages
from ..messages.selection_pages import SelectedPage
from ..schema.key_kinds import Kind
from ..schema.keys import QueueKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.content import check_count, check_place
from ..values.durations import Seconds
from ..values.model import NOT_AN_ID, Message, Progress
from ..values.selector import Selector
from ..values.serializers import dumps
from ..values.states import State
from .enqueue import Enqueuing
from .queue_base import Handle, Transactor, finished
from .validation import check_terms, due

Ids = str | Iterable[str] | None
Match = Selector | str | Callable[[Message], bool] | None
States = str | Iterable[str] | None
Told = Callable[[Progress], object] | None

LEASED, DEAD = State.LEASED, State.DEAD
COMING = State.READY, State.WAITING
"""Those that come as soon as somebody takes them, or frees what they wait for."""
LATER = State.RETRYING, State.SCHEDULED


class Chosen(TypedDict, total=False):
    """Which messages a verb takes, and how it tells how far it is.

    ids: one id, or several, in place of ``match``. Those of other messages, or of messages in other
        states, are ignored. With a transaction of yours, up to a hundred; with a database, in as
        many transactions as it takes.
    match: a selector in the syntax of JMS, or a function of the message, which sees the ``death``
        of a dead letter but not its payload, and must not raise. It needs a database.
    states: one, or several, of those that the verb can change; None for all of these with ids, and
        else for its usual one.
    progress: called after each transaction with how far it is; stops it by returning False.
    resume: the ``place`` of the last progress, to continue after a crash.

    Without ids, a verb reads the messages in the order of delivery, up to 200 in a transaction. In
    each level it ends at the last message at the time when it begins with the ready ones, and it
    skips what is leased meanwhile. It takes each message exactly once, even if the outcome of a
    commit is unknown.
    """

    match: Match
    states: States
    progress: Told
    resume: bytes


class Verb(NamedTuple):
    """What is done to a page of messages.

    act: does it; returns how many it took, and their new ids. of, usual: the states of messages
    that it can change, and those that it takes unless told otherwise. all: whether it may take all
    of them without being told which. leaves: whether they leave the queue. stays: whether one that
    was changed may come again, further back. target: where they go.
    """

    act: Callable[[fdb.Transaction, Scope, SelectedPage], tuple[int, Sequence[str]]]
    of: Sequence[State]
    usual: Sequence[State] = COMING
    all: bool = True
    leaves: bool = True
    stays: bool = False
    target: Handle | None = None


def cancel(
    queue: Handle,
    tr: Transactor,
    ids: Ids = None,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Remove waiting messages, and ask the handlers of leased ones to stop.

    states: all but "dead"; None for all of these.

    A leased message is never delivered again: if it is acknowledged, it is done; else it ends with
    its lease. Its handler sees that as ``context.cancelled``, and ``get`` says so. It gives up its
    unique key. Messages of a plan, and dead letters, stay. Two round trips for each page, three for
    leased messages. Conflicts with whatever moves the messages, and with settlements of their rows
    of leases; the first time that a queue cancels a leased message, with every concurrent operation
    on the queue. Raises ``InvalidArgument`` for the id of a schedule's next tick.
    """

    def act(tr: fdb.Transaction, scope: Scope, page: SelectedPage) -> tuple[int, Sequence[str]]:
        selection_pages.leave(tr, scope, page.rows)
        return len(page.rows) + selection_pages.cancel(tr, scope, page.leased), ()

    every = (LEASED, *LATER, *COMING)
    verb = Verb(act, every, every, all=False)
    return _select(queue, tr, verb, ids, chosen)


def retry(
    queue: Handle,
    tr: Transactor,
    ids: Ids = None,
    *,
    at_once: int | None = None,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Make dead letters ready again, and retrying and scheduled messages due now.

    states: "dead", which is usual, "retrying" or "scheduled".
    at_once: how many messages one transaction reads, 1 to 200; None for 200. A ``progress`` that
        waits sets the pace.

    Those that come later keep their attempts; one that has failed is "retrying", even if it was put
    off since. A dead letter keeps its id and goes behind all others of its level, with no attempts
    made; it stays dead if another message now has its unique key. Those that die meanwhile stay.
    Three round trips for each page. Conflicts with whatever changes these messages.
    """
    if at_once is not None:
        check_count("at_once", at_once, selection_pages.PAGE_ROWS)

    def act(tr: fdb.Transaction, scope: Scope, page: SelectedPage) -> tuple[int, Sequence[str]]:
        waiting = wakeups.reads(tr, scope.keys, max(1, len(page.rows)))
        count = selection_pages.redrive(tr, scope, page.rows)
        if count:
            wakeups.wake(tr, scope.keys, waiting)
        return count, ()

    verb = Verb(act, (DEAD, *LATER), (DEAD,), leaves=False)
    return _select(queue, tr, verb, ids, chosen, most=at_once)


def edit(
    queue: Enqueuing[Any],
    tr: Transactor,
    ids: Ids = None,
    *,
    priority: int | None = None,
    delay: Seconds | None = None,
    at: datetime | None = None,
    payload: Any = ...,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Change the priority of waiting messages, when they are due, or what they say.

    priority: in another level a message goes behind all others; in the same level it keeps its
        place.
    delay, at: as in ``enqueue``, from now on; 0 makes it ready now. A ready message returns to
        its place when it is due. One with a key or limits gives up its slots until then, and comes
        in behind all others.
    payload: what the queue's serializer takes, for messages that ``ids`` name. Who has browsed them
        has seen what they said before.
    states: "ready", "waiting", "retrying" or "scheduled", and "dead" where only the payload
        changes; None for all of these.

    They keep their ids. Leased messages stay unchanged. Two or three round trips for each page.
    Conflicts with whatever moves the messages. Raises ``InvalidArgument``, and for a payload
    ``InvalidPayload`` and ``QueueFull``.
    """
    later = not (priority is None and delay is None and at is None)
    if not later and payload is ...:
        problem = "give what changes: priority, delay, at or payload"
        raise InvalidArgument(argument="priority", value=None, problem=problem)
    content = None if payload is ... else dumps(queue._serializer, payload)
    if content is not None and ids is None:
        problem = "a payload is for messages that you name: give ids"
        raise InvalidArgument(argument="ids", value=None, problem=problem)

    def act(tr: fdb.Transaction, scope: Scope, page: SelectedPage) -> tuple[int, Sequence[str]]:
        if priority is not None:
            scope.level(priority)
        due_ms = None
        if delay is not None or at is not None:
            due_ms = due(delay or 0.0, at, scope.now_ms(tr)) or 0
        waiting = wakeups.reads(tr, scope.keys, max(1, len(page.rows)))
        count = selection_pages.edit(tr, scope, page.rows, priority, due_ms, content)
        if count:
            wakeups.wake(tr, scope.keys, waiting)
        return count, ()

    every = (*LATER, *COMING) if later else (*LATER, *COMING, DEAD)
    verb = Verb(act, every, every, all=False, leaves=False, stays=True)
    return _select(queue, tr, verb, ids, chosen)


def move(
    queue: Handle,
    tr: Transactor,
    target: Handle | str,
    ids: Ids = None,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Move messages into another queue, each within one transaction; ``ids`` of the result are
    their new ids.

    target: the queue, or its name under the same root. Messages keep their payloads, headers and
        priorities, which are mapped to the target's levels; what comes later here does so there.
        They get new ids, no attempts and no unique key.
    states: all but "leased"; usual are "ready" and "waiting".

    Conflicts with other takers of the same messages. Raises ``QueueFull``: messages moved until
    then stay moved, the others stay.
    """
    verb = _into(queue, target, leaves=True)
    return _select(queue, tr, verb, ids, chosen)


def copy(
    queue: Handle,
    tr: Transactor,
    target: Handle | str,
    ids: Ids = None,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Copy messages into another queue; they stay here as they are. As ``move``; with a condition
    snapshot reads: no conflicts."""
    verb = _into(queue, target, leaves=False)
    return _select(queue, tr, verb, ids, chosen)


def purge(
    queue: Handle,
    tr: Transactor,
    ids: Ids = None,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Remove messages for good. Leased ones stay: see ``cancel``.

    states: all but "leased"; usual are "ready" and "waiting". Conflicts as ``move``.
    """

    def act(tr: fdb.Transaction, scope: Scope, page: SelectedPage) -> tuple[int, Sequence[str]]:
        selection_pages.leave(tr, scope, page.rows)
        return len(page.rows), ()

    verb = Verb(act, (*LATER, *COMING, DEAD))
    return _select(queue, tr, verb, ids, chosen)


def count(
    queue: Handle,
    tr: Transactor,
    ids: Ids = None,
    **chosen: Unpack[Chosen],
) -> Progress:
    """Count the messages that a verb would take, and leave them where they are: ``taken`` of the
    result. With a condition snapshot reads: no conflicts.

    states: any; usual are "ready" and "waiting".
    """

    def act(tr: fdb.Transaction, scope: Scope, page: SelectedPage) -> tuple[int, Sequence[str]]:
        return len(page.rows) + len(page.leased), ()

    verb = Verb(act, (LEASED, *LATER, *COMING, DEAD), leaves=False)
    return _select(queue, tr, verb, ids, chosen)


def _into(queue: Handle, target: Handle | str, *, leaves: bool) -> Verb:
    there = queue._other(target)

    def act(tr: fdb.Transaction, scope: Scope, page: SelectedPage) -> tuple[int, Sequence[str]]:
        if not page.rows:
            return 0, ()
        other = there._scope(tr)
        waiting = wakeups.reads(tr, other.keys, len(page.rows))
        arrive = selection_pages.move if leaves else selection_pages.arrive
        ids = arrive(tr, scope, other, page.rows)
        if any(row.source is not State.SCHEDULED for row in page.rows):
            wakeups.wake(tr, other.keys, waiting)
        return len(ids), ids

    return Verb(act, (*LATER, *COMING, DEAD), leaves=leaves, target=there)


def _select(
    queue: Handle,
    tr: Transactor,
    verb: Verb,
    ids: Ids,
    chosen: Chosen,
    most: int | None = None,
) -> Progress:
    check_terms(chosen, Chosen)
    match, progress = chosen.get("match"), chosen.get("progress")
    if progress is not None and not callable(progress):
        problem = "must be a function, which is given a Progress"
        raise InvalidArgument(argument="progress", value=progress, problem=problem)
    resume = check_place("resume", chosen.get("resume", b""))
    states = _states(chosen.get("states"), verb, named=ids is not None)
    if ids is not None:
        if match is not None:
            problem = "give ids or a condition, not both"
            raise InvalidArgument(argument="match", value=match, problem=problem)
        if isinstance(ids, bytes) or not isinstance(ids, Iterable):
            raise InvalidArgument(argument="ids", value=ids, problem=NOT_AN_ID)
        wanted = [ids] if isinstance(ids, str) else [*ids]
        for each in wanted:
            if not isinstance(each, str):
                raise InvalidArgument(argument="ids", value=each, problem=NOT_AN_ID)
        # Each once: the second would find its message changed, in another transaction or in this
        # one.
        wanted = [*dict.fromkeys(wanted)]
        if isinstance(tr, fdb.Transaction):
            return _named_in(queue, tr, verb, wanted, states)
        return finished(_named(queue, tr, verb, wanted, states), progress, Progress(0, 0, b""))
    if isinstance(tr, fdb.Transaction):
        raise InvalidArgument(
            argument="match", value=match, problem="it spans transactions: give a database, or ids"
        )
    if match is None and not verb.all:
        raise InvalidArgument(
            argument="ids", value=None, problem="give ids, or a condition: match='TRUE' for all"
        )
    most = most or selection_pages.PAGE_ROWS
    pages = _matching(queue, tr, verb, match, states, resume, most)
    return finished(pages, progress, Progress(0, 0, resume))


def _states(states: States, verb: Verb, *, named: bool) -> Sequence[State]:
    if states is None:
        return verb.of if named else verb.usual
    given = [states] if isinstance(states, str) or not isinstance(states, Iterable) else [*states]
    known = {state.value: state for state in verb.of}
    for each in given:
        if not isinstance(each, str) or each not in known:
            raise InvalidArgument(
                argument="states", value=each, problem=f"must be one of {', '.join(sorted(known))}"
            )
    return [state for state in verb.of if state.value in given]


def _named_in(
    queue: Handle, tr: fdb.Transaction, verb: Verb, ids: Sequence[str], states: Sequence[State]
) -> Progress:
    """Those with these ids, in one transaction."""
    if len(ids) > selection_pages.PAGE_IDS:
        raise InvalidArgument(
            argument="ids",
            value=len(ids),
            problem=f"at most {selection_pages.PAGE_IDS} in a transaction: give a database",
        )
    if not ids:
        return Progress(0, 0, b"")
    scope = queue._scope(tr)
    page = selection_pages.by_ids(tr, scope, ids, states)
    taken, new = verb.act(tr, scope, page)
    return Progress(taken, page.looked, b"", tuple(new))


def _named(
    queue: Handle, db: fdb.Database, verb: Verb, ids: Sequence[str], states: Sequence[State]
) -> Iterator[Progress]:
    """Those with these ids, as many as a transaction takes."""
    taken = looked = 0
    new: list[str] = []
    while looked < len(ids):
        some = ids[looked : looked + selection_pages.PAGE_IDS]
        body = partial(_named_in, queue, verb=verb, ids=some, states=states)
        done = queue._run(db, body, wrote=bool)
        taken, looked = taken + done.taken, looked + done.checked
        new += done.ids
        yield Progress(taken, looked, b"", new)


def _matching(
    queue: Handle,
    db: fdb.Database,
    verb: Verb,
    match: Match,
    states: Sequence[State],
    resume: bytes,
    most: int,
) -> Iterator[Progress]:
    """Those that are wanted, page by page."""
    now_ms = queue._clock.now_ms(db)
    wanted = predicate(match, lambda: now_ms)
    taken = looked = 0
    new: list[str] = []
    changed: set[str] = set()
    # Lines of ordering keys end before their heads, and are copied after them: so a key keeps its
    # order. The end of the ready messages is looked for when they come up.
    kinds = [
        kind for kind, those in selection_pages.KINDS.items() if not {*states}.isdisjoint(those)
    ]
    if not verb.leaves:
        kinds.sort(key=lambda kind: kind is QueueKeys.waiting)
    place = resume
    for kind in kinds:
        ranges = queue._read(db, partial(_plan, queue, verb.target, kind))
        # Everything before the kind with this place was done by the run that was interrupted, and
        # there all that stands before it: ranges may end earlier by now.
        every = queue._keys.kind(kind)
        if place and not every.start < place <= every.stop:
            continue
        begins, place = place, b""
        for each in ranges:
            following = max(each.start, begins)
            while following and following < each.stop:
                rest = slice(following, each.stop)
                terms = kind, states, lambda one: one.id not in changed and wanted(one), rest
                page = partial(_page, queue, verb, terms, most)
                found, count, ids = queue._run(db, page, wrote=lambda done: done[1] > 0)
                following = found.following
                taken, looked = taken + count, looked + found.looked
                new += ids
                if verb.stays:
                    # In another level it stands behind the cursor of this operation, which would
                    # change it again when it comes there.
                    changed.update(row.message.id for row in found.rows)
                if found.looked:
                    yield Progress(taken, looked, following or each.stop, new)
    if place:
        problem = "is no place of this verb with these states in this queue: begin without it"
        raise InvalidArgument(argument="resume", value=resume, problem=problem)


def _plan(queue: Handle, target: Handle | None, kind: Kind, tr: fdb.Transaction) -> list[slice]:
    if target is not None:
        # A target that does not exist is an error before the first page, and not after some of it
        # has moved.
        target._options(tr)
    return selection_pages.ranges(tr, queue._scope(tr), kind)


def _page(
    queue: Handle,
    verb: Verb,
    terms: tuple[Kind, Sequence[State], Callable[[Message], bool], slice],
    most: int,
    tr: fdb.Transaction,
) -> tuple[SelectedPage, int, Sequence[str]]:
    scope = queue._scope(tr)
    page = selection_pages.page(tr, scope, *terms, most=most, leaves=verb.leaves)
    return (page, *verb.act(tr, scope, page))


def predicate(match: Match, now_ms: Callable[[], int]) -> Callable[[Message], bool]:
    """Whether a message is wanted, by a clock in milliseconds."""
    if match is None:
        return lambda _: True
    if isinstance(match, str):
        match = Selector(match)
    if isinstance(match, Selector):
        selector = match
        return lambda message: selector.matches(message, now_ms())
    if not callable(match):
        problem = "must be a selector, or a function of the message"
        raise InvalidArgument(argument="match", value=match, problem=problem)
    return match
