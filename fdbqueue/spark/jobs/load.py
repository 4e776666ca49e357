"""The bulk load: files of Parquet, JSON or CSV become messages, each row once."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from ...errors import InvalidArgument, JobFailed, QueueError, SinkUnfinished
from ...queue.bulk.sinks import TIMEOUT_SECONDS, Sink, anonymous
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.durations import Seconds, patience
from ...values.records import record
from ...values.serializers import BUILT_IN
from .. import session, stores
from ..source import encoding, write
from ..source.encoding import COLUMNS, CORRUPT
from ..source.rows import TABLES
from .steps import Step, Tell, plainly, tasks, watched

FORMATS = ("parquet", "json", "csv", "orc")
_ENDINGS = {"jsonl": "json", "ndjson": "json", "tsv": "csv"}
_READ_ONLY = {name for columns in TABLES.values() for name in columns} - set(COLUMNS)
"""What a table of messages has that an enqueue does not take: it is left out."""

_AS_JSON = {
    "ignoreNullFields": "false",
    # Spark's own formats leave out what is shorter than a millisecond.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


@record
class Loaded:
    """What a load did.

    rows: how many were enqueued; of these ``new`` were not there already, by a dedup id or a
    unique key. size: bytes of their payloads. rejected: rows that were left out, such as
    ``samples``. id: the name of the load. before: whether it was complete before.
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
    timeout: Seconds = TIMEOUT_SECONDS,
    spark: session.Given = None,
    progress: Tell | None = None,
) -> Loaded:
    """Enqueue every row of some files, each once.

    paths: files or directories, as Spark takes them.
    format: "parquet", "json" (one object to a line), "csv" or "orc"; by the ending of the first
        path where None.
    columns: what becomes of the columns: an expression in SQL for each of ``payload``,
        ``priority``, ``delay``, ``at``, ``ttl``, ``max_attempts``, ``key``, ``dedup_id`` and
        ``unique``. Where no payload is named, it is the column ``payload``, and the other columns
        go by their names, but for those that an expression is of; where there is none, it is the
        whole row, as JSON.
    headers: an expression in SQL for each header.
    schema: of the files, in SQL; they are asked for it where None. options: of Spark's reader.
    id: a name of the load: loads of the same name enqueue once, and one that was interrupted is
        gone on with. Without one, it can be gone on with by the id that ``SinkUnfinished`` tells.
    bad_rows: "fail" ends the load at a row that is no message, before anything is enqueued; "skip"
        leaves it out.
    timeout: seconds to wait for room, as ``Queue.enqueue``.
    spark: a session; None for one on this machine. progress: is told about four times a second.

    The rows are staged first and become messages only when all are; see ``Sink``. Raises
    ``InvalidInput``, ``QueueNotFound``, ``JobFailed``, ``MissingPackage``, ``MissingJava``, and
    nothing is enqueued then; and ``SinkUnfinished``.
    """
    begun = time.monotonic()
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    kind = _format(names, format)
    for name in columns or {}:
        if name not in COLUMNS:
            raise InvalidArgument(
                argument="columns", value=name, problem=f"there are {', '.join(COLUMNS)}"
            )
    name = id or anonymous(time.time_ns() // 1_000_000)
    sink = Sink(queue, name)
    if sink.state(db).done >= 0:
        return Loaded(name, 0, 0, 0, 0, (), time.monotonic() - begun, before=True)
    given = {
        **stores.options_of(db, queue),
        "id": name,
        "badRows": bad_rows,
        "timeout": str(int(patience("timeout", timeout))),
    }
    write.Settings.of(given)
    spark = session.given(spark)
    with plainly(), tempfile.TemporaryDirectory(prefix="fdbqueue-") as directory:
        frame = _read(spark, names, kind, schema, options or {})
        frame, content_type = _messages(frame, columns or {}, headers or {})
        encoding.check(frame.schema)
        summary = Path(directory, "summary.json")
        writer = (
            frame.write.format("fdbqueue")
            .mode("append")
            .options(**given, contentType=content_type, summary=str(summary))
        )
        spark.sparkContext.setJobGroup(name, f"fdbqueue load into {queue.name}")
        try:
            with watched(progress and (lambda: progress(_look(db, sink, spark)))), plainly():
                writer.save()
        except JobFailed as error:
            raise _unfinished(db, sink, error) from error
        told = json.loads(summary.read_text())
    samples = tuple(told.pop("samples"))
    return Loaded(name, **told, samples=samples, seconds=time.monotonic() - begun)


def _unfinished(db: fdb.Database, sink: Sink, error: JobFailed) -> QueueError:
    """What to say of a load that has failed: whether some of it is enqueued."""
    state = sink.state(db)
    if state.batch != 0:
        return error
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
        if not re.search(r"[*?{\[]|^\w+:", path) and not Path(path).exists():
            raise InvalidArgument(argument="paths", value=path, problem="Path does not exist")
    return kind


def _read(
    spark: SparkSession,
    paths: list[str],
    kind: str,
    schema: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of files; what cannot be read of a line is in the column ``CORRUPT``."""
    if kind not in ("json", "csv"):
        reader = spark.read.format(kind).options(**options)
        return (reader if schema is None else reader.schema(schema)).load(paths)
    given = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **options}
    if kind == "csv":
        # All columns are parsed, or a line that has too many would not be noticed.
        given = {"header": "true", "inferSchema": "true", "columnPruning": "false", **given}
    reader = spark.read.format(kind).options(**given)
    fields = reader.load(paths).schema if schema is None else StructType.fromDDL(schema)
    if not isinstance(fields, StructType):
        raise InvalidArgument(argument="schema", value=schema, problem="it has no columns")
    if CORRUPT not in fields.fieldNames():
        fields = StructType([*fields.fields]).add(CORRUPT, StringType())
    return reader.schema(fields).load(paths)


def _words(expressions: Iterable[str]) -> set[str]:
    """What may be a column's name in some expressions."""
    found = (re.findall(r"`((?:[^`]|``)+)`|(\w+)", text.lower()) for text in expressions)
    return {quoted.replace("``", "`") or plain for each in found for quoted, plain in each}


def _messages(
    frame: DataFrame, columns: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[DataFrame, str]:
    """The columns of a write, and the content type of the payloads."""
    names = frame.columns
    made: dict[str, Column] = {}
    content_type = BUILT_IN["bytes"].content_type
    shaped = "payload" in names and "payload" not in columns
    if "payload" not in columns and not shaped:
        whole = F.struct(*(F.col(_quoted(name)) for name in names if name != CORRUPT))
        made["payload"] = F.to_json(whole, _AS_JSON)
        content_type = BUILT_IN["json"].content_type
    if shaped:
        used = _words([*columns.values(), *headers.values()]) - set(COLUMNS)
        left = (name for name in names if name not in _READ_ONLY and name.lower() not in used)
        made |= {name: F.col(_quoted(name)) for name in left}
    made |= {name: F.expr(text) for name, text in columns.items()}
    if headers:
        made["headers"] = F.struct(*(F.expr(text).alias(name) for name, text in headers.items()))
    if CORRUPT in names:
        made[CORRUPT] = F.col(CORRUPT)
    chosen = frame.select(*(column.alias(name) for name, column in made.items()))
    if isinstance(chosen.schema["payload"].dataType, StructType | ArrayType | MapType):
        chosen = chosen.withColumn("payload", F.to_json("payload", _AS_JSON))
        content_type = BUILT_IN["json"].content_type
    return chosen, content_type


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _look(db: fdb.Database, sink: Sink, spark: SparkSession) -> Step:
    state = sink.state(db)
    if state.batch == 0 or state.done == 0:
        return Step("enqueuing", state.published, state.rows, "rows")
    return Step("reading", *tasks(spark, sink.name), "tasks")
