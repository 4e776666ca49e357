"""The simulation's table of operations has every public operation and option of a queue."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fdbqueue import Producer, Queue, QueueOptions, Subscription, Worker
from fdbqueue.queue.admin.admin import Admin
from fdbqueue.queue.continuations.groups import Groups
from fdbqueue.queue.dead_letters import DeadLetters
from fdbqueue.queue.keys.message_keys import Key, Keys
from fdbqueue.queue.keys.shared_limits import Limits, SharedLimit
from fdbqueue.queue.line import Line
from fdbqueue.queue.schedules.schedules import Schedules
from fdbqueue.queue.streams.imports import Import
from fdbqueue.queue.streams.planner import Planner
from fdbqueue.queue.streams.plans import Plans
from fdbqueue.queue.streams.sinks import Sink, Stager
from fdbqueue.queue.streams.streams import Streams
from fdbqueue.queue.subscription.subscriptions import Subscriptions
from fdbqueue.values.limits import Bounds, KeyLimits
from fdbqueue.values.model import NewMessage

TOOLS = Path(__file__).parents[2] / "tools" / "workload"
PARTS: dict[str, tuple[type, ...]] = {
    "queue": (Queue,),
    "admin": (Admin,),
    "dead": (DeadLetters,),
    "groups": (Groups,),
    "keys": (Keys,),
    "key": (Key,),
    "limits": (Limits,),
    "limit": (SharedLimit,),
    "line": (Line,),
    "schedules": (Schedules,),
    "streams": (Streams,),
    "source": (Import,),
    "sink": (Sink,),
    "stager": (Stager,),
    "plans": (Plans,),
    "planner": (Planner,),
    "subscriptions": (Subscriptions,),
    "subscription": (Subscription,),
    "producer": (Producer,),
    "worker": (Worker,),
}
"""What the operations call each part of a queue."""
QUEUES = ("Queue", "mixed", "target", "made", "origin")
"""Other names of a queue."""
LEFT_OUT = {
    "admin.repair": "what it mends must not be there: verify says so all the time",
    "worker.handler": "as add",
    "worker.channel": "takes messages in a loop of the caller, over the worker that add runs",
    "worker.run": "waits for signals, which only a real process gets",
    "worker.stop": "as the end of the with block",
    "worker.over": "as the end of the with block",
    "worker.health": "is told to operators",
    "worker.concurrency": "is told to operators",
    "worker.prefetch": "is told to operators",
    "worker.described": "is told to operators",
}
"""Public operations that the table does without, and why."""
FIXED = {
    "paused": "set by admin.pause, of which only the operator makes use: he does not die",
    "content_type": "of a payload, which no operation looks at",
    "ttl_ends_at": "as ttl",
    "payload": "is always given",
}
"""Options and terms of which the same holds."""


def _trees() -> Iterator[ast.AST]:
    for path in TOOLS.glob("*.py"):
        yield from ast.walk(ast.parse(path.read_text()))


def test_every_public_operation_is_in_the_table() -> None:
    used = set()
    for node in _trees():
        if isinstance(node, ast.Attribute):
            owner = node.value
            if isinstance(owner, ast.Subscript | ast.Call):
                owner = owner.value if isinstance(owner, ast.Subscript) else owner.func
            name = getattr(owner, "attr", getattr(owner, "id", ""))
            used.add(f"{'queue' if name in QUEUES else name}.{node.attr}")
    public = {
        f"{part}.{name}"
        for part, kinds in PARTS.items()
        for kind in kinds
        for name in dir(kind)
        if not name.startswith("_")
    }
    missing = public - used - LEFT_OUT.keys()
    assert not missing, f"no operation of the simulation uses {sorted(missing)}"
    assert not LEFT_OUT.keys() - public


def test_every_option_and_term_is_in_the_table() -> None:
    words = {str(node.arg) for node in _trees() if isinstance(node, ast.keyword)}
    words |= {str(node.value) for node in _trees() if isinstance(node, ast.Constant)}
    kinds = (QueueOptions, Bounds, KeyLimits, NewMessage)
    every = {name for kind in kinds for name in kind.__match_args__}
    missing = every - words - FIXED.keys()
    assert not missing, f"no operation of the simulation sets {sorted(missing)}"
