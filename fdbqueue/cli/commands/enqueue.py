"""``fdbq enqueue``: one message, or many."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, BinaryIO

import fdbqueue
from fdbqueue.values.options import DEFAULT_PRIORITY, MAX_PAYLOAD

from ...errors import InvalidInput, QueueError
from .. import csv_lines, durations, home, json_lines, resume_state, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, QueueName

INTERRUPTED_SECONDS = 5.0
"""How long an interrupted import waits for the batch that is under way."""


def enqueue(
    name: QueueName,
    payload: Annotated[
        str | None, Argument(metavar="PAYLOAD", help="The payload, as text.")
    ] = None,
    file: Annotated[
        Path | None, Option(metavar="FILE", help="Read the payload from a file, as it is.")
    ] = None,
    priority: Annotated[
        int, Option(metavar="N", help="0 to 9: the higher, the more urgent.")
    ] = DEFAULT_PRIORITY,
    header: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="A header; can be given several times."),
    ] = None,
    delay: Annotated[
        float,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Do not deliver it before so many seconds.",
        ),
    ] = 0.0,
    at: Annotated[
        str | None,
        Option(
            metavar="TIME", help="Do not deliver it before a time, like 2030-01-31T08:00+01:00."
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Deliver it no more after so many seconds.",
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        Option(metavar="N", help="Deliveries that may fail, instead of the queue's."),
    ] = None,
    key: Annotated[
        str | None,
        Option(metavar="KEY", help="Deliver messages of one key one after another."),
    ] = None,
    dedup_id: Annotated[
        str | None,
        Option(metavar="ID", help="Enqueue nothing if this id was enqueued lately."),
    ] = None,
    unique: Annotated[
        str | None,
        Option(metavar="KEY", help="Enqueue nothing while a message with this key is held."),
    ] = None,
    content_type: Annotated[
        str | None, Option(metavar="TYPE", help="What the payload is: application/json.")
    ] = None,
    resume: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Remember in FILE which import this is, and go on with it where it ended.",
        ),
    ] = None,
    as_csv: Annotated[
        bool,
        Option("--csv", help="Standard input is CSV; its first row names the columns."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue one message, or many from standard input.

    Without PAYLOAD and --file, standard input is read: one JSON object to a line, with "payload"
    (text) or "payload_base64", and perhaps "priority", "headers", "delay" or "due_at", "ttl" or
    "ttl_ends_at", "max_attempts", "backoff", "key", "dedup_id", "unique" and "content_type". The
    options are for the lines that do not say it themselves. What peek, receive, browse and dead
    list print with --json can be enqueued again, and is then what it was, but for its id and its
    attempts. A wrong line ends it: then the lines before it may have been enqueued, and the error
    says how many.

    With --csv, standard input is CSV: a column "payload", and columns with the other names above;
    any other column is a header. An empty cell says nothing.

    With --resume, every line is enqueued once, however often the import is interrupted or killed:
    give the same FILE and the same input again, and it goes on behind the last line that is in the
    queue. How far it has come is stored with the messages, in the same transactions.

    \b
    Examples:
      fdbq enqueue orders 'order 17' --priority 7 --header region=eu
      fdbq enqueue orders 'reminder' --delay 3600 --ttl 7200
      fdbq enqueue orders --file order.json
      fdbq enqueue orders < messages.jsonl
      fdbq enqueue orders --resume import.state < messages.jsonl
      fdbq enqueue orders --csv < messages.csv
    """
    given = fdbqueue.NewMessage(
        b"",
        priority,
        dict(map(_header, header or [])),
        delay=delay,
        at=None if at is None else durations.instant(at),
        ttl=ttl,
        max_attempts=max_attempts,
        key=key,
        dedup_id=dedup_id,
        unique=unique,
        content_type=content_type,
    )
    db = home.opened()
    queue = home.queue(name)
    if payload is not None and file is not None:
        raise terminal.Refused("give PAYLOAD or --file, not both")
    if payload is None and file is None:
        if sys.stdin.isatty():
            raise terminal.Refused("give PAYLOAD, --file, or JSON lines on standard input")
        if dedup_id is not None or unique is not None:
            raise terminal.Refused("--dedup-id and --unique name one message, not many")
        done = _import(db, queue, given, resume, as_csv)
        if as_json:
            terminal.print_json({"queue": name, "enqueued": done.new, **_known(done.known)})
        return
    if resume is not None or as_csv:
        option = "--csv" if as_csv else "--resume"
        raise terminal.Refused(f"{option} is for messages on standard input")
    data = _encoded(payload) if payload is not None else _contents(file)
    ids = queue.enqueue_many(db, [replace(given, payload=data)])
    if as_json:
        known = _known(1 - ids.new)
        terminal.print_json({"queue": name, "enqueued": ids.new, **known, "id": ids[0]})
    else:
        print(ids[0])
        if not ids.new:
            terminal.note("it was there already: nothing was enqueued")


def _known(count: int) -> dict[str, int]:
    """Of the messages that were there already, for JSON; most have none."""
    return {"known": count} if count else {}


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise terminal.Refused(f"--header {text}: write NAME=VALUE")
    return name, value


def _encoded(payload: str) -> bytes:
    try:
        return os.fsencode(payload)
    except UnicodeEncodeError:
        raise terminal.Refused("PAYLOAD has half of a surrogate pair") from None


def _contents(file: Path | None) -> bytes:
    assert file is not None
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_PAYLOAD + 1)
    except OSError as error:
        raise terminal.Refused(f"--file {file}: {error.strerror}") from None


# -- many -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Enqueued:
    """What an import has done so far."""

    messages: int = 0
    new: int = 0
    size: int = 0

    @property
    def known(self) -> int:
        """Messages that were there already, by their dedup ids or unique keys."""
        return self.messages - self.new


def _import(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    given: fdbqueue.NewMessage,
    resume: Path | None,
    as_csv: bool,
) -> _Enqueued:
    """Enqueue what standard input has, batch by batch."""
    options = queue.options(db)
    options.level(given.priority)
    stream: BinaryIO = csv_lines.stream(sys.stdin.buffer) if as_csv else sys.stdin.buffer
    done = _Enqueued()
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
    done: _Enqueued,
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
    done: _Enqueued,
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

    from fdbqueue.store.binding import FAILURES  # decided by --store, so not before

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
