"""The options of a queue: a frozen value, checked when it is made, stored as JSON."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any, TypedDict

from ..errors import CorruptData, InvalidName, InvalidOptions, InvalidPriority
from . import backoff, durations
from .backoff import MAX_DELAY_SECONDS
from .durations import Seconds
from .records import record

log = logging.getLogger("fdbqueue")

JMS_PRIORITIES = 10
DEFAULT_PRIORITY = 4
MAX_LEVELS = 256
DEFAULT_ATTEMPTS = 1_000
DEFAULT_BACKOFF: backoff.Stored = {
    "wait": "wait_random_exponential",
    "multiplier": 2.0,
    "max": 600.0,
    "exp_base": 2.0,
    "min": 1.0,
}
MAX_LEASE_SECONDS = 7 * 24 * 3600.0
MAX_NAME_LENGTH = 200
MAX_ATTEMPTS = 1_000_000
MAX_WINDOW_SECONDS = 7 * 24 * 3600.0
EXPIRED = ("drop", "dead")
CONTENTION = ("auto", "first", "staged", "relaxed")
DEFAULT_WINDOW = 128
MAX_WINDOW = 1_000
MAX_PAYLOAD = 9_000_000
"""What fits into one transaction together with everything else that an enqueue writes."""
MAX_BOUND = 10**15
WHEN_FULL = ("reject", "drop-oldest", "block")
COMPRESSIONS = ("none", "zlib", "zstd")


_BESIDE = ("clock", "create", "root", "serializer")
"""What stands beside options where a queue is opened, and may be misspelt as well."""


class Options(TypedDict, total=False):
    """The options of a queue as keyword arguments; ``QueueOptions`` says what each does."""

    levels: int
    max_attempts: int | None
    lease: Seconds
    backoff: backoff.Given
    expired: str
    dead_letter_queue: str | None
    dedup_window: Seconds
    paused: bool
    auto_delete: bool
    auto_delete_after: Seconds
    history_seconds: Seconds | None
    contention: str
    window: int
    max_payload: int
    compression: str
    compress_from: int
    max_messages: int | None
    max_bytes: int | None
    when_full: str
    dropped: str
    resume_at: float


@record
class QueueOptions:
    """What a queue is. Stored when it is created, and the same for everybody who opens it.

    levels: how many strict priorities the queue tells apart, 1 to 256.
    max_attempts: attempts that may fail before a message becomes a dead letter, 1 or more; None
        for no limit. With the default backoff the default is about three and a half days.
    lease: seconds that a delivery is leased for when ``receive`` names no other time.
    backoff: how long a message rests after a failed attempt: a wait strategy of tenacity; no
        rest where None. Kept as plain data, see ``values/backoff.py``. By default a random time of
        1 s to 2 s at first, and of up to twice as long after every attempt, to ten minutes.
    expired: what becomes of a message whose time to live is over: "drop" or "dead".
    dead_letter_queue: the name of the queue, of the same root, that dead letters go to; they stay
        in a store of this queue where None.
    dedup_window: seconds for which a dedup id is remembered.
    paused: whether nobody receives from the queue; set by ``pause`` and ``resume``.
    auto_delete: whether a sweep deletes the queue once it has been drained and unused, with no
        consumer waiting and no subscription, for ``auto_delete_after`` seconds.
    history_seconds: for how long every transition of a message is remembered; not at all where
        None.
    contention: how consumers that want the same message get along: ``first`` lets each try to
        take the first message; ``staged`` lets one of them serve all, in the order in which they
        came; ``auto`` is first until it meets a conflict or a line, then staged; ``relaxed``
        takes any of the first ``window`` messages.
    window: how many first messages a relaxed receive picks from, 2 to 1,000.
    max_payload: bytes that the payload of one message may have, 1 to 9,000,000.
    compression: of large payloads: "none", "zlib" or "zstd", which needs the package zstandard.
    compress_from: bytes from which on a payload is compressed, if that makes it smaller.
    max_messages: how many messages the queue holds that are ready, delayed or leased; 1 or more.
    max_bytes: how many bytes the payloads of ready messages have in all; 1 or more.
    when_full: what an enqueue does beyond these: "reject" it, "drop-oldest" messages that are no
        more urgent, the least urgent first, or "block" until there is room.
    dropped: what becomes of messages that make room: "drop" them, or "dead" letters.
    resume_at: the share of the bounds to which a full queue must come down before producers that
        are blocked go on, more than 0 and at most 1.
    """

    levels: int = 10
    max_attempts: int | None = DEFAULT_ATTEMPTS
    lease: float = 30.0
    backoff: Any = field(default_factory=DEFAULT_BACKOFF.copy, hash=False)
    expired: str = "drop"
    dead_letter_queue: str | None = None
    dedup_window: float = 300.0
    paused: bool = False
    auto_delete: bool = False
    auto_delete_after: float = 60.0
    history_seconds: float | None = None
    contention: str = "auto"
    window: int = DEFAULT_WINDOW
    max_payload: int = 8_000_000
    compression: str = "none"
    compress_from: int = 10_000
    max_messages: int | None = None
    max_bytes: int | None = None
    when_full: str = "reject"
    dropped: str = "drop"
    resume_at: float = 0.8

    def __post_init__(self) -> None:
        _integer("levels", self.levels, 1, MAX_LEVELS)
        if self.max_attempts is not None:
            check_attempts("max_attempts", self.max_attempts)
        for option in ("dedup_window", "auto_delete_after", "history_seconds"):
            object.__setattr__(self, option, durations.seconds(getattr(self, option)))
        object.__setattr__(self, "lease", check_lease("lease", self.lease))
        object.__setattr__(self, "backoff", backoff.store(self.backoff))
        if self.expired not in EXPIRED:
            raise InvalidOptions(option="expired", problem=f"must be one of {', '.join(EXPIRED)}")
        if self.dead_letter_queue is not None:
            check_name(self.dead_letter_queue)
        for option in ("paused", "auto_delete"):
            if type(getattr(self, option)) is not bool:
                raise InvalidOptions(option=option, problem="must be True or False")
        check_seconds("dedup_window", self.dedup_window, 1, MAX_WINDOW_SECONDS)
        check_seconds("auto_delete_after", self.auto_delete_after, 0, MAX_DELAY_SECONDS)
        if self.history_seconds is not None:
            check_seconds("history_seconds", self.history_seconds, 1, MAX_DELAY_SECONDS)
        if self.contention not in CONTENTION:
            raise InvalidOptions(
                option="contention", problem=f"must be one of {', '.join(CONTENTION)}"
            )
        _integer("window", self.window, 2, MAX_WINDOW)
        _integer("max_payload", self.max_payload, 1, MAX_PAYLOAD)
        if self.compression not in COMPRESSIONS:
            raise InvalidOptions(
                option="compression",
                problem=f"{self.compression!r} is not one of {', '.join(COMPRESSIONS)}",
            )
        _integer("compress_from", self.compress_from, 0, MAX_PAYLOAD)
        for bound in ("max_messages", "max_bytes"):
            if getattr(self, bound) is not None:
                _integer(bound, getattr(self, bound), 1, MAX_BOUND)
        if self.when_full not in WHEN_FULL:
            raise InvalidOptions(
                option="when_full",
                problem=f"{self.when_full!r} is not one of {', '.join(WHEN_FULL)}",
            )
        if self.when_full != "reject" and self.max_messages is None and self.max_bytes is None:
            raise InvalidOptions(
                option="when_full",
                problem=f"{self.when_full!r} needs max_messages or max_bytes",
            )
        if self.dropped not in ("drop", "dead"):
            raise InvalidOptions(option="dropped", problem="must be drop or dead")
        if type(self.resume_at) not in (int, float) or not 0 < self.resume_at <= 1:
            raise InvalidOptions(option="resume_at", problem="must be more than 0, at most 1")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> QueueOptions:
        """Options from keyword arguments; raises ``InvalidOptions`` if one is unknown."""
        known = sorted(each.name for each in fields(cls))
        for name in given:
            if name not in known:
                import difflib  # costs every start what only a typing error needs

                near = difflib.get_close_matches(name, [*known, *_BESIDE], 1)
                hint = f"did you mean {near[0]!r}? The" if near else "the"
                raise InvalidOptions(
                    option=name, problem=f"unknown; {hint} options are {', '.join(known)}"
                )
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """The options as JSON-ready values."""
        return asdict(self)

    @property
    def max_priority(self) -> int:
        """The highest priority that an enqueue may name."""
        return max(JMS_PRIORITIES, self.levels) - 1

    def level(self, priority: int) -> int:
        """The level of a priority: 0 is the most urgent.

        With fewer levels than the ten JMS priorities, they are mapped as AMQP 0-10 asks: the
        middle ones are told apart, and the highest and the lowest fall together (section
        "message.delivery-properties" of its specification). Raises ``InvalidPriority``.
        """
        if type(priority) is not int or not 0 <= priority <= self.max_priority:
            raise InvalidPriority(priority=priority, maximum=self.max_priority)
        if self.levels < JMS_PRIORITIES:
            lowest = JMS_PRIORITIES // 2 - math.ceil(self.levels / 2)
            priority = min(max(priority - lowest, 0), self.levels - 1)
        return self.levels - 1 - priority


def parse(stored: Any, what: str) -> QueueOptions:
    """Stored options, each with its default where it is missing, as in what an older release has
    stored, or not understood, as in what a later one has.

    Raises ``CorruptData`` where they are no options, or the levels, by which messages stand, are
    not understood.
    """
    if not isinstance(stored, dict):
        raise CorruptData(what=what, problem=f"its options are a {type(stored).__name__}")
    known = {each.name for each in fields(QueueOptions)}
    given = {name: value for name, value in stored.items() if name in known}
    while True:
        try:
            return QueueOptions.of(given)
        except InvalidOptions as error:
            option, problem = str(vars(error)["option"]), str(error)
        except InvalidName as error:
            option, problem = "dead_letter_queue", str(error)
        if option not in given or option == "levels":
            raise CorruptData(what=what, problem=problem)
        log.warning("%s: not understood, so at its default: %s", what, problem)
        del given[option]


def kept(stored: Any, options: QueueOptions) -> dict[str, Any]:
    """Options in their stored form, with what this release does not understand as it is stored."""
    wanted = options.to_json()
    if not isinstance(stored, dict):
        return wanted
    default = QueueOptions().to_json()
    understood = parse(stored, "a queue").to_json()
    for name, value in stored.items():
        unchanged = wanted.get(name, default.get(name)) == default.get(name)
        if name not in wanted or (unchanged and understood[name] != value):
            wanted[name] = value
    return wanted


def check_name(name: object) -> str:
    """A name of a queue, a consumer or a subscription; raises ``InvalidName``."""
    if not isinstance(name, str):
        raise InvalidName(name=name, problem="it must be a str")
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise InvalidName(name=name, problem=f"it must have 1 to {MAX_NAME_LENGTH} characters")
    if not name.isprintable():
        raise InvalidName(name=name, problem="it must have printable characters only")
    return name


def check_lease(option: str, given: object) -> float:
    """A lease time in seconds; raises ``InvalidOptions``."""
    seconds = durations.seconds(given)
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0.001 <= seconds <= MAX_LEASE_SECONDS
    ):
        raise InvalidOptions(
            option=option, problem=f"must be 0.001 to {MAX_LEASE_SECONDS:g} seconds"
        )
    return float(seconds)


def check_seconds(option: str, given: object, low: float, high: float) -> float:
    """A time in seconds within bounds; raises ``InvalidOptions``."""
    seconds = durations.seconds(given)
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not low <= seconds <= high
    ):
        raise InvalidOptions(option=option, problem=f"must be {low:g} to {high:,.0f} seconds")
    return float(seconds)


def check_attempts(option: str, attempts: object) -> int:
    """A maximum of attempts; raises ``InvalidOptions``."""
    _integer(option, attempts, 1, MAX_ATTEMPTS)
    return int(str(attempts))


def _integer(option: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidOptions(option=option, problem=f"must be an integer from {low} to {high:,}")
