"""``fdbq message release``: leases, by their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import fdbqueue

from .. import context, durations, terminal
from ..output import Done, Result
from ..parameters import ChangeOptions, QueueName, argument, flag, option

BATCH = 100
"""Deliveries settled in one transaction."""


def release(
    name: QueueName,
    tokens: list[str] | None = argument("ID…", "Ids of messages, or tokens of their leases.", None),
    consumer: str | None = option("NAME", "All that this consumer has leased."),
    every: bool = flag("All leases of the queue.", "--all"),
    delay: float | None = durations.option("How long they wait before they are delivered again."),
    error: str | None = option("TEXT", "Count the attempt as failed, with this error."),
    *,
    change: ChangeOptions,
) -> Done:
    """Return leased messages to the queue: take them away from their consumers.

    The attempt does not count, unless you give --error. This does not stop a consumer that is still
    working: it finds out when it settles. Choose them by ID or token, by --consumer, or with --all.
    For the messages that a stream holds, use fdbq stream finish.

    Examples:
      fdbq message release orders 05-000000000001-83ca4e58174f03bb
      fdbq message release orders --consumer billing --dry-run
      fdbq message release orders --all --error 'no stock' --delay 1m --yes
    """
    if sum((bool(tokens), consumer is not None, every)) != 1:
        raise terminal.CommandError("choose leases by ID, with --consumer, or with --all")
    db, queue = context.open_queue(name)
    chosen = list(dict.fromkeys(_tokens(db, queue, tokens or [])))
    if not tokens:
        from fdbqueue.queue.admin import finding

        chosen = [
            each.delivery.token
            for each in finding.leases(db, queue)
            # A stream settles its plan itself, and would lose messages of its batch.
            if not each.planned and consumer in (None, each.consumer)
        ]
        if not change.dry_run:
            messages = terminal.count(len(chosen), "message")
            change.confirm(f"Take {messages} of queue {name!r} away from their consumers?")
    count, gone = 0, []
    for start in range(0, len(chosen), BATCH):
        found = {token: queue.admin.delivery(db, token) for token in chosen[start : start + BATCH]}
        held = [delivery for delivery in found.values() if delivery is not None]
        gone += [token.hex() for token, delivery in found.items() if delivery is None]
        if held and not change.dry_run:
            queue.release(db, held, delay=delay, error=error)
        count += len(held)
    lost = f"no lease with token {', '.join(gone)}: it expired or was settled already"
    return Result(
        {"queue": name, **change.counted("released", count), "gone": gone},
        f"{change.verb('release', 'released')} {terminal.count(count, 'message')} of queue {name}",
        failed=terminal.CommandError(lost, 1) if tokens and gone else None,
    )


def _tokens(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, given: Sequence[str]) -> list[bytes]:
    """The tokens of leases, given by these or by the ids of their messages; raises
    ``CommandError``."""
    from fdbqueue.queue.admin import finding

    ids = {each for each in given if "-" in each}
    held = {each.delivery.id: each for each in finding.leases(db, queue)} if ids else {}
    for each in ids:
        if each not in held:
            raise terminal.CommandError(f"queue {queue.name!r}: message {each} is not leased", 1)
        if held[each].planned:
            raise terminal.CommandError(f"a stream holds message {each}: fdbq stream finish", 1)
    return [held[each].delivery.token if each in ids else parsed(each) for each in given]


def parsed(text: str) -> bytes:
    """The bytes of a token; raises ``CommandError``."""
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if not token:
        raise terminal.CommandError(
            f"{text!r} is not a token: tokens are hexadecimal, as printed by receive --json"
        )
    return token


def expiry(lease: fdbqueue.LeasedMessage, now_ms: int) -> str:
    """In how long a lease expires."""
    if lease.planned:
        return "never (plan)"
    return "expired" if lease.expired else terminal.age(lease.delivery.expires_at_ms - now_ms)
