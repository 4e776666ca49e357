"""The subscriptions of a queue: creating, opening and listing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import InvalidArgument, SubscriptionMismatch
from ..messages import payloads
from ..schema.keys import LOWEST
from ..schema.scope import Scope
from ..schema.subscription_definitions import Definition, Mode
from ..store.binding import fdb
from ..subscriptions import browse, registry
from ..subscriptions.cursors import behind
from ..subscriptions.start_position import FIRST, Place
from ..values.durations import Seconds
from ..values.model import Message
from ..values.options import check_name
from ..values.selector import Selector
from .handle import Handle, Transactor, composed
from .subscription import Subscription

_Page = tuple[list[Message], bytes | None]


class Subscriptions:
    """The subscriptions of one queue; get it from ``Queue.subscriptions``."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def list(self, tr: Transactor, *, timeout: Seconds | None = None) -> list[Definition]:
        """The subscriptions, by name. Conflicts only with a change of them."""
        return self._queue._bounded(tr, timeout)._read(
            tr, lambda tr: [*self._queue._scope(tr).subscriptions]
        )

    def open(self, tr: Transactor, name: str, *, timeout: Seconds | None = None) -> Subscription:
        """A handle on an existing subscription; raises ``SubscriptionNotFound``."""
        subscription = Subscription(self._queue, name)
        subscription.definition(tr, timeout=timeout)
        return subscription

    def subscribe(
        self,
        tr: Transactor,
        name: str,
        *,
        mode: str | None = None,
        selector: str | None = None,
        exclusive: bool | None = None,
        auto_close: bool | None = None,
        start: str = FIRST,
        timeout: Seconds | None = None,
    ) -> Subscription:
        """Open a subscription, and create it if needed; see ``Queue.subscribe``."""
        place = Place.of("start", start)
        given = {
            "mode": None if mode is None else _mode(mode),
            "selector": None if selector is None else Selector(selector),
            "exclusive": exclusive,
            "auto_close": auto_close,
        }
        given = {option: value for option, value in given.items() if value is not None}
        wanted = Definition(check_name(name), **given)  # type: ignore[arg-type]
        place.check(wanted)

        def find(tr: fdb.Transaction) -> tuple[Definition, bool]:
            scope = self._queue._scope(tr)
            known = _find(scope, name)
            if known is not None:
                return known, False
            registry.store(tr, scope, wanted)
            registry.rewind(tr, scope, name)
            place.seek(tr, scope, name)
            return wanted, True

        stored, _ = composed(
            tr,
            self._queue._bounded(tr, timeout)._root_keys.once,
            find,
            wrote=lambda found: found[1],
        )
        for option, value in given.items():
            if getattr(stored, option) != value:
                raise SubscriptionMismatch(
                    name=name,
                    option=option,
                    stored=_shown(getattr(stored, option)),
                    given=_shown(value),
                )
        return Subscription(self._queue, name)

    def remove(self, tr: Transactor, name: str, *, timeout: Seconds | None = None) -> None:
        """Remove a subscription; as ``Subscription.remove``."""
        Subscription(self._queue, name).remove(tr, timeout=timeout)


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
                return [each.envelope.message(each.position) for each in messages], last

            messages, following = queue._read(db, read)
            yield from messages
            if following is None:
                break
            place = following


def check_levels(levels: Iterable[int] | None, count: int) -> list[int]:
    """Levels in order; None for all. Raises ``InvalidArgument``."""
    if levels is None:
        return list(range(count))
    wanted = sorted(set(levels))
    for level in wanted:
        if type(level) is not int or not 0 <= level < count:
            raise InvalidArgument(
                argument="levels", value=level, problem=f"the levels are 0 to {count - 1}"
            )
    return wanted


def _find(scope: Scope, name: str) -> Definition | None:
    return next((each for each in scope.subscriptions if each.name == name), None)


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
