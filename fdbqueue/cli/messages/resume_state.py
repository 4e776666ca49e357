"""The state file of a resumable import: ``fdbq enqueue --resume FILE``.

The file contains only the name of the import and, at the end, that it is complete. The transactions
that enqueue store its progress in the queue, so the two cannot get out of step.
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

from .. import terminal
from .json_lines import Place


@dataclass(slots=True)
class State:
    """The content of a state file; ``done`` is where a complete import ended."""

    path: str
    queue: str
    name: str
    done: Place | None = None

    def finish(self, place: Place) -> None:
        """Record that the import is complete."""
        self.done = place
        _write(self)


@contextmanager
def opened(path: str, queue: str) -> Iterator[State]:
    """Open the state file of an import into a queue, or create it; one process at a time."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise terminal.CommandError(f"--resume {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise terminal.CommandError(f"--resume {path}: another import is using it", 1) from None
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
        raise terminal.CommandError(f"--resume {path}: not a state file of an import") from None
    if state.queue != queue:
        raise terminal.CommandError(
            f"--resume {path}: this import belongs to queue {state.queue!r}"
        )
    return state


def _write(state: State) -> None:
    done = state.done
    stored = {
        "queue": state.queue,
        "import": state.name,
        "done": None if done is None else [done.lines, done.size, done.sha256],
    }
    # Write in place: replacing the file would lose the lock.
    with open(state.path, "r+b") as file:
        file.write(json.dumps(stored).encode().ljust(512) + b"\n")
        file.flush()
        os.fsync(file.fileno())
