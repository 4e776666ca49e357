"""The subscriptions of a queue: creating, opening and listing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypedDict, Unpack

from ...errors import InvalidArgument, NotFound, OptionsMismatch
from ...messages import payloads
from ...schema.consumers import Definition, Mode
from ...schema.keys import LOWEST
from ...store.binding import fdb
from ...subscriptions import browse, creation
from ...subscriptions.cursors import behind
from ...subscriptions.start_position import FIRST, StartPosition
from ...values.content import check_flag
from ...values.model import Message
from ...values.options import check_name
from ...values.selector import Selector
from ..queue_base import Handle, Transactor
from ..validation import check_terms
from .subscription_handle import Subscription

_Page = tuple[list[Message], bytes | None]


class SubscriptionTerms(TypedDict, total=False):
    """What ``Subscriptions.open`` takes besides a name."""

    mode: str | None
    selector: str | None
    exclusive: bool | None
    auto_close: bool | None
    start: str


class Subscriptions:
    """The subscriptions of one queue; get it from ``Queue.subscriptions``."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def list(self, tr: Transactor) -> list[Definition]:
        """The subscriptions, by name. Conflicts only with a change of them."""
        return self._queue._read(tr, lambda tr: [*self._queue._scope(tr).subscriptions])

    def open(
        self, tr: Transactor, name: str, *, create: bool = True, **terms: Unpack[SubscriptionTerms]
    ) -> Subscription:
        """Open a subscription, and create it if it does not exist.

        create: whether it is created; without, one that does not exist is ``NotFound``.
        mode: "acquire" (the default) leases messages; "browse" shows each once.
        selector: which messages it covers, in the syntax of JMS (see ``Selector``); None for all.
        exclusive: whether it serves only one consumer, that is one handle, at a time.
        auto_close: whether it removes itself at the end of the queue.
        start: where a new one begins: "first", "now" (behind all present messages) or a message's
            id, for the level of that message.

        The given values must equal the stored ones of an existing subscription. Creating one
        conflicts with every operation in flight on the queue. Raises ``OptionsMismatch``,
        ``InvalidSelector``, ``InvalidArgument``, ``QueueNotFound``, ``NotFound``.
        """
        check_terms(terms, SubscriptionTerms)
        start = StartPosition.of("start", terms.pop("start", FIRST))
        given: dict[str, Any] = {term: each for term, each in terms.items() if each is not None}
        if "mode" in given:
            given["mode"] = _mode(given["mode"])
        if "selector" in given:
            given["selector"] = Selector(given["selector"])
        for term in given.keys() & {"exclusive", "auto_close"}:
            check_flag(term, given[term])
        wanted = Definition(check_name(name), **given)
        start.check(wanted)

        def find(tr: fdb.Transaction) -> tuple[Definition, bool]:
            scope = self._queue._scope(tr)
            for known in scope.subscriptions:
                if known.name == name:
                    return known, False
            if not create:
                raise NotFound(kind="subscription", queue=self._queue.name, name=name)
            creation.store(tr, scope, wanted)
            creation.rewind(tr, scope, name)
            start.seek(tr, scope, name)
            return wanted, True

        stored, _ = self._queue._opening(
            tr, self._queue._root_keys.once, find, lambda found: found[1]
        )
        for option, value in given.items():
            if getattr(stored, option) != value:
                raise OptionsMismatch(
                    kind="subscription",
                    name=name,
                    option=option,
                    stored=_shown(getattr(stored, option)),
                    given=_shown(value),
                    problem="but was opened with another: leave it out",
                )
        return Subscription(self._queue, name)

    def remove(self, tr: Transactor, name: str) -> None:
        """Remove a subscription; as ``Subscription.remove``."""
        Subscription(self._queue, name).remove(tr)


def browse_levels(queue: Handle, db: fdb.Database, levels: Iterable[int]) -> Iterator[Message]:
    """Every ready message of some levels, in order; see ``Queue.browse``."""
    for level in levels:
        place = LOWEST
        while True:

            def read(tr: fdb.Transaction, level: int = level, place: bytes = place) -> _Page:
                keys = queue._scope(tr).keys
                found = browse.page(tr, keys, level, place)
                messages = payloads.load(found, payloads.reads(tr, keys, found))
                last = behind(keys, found[-1].position) if found else None
                return [each.opened for each in messages], last

            messages, following = queue._read(db, read)
            yield from messages
            if following is None:
                break
            place = following


def check_levels(levels: Iterable[int] | None, count: int) -> list[int]:
    """Levels in order; None for all. Raises ``InvalidArgument``."""
    if levels is None:
        return list(range(count))
    problem = f"give a list of levels, which are 0 to {count - 1}"
    if not isinstance(levels, Iterable):
        raise InvalidArgument(argument="levels", value=levels, problem=problem)
    wanted = [*levels]
    for level in wanted:
        if type(level) is not int or not 0 <= level < count:
            raise InvalidArgument(argument="levels", value=level, problem=problem)
    return sorted({*wanted})


def _mode(mode: object) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise InvalidArgument(
            argument="mode", value=mode, problem='must be "acquire" or "browse"'
        ) from None


def _shown(value: object) -> object:
    if isinstance(value, Mode):
        return value.value
    return value.text if isinstance(value, Selector) else value
