"""Many messages from standard input, for ``fdbq enqueue``: batch by batch, once for each line."""

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

from ..errors import InvalidInput, QueueError
from ..store.binding import FAILURES
from . import csv_lines, json_lines, resume_state, terminal

INTERRUPTED_SECONDS = 5.0
"""How long an interrupted import waits for the batch that is under way."""


@dataclass(slots=True)
class Enqueued:
    """What an import has done so far."""

    messages: int = 0
    new: int = 0
    size: int = 0

    @property
    def known(self) -> int:
        """Messages that were there already, by their dedup ids or unique keys."""
        return self.messages - self.new


def enqueue_lines(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    given: fdbqueue.NewMessage,
    resume: str | None,
    as_csv: bool,
) -> Enqueued:
    """Enqueue what standard input has, batch by batch."""
    options = queue.options(db)
    options.level(given.priority)
    stream: BinaryIO = csv_lines.stream(sys.stdin.buffer) if as_csv else sys.stdin.buffer
    done = Enqueued()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        if resume is None:
            reader = json_lines.Reader(options, given, digest=False)
            _batches(reader, stream, done, lambda batch: queue.enqueue_many(db, batch.messages).new)
        else:
            state = stack.enter_context(resume_state.opened(resume, queue.name))
            before = _go_on(db, queue, state, options, given, stream, done)
            if before and not done.messages:
                terminal.note(f"there was nothing left to enqueue: {resume} says it is all there")
                return done
    if not done.messages:
        terminal.note("there were no messages on standard input: nothing was enqueued")
        return done
    seconds = time.monotonic() - started
    rate = f" ({done.messages / seconds:,.0f}/s)" if seconds > 1 else ""
    known = f"; {done.known:,} were there already" if done.known else ""
    terminal.note(f"enqueued {terminal.count(done.new, 'message')} in {seconds:.1f} s{rate}{known}")
    return done


def _go_on(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    state: resume_state.State,
    options: fdbqueue.QueueOptions,
    given: fdbqueue.NewMessage,
    stream: BinaryIO,
    done: Enqueued,
) -> int:
    """Enqueue what an import has not enqueued yet, each batch together with its place.

    Returns how many lines it had before.
    """
    source = fdbqueue.Import(queue, state.name)
    stored = source.place(db)
    try:
        since = json_lines.Place.parse(stored) if stored else state.done or json_lines.Place()
    except ValueError:
        raise terminal.Refused(f"import {state.name} of another release", 1) from None
    reader = json_lines.Reader(options, given, since, digest=True)
    if not reader.skip(stream):
        raise terminal.Refused(
            f"the input is not that of the import: its first {since.lines:,} lines were others"
        )
    if since.lines:
        terminal.note(f"{terminal.count(since.lines, 'line')} before were done")
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
    done: Enqueued,
    put: Callable[[json_lines.Batch], int],
) -> None:
    """Put batch after batch, and read the next one meanwhile."""
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
        with terminal.progress("messages enqueued", _size(stream)) as bar:
            try:
                for batch in reader.batches(stream):
                    settle()
                    under_way = batch, _start(put, batch)
                    bar.update(bar.task_ids[0], completed=done.size, done=done.messages)
            finally:
                if under_way is not None and isinstance(sys.exception(), KeyboardInterrupt):
                    under_way[1].exception(INTERRUPTED_SECONDS)
                settle()
    except InvalidInput as error:
        raise terminal.Refused(f"{error}; {_before(done.messages)}") from None
    except (QueueError, *FAILURES) as error:
        raise terminal.Refused(f"{error}; {_before(done.messages)}", exit_code=1) from None
    except (KeyboardInterrupt, TimeoutError):
        known = terminal.count(done.messages, "message")
        raise terminal.Refused(f"interrupted; at least {known} enqueued", 130) from None


def _start(put: Callable[[json_lines.Batch], int], batch: json_lines.Batch) -> Future[int]:
    """Put a batch in a thread that nobody has to wait for."""
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
    """How many bytes there are to read, if that can be known."""
    if not stream.seekable():
        return None
    found = os.fstat(stream.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size else None
