"""The options of a queue: a frozen value, checked when it is made, stored as JSON."""

from __future__ import annotations

import json
import logging
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, TypedDict

from ..errors import CorruptData, InvalidArgument, InvalidOptions, shown
from . import backoff, durations, rates
from .backoff import MAX_DELAY_SECONDS
from .durations import Seconds
from .limits import MAX_OF_KEY, Bounds, KeyLimits
from .option_groups import OptionGroup
from .rates import Rate
from .text import nearest

log = logging.getLogger("fdbqueue")

JMS_PRIORITIES = 10
DEFAULT_PRIORITY = 4
MAX_LEVELS = 256
DEFAULT_ATTEMPTS = 25
DEFAULT_DEATHS = 3
DEFAULT_BACKOFF: backoff.Stored = {
    "wait": "wait_combine",
    "strategies": [
        {"wait": "wait_exponential", "multiplier": 1.0, "max": 18_000.0},
        {"wait": "wait_random_exponential", "multiplier": 0.5, "max": 9_000.0},
    ],
}
MAX_LEASE_SECONDS = 7 * 24 * 3600.0
MAX_NAME_LENGTH = 200
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)
"""What is printable and shows nothing: fillers, selectors, and blanks that are no space."""
MAX_ATTEMPTS = 1_000_000
MAX_WINDOW_SECONDS = 7 * 24 * 3600.0
EXPIRED = ("drop", "dead")
MAX_PAYLOAD = 9_000_000
"""What fits into one transaction together with everything else that an enqueue writes."""
MAX_BOUND = 10**15
WHEN_FULL = ("reject", "drop-oldest", "block")
COMPRESSIONS = ("none", "zlib", "zstd")
CHOICES: dict[str, tuple[str, ...]] = {
    "expired": EXPIRED,
    "compression": COMPRESSIONS,
    "bounds.when_full": WHEN_FULL,
    "bounds.dropped": ("drop", "dead"),
}
WHOLE: dict[str, tuple[int, int]] = {
    "levels": (1, MAX_LEVELS),
    "max_attempts": (1, MAX_ATTEMPTS),
    "max_deaths": (1, MAX_ATTEMPTS),
    "max_payload": (1, MAX_PAYLOAD),
    "bounds.messages": (1, MAX_BOUND),
    "bounds.bytes": (1, MAX_BOUND),
    "max_in_flight": (1, MAX_BOUND),
    "keys.concurrency": (1, MAX_OF_KEY),
    "keys.window": (1, MAX_OF_KEY),
    "keys.weight": (1, MAX_OF_KEY),
}
"""The least and the most of the options that are whole numbers."""
SECONDS: dict[str, tuple[float, float]] = {
    "lease": (0.001, MAX_LEASE_SECONDS),
    "dedup_window": (1, MAX_WINDOW_SECONDS),
    "auto_delete": (0, MAX_DELAY_SECONDS),
    "history_seconds": (1, MAX_DELAY_SECONDS),
}
"""The least and the most of the options that are seconds."""
OR_NONE = (
    "max_attempts",
    "max_deaths",
    "auto_delete",
    "history_seconds",
    "bounds.messages",
    "bounds.bytes",
    "max_in_flight",
    "keys.concurrency",
    "keys.window",
)
"""Which of these may be None."""
FIXED = ("levels", "sort", "last_value")
"""The options that say how messages are stored, and so cannot change."""
SUSPENDING = ("paused", "max_in_flight", "rate")
"""The options by which a queue may look empty: who sleeps looks again after a change."""
GROUPS: dict[str, type[OptionGroup]] = {"bounds": Bounds, "keys": KeyLimits}
"""The options that are groups of options."""
_BESIDE = ("clock", "create", "root", "serializer")
"""Other arguments of ``Queue.open``, which may be misspelt as well."""


