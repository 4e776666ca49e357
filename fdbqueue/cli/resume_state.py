"""The state file of an import that can be gone on with: ``fdbq enqueue --resume FILE``.

The file only names the import, and says in the end that it is done. How far it has come is stored
in the queue, in the transactions that enqueue: so there is nothing to lose between the two.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import terminal
from .json_lines import Place


@dataclass(slots=True)
class State:
    """What the state file says; ``done`` is where the import has ended."""

    path: str
    queue: str
    name: str
    done: Place | None = None

    def finish(self, place: Place) -> None:
        """Say that the import has ended there."""
        self.done = place
        _write(self)


@contextmanager
def opened(path: str, queue: str) -> Iterator[State]:
    """The state of an import into a queue; made where there is none. One process at a time."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise terminal.Refused(f"--resume {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise terminal.Refused(f"--resume {path}: another import uses it", 1) from None
        yield _read(path, queue)
    finally:
        os.close(descriptor)


def _read(path: str, queue: str) -> State:
    with open(path, "rb") as file:
        text = file.read()
    if not text:
        state = State(path, queue, f"import-{uuid.uuid4().hex}")
        _write(state)
        return state
    try:
        stored: dict[str, Any] = json.loads(text)
        done = stored["done"]
        state = State(
            path, stored["queue"], stored["import"], None if done is None else Place(*done)
        )
    except (ValueError, KeyError, TypeError):
        raise terminal.Refused(f"--resume {path}: not the state of an import") from None
    if state.queue != queue:
        raise terminal.Refused(f"--resume {path}: that import is into queue {state.queue!r}")
    return state


def _write(state: State) -> None:
    done = state.done
    stored = {
        "queue": state.queue,
        "import": state.name,
        "done": None if done is None else [done.lines, done.size, done.sha256],
    }
    # In place, under the lock: a new file would have another one.
    with open(state.path, "r+b") as file:
        file.write(json.dumps(stored).encode().ljust(512) + b"\n")
        file.flush()
        os.fsync(file.fileno())
