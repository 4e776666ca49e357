"""Running a worker that a program defines: what ``fdbq worker module:app`` does."""

from __future__ import annotations

import importlib
import os
import sys

from ..errors import NoSuchWorker
from .worker import Worker


def load(target: str) -> Worker:
    """The worker that ``module:name`` names; ``name`` may lead through attributes.

    The current directory is searched, too. A name that is a function without parameters is
    called, and must return a worker. Raises ``NoSuchWorker``; what the module raises while it is
    imported passes through.
    """
    module, separator, name = target.partition(":")
    if not separator or not module or not name:
        raise NoSuchWorker(target=target, problem="give it as module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Not this module but one that it imports: that is the module's own error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise NoSuchWorker(target=target, problem=f"there is no module {error.name!r}") from None
    except ValueError as error:
        raise NoSuchWorker(target=target, problem=str(error)) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise NoSuchWorker(target=target, problem=f"there is no {part!r} in it")
        found = getattr(found, part)
    if not isinstance(found, Worker) and callable(found):
        found = found()
    if not isinstance(found, Worker):
        kind = type(found).__name__
        raise NoSuchWorker(target=target, problem=f"it is of the type {kind}, not a Worker")
    return found


def run(target: str) -> None:
    """Load a worker and run it until it is told to stop. Raises as ``load``."""
    load(target).run()
