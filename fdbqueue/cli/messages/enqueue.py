"""``fdbq enqueue``."""

from __future__ import annotations

import sys
from typing import Literal

from msgspec.structs import replace

import fdbqueue
from fdbqueue.values.options import MAX_PAYLOAD

from .. import context, durations, terminal
from ..output import Done, Result
from ..parameters import MessageOptions, QueueName, argument, encoded, flag, option, typed


def enqueue(
    name: QueueName,
    payload: str | None = argument("PAYLOAD", "The payload: JSON, or text that is none.", None),
    file: str | None = option("FILE", "Read the payload from a file, byte for byte."),
    *,
    message: MessageOptions,
    delay: float = durations.option("Deliver the message after this delay.", 0.0),
    at: str | None = option("TIME", "When to deliver it: 2030-01-31T08:00+01:00."),
    dedup_id: str | None = option("ID", "Enqueue nothing if this id was enqueued recently."),
    unique: str | None = option("KEY", "Enqueue nothing while the queue holds this unique key."),
    on_conflict: Literal["keep", "replace", "debounce"] = option(
        "WHAT", "With --unique: replace a waiting message; debounce postpones it, too.", "keep"
    ),
    max_delay: float | None = durations.option(
        "With debounce: postpone for at most this long in all."
    ),
    content_type: str | None = option("TYPE", "Content type, such as application/json."),
    resume: str | None = option("FILE", "Resumable import: run it again with FILE to continue."),
    as_csv: bool = flag("Read CSV from standard input; its first row names the columns.", "--csv"),
) -> Done:
    """Enqueue one message, or many from standard input.

    PAYLOAD is JSON, such as '{"a": 1}', 17 or true; anything else is a text. A queue with a
    serializer takes payloads of its content type.

    Without PAYLOAD and --file, fdbq reads standard input: one JSON object per line with "payload"
    (any JSON) or "payload_base64", and optionally "priority", "headers", "delay" or "due_at", "ttl"
    or "ttl_ends_at", "max_attempts", "backoff", "key", "limits", "dedup_id", "unique",
    "on_conflict", "max_delay" and "content_type". The options of the command apply to lines that do
    not specify them. You can enqueue the --json output of receive and message find: the messages
    get new ids and no attempts. An invalid line ends the import; the error says how many
    messages before it were enqueued.

    With --csv, standard input is CSV with a column "payload" and optional columns with the other
    names above. Any other column becomes a header. Empty cells are ignored.

    With --resume, every line is enqueued exactly once, however often the import is interrupted or
    killed. Run it again with the same FILE and the same input, and it continues after the last line
    that is in the queue: the transactions that enqueue also store the progress.

    Examples:
      fdbq enqueue orders 'order 17' --priority 7 --header region=eu
      fdbq enqueue orders 'reminder' --delay 1h --ttl 2h
      fdbq enqueue orders 'rebuild' --unique rebuild --on-conflict debounce --delay 5s
      fdbq enqueue orders '{"number": 17}'
      fdbq enqueue photos --file tea.jpg
      fdbq enqueue orders < messages.jsonl
      fdbq enqueue orders --resume import.state < messages.jsonl
      fdbq enqueue orders --csv < messages.csv
    """
    given = fdbqueue.NewMessage(
        b"",
        **message.terms(),
        delay=delay,
        at=None if at is None else durations.instant(at),
        dedup_id=dedup_id,
        unique=unique,
        on_conflict=on_conflict,
        max_delay=max_delay,
        content_type=content_type,
    )
    db, queue = context.open_producing(name)
    if payload is not None and file is not None:
        raise terminal.CommandError("give PAYLOAD or --file, not both")
    if payload is None and file is None:
        if sys.stdin.isatty():
            raise terminal.CommandError("give PAYLOAD, --file, or JSON lines on standard input")
        if dedup_id is not None or unique is not None or max_delay is not None:
            raise terminal.CommandError(
                "--dedup-id, --unique and --max-delay are for one message: put them into the lines "
                "instead"
            )
        from . import import_lines  # --store must be known

        done = import_lines.run(db, queue, given, resume, as_csv)
        return Result({"queue": name, "enqueued": done.new, **_known(done.known)}, ())
    if resume is not None or as_csv:
        option = "--csv" if as_csv else "--resume"
        raise terminal.CommandError(f"{option} is only for messages on standard input")
    if payload is None:
        value = _contents(file)
    else:
        value = encoded(payload) if content_type is not None else typed(queue, payload)
    ids = queue.enqueue_many(db, [replace(given, payload=value)])
    existed = ""
    if not ids.new:
        told = "nothing was enqueued" if on_conflict == "keep" else "it may have been changed"
        existed = f"the message existed already; {told}"
    shown = {"queue": name, "enqueued": ids.new, **_known(1 - ids.new), "id": ids[0]}
    return Result(shown, ids[0], existed)


def _known(count: int) -> dict[str, int]:
    """The JSON field for messages that existed already, if there are any."""
    return {"known": count} if count else {}


def _contents(file: str | None) -> bytes:
    assert file is not None
    try:
        with open(file, "rb") as stream:
            # One byte more than may be: it is refused as too large, and a file of any size is not
            # read.
            return stream.read(MAX_PAYLOAD + 1)
    except OSError as error:
        raise terminal.CommandError(f"--file {file}: {error.strerror}") from None
