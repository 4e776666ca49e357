"""``fdbq ack``, ``extend``, ``release``, ``reject`` and ``fdbq lease``: leases by token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated

from typer import Argument, Option, Typer

import fdbqueue

from .. import context, durations, json_schema, listings, terminal
from ..parameters import AsJson, Change, Limit, ListOutput, QueueName, grouped

BATCH = 100
"""Deliveries settled in one transaction."""
PAGE = 1_000

app = Typer(name="lease", help="List leases, and release them.", no_args_is_help=True)

Tokens = Annotated[
    list[str] | None,
    Argument(metavar="TOKEN…", help="Tokens of leases; by default from standard input."),
]
Settle = Callable[["fdbqueue.fdb.Database", Sequence[fdbqueue.Delivery]], object]


def ack(name: QueueName, tokens: Tokens = None, as_json: AsJson = False) -> None:
    """Acknowledge deliveries: their messages are done.

    Without TOKEN, fdbq reads standard input: one token per line, or the output of receive --json.
    If a lease has expired or was settled already, fdbq prints its token, settles all others and
    fails with exit code 1.

    \b
    Examples:
      fdbq ack orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000
      fdbq receive orders --max 100 --json | tee work.jsonl | ./work && fdbq ack orders < work.jsonl
    """
    _settle(name, tokens, as_json, "acknowledged", context.queue(name).ack)


def extend(
    name: QueueName,
    tokens: Tokens = None,
    lease: Annotated[
        float | None, durations.option("Time until they expire; by default the option lease.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Extend leases. TOKEN and standard input are as for fdbq ack.

    \b
    Example:
      fdbq extend orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --lease 10m
    """
    settle = partial(context.queue(name).extend, lease=lease)
    _settle(name, tokens, as_json, "extended", settle)