class Options(TypedDict, total=False):
    """The options of a queue as keyword arguments; ``QueueOptions`` says what each does."""

    levels: int
    max_attempts: int | None
    max_deaths: int | None
    lease: Seconds
    backoff: backoff.Given
    expired: str
    dead_letter_queue: str | None
    dedup_window: Seconds
    paused: bool
    auto_delete: Seconds | None
    history_seconds: Seconds | None
    max_payload: int
    compression: str
    bounds: Bounds
    max_in_flight: int | None
    rate: str | None
    keys: KeyLimits
    sort: str | None
    last_value: str | None


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The options of a queue: stored when it is created, the same for everyone who opens it.

    levels: how many priorities the queue tells apart, 1 to 256.
    max_attempts: how many attempts may fail before a message becomes a dead letter, 1 to 1,000,000;
        None for no limit. With the default backoff, the default takes two to three and a half days.
    max_deaths: how many consumers may die as they handle a message alone before it becomes a dead
        letter, 1 to 1,000,000; None for no limit. A death uses no attempt.
    lease: how long a delivery is leased, in seconds, 0.001 to 604,800 (seven days), unless
        ``receive`` says otherwise.
    backoff: how long a message waits after a failed attempt: a wait strategy of tenacity, kept as
        plain data; None for no wait. By default 1 s to 1.5 s at first, and twice as long after each
        further attempt, up to five hours to seven and a half.
    expired: what happens to a message at the end of its time to live: "drop" or "dead".
    dead_letter_queue: the name of the queue, under the same root, that gets the dead letters;
        None: this queue keeps them itself.
    dedup_window: how long a dedup id is remembered, in seconds, 1 to 604,800 (seven days).
    paused: whether receiving is suspended; set by ``pause`` and ``resume``.
    auto_delete: after how many seconds without messages, use, waiting consumers and subscriptions a
        sweep deletes the queue, 0 to 316,224,000 (ten years); None to keep it.
    history_seconds: how long each transition of a message is kept, 1 to 316,224,000 seconds; None
        for no history.
    max_payload: the largest payload of a message in bytes, 1 to 9,000,000.
    compression: of payloads of 10 kB or more, where that makes them smaller: "none", "zlib" or
        "zstd", which needs the package zstandard.
    bounds: how much the queue holds, and what happens to more, as ``Bounds`` says.
    max_in_flight: how many messages may be leased at once, 1 or more; None for any number.
        ``dequeue`` and ``get`` lease nothing.
    rate: how many messages are taken in how much time, again after a release or a failure, too: a
        number and a unit, such as "5/s", "100/min", "10/hour" or "1000/day", at most 1,000/s; with
        ", burst 10", so many at once after a rest, up to 1,000. None for any number.
    keys: the limits of each key that has none of its own, as ``KeyLimits`` says.
    sort: the header whose values order the messages of a level, ascending, in place of their
        arrival; None for the order of arrival. Fixed when the queue is created.
    last_value: the header of which the queue keeps only the newest message of each value; None to
        keep all. Fixed when the queue is created; not together with bounds.
    """

    levels: int = 10
    max_attempts: int | None = DEFAULT_ATTEMPTS
    max_deaths: int | None = DEFAULT_DEATHS
    lease: float = 30.0
    backoff: Any = field(default_factory=DEFAULT_BACKOFF.copy, hash=False)
    expired: str = "drop"
    dead_letter_queue: str | None = None
    dedup_window: float = 300.0
    paused: bool = False
    auto_delete: float | None = None
    history_seconds: float | None = None
    max_payload: int = 8_000_000
    compression: str = "none"
    bounds: Bounds = field(default_factory=Bounds)
    max_in_flight: int | None = None
    rate: str | None = None
    keys: KeyLimits = field(default_factory=KeyLimits)
    sort: str | None = None
    last_value: str | None = None

    def __post_init__(self) -> None:
        self._check_each()
        self._check_together()

    def _check_each(self) -> None:
        for name, group in GROUPS.items():
            if not isinstance(getattr(self, name), group):
                problem = f"write {name}={group.__name__}(…)"
                raise InvalidOptions(option=name, problem=problem)
        for option, (low, high) in WHOLE.items():
            value = attrgetter(option)(self)
            if value is not None or option not in OR_NONE:
                _integer(option, value, low, high)
        for option, (least, most) in SECONDS.items():
            value = getattr(self, option)
            if value is not None or option not in OR_NONE:
                object.__setattr__(self, option, check_seconds(option, value, least, most))
        # In the form in which it is stored, so that equal options are equal, however they were
        # written.
        object.__setattr__(self, "backoff", backoff.store(self.backoff))
        for option, choices in CHOICES.items():
            if (value := attrgetter(option)(self)) not in choices:
                problem = f"{shown(value)!r} is not one of {', '.join(choices)}"
                raise InvalidOptions(option=option, problem=problem)
        if self.dead_letter_queue is not None:
            check_name(self.dead_letter_queue, "dead_letter_queue")
        if type(self.paused) is not bool:
            raise InvalidOptions(option="paused", problem="must be True or False")
        check_rate("rate", self.rate)
        bounds, keys = self.bounds, self.keys
        if type(bounds.resume_at) not in (int, float) or not 0 < bounds.resume_at <= 1:
            problem = "must be more than 0, at most 1"
            raise InvalidOptions(option="bounds.resume_at", problem=problem)
        if keys.paused is not False:
            problem = "pause a single key, or the whole queue"
            raise InvalidOptions(option="keys.paused", problem=problem)
        _integer("keys.weight", keys.weight, 1, MAX_OF_KEY)
        check_rate("keys.rate", keys.rate)
        for option in FIXED[1:]:
            if (header := getattr(self, option)) is not None:
                _header(option, header)

    def _check_together(self) -> None:
        bounds, keys = self.bounds, self.keys
        if bounds.when_full != "reject" and not bounds.some:
            problem = f"{bounds.when_full!r} needs bounds.messages or bounds.bytes"
            raise InvalidOptions(option="bounds.when_full", problem=problem)
        check_weight("keys.weight", keys.weight, keys.window)
        if self.last_value is not None and bounds.some:
            problem = "has no bounds: a message takes the room of the one that it replaces"
            raise InvalidOptions(option="last_value", problem=problem)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> QueueOptions:
        """Options from keyword arguments; raises ``InvalidOptions`` if one is unknown."""
        return _usual().changed(given)

    def changed(self, changes: Mapping[str, Any]) -> QueueOptions:
        """The same with changes, of groups in the fields that are given. Raises
        ``InvalidOptions``."""
        options = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, given in changes.items():
            if name not in options:
                raise unknown(name, options)
            value = _group(name, given) if name in GROUPS and isinstance(given, Mapping) else given
            grouped = isinstance(value, GROUPS.get(name, ()))
            options[name] = value.over(options[name]) if grouped else value
        return type(self)(**options)

    def differing(self, given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """The options that differ from those given: the name, the own value and the given one.

        Each is compared by itself, as those given need not go together with these. Raises
        ``InvalidOptions`` for one that no queue can have.
        """
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        wanted = _Apart(**own).changed(given).flat()
        for name, value in self.flat().items():
            if value != wanted[name]:
                yield name, value, wanted[name]

    def flat(self) -> dict[str, Any]:
        """All options, the fields of groups as "bounds.messages"."""
        found: dict[str, Any] = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, OptionGroup):
                for name in value.names():
                    found[f"{option.name}.{name}"] = getattr(value, name)
            else:
                found[option.name] = value
        return found

    def unusual(self) -> dict[str, Any]:
        """Those of ``flat`` that differ from their defaults."""
        usual = _usual().flat()
        return {name: value for name, value in self.flat().items() if value != usual[name]}

    def to_json(self) -> dict[str, Any]:
        """The options as JSON-ready values."""
        return asdict(self)

    @property
    def ordered(self) -> bool:
        """Whether a header has a say in where messages stand, or which of them stay."""
        return self.sort is not None or self.last_value is not None

    @property
    def pace(self) -> Rate | None:
        """The rate as it is applied."""
        return None if self.rate is None else rates.parse(self.rate)

    @property
    def max_priority(self) -> int:
        """The highest priority that an enqueue may name."""
        return max(JMS_PRIORITIES, self.levels) - 1

    def level(self, priority: int) -> int:
        """The level of a priority: 0 is the most urgent. Raises ``InvalidArgument``.

        Fewer than ten levels are mapped to the ten priorities of JMS as AMQP 0-10 asks (section
        "message.delivery-properties"): the middle ones are told apart, the highest and the lowest
        share a level.
        """
        if type(priority) is not int or not 0 <= priority <= self.max_priority:
            raise InvalidArgument(
                argument="priority",
                value=priority,
                problem=f"must be an integer from 0 to {self.max_priority}",
            )
        if self.levels < JMS_PRIORITIES:
            lowest = JMS_PRIORITIES // 2 - math.ceil(self.levels / 2)
            priority = min(max(priority - lowest, 0), self.levels - 1)
        return self.levels - 1 - priority


@cache
def _usual() -> QueueOptions:
    """The options of a queue for which none are given."""
    return QueueOptions()


class _Apart(QueueOptions):
    """Options that need not go together: each can be one of a queue."""

    __slots__ = ()

    def _check_together(self) -> None: ...


def parse(stored: Any, what: str) -> QueueOptions:
    """Stored options; one that is missing has its default. Raises ``CorruptData``."""
    if not isinstance(stored, dict):
        raise CorruptData(what=what, problem=f"its options are a {type(stored).__name__}")
    try:
        return _read(json.dumps(stored))
    except (InvalidOptions, InvalidArgument) as error:
        raise CorruptData(what=what, problem=str(error)) from None


@lru_cache(1_000)
def _read(stored: str) -> QueueOptions:
    # Checking takes longer than reading, and most queues of a store have the options of others.
    return QueueOptions.of(json.loads(stored))


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Options whose names are as ``QueueOptions.flat`` gives them, as arguments. Raises
    ``InvalidOptions`` for names that are unknown."""
    found, groups = dict[str, Any](), dict[str, dict[str, Any]]()
    for name, value in flat.items():
        group, dot, field = name.partition(".")
        if dot and group in GROUPS:
            groups.setdefault(group, {})[field] = value
        else:
            found[name] = value
    return found | {name: _group(name, given) for name, given in groups.items()}


