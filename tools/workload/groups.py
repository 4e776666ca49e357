"""The groups of a run, once all is quiet: each ended as its messages did, with one callback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fdbqueue import Queue
from fdbqueue.values.groups import Group

from .place import Place

PAGE = 1_000


def callbacks(place: Place) -> Counter[str]:
    """How many callbacks there are, by the names of their groups."""
    place.callbacks.admin.sweep(place.db)
    messages = [*place.callbacks.browse(place.db)]
    # Whose clock was ahead has put some off.
    messages += [each.message for each in place.callbacks.messages(place.db, "scheduled", 1_000)]
    return Counter(str(each.headers["group"]) for each in messages)


def wrong(place: Place, queue: Queue, called: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with the groups of a queue of which nothing is left to handle."""
    for group in _all(place, queue):
        calls = called.get(group.name, 0)
        if group.left and group.left != group.dead:
            yield f"group {group.name} waits for {group.left} messages, and {group.dead} are dead"
        if group.total != group.done + group.dead + group.failed:
            yield f"group {group.name} does not add up: {group}"
        if group.state != _wanted(group):
            yield f"group {group.name} is {group.state}, not {_wanted(group)}: {group}"
        if calls != (group.state == "complete"):
            yield f"group {group.name} is {group.state}, and has {calls} callbacks"


def _wanted(group: Group) -> str:
    if group.then_on == "settled":
        return "complete"
    if group.dead:
        return "running"
    return "failed" if group.failed else "complete"


def _all(place: Place, queue: Queue) -> Iterator[Group]:
    after = None
    while found := queue.groups.list(place.db, PAGE, after=after):
        yield from found
        after = found[-1].name
