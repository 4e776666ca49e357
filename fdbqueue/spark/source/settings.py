"""The options of the data source.

Spark hands options over as texts with lower-case names. ``UserOptions`` parses and checks them;
readers and writers keep the result in small frozen values, which are pickled to the executors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct

from ...errors import InvalidInput, InvalidOptions
from ...queue.streams.sinks import ROOM_SECONDS
from ...values.options import check_name
from ...values.selector import Selector
from ...values.serializers import CONTENT_TYPES, is_content_type
from . import ddl, places


class Option(Struct, frozen=True):
    """An option of the data source.

    default: the text that stands where none is given; None where there is none. otherwise: what
    holds then, in words. choices: all that it may be. least, most: of a number, or a size in bytes.
    parse: makes its value of a text; raises ``ValueError``. form: of what that takes, in words.
    """

    meaning: str
    default: str | None = None
    otherwise: str = ""
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    parse: Callable[[str], Any] | None = None
    form: str = "an integer"

    def value(self, name: str, text: str) -> Any:
        """The value of a text. Raises ``InvalidOptions``, and what ``parse`` raises of ours."""
        text = text.strip()
        if self.choices:
            text = text.lower()
            if text not in self.choices:
                known = ", ".join(map(repr, self.choices))
                raise InvalidOptions(option=name, problem=f"{text!r} is not one of {known}")
        parse: Callable[[str], Any] = self.parse or (int if self.most else str)
        try:
            value = parse(text)
        except InvalidInput:
            raise
        except ValueError as error:
            problem = f" is not {self.form}" if self.form else f": {error}"
            raise InvalidOptions(option=name, problem=f"{text!r}{problem}") from None
        if self.most and not self.least <= value <= self.most:
            raise InvalidOptions(
                option=name, problem=f"{value:,} is not between {self.least:,} and {self.most:,}"
            )
        return value


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}[match[2]]


def _time(text: str) -> int:
    """A time in milliseconds since the epoch; UTC by default."""
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _levels(text: str) -> frozenset[int]:
    levels: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if low > high:
            raise ValueError(part)
        # No queue has that many: the set stays small, and is still refused where the queue is
        # known.
        levels.update(range(low, min(high, low + 1_000) + 1))
    return frozenset(levels)


def _content_type(text: str) -> str:
    if not is_content_type(text):
        raise ValueError(text)
    return text


_TRUTH = {"true": True, "false": False}
_WHEN = "a time like 2026-05-01T12:00:00Z"
_BYTES = "a size like 8000000 or 8 MB"

LOCATION = {
    "queue": Option(
        'The queue\'s name. `load("orders")` and `save("orders")` set it, too.',
        otherwise="required",
    ),
    "store": Option("An embedded store or a cluster file.", otherwise="each process picks its own"),
    "root": Option(
        "The prefix of the queues' subspace in hexadecimal, if you use your own.",
        otherwise="the default root",
        parse=bytes.fromhex,
        form="the prefix of a subspace in hexadecimal",
    ),
}
"""Options that name the queue: of every read and write."""
LAYOUT = {
    "table": Option(
        "The table to read. A stream browses `ready`, `dead` or `history`, and takes from `ready`.",
        "ready",
        choices=("ready", "waiting", "retrying", "scheduled", "leased", "dead", "history"),
    ),
    "payload": Option(
        "How payloads are read: as binary, as text, or from JSON by `payloadSchema`.",
        otherwise="what your own schema says, or else `json` with `payloadSchema`, `string` if the "
        "queue's serializer writes JSON, or `bytes`",
        choices=("bytes", "string", "json"),
    ),
    "payloadSchema": Option(
        "The schema of JSON payloads, such as `carrier STRING, delay INT`, or what "
        "`StructType.json()` gives.",
        parse=ddl.parse,
        form="",
    ),
    "badPayloads": Option(
        "What a payload does that does not fit: fail the read, or become null.",
        "fail",
        choices=("fail", "null"),
    ),
    "headers": Option(
        "The column of headers: a map of texts, or one text of JSON, which keeps types.",
        otherwise="`map`, or what your own schema says",
        choices=("map", "json"),
    ),
    "headerColumns": Option(
        "Headers that are columns: names with types, such as `origin, delay BIGINT`. Types are "
        "STRING, BIGINT, DOUBLE and BOOLEAN.",
        otherwise="none",
    ),
    "unreadable": Option(
        "What a message does that cannot be read: be a row that says why, be left out, "
        "or fail the read.",
        "keep",
        choices=("keep", "skip", "fail"),
    ),
}
"""Options that shape rows: of every read."""
ROWS = {
    "levels": Option(
        "Reads only these levels, such as `0, 2, 5-9`. Level 0 is the most urgent.",
        otherwise="all",
        parse=_levels,
        form="a list of levels like 0, 2, 5-9",
    ),
    "since": Option(
        "Only rows whose own time is this or later, such as `2026-05-01T12:00:00Z`; without a zone "
        "it is UTC.",
        parse=_time,
        form=_WHEN,
    ),
    "until": Option(
        "Only rows whose own time is before this.",
        parse=_time,
        form=_WHEN,
    ),
    "selector": Option(
        "Only messages that match a selector. Not for `history`.",
        parse=Selector,
    ),
    "skipExpiring": Option(
        "Of `history`: leaves out the lines that the queue removes within so many seconds, so that "
        "a read that takes as long misses none.",
        "0",
        least=0,
        most=7 * 24 * 3600,
    ),
    "partitionBytes": Option(
        "About how many bytes a partition has.",
        "4 MB",
        least=10_000,
        most=100_000_000,
        parse=_size,
        form=_BYTES,
    ),
    "pushdown": Option(
        "Checks the query's conditions while reading: on levels, on the table's own time, on other "
        "columns of texts and integers, and equality of header columns. Needs "
        "`spark.sql.python.filterPushdown.enabled`, which `fdbqueue.spark.local` turns on.",
        otherwise="whether that is enabled when `fdbqueue.spark.register` is called, or false",
        choices=tuple(_TRUTH),
        parse=_TRUTH.__getitem__,
    ),
}
"""Options that choose the rows of a table."""
_PLACE = (
    "`first`, `now` (behind everything there), a message id, for its level, or JSON by level, such "
    'as `{"0": "now", "5": "05-00000000002a-a1b2c3d4e5f60708"}`'
)
PLACES = {
    "startingOffsets": Option(
        "Where a stream without a checkpoint begins, or a read of `ready`: "
        f"{_PLACE}, with the others at `first`.",
        otherwise="`first`",
        parse=partial(places.named, "startingOffsets"),
    ),
    "endingOffsets": Option(
        "Before which place a read of `ready`, or a stream of it, ends: one of the same, with the "
        "others at their ends. A stream never divides messages that were enqueued together.",
        otherwise="a read ends at `now`, and a stream goes on",
        parse=partial(places.named, "endingOffsets"),
    ),
}
"""Places in a queue: of reads and streams of ready messages."""
LIMITS = {
    "mode": Option(
        "What happens to messages: they stay in the queue, or are taken.",
        "browse",
        choices=("browse", "consume"),
    ),
    "consumer": Option(
        "A unique name of the query. Keep it across restarts.",
        otherwise="required to consume",
        parse=check_name,
    ),
    "maxMessagesPerBatch": Option(
        "Most messages in a micro-batch.", "50000", least=1, most=10_000_000
    ),
    "maxBytesPerBatch": Option(
        "Most bytes in a micro-batch, which always has at least one message.",
        "256 MB",
        least=1,
        most=10**12,
        parse=_size,
        form=_BYTES,
    ),
    "partitions": Option(
        "Most partitions, one task each, in a micro-batch.",
        otherwise="the parallelism of the cluster when `fdbqueue.spark.register` is called, or the "
        "cores of the driver",
        least=1,
        most=10_000,
    ),
    "startingTimestamp": Option(
        "Begin instead, in each level, with the first message that was enqueued at this time or "
        "later, such as `2026-05-01T12:00:00Z`; without a zone it is UTC.",
        parse=_time,
        form=_WHEN,
    ),
    "minMessagesPerBatch": Option(
        "How many messages a micro-batch waits for, for `maxTriggerDelay` at most. If the stream "
        "takes messages, all that are ready in the queue count.",
        "1",
        least=1,
        most=10_000_000,
    ),
    "maxTriggerDelay": Option(
        "Seconds after which a micro-batch does not wait for `minMessagesPerBatch` any longer.",
        "60",
        least=1,
        most=24 * 3600,
    ),
    "failOnDataLoss": Option(
        "Whether the query stops if messages of its batches are gone, or the checkpoint does not "
        "fit the queue.",
        "true",
        choices=tuple(_TRUTH),
        parse=_TRUTH.__getitem__,
    ),
}
"""Options of streams that read."""
WRITING = {
    "id": Option(
        "A name of a batch write. Writes of one name happen once, and an interrupted one resumes.",
        otherwise="each write is a new one",
        parse=check_name,
    ),
    "batch": Option(
        "In `foreachBatch`: the number of the micro-batch, whose rows are written once. The query "
        "names the write, and an `id` tells several of a query apart.",
        otherwise="none",
        least=0,
        most=2**62,
    ),
    "room": Option(
        'Seconds to wait for room in a queue with `bounds.when_full="block"`.',
        f"{ROOM_SECONDS:.0f}",
        least=0,
        most=7 * 24 * 3600,
    ),
    "badRows": Option(
        "What an invalid row does: fail the write, or be left out.",
        "fail",
        choices=("fail", "skip"),
    ),
    "contentType": Option(
        "What payloads of bytes or text hold already, such as `application/json`.",
        otherwise="that of the queue's serializer, or else bytes are bytes, and text becomes JSON",
        parse=_content_type,
        form=CONTENT_TYPES,
    ),
    "summary": Option(
        "A file on the driver for the result of a batch write as JSON: rows written and rows left "
        "out.",
        otherwise="none",
    ),
}
"""Options of writes."""
BATCH = {**LOCATION, **LAYOUT, **ROWS, **PLACES}
STREAM = {**LOCATION, **LAYOUT, **LIMITS, **PLACES}
WRITE = {**LOCATION, **WRITING}
SPARKS = {
    "checkpointLocation": Option("Where Spark keeps the progress of a query."),
    "queryName": Option("The name of a query, of a declarative pipeline."),
}
"""Spark's own options, which it also passes to stream writers."""
KINDS = {"tables": BATCH, "streams": STREAM, "writes": WRITE}


