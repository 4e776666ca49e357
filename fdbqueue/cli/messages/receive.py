"""``fdbq receive``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import fdbqueue
from fdbqueue.values.model import MessageState
from fdbqueue.values.states import State

from ...errors import QueueError, TransactionTooLarge
from .. import context, durations, json_schema, terminal
from ..output import AsJson
from ..parameters import Match, QueueName, flag, option
from .listing import message_table

BATCH = 500


def receive(
    name: QueueName,
    max_messages: int = option("N", "Receive at most N messages.", 1, "--max", min=1),
    lease: float | None = durations.option(
        "How long the leases last; by default the option lease."
    ),
    wait: float = durations.option("How long to wait for the first message.", 0.0),
    ack: bool = flag("Acknowledge the messages once they are printed.", "--ack"),
    consumer: str = option("NAME", "The consumer's name in listings.", ""),
    subscription: str | None = option("NAME", "Receive what this subscription selects."),
    match: Match = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages: most urgent first, then oldest first.

    Each message is leased. It is delivered again when its lease expires, unless you acknowledge it
    with --ack. With --json, each message is an object on a line, with the token of its lease, which
    fdbq message release takes.

    Examples:
      fdbq receive orders --ack
      fdbq receive orders --max 10 --wait 60 --json
      fdbq receive orders --lease 10m --json
      fdbq receive orders --match "region = 'eu'" --ack
    """
    if match is not None and subscription is not None:
        raise terminal.CommandError("--match does not go with --subscription, which has its own")
    if ack and 1 in terminal.closed:
        raise terminal.CommandError(
            "standard output is closed, so acknowledged messages would be lost: omit --ack"
        )
    db, queue = context.open_queue(name)
    receive: Callable[..., Sequence[fdbqueue.Delivery]] = partial(queue.receive_batch, match=match)
    if subscription is not None:
        receive = queue.subscriptions.open(db, subscription, create=False).receive_many

    def take(count: int, seconds: float) -> Sequence[fdbqueue.Delivery]:
        return receive(db, count, lease=lease, wait=seconds, consumer=consumer)

    received = 0
    with terminal.termination_raises():
        for deliveries in _batches(take, max_messages, wait):
            received += len(deliveries)
            try:
                _print(deliveries, as_json)
            except BaseException:
                # Release what was not printed, without counting an attempt.
                with contextlib.suppress(QueueError):
                    queue.release(db, deliveries, delay=0)
                raise
            if ack:
                # Only once they are printed: whoever reads the output has them, or they come again.
                queue.ack(db, deliveries)
    if not received:
        paused = " (it is paused)" if queue.options(db).paused else ""
        without = "is empty" if match is None else "has no ready message that matches"
        terminal.note(f"queue {name} {without}{paused}")
    elif not ack and not as_json:
        seconds = queue.options(db).lease if lease is None else lease
        terminal.note(
            f"leased {terminal.count(received, 'message')} for {seconds:g} s; use --ack to "
            "acknowledge at once, or --json to see the tokens that fdbq message release takes"
        )


def _print(deliveries: Sequence[fdbqueue.Delivery], as_json: bool) -> None:
    if as_json:
        for delivery in deliveries:
            terminal.print_json(json_schema.delivery_json(delivery))
    else:
        found = [MessageState(each.message, State.LEASED) for each in deliveries]
        terminal.print_table(*message_table(found))
    terminal.flush()


def _batches(
    take: Callable[[int, float], Sequence[fdbqueue.Delivery]], max_messages: int, wait: float
) -> Iterator[Sequence[fdbqueue.Delivery]]:
    """Deliveries in batches that fit in a transaction, until there are enough or no more."""
    batch = BATCH
    while max_messages:
        try:
            found = take(min(batch, max_messages), wait)
        # Large payloads: fewer of them fit into one transaction. An eighth, so that a few tries are
        # enough.
        except TransactionTooLarge:
            if batch == 1:
                raise
            batch = max(1, batch // 8)
            continue
        if not found:
            return
        yield found
        max_messages -= len(found)
        wait = 0.0
