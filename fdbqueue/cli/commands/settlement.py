"""``fdbq ack``, ``extend``, ``release`` and ``reject``: settling what was received, by token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import fdbqueue

from .. import durations, home, json_lines, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, QueueName

AT_ONCE = 100
"""Deliveries that one transaction settles."""

Tokens = Annotated[
    list[str] | None,
    Argument(
        metavar="TOKEN…", help="Tokens of leases, as receive --json and lease list print them."
    ),
]
Settle = Callable[["fdbqueue.fdb.Database", Sequence[fdbqueue.Delivery]], object]


def ack(name: QueueName, tokens: Tokens = None, as_json: AsJson = False) -> None:
    """Acknowledge deliveries: their messages are done.

    Without TOKEN, standard input is read: tokens, or what receive --json printed, one to a line.
    A lease that is gone, since it lapsed or was settled, is named, and this ends with 1; the
    others are settled nevertheless.

    \b
    Examples:
      fdbq ack orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000
      fdbq receive orders --max 100 --json | tee work.jsonl | ./work && fdbq ack orders < work.jsonl
    """
    _settle(name, tokens, as_json, "acknowledged", home.queue(name).ack_many)


def extend(
    name: QueueName,
    tokens: Tokens = None,
    lease: Annotated[
        float | None,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Seconds from now that they end; the queue's own by default.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let leases end later. TOKEN and standard input are as for ack.

    \b
    Example:
      fdbq extend orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --lease 600
    """
    queue = home.queue(name)
    _settle(name, tokens, as_json, "extended", lambda db, held: queue.extend_many(db, held, lease))


def release(
    name: QueueName,
    tokens: Tokens = None,
    delay: Annotated[
        float | None,
        Option(metavar="DURATION", parser=durations.seconds, help="Seconds that they rest before."),
    ] = None,
    error: Annotated[
        str | None,
        Option(metavar="TEXT", help="Why the attempt failed; then it counts, else it does not."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give messages back, to where they stood. TOKEN and standard input are as for ack.

    \b
    Examples:
      fdbq release orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000
      fdbq release orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --error 'no stock' --delay 60
    """
    queue = home.queue(name)
    _settle(
        name,
        tokens,
        as_json,
        "released",
        lambda db, held: queue.release_many(db, held, delay=delay, error=error),
    )


def reject(
    name: QueueName,
    tokens: Tokens = None,
    reason: Annotated[
        str, Option(metavar="TEXT", help="Why; it is kept with the dead letter.")
    ] = "rejected by hand",
    drop: Annotated[
        bool, Option("--drop", help="Remove them for good instead of keeping dead letters.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Refuse messages for good: they become dead letters. TOKEN and standard input as for ack.

    \b
    Example:
      fdbq reject orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --reason 'no such customer'
    """
    queue = home.queue(name)
    _settle(
        name,
        tokens,
        as_json,
        "rejected",
        lambda db, held: queue.reject_many(db, held, reason, drop=drop),
    )


def _settle(
    name: str, tokens: Sequence[str] | None, as_json: bool, done: str, settle: Settle
) -> None:
    wanted = [parse_token(token) for token in tokens] if tokens else _given()
    db = home.opened()
    settled, gone = settle_tokens(db, home.queue(name), wanted, settle)
    if as_json:
        terminal.print_json({"queue": name, done: settled, "gone": [each.hex() for each in gone]})
    else:
        print(f"{done} {terminal.count(settled, 'message')}")
    if gone:
        names = ", ".join(each.hex() for each in gone)
        raise terminal.Refused(f"no lease has token {names}: it lapsed or was settled", 1)


def settle_tokens(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, tokens: Sequence[bytes], settle: Settle
) -> tuple[int, list[bytes]]:
    """Settle what the tokens name; returns how many, and the tokens whose leases are gone."""
    settled, gone = 0, []
    for start in range(0, len(tokens), AT_ONCE):
        found = {token: queue.delivery(db, token) for token in tokens[start : start + AT_ONCE]}
        held = [delivery for delivery in found.values() if delivery is not None]
        gone += [token for token, delivery in found.items() if delivery is None]
        if held:
            settle(db, held)
        settled += len(held)
    return settled, gone


def parse_token(text: str) -> bytes:
    """The token that a text is."""
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if not token:
        raise terminal.Refused(f"{text!r} is no token: it is hexadecimal, as receive --json prints")
    return token


def _given() -> list[bytes]:
    """The tokens on standard input."""
    if sys.stdin.isatty():
        raise terminal.Refused("give TOKEN, or tokens or JSON lines on standard input")
    found: list[bytes] = []
    for number, line in enumerate(sys.stdin.buffer.read().splitlines(), 1):
        text = line.strip()
        if text.startswith((b"{", b"[", b"]")):
            try:
                tokens = [each.get("token") for each in json_lines.objects(text)]
            except ValueError as error:
                raise terminal.Refused(f"line {number:,}: {error}") from None
            for token in tokens:
                if not isinstance(token, str):
                    raise terminal.Refused(f"line {number:,}: it has no token")
                found.append(parse_token(token))
        elif text:
            found.append(parse_token(text.decode(errors="backslashreplace")))
    return list(dict.fromkeys(found))