class UserOptions:
    """The options that the user set, all of them among ``known``.

    Raises ``InvalidOptions`` for any other. ``path``, which Spark sets for ``load("orders")`` and
    ``save("orders")``, is another name of ``queue``.
    """

    def __init__(self, options: Mapping[str, str], known: Mapping[str, Option]) -> None:
        self._texts = {name.lower(): str(text) for name, text in options.items()}
        self._known = dict(sorted(known.items()))
        path = self._texts.pop("path", None)
        if path is not None and self._texts.setdefault("queue", path) != path:
            raise InvalidOptions(
                option="queue", problem=f"it is {self._texts['queue']!r}, but the path is {path!r}"
            )
        for name in self._texts.keys() - set(map(str.lower, known)):
            kinds = [kind for kind, those in KINDS.items() if name in map(str.lower, those)]
            problem = f"for {' and '.join(kinds)} only" if kinds else "unknown"
            raise InvalidOptions(
                option=name, problem=f"{problem}; the options are {', '.join(self._known)}"
            )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def __getitem__(self, name: str) -> Any:
        """The value of an option, or of its default; None without one."""
        option = self._known[name]
        text = self._texts.get(name.lower(), option.default)
        return None if text is None else option.value(name, text)

    def fields(self, kind: type[Struct]) -> dict[str, Any]:
        """The fields of a struct that have names of options, as Python spells them."""
        names = {re.sub("[A-Z]", lambda a: f"_{a[0].lower()}", name): name for name in self._known}
        return {each: self[names[each]] for each in kind.__struct_fields__ if each in names}


class Location(Struct, frozen=True):
    """Where a queue is.

    store: None for each process's default. root: the prefix of the subspace of queues; None for
    the package's own.
    """

    queue: str
    store: str | None
    root: bytes | None

    @classmethod
    def of(cls, options: UserOptions) -> Location:
        """From the options ``queue``, ``store`` and ``root``."""
        if not options["queue"]:
            raise InvalidOptions(
                option="queue",
                problem="it is required, and Spark does not tell it of a table in a catalog: "
                "instead of CREATE TABLE, use CREATE TEMPORARY VIEW with USING fdbqueue OPTIONS "
                "(queue 'orders'), which takes INSERT INTO, too",
            )
        return cls(**options.fields(cls))
