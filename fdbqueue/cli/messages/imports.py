"""An import: messages from standard input, enqueued batch by batch."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import BinaryIO

import fdbqueue

from ...errors import InvalidInput, QueueError
from ...store.binding import FAILURES
from .. import terminal
from . import csv_lines, json_lines, resume_state

INTERRUPTED_SECONDS = 5.0
"""How long an interrupted import waits for its running transaction."""


@dataclass(slots=True)
class Progress:
    """The progress of an import."""

    messages: int = 0
    new: int = 0
    size: int = 0

    @property
    def known(self) -> int:
        """Messages that existed already, by their dedup ids or unique keys."""
        return self.messages - self.new


def run(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    given: fdbqueue.NewMessage,
    resume: str | None,
    as_csv: bool,
) -> Progress:
    """Enqueue the messages on standard input, batch by batch."""
    options = queue.options(db)
    options.level(given.priority)
    stream: BinaryIO = csv_lines.stream(sys.stdin.buffer) if as_csv else sys.stdin.buffer
    done = Progress()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        if resume is None:
            reader = json_lines.Reader(options, given, digest=False)
            _batches(reader, stream, done, lambda batch: queue.enqueue_many(db, batch.messages).new)
        else:
            state = stack.enter_context(resume_state.opened(resume, queue.name))
            before = _resume(db, queue, state, options, given, stream, done)
            if before and not done.messages:
                terminal.note(f"nothing left to enqueue: the import of {resume} is complete")
                return done
    if not done.messages:
        terminal.note("no messages on standard input; nothing was enqueued")
        return done
    seconds = time.monotonic() - started
    rate = f" ({done.messages / seconds:,.0f}/s)" if seconds > 1 else ""
    known = f"; {done.known:,} existed already" if done.known else ""
    terminal.note(f"enqueued {terminal.count(done.new, 'message')} in {seconds:.1f} s{rate}{known}")
    return done


def _resume(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    state: resume_state.State,
    options: fdbqueue.QueueOptions,
    given: fdbqueue.NewMessage,
    stream: BinaryIO,
    done: Progress,
) -> int:
    """Enqueue the rest of an import, storing the place of each batch together with it.

    Returns how many lines were enqueued before.
    """
    source = fdbqueue.Import(queue, state.name)
    stored = source.place(db)
    try:
        since = json_lines.Place.parse(stored) if stored else state.done or json_lines.Place()
    except ValueError:
        raise terminal.CommandError(
            f"import {state.name} was started by another release", 1
        ) from None
    reader = json_lines.Reader(options, given, since, digest=True)
    if not reader.skip(stream):
        raise terminal.CommandError(
            f"this is not the input of the import: its first {since.lines:,} lines differ"
        )
    if since.lines:
        terminal.note(f"resuming after {terminal.count(since.lines, 'line')}")
    place, ended = stored, since

    def put(batch: json_lines.Batch) -> int:
        nonlocal place, ended
        following = batch.until.pack()
        ids = source.enqueue(db, batch.messages, since=place, until=following)
        place, ended = following, batch.until
        return ids.new

    _batches(reader, stream, done, put)
    if ended.lines:
        state.finish(ended)
        source.forget(db)
    return since.lines


def _batches(
    reader: json_lines.Reader,
    stream: BinaryIO,
    done: Progress,
    put: Callable[[json_lines.Batch], int],
) -> None:
    """Enqueue batch by batch, reading the next one at the same time."""
    under_way: tuple[json_lines.Batch, Future[int]] | None = None

    def settle() -> None:
        nonlocal under_way
        if under_way is not None:
            batch, future = under_way
            try:
                new = future.result()
            except InvalidInput:
                reader.blame(batch)
                raise
            finally:
                under_way = None
            done.messages += len(batch.messages)
            done.new += new
            done.size = batch.until.size

    try:
        with terminal.progress("messages enqueued", _size(stream)) as update:
            try:
                for batch in reader.batches(stream):
                    settle()
                    under_way = batch, _start(put, batch)
                    update(done.messages, completed=done.size)
            finally:
                if under_way is not None and isinstance(sys.exception(), KeyboardInterrupt):
                    under_way[1].exception(INTERRUPTED_SECONDS)
                settle()
    except InvalidInput as error:
        raise terminal.CommandError(f"{error}; {_before(done.messages)}") from None
    except (QueueError, *FAILURES) as error:
        raise terminal.CommandError(f"{error}; {_before(done.messages)}", exit_code=1) from None
    except (KeyboardInterrupt, TimeoutError):
        known = terminal.count(done.messages, "message")
        raise terminal.CommandError(f"interrupted; at least {known} enqueued", 130) from None


def _start(put: Callable[[json_lines.Batch], int], batch: json_lines.Batch) -> Future[int]:
    """Enqueue a batch in a daemon thread, which never delays the end of the process."""
    future: Future[int] = Future()

    def run() -> None:
        try:
            new = put(batch)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(new)

    threading.Thread(target=run, name="fdbq-enqueue", daemon=True).start()
    return future


def _before(enqueued: int) -> str:
    if not enqueued:
        return "nothing was enqueued"
    were = "was" if enqueued == 1 else "were"
    return f"{terminal.count(enqueued, 'message')} before it {were} enqueued"


def _size(stream: BinaryIO) -> int | None:
    """The size of the input, if known."""
    if not stream.seekable():
        return None
    found = os.fstat(stream.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size else None