def unknown(name: str, known: Iterable[str]) -> InvalidOptions:
    """The error for an option that there is not, with the one that was meant."""
    listed = ", ".join(sorted(known))
    meant = {each.rpartition(".")[2]: each for each in (*_BESIDE, *QueueOptions().flat())}
    # By the last part: who writes `messages` means `bounds.messages`.
    near = nearest(name.rpartition(".")[2], meant)
    hint = f"did you mean {meant[near]!r}? The" if near else "the"
    return InvalidOptions(option=name, problem=f"unknown; {hint} options are {listed}")


def _group(name: str, given: Mapping[str, Any]) -> OptionGroup:
    group = GROUPS[name]
    for each in given:
        if each not in group.names():
            raise unknown(f"{name}.{each}", [f"{name}.{field}" for field in group.names()])
    return group(**given)


def _unfit(name: object, problem: str, argument: str = "name") -> InvalidArgument:
    return InvalidArgument(argument=argument, value=name, problem=problem)


def check_name(name: object, argument: str = "name") -> str:
    """A name of a queue, a consumer or a subscription; raises ``InvalidArgument``."""
    if not isinstance(name, str):
        raise _unfit(name, "it must be a str", argument)
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise _unfit(name, f"it must have 1 to {MAX_NAME_LENGTH} characters", argument)
    if not name.isprintable():
        raise _unfit(name, "it must have printable characters only", argument)
    return name


