"""Threads that ask for messages of one queue at the same time share a transaction.

One thread at a time has the turn. Those that ask meanwhile wait for it, first come, first served.
The first of them then asks for all: one commit acknowledges what they have done, and takes the next
messages for each, in their order. So threads of a process never take each other's messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ...errors import OperationTimedOut, QueueError
from ...store import world
from ...store.binding import FAILURES
from ..line import Ticket
from . import try_receive
from .access import Access, Outcome, ReceiveCall
from .waiting import withdraw

MAX_GATHERED = 100
"""Messages that calls may want together."""


def ask(access: Access, call: ReceiveCall) -> Outcome:
    """What a call is given, whose thread has found that another one had the turn."""
    with access.mutex:
        access.calls.append(call)
    try:
        pass_on(access)  # Whoever had the turn may have given it up before it saw this call.
        seconds = access.once.timeout
        if not call.turn.wait(seconds) and _leave(access, call):
            # Nobody has begun its call, so nothing of it can be leased.
            call.error, call.done = OperationTimedOut(seconds=seconds), True
        else:
            call.turn.wait()
        if not call.done:
            _lead(access, call)
    except BaseException:
        if not call.leads and not _leave(access, call):
            _give_up(access, call)
        raise
    if call.error is not None:
        raise call.error
    return call.outcome


def ask_together(access: Access, calls: Sequence[ReceiveCall]) -> bool:
    """Ask for several calls of one caller in one transaction; False if that is not possible now."""
    with access.mutex:
        if access.taken:
            return False
        access.taken = True
    try:
        return _ask_together(access, calls)
    finally:
        access.taken = False
        pass_on(access)


def pass_on(access: Access) -> None:
    """If nobody has the turn, give it to the thread that has waited for the longest time."""
    with access.mutex:
        if access.calls and not access.taken:
            access.taken = True
            # The turn is given, not released: a thread that comes now cannot take it before the one
            # that has waited.
            access.calls.pop(0).turn.set()


def _lead(access: Access, call: ReceiveCall) -> None:
    group = [call]
    try:
        call.leads = True
        # The main thread may be interrupted, and the others must know what became of their calls.
        if not world.in_main_thread():
            group += _gather(access, call)
        if len(group) == 1 or not _ask_together(access, group):
            for one in group:
                _ask_alone(access, one)
    except BaseException as error:
        for one in group:
            if not one.done:
                one.error = one.error or error
        raise
    finally:
        for one in group:
            one.done = True
            if one is not call:
                one.turn.set()
        access.taken = False
        pass_on(access)


def _gather(access: Access, call: ReceiveCall) -> list[ReceiveCall]:
    """The calls behind one that fit in its transaction."""
    room, found = MAX_GATHERED - call.request.max_messages, list[ReceiveCall]()
    with access.mutex:
        while access.calls and access.calls[0].db is call.db:
            room -= access.calls[0].request.max_messages
            if room < 0:
                break
            found.append(access.calls.pop(0))
    return found


def _ask_alone(access: Access, call: ReceiveCall) -> None:
    try:
        (call.outcome,) = try_receive.ask(call.db, access, [call.request], call.ack) or [None]
    except (QueueError, *FAILURES) as error:
        call.error = error
    call.done = True


def _ask_together(access: Access, group: Sequence[ReceiveCall]) -> bool:
    """Ask for several calls; False if one of them cannot be answered together with the others."""
    requests = [one.request for one in group]
    ack = [delivery for one in group for delivery in one.ack]
    try:
        found = try_receive.ask(group[0].db, access, requests, ack)
    except (QueueError, *FAILURES) as error:
        for one in group:
            one.error, one.done = error, True
        return True
    if found is None:
        return False
    for one, outcome in zip(group, found, strict=True):
        one.outcome, one.done = outcome, True
    return True


def _leave(access: Access, call: ReceiveCall) -> bool:
    """Take back a call that nobody has begun."""
    with access.mutex:
        if call in access.calls:
            access.calls.remove(call)
            return True
    return False


def _give_up(access: Access, call: ReceiveCall) -> None:
    """Interrupted in the turn, or while another thread asks: leave nothing behind."""
    call.turn.wait()
    if not call.done:
        access.taken = False
        pass_on(access)
    elif call.error is None:
        with contextlib.suppress(*FAILURES, QueueError):
            found = call.outcome
            if isinstance(found, Ticket):
                found = withdraw(call.db, access, found)
            try_receive.give_back(call.db, access, found or ())
