"""An import: messages from standard input, enqueued batch by batch.

The state file of ``fdbq enqueue --resume`` has only the name of the import and, at the end, the
place after its last line. The transactions that enqueue store the progress in the queue, so the
two cannot get out of step.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

import fdbqueue

from ...errors import InvalidInput, QueueError
from ...queue.internals import serializer
from ...store.binding import FAILURES
from .. import terminal
from . import csv_lines
from .json_lines import InputPlace, LineBatch, LineReader, arriving

INTERRUPTED_SECONDS = 5.0
"""How long an interrupted import waits for its running transaction."""


class ImportState(msgspec.Struct, rename={"id": "import"}, kw_only=True):
    """What the state file says. done: the place after the last line, once that is enqueued."""

    queue: str
    id: str
    done: InputPlace | None = None


@dataclass(slots=True)
class ImportProgress:
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
) -> ImportProgress:
    """Enqueue the messages on standard input, batch by batch."""
    options = queue.options(db)
    options.level(given.priority)
    stream = sys.stdin.buffer
    size = None if as_csv else _size(stream)
    lines = csv_lines.converted(arriving(stream)) if as_csv else arriving(stream)
    reader = LineReader(
        options,
        given,
        lines,
        digest=resume is not None,
        serializer=serializer(queue),
        typed=as_csv,
    )
    done = ImportProgress()
    started = time.monotonic()
    if resume is None:
        _batches(reader, size, done, lambda batch: queue.enqueue_many(db, batch.messages).new)
    else:
        with _state_file(resume, queue.name) as (file, state):
            before = _resume(db, queue, file, state, reader, size, done)
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


@contextmanager
def _state_file(path: str, queue: str) -> Iterator[tuple[BinaryIO, ImportState]]:
    """The state file of an import into a queue, and its content; one process at a time."""

    def problem(text: str, code: int = 2) -> terminal.CommandError:
        return terminal.CommandError(f"--resume {path}: {text}", code)

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise problem(str(error.strerror)) from None
    with open(descriptor, "r+b") as file:
        try:
            # The system frees it with the process: a lock file would outlive a kill.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise problem("another import is using it", 1) from None
        text, state = file.read(), ImportState(queue=queue, id=f"import-{uuid.uuid4().hex}")
        if not text:
            _store(file, state)
        else:
            try:
                state = msgspec.json.decode(text, type=ImportState)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise problem("not a state file of an import") from None
        if state.queue != queue:
            raise problem(f"this import belongs to queue {state.queue!r}")
        yield file, state


def _store(file: BinaryIO, state: ImportState) -> None:
    # Write in place: replacing the file would lose the lock.
    file.seek(0)
    # Padded, so that a shorter state leaves nothing of a longer one behind it.
    file.write(msgspec.json.encode(state).ljust(512) + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _resume(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    file: BinaryIO,
    state: ImportState,
    reader: LineReader,
    size: int | None,
    done: ImportProgress,
) -> int:
    """Enqueue the rest of an import, storing the place of each batch together with it.

    Returns how many lines were enqueued before.
    """
    source = queue.streams.importer(state.id)
    stored = source.place(db)
    try:
        before = msgspec.json.decode(stored, type=InputPlace) if stored else state.done
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise terminal.CommandError(
            f"import {state.id} has a place that cannot be read", 1
        ) from None
    since = before or InputPlace()
    # By a digest of all that was read: another file, or an edited one, would be enqueued from its
    # middle.
    if not reader.skip(since):
        raise terminal.CommandError(
            f"this is not the input of the import: its first {since.lines:,} lines differ"
        )
    if since.lines:
        terminal.note(f"resuming after {terminal.count(since.lines, 'line')}")
    place = since

    def put(batch: LineBatch) -> int:
        nonlocal stored, place
        following = msgspec.json.encode(batch.until)
        ids = source.enqueue(db, batch.messages, since=stored, until=following)
        stored, place = following, batch.until
        return ids.new

    _batches(reader, size, done, put)
    if place.lines:
        _store(file, msgspec.structs.replace(state, done=place))
        # Only after the file says that the import is complete: a crash between the two repeats
        # nothing.
        source.forget(db)
    return since.lines


def _batches(
    reader: LineReader,
    size: int | None,
    done: ImportProgress,
    put: Callable[[LineBatch], int],
) -> None:
    """Enqueue batch by batch, reading the next one at the same time."""
    under_way: tuple[LineBatch, Future[int]] | None = None

    def settle() -> None:
        nonlocal under_way
        if under_way is None:
            return
        (batch, future), under_way = under_way, None
        try:
            done.new += future.result()
        except InvalidInput:
            reader.blame(batch)
            raise
        done.messages += len(batch.messages)
        done.size = batch.until.size

    try:
        with terminal.progress("messages enqueued", size) as update:
            try:
                for batch in reader.batches():
                    settle()
                    under_way = batch, _start(put, batch)
                    update(done.messages, completed=done.size)
            finally:
                # The running transaction may still commit: a moment's wait tells how many messages
                # are in.
                if under_way is not None and isinstance(sys.exception(), KeyboardInterrupt):
                    under_way[1].exception(INTERRUPTED_SECONDS)
                settle()
    except (QueueError, *FAILURES) as error:
        code = 2 if isinstance(error, InvalidInput) else 1
        raise terminal.CommandError(f"{error}; {_before(done.messages)}", code) from None
    except (KeyboardInterrupt, TimeoutError):
        known = terminal.count(done.messages, "message")
        raise terminal.CommandError(f"interrupted; at least {known} enqueued", 130) from None


def _start(put: Callable[[LineBatch], int], batch: LineBatch) -> Future[int]:
    """Enqueue a batch in a daemon thread, which never delays the end of the process."""
    future: Future[int] = Future()

    def run() -> None:
        try:
            future.set_result(put(batch))
        except BaseException as error:
            future.set_exception(error)

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