def check_behind(name: object) -> str | None:
    """A name to continue behind, if any; raises ``InvalidArgument``."""
    return None if name is None else check_name(name, "after")


def check_queue_name(name: object) -> str:
    """A name of a queue, which people tell from others by its looks; raises ``InvalidArgument``."""
    text = check_name(name)
    if text != text.strip() or _UNSEEN.search(text):
        raise _unfit(name, "it must have no characters that nobody sees")
    if not unicodedata.is_normalized("NFC", text):
        problem = "it must be in Unicode's normal form C, so that no other looks the same"
        raise _unfit(name, problem)
    return text


def check_lease(option: str, given: object) -> float:
    """A lease time in seconds; raises ``InvalidOptions``."""
    return check_seconds(option, given, *SECONDS["lease"])


def check_seconds(option: str, given: object, low: float, high: float) -> float:
    """A time in seconds within bounds; raises ``InvalidOptions``."""
    seconds = durations.within(given, low, high)
    if seconds is None:
        raise InvalidOptions(option=option, problem=f"must be {low:g} to {high:,.0f} seconds")
    return seconds


def check_attempts(option: str, attempts: object) -> int:
    """A maximum of attempts; raises ``InvalidOptions``."""
    _integer(option, attempts, *WHOLE["max_attempts"])
    return int(str(attempts))


def check_key_limit(option: str, limit: object) -> None:
    """How many messages of a key may be out, or ready, at once; raises ``InvalidOptions``."""
    if limit is not None:
        _integer(option, limit, 1, MAX_OF_KEY)


def check_weight(option: str, weight: object, window: int | None) -> None:
    """How many turns a key with a window gets; raises ``InvalidOptions``."""
    _integer(option, weight, 1, MAX_OF_KEY)
    turns = int(str(weight))
    if window is None and turns > 1:
        problem = "needs a window: without one, keys take no turns"
        raise InvalidOptions(option=option, problem=problem)
    if (window or 0) * turns > MAX_OF_KEY:
        problem = f"times the window of {window:,} is more than {MAX_OF_KEY:,} places"
        raise InvalidOptions(option=option, problem=problem)


def check_rate(option: str, rate: object) -> None:
    """How many messages may come in how much time; raises ``InvalidOptions``."""
    if rate is None:
        return
    try:
        rates.parse(rate if isinstance(rate, str) else "")
    except ValueError as error:
        raise InvalidOptions(option=option, problem=str(error)) from None


def _header(option: str, header: object) -> None:
    if not isinstance(header, str) or not 0 < len(header) <= MAX_NAME_LENGTH:
        problem = f"must be the name of a header, with 1 to {MAX_NAME_LENGTH} characters"
        raise InvalidOptions(option=option, problem=problem)


def _integer(option: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidOptions(option=option, problem=f"must be an integer from {low} to {high:,}")