def release(
    name: QueueName,
    tokens: Tokens = None,
    delay: Annotated[
        float | None, durations.option("How long they wait before they are delivered again.")
    ] = None,
    error: Annotated[
        str | None,
        Option(metavar="TEXT", help="Count the attempt as failed, with this error."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Return messages to the queue. TOKEN and standard input are as for fdbq ack.

    The attempt does not count, unless you give --error.

    \b
    Examples:
      fdbq release orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000
      fdbq release orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --error 'no stock' --delay 60
    """
    settle = partial(context.queue(name).release, delay=delay, error=error)
    _settle(name, tokens, as_json, "released", settle)


def reject(
    name: QueueName,
    tokens: Tokens = None,
    reason: Annotated[
        str, Option(metavar="TEXT", help="The reason, stored with the dead letter.")
    ] = "rejected by hand",
    drop: Annotated[
        bool, Option("--drop", help="Remove the messages instead of keeping dead letters.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reject messages: they become dead letters. TOKEN and standard input are as for fdbq ack.

    \b
    Example:
      fdbq reject orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --reason 'no such customer'
    """
    settle = partial(context.queue(name).reject, reason=reason, drop=drop)
    _settle(name, tokens, as_json, "rejected", settle)


def _settle(
    name: str, tokens: Sequence[str] | None, as_json: bool, done: str, settle: Settle
) -> None:
    wanted = [_parsed(token) for token in tokens] if tokens else _from_input()
    settled, gone = _settle_tokens(context.connect(), context.queue(name), wanted, settle)
    terminal.print_result(
        as_json,
        {"queue": name, done: settled, "gone": gone},
        f"{done} {terminal.count(settled, 'message')}",
    )
    _refuse_gone(gone)


def _settle_tokens(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, tokens: Sequence[bytes], settle: Settle
) -> tuple[int, list[str]]:
    """Settle deliveries by their tokens; returns how many, and the tokens without a lease."""
    settled, gone = 0, []
    for start in range(0, len(tokens), BATCH):
        found = {token: queue.delivery(db, token) for token in tokens[start : start + BATCH]}
        held = [delivery for delivery in found.values() if delivery is not None]
        gone += [token.hex() for token, delivery in found.items() if delivery is None]
        if held:
            settle(db, held)
        settled += len(held)
    return settled, gone


def _refuse_gone(tokens: Sequence[str]) -> None:
    if tokens:
        names = ", ".join(tokens)
        raise terminal.CommandError(
            f"no lease with token {names}: it expired or was settled already", 1
        )


def _parsed(text: str) -> bytes:
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if not token:
        raise terminal.CommandError(
            f"{text!r} is not a token: tokens are hexadecimal, as printed by receive --json"
        )
    return token


def _from_input() -> list[bytes]:
    from . import json_lines

    if sys.stdin.isatty():
        raise terminal.CommandError("give TOKEN, or tokens or JSON lines on standard input")
    found: list[bytes] = []
    for number, line in enumerate(sys.stdin.buffer.read().splitlines(), 1):
        text = line.strip()
        if text.startswith((b"{", b"[", b"]")):
            try:
                tokens = [each.get("token") for each in json_lines.objects(text)]
            except ValueError as error:
                raise terminal.CommandError(f"line {number:,}: {error}") from None
            for token in tokens:
                if not isinstance(token, str):
                    raise terminal.CommandError(f"line {number:,}: it has no token")
                found.append(_parsed(token))
        elif text:
            found.append(_parsed(text.decode(errors="backslashreplace")))
    return list(dict.fromkeys(found))


# -- fdbq lease -----------------------------------------------------------------------------------


@app.command("list")
@grouped
def list_(
    name: QueueName,
    consumer: Annotated[
        str | None, Option(metavar="NAME", help="Only leases of this consumer.")
    ] = None,
    after: Annotated[
        str | None,
        Option(metavar="TOKEN", help="Continue after this lease, as the previous listing says."),
    ] = None,
    limit: Limit = 1_000,
    *,
    output: ListOutput,
) -> None:
    """List the leases of a queue.

    Each page is sorted by expiry. An expired lease ends at the next receive or fdbq sweep. Leases
    of a stream's plan never expire, see fdbq plan.

    \b
    Examples:
      fdbq lease list orders
      fdbq lease list orders --consumer billing --json
    """
    db, queue = context.open_queue(name)
    start = None if after is None else _parsed(after)

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().wall_ms()
        found, cut = listings.first(leases_of(db, queue, consumer, start), limit)
        last = found[-1].delivery.token.hex() if found else ""
        total = queue.depth(db).leased if cut and consumer is None and start is None else None
        found.sort(key=lambda each: (each.planned, each.delivery.expires_at_ms))
        return listings.table(
            ["message", "attempt", "expires in", "consumer", "token"],
            [
                (
                    each.delivery.id,
                    each.delivery.attempt,
                    _expiry(each, now_ms),
                    each.consumer,
                    each.delivery.token.hex(),
                )
                for each in found
            ],
            [*map(json_schema.lease_json, found)],
            f"queue {name} has no leases",
            listings.more("lease", len(found), last, total) if cut else None,
        )

    listings.show(look, output)


def _expiry(lease: fdbqueue.LeasedMessage, now_ms: int) -> str:
    if lease.planned:
        return "never (plan)"
    return "expired" if lease.expired else terminal.age(lease.delivery.expires_at_ms - now_ms)


def leases_of(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    consumer: str | None = None,
    after: bytes | None = None,
) -> Iterator[fdbqueue.LeasedMessage]:
    """The leases of a queue or of one consumer, or those after a token, read page by page."""
    while found := queue.leases(db, PAGE, after):
        yield from (each for each in found if consumer in (None, each.consumer))
        after = found[-1].delivery.token
        if len(found) < PAGE:
            return


@app.command("release")
@grouped
def release_leases(
    name: QueueName,
    tokens: Annotated[
        list[str] | None, Argument(metavar="TOKEN…", help="Tokens of leases.")
    ] = None,
    consumer: Annotated[
        str | None, Option(metavar="NAME", help="All leases of this consumer.")
    ] = None,
    every: Annotated[bool, Option("--all", help="All leases of the queue.")] = False,
    *,
    change: Change,
) -> None:
    """Take messages away from their consumers.

    The messages return to the queue, and the attempt does not count. This does not stop a consumer
    that is still working: it finds out when it settles. Choose the leases by TOKEN, by --consumer,
    or with --all. For leases of a plan, use fdbq plan release.

    \b
    Examples:
      fdbq lease release orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --yes
      fdbq lease release orders --consumer billing --dry-run
    """
    if sum((bool(tokens), consumer is not None, every)) != 1:
        raise terminal.CommandError("choose leases by TOKEN, with --consumer, or with --all")
    chosen = [_parsed(each) for each in tokens or []]
    db, queue = context.open_queue(name)
    if not chosen:
        found = leases_of(db, queue, consumer)
        chosen = [each.delivery.token for each in found if not each.planned]
    gone: list[str] = []
    if change.dry_run:
        count = sum(queue.delivery(db, each) is not None for each in chosen)
    else:
        messages = terminal.count(len(chosen), "message")
        change.confirm(f"Take {messages} of queue {name!r} away from their consumers?")
        count, gone = _settle_tokens(db, queue, chosen, queue.release)
    change.print_result(
        {"queue": name, **change.counted("released", count), "gone": gone},
        f"{change.verb('release', 'released')} {terminal.count(count, 'message')} of queue {name}",
    )
    if tokens:
        _refuse_gone(gone)
