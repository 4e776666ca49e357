"""The package takes time, chance and threads from one module, and keeps what a process remembers
there."""

from __future__ import annotations

import ast
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fdbqueue
from fdbqueue.store import world
from tests.patience import DEADLINE

PACKAGE = Path(fdbqueue.__file__).parent
OUTSIDE = {"cli", "web", "spark"}
"""Rooms that no simulation runs."""
MODULES = {"time", "random", "secrets", "threading", "uuid"}
FORBIDDEN = {
    "os.urandom",
    "datetime.now",
    "datetime.utcnow",
    "concurrent.futures.ThreadPoolExecutor",
}
ALLOWED = {
    "store/world.py": MODULES | FORBIDDEN,
    # The kernel takes moments of its own clock.
    "store/embedded/storage/futex.py": {"time"},
    # Its chance comes from a seed of its own.
    "store/embedded/faults.py": {"random"},
    # Where an event loop calls functions that wait.
    "aio/worker.py": {"concurrent.futures.ThreadPoolExecutor"},
}

FILES = {
    str(path.relative_to(PACKAGE)): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in OUTSIDE
}


def used(tree: ast.AST) -> Iterator[str]:
    """What a module uses of the world directly."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            if node.module in MODULES:
                yield str(node.module)
            for alias in node.names:
                if (name := f"{node.module}.{alias.name}") in FORBIDDEN:
                    yield name
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN:
            yield ast.unparse(node)


def test_modules_take_the_world_through_its_door() -> None:
    past = {
        name: {*used(ast.parse(file.read_text()))} - ALLOWED.get(name, set())
        for name, file in FILES.items()
    }
    assert {name: found for name, found in past.items() if found} == {}


@pytest.mark.parametrize(
    "program",
    ["import time", "from threading import Lock", "import os\nos.urandom(4)", "import uuid"],
)
def test_what_goes_past_the_door_is_seen(program: str) -> None:
    assert list(used(ast.parse(program)))


class Memory(list[int]):
    pass


def test_a_process_remembers_in_its_own_world_only() -> None:
    mine = world.current
    world.remembered(Memory).append(1)
    try:
        world.enter(world.World())
        assert world.remembered(Memory) == []
    finally:
        world.enter(mine)
    assert world.remembered(Memory) == [1]


def test_a_forked_child_is_in_a_world_of_its_own() -> None:
    world.remembered(Memory).append(1)
    drawn = world.random.getstate()
    child = os.fork()
    if not child:
        fresh = not world.remembered(Memory) and world.random.getstate() != drawn
        os._exit(0 if fresh else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_wait_whose_time_is_over_before_it_sleeps_ends() -> None:
    ended = threading.Event()

    def wait() -> None:
        for _ in range(20_000):
            world.Event().wait(1e-9)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(DEADLINE)


def test_an_event_wakes_all_who_wait_and_can_be_cleared() -> None:
    event = world.Event()
    woken: queue.SimpleQueue[bool] = queue.SimpleQueue()
    for _ in range(5):
        threading.Thread(target=lambda: woken.put(event.wait(DEADLINE)), daemon=True).start()
    event.set()
    event.set()
    assert [woken.get(timeout=DEADLINE) for _ in range(5)] == [True] * 5
    assert event.wait(0)
    event.clear()
    assert not event.is_set()
    assert not event.wait(0)
    assert not event.wait(1e-3)
