"""The replay: dead letters that match a condition are delivered again, each once."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.records import record
from .. import session, stores
from ..source import batch
from .steps import Step, Tell, plainly

_BATCH = 100


@record
class Replayed:
    """How many dead letters matched, and how many of these are ready again."""

    matched: int
    replayed: int
    seconds: float


def replay(
    db: fdb.Database,
    queue: Queue,
    where: str | None = None,
    *,
    payload_schema: str | None = None,
    header_columns: str | None = None,
    dry_run: bool = False,
    spark: session.Given = None,
    progress: Tell | None = None,
) -> Replayed:
    """Deliver dead letters again that match a condition.

    where: the condition, in SQL, on the columns of the table of dead letters, such as ``reason``,
        ``died_at``, ``attempts`` and ``payload``; all where None.
    payload_schema: the fields of payloads that are JSON, in SQL: then the condition can name
        ``payload.delay``. Payloads that do not fit are null. Else payloads are text.
    header_columns: headers as columns, like ``region, retries BIGINT``.
    dry_run: only count. spark: a session; None for one on this machine.

    Spark finds them, and this process delivers them, a hundred in a transaction, each as
    ``DeadLetters.redrive_ids`` does: with its id and no attempts made, and exactly once. What dies
    meanwhile may be delivered again, too. Raises ``InvalidInput``, ``QueueNotFound``,
    ``JobFailed``, ``MissingPackage``, ``MissingJava``.
    """
    begun = time.monotonic()
    queue.options(db)
    options = {"table": "dead", "payload": "string", "badPayloads": "null"}
    if payload_schema is not None:
        options |= {"payload": "json", "payloadSchema": payload_schema}
    if header_columns is not None:
        options["headerColumns"] = header_columns
    batch.Settings.of({**stores.options_of(db, queue), **options}).layout.ddl()
    matched = replayed = 0
    with plainly():
        spark = session.given(spark)
        reader = spark.read.format("fdbqueue").options(**stores.options_of(db, queue), **options)
        frame = reader.load()
        ids = (frame if where is None else frame.where(where)).select("id")
        for some in _pages(row.id for row in ids.toLocalIterator(prefetchPartitions=True)):
            matched += len(some)
            if not dry_run:
                replayed += queue.dead.redrive_ids(db, some)
            if progress is not None:
                progress(Step("replaying", matched, 0, "dead letters"))
    return Replayed(matched, replayed, time.monotonic() - begun)


def _pages(ids: Iterator[str]) -> Iterator[list[str]]:
    page: list[str] = []
    for each in ids:
        page.append(each)
        if len(page) == _BATCH:
            yield page
            page = []
    if page:
        yield page
