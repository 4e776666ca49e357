"""Runs a worker that a module defines, for ``fdbq worker module:app``."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ...errors import InvalidArgument
from ...queue.internals import Internals, jobs
from ...queue.queue import Queue
from ...values.text import meant
from ...values.verdicts import text
from ..health import Address, Systemd
from ..worker import Worker
from .membership import Membership, stop_with_parent


def load(target: str) -> Worker:
    """The worker that ``module:name`` names; ``name`` may lead through attributes.

    The current directory is searched, too. A name that is a function without parameters is
    called, and must return a worker or a queue. A queue has a worker for its jobs, and a module
    without a name one for the jobs of all its queues. Raises ``InvalidArgument``.
    """
    module, separator, name = target.partition(":")
    if not module or (separator and not name):
        raise _no_worker(target, "give it as module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except Exception as error:
        raise _no_worker(target, _why(module, error)) from error
    if not separator:
        held = {each: _original(one) for each, one in vars(found).items()}
        queues = [each for each in held.values() if isinstance(each, Queue)]
        workers = [each for each, one in held.items() if isinstance(one, Worker)]
        named = " or ".join(f"{module}:{each}" for each in workers) or "name a worker"
        return _jobs(target, queues, f"no queue in it has a job: {named}")
    for part in name.split("."):
        if not hasattr(found, part):
            raise _no_worker(target, f"there is no {part!r} in it{meant(part, dir(found))}")
        found = getattr(found, part)
    found = _original(found)
    if not isinstance(found, Worker | Queue) and callable(found) and _calls_without(found):
        try:
            found = _original(found())
        except Exception as error:
            raise _no_worker(target, _failure("calling", error)) from error
    if isinstance(found, Queue):
        problem = f"queue {found.name!r} has no job: name a worker of it, or give it jobs"
        return _jobs(target, [found], problem)
    if not isinstance(found, Worker):
        kind = type(found).__name__
        raise _no_worker(target, f"it is of the type {kind}, not a Worker")
    return found


def _calls_without(found: Callable[..., Any]) -> bool:
    """Whether it can be called without arguments."""
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def _jobs(target: str, queues: list[Queue[Any]], otherwise: str) -> Worker:
    """A worker for the jobs of queues. otherwise: what is wrong if they have none."""
    # Once for each queue, by whichever names a module has it.
    having = {Internals(each).keys.prefix: each for each in queues if jobs(each)}
    worker: Worker | None = None
    for queue in having.values():
        if queue._db is None:
            problem = f"queue {queue.name!r} was not opened with a database: give a worker"
            raise _no_worker(target, problem)
        worker = (worker or Worker(queue._db)).add(queue)
    if worker is None:
        raise _no_worker(target, otherwise)
    return worker


def _original(found: object) -> object:
    """What a twin of ``fdbqueue.aio`` stands for."""
    return getattr(found, "blocking", found)


def _why(module: str, error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if os.sep in module:
        missing = module
    if missing and f"{module}.".startswith(f"{missing}."):
        return f"there is no module {missing!r}{_meant_module(module, missing)}"
    return _failure("importing", error)


def _failure(what: str, error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{what} it fails in {frame.filename}, line {frame.lineno}: {text(error)}"


def _meant_module(module: str, missing: str) -> str:
    """Which module is meant, to be put behind a sentence."""
    if module.endswith(".py") or os.sep in module:
        return f": did you mean {module.removesuffix('.py').strip('./').replace(os.sep, '.')!r}?"
    parent = missing.rpartition(".")[0]
    places = vars(sys.modules[parent]).get("__path__", ()) if parent else [os.getcwd()]
    prefix = f"{parent}." if parent else ""
    return meant(missing, [prefix + each.name for each in pkgutil.iter_modules(places)])


def run(
    target: str,
    concurrency: int | None = None,
    tell: Callable[[str], object] | None = None,
    health: Address | None = None,
    place: Membership | None = None,
    metrics: Callable[[], Any] | None = None,
) -> None:
    """Load a worker and run it until it is told to stop.

    concurrency, health: override the worker's own. tell: called with each line that describes it.
    place: that of this process among several, each of which takes the next port of the worker's own
    health. metrics: makes what counts, for a worker with health that has nothing of its own.

    If systemd has started it, it tells when it takes messages, that it lives, and when it stops.

    Raises ``InvalidArgument``.
    """
    # The first process of a container ignores a signal that it has no handler for, and would begin.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    systemd = Systemd.from_environment() if place is None else place.systemd()
    worker = load(target)
    worker._systemd = systemd
    if concurrency is not None:
        worker.concurrency = concurrency
    if health is not None:
        worker.health = health
    elif worker.health is not None and worker.health[1] and place is not None:
        host, port = worker.health
        worker.health = host, port + place.number
    if worker.health is not None and worker.metrics is None and metrics is not None:
        worker.metrics = metrics()
    worker.tells = None if place is None else place.tell
    # Before it tells that it runs: a taken port is an error of the start.
    worker._listen()
    if tell is not None:
        for line in worker.described():
            tell(line)
    stop_with_parent(worker.stop)
    worker.run()


def _no_worker(target: str, problem: str) -> InvalidArgument:
    return InvalidArgument(argument="worker", value=target, problem=problem)
