"""Load: enqueue the rows of Parquet, JSON, CSV or ORC files, each once."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from ...errors import InvalidArgument, JobFailed, QueueError, SinkUnfinished
from ...queue.queue import Queue
from ...queue.streams.sinks import ROOM_SECONDS, Sink
from ...store.binding import fdb
from ...values.durations import Seconds, patience
from .. import spark_session, stores
from ..source import encoding, write
from ..source.columns import TABLES
from ..source.encoding import COLUMNS, CORRUPT
from .steps import OnProgress, Step, plain_errors, reporting

FORMATS = ("parquet", "json", "csv", "orc")
_ENDINGS = {"jsonl": "json", "ndjson": "json", "tsv": "csv"}
_READ_ONLY = {name for columns in TABLES.values() for name in columns} - set(COLUMNS)
"""Columns of tables of messages that an enqueue does not take. A load ignores them."""


class Loaded(Struct, frozen=True):
    """The result of a load.

    id: its name. rows: valid rows, of which ``new`` were not duplicates by dedup id or unique key.
    size: bytes of their payloads. rejected: rows left out; ``samples`` describe the first few.
    before: the load was already complete, and enqueued nothing.
    """

    id: str
    rows: int
    new: int
    size: int
    rejected: int
    samples: tuple[str, ...]
    seconds: float
    before: bool = False


def load(
    db: fdb.Database,
    queue: Queue,
    paths: str | Path | Iterable[str | Path],
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    id: str | None = None,
    bad_rows: str = "fail",
    room: Seconds = ROOM_SECONDS,
    spark: spark_session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Loaded:
    """Enqueue every row of files, each once.

    paths: files or directories, as Spark takes them.
    format: "parquet", "json" (one object a line), "csv" or "orc"; None to go by the first path's
        extension.
    columns: SQL expressions for ``payload``, ``priority``, ``delay``, ``at``, ``ttl``,
        ``max_attempts``, ``key``, ``dedup_id`` and ``unique``. Without one for the payload, it is
        the column ``payload``, and columns named like the others are used too, unless an
        expression uses them. Without such a column, the payload is the whole row as JSON.
    headers: an SQL expression for each header.
    schema: of the files, in SQL; None to infer it. options: of Spark's reader.
    id: a name. Loads of one name enqueue once, and an interrupted one resumes. Without a name,
        resume by the id that ``SinkUnfinished`` shows.
    bad_rows: "fail" ends the load at an invalid row, and enqueues nothing; "skip" leaves it out.
    room: seconds to wait for room, as ``Queue.enqueue``.
    spark: a session; None for one on this machine. progress: called about four times a second.

    Rows are staged first, and become messages once all are staged; see ``Sink``. Raises
    ``SinkUnfinished``; and ``InvalidInput``, ``QueueNotFound``, ``JobFailed``,
    ``MissingPackage``, which enqueue nothing.
    """
    begun = time.monotonic()
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    kind = _format(names, format)
    for name in columns or {}:
        if name not in COLUMNS:
            raise InvalidArgument(
                argument="columns", value=name, problem=f"use {', '.join(COLUMNS)}"
            )
    sink = queue.streams.sink(id or None)
    name = sink.name
    if sink.state(db).done >= 0:
        return Loaded(name, 0, 0, 0, 0, (), time.monotonic() - begun, before=True)
    given = {
        **stores.options(db, queue),
        "id": name,
        "badRows": bad_rows,
        "room": str(int(patience("room", room))),
    }
    # Before Java starts, which takes seconds.
    write.WriteSettings.of(given)
    spark = spark_session.resolve(spark)
    with plain_errors(), tempfile.TemporaryDirectory(prefix="fdbqueue-") as directory:
        frame = _read(spark, names, kind, schema, options or {})
        frame = _messages(frame, columns or {}, headers or {})
        encoding.check(frame.schema)
        summary = str(Path(directory, "summary.json"))
        writer = frame.write.format("fdbqueue").mode("append").options(**given, summary=summary)
        try:
            with reporting(progress and (lambda: progress(_step(db, sink)))), plain_errors():
                writer.save()
        except JobFailed as error:
            raise _unfinished(db, sink, error) from None
        result = json.loads(Path(summary).read_text())
    samples = tuple(result.pop("samples"))
    return Loaded(name, **result, samples=samples, seconds=time.monotonic() - begun)


def _unfinished(db: fdb.Database, sink: Sink, error: JobFailed) -> QueueError:
    """The error of a failed load; ``SinkUnfinished`` if some of it is enqueued."""
    state = sink.state(db)
    if state.batch != 0:
        return error
    # Of an error in another process Spark hands on the text, not the fields.
    problem = str(error).partition("the rest is kept: ")[2] or str(error)
    return SinkUnfinished(
        sink=sink.name, published=state.published, rows=state.rows, problem=problem
    )


def _format(paths: list[str], given: str | None) -> str:
    if not paths:
        raise InvalidArgument(argument="paths", value=paths, problem="name a file")
    ending = paths[0].rstrip("/*").removesuffix(".gz").rpartition(".")[2].lower()
    kind = given or _ENDINGS.get(ending, ending)
    if kind not in FORMATS:
        raise InvalidArgument(
            argument="format", value=kind, problem=f"name one of {', '.join(FORMATS)}"
        )
    for path in paths:
        # Patterns and URLs are for Spark to resolve.
        if not re.search(r"[*?{\[]|^\w+:", path) and not Path(path).exists():
            raise InvalidArgument(
                argument="paths", value=path, problem="there is no such file or directory"
            )
    return kind


def _read(
    spark: SparkSession,
    paths: list[str],
    kind: str,
    schema: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of files, with unreadable lines in the column ``CORRUPT``."""
    if kind not in ("json", "csv"):
        reader = spark.read.format(kind).options(**options)
        return (reader if schema is None else reader.schema(schema)).load(paths)
    given = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **options}
    if kind == "csv":
        # Without pruning: else a line with too many fields would pass unnoticed.
        given = {"header": "true", "inferSchema": "true", "columnPruning": "false", **given}
    reader = spark.read.format(kind).options(**given)
    fields = reader.load(paths).schema if schema is None else StructType.fromDDL(schema)
    if not isinstance(fields, StructType):
        raise InvalidArgument(argument="schema", value=schema, problem="it has no columns")
    # Spark fills this column only where the schema has it.
    if CORRUPT not in fields.fieldNames():
        fields = StructType([*fields.fields]).add(CORRUPT, StringType())
    return reader.schema(fields).load(paths)


