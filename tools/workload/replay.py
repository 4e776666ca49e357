"""The queue's own delivery history, replayed in the order of the commits.

Every transition must start where the message is. Of a queue whose consumers never wait, the one
that is taken must be the first of all that are ready at that commit: order and priority hold
exactly there, not only as far as real time tells.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

from fdbqueue.values.states import LEASE, TRANSITIONS, State

from .view import View
from .violations import Violation, violation

EDGES = {edge.name: edge for edge in TRANSITIONS}


def legal(view: View) -> Iterator[Violation]:
    """Every transition starts where the message is, and takes the first message."""
    plain = {
        (queue, taken[0].id)
        for (queue, tag), taken in view.taken.items()
        if taken and (queue, tag) in view.told and view.told[queue, tag].in_order
    }
    for queue, events in view.events.items():
        states: dict[str, State] = {}
        ready: list[str] = []
        for n, (name, identity, _, _) in enumerate(events):
            edge = EDGES[name]
            if states.get(identity) is not edge.source:
                where = states.get(identity)
                text = f"{queue}: event {n}: {name} of {identity}, which is {where}"
                yield violation("illegal transition", text)
            while ready and states[ready[0]] is not State.READY:
                heapq.heappop(ready)
            known = (queue, identity) in plain
            takes = edge is LEASE or name == "dequeue"
            if takes and known and queue == "first" and ready and ready[0] < identity:
                text = f"{queue}: event {n}: {name} of {identity}, but {ready[0]} is ready"
                yield violation("not the first", text)
            states[identity] = edge.target
            if edge.target is State.READY and known:
                heapq.heappush(ready, identity)
        depth, ended = view.finals.get(queue, {}).get("depth"), Counter(states.values())
        for state in (State.DONE, State.DEAD):
            if depth is not None and ended[state] != depth[state.value]:
                yield violation("history", f"{queue}: {ended[state]} are {state.value}: {depth}")