def _words(expressions: Iterable[str]) -> set[str]:
    """The words of SQL expressions that may be names of columns."""
    found = (re.findall(r"`((?:[^`]|``)+)`|(\w+)", text.lower()) for text in expressions)
    return {quoted.replace("``", "`") or plain for each in found for quoted, plain in each}


def _messages(
    frame: DataFrame, columns: Mapping[str, str], headers: Mapping[str, str]
) -> DataFrame:
    """The columns of a write."""
    names = frame.columns
    made: dict[str, Column] = {}
    shaped = "payload" in names and "payload" not in columns
    if "payload" not in columns and not shaped:
        made["payload"] = F.struct(*(F.col(_quoted(name)) for name in names if name != CORRUPT))
    if shaped:
        # A column that an expression names is its input, not a column of the write.
        used = _words([*columns.values(), *headers.values()]) - set(COLUMNS)
        left = (name for name in names if name not in _READ_ONLY and name.lower() not in used)
        made |= {name: F.col(_quoted(name)) for name in left}
    made |= {name: F.expr(text) for name, text in columns.items()}
    if headers:
        made["headers"] = F.struct(*(F.expr(text).alias(name) for name, text in headers.items()))
    if CORRUPT in names:
        made[CORRUPT] = F.col(CORRUPT)
    return frame.select(*(column.alias(name) for name, column in made.items()))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _step(db: fdb.Database, sink: Sink) -> Step:
    state = sink.state(db)
    if state.batch == 0 or state.done == 0:
        return Step("enqueuing", state.published, state.rows, "rows")
    return Step("reading", 0, 0, "rows")
