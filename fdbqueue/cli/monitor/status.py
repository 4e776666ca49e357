"""``fdbq status``, and what the store reports about itself."""

from __future__ import annotations

import os
import time
from itertools import pairwise

from msgspec import Struct

import fdbqueue

from ...errors import StoreError, StoreUnreachable
from .. import context, durations, terminal
from ..output import Done, Result

ROUNDS = 5
READ_MS = 2_000
COMMIT_MS = 5_000
"""How long one commit may take."""


class Latency(Struct, frozen=True):
    """Milliseconds for a transaction's read version, one read, and its commit."""

    begin_ms: float
    read_ms: float
    commit_ms: float

    def to_json(self) -> dict[str, float]:
        """JSON-ready, to the microsecond."""
        return {name: round(getattr(self, name), 3) for name in self.__struct_fields__}


def bindings_version() -> str:
    """The version of the bindings that are installed; "unknown" if they are not from a package."""
    from fdbqueue.store.binding import fdb

    # By its name: ``importlib.metadata`` takes a fifth of the time of the whole command to import.
    for name in os.listdir(os.path.dirname(os.path.dirname(fdb.__file__))):
        if name.startswith("foundationdb-") and name.endswith("-info"):
            return name.rpartition(".")[0].split("-")[1]
    return "unknown"


def status(
    timeout: float = durations.option("How long to wait for a cluster.", 10.0, least=0.001),
) -> Done:
    """Show which store fdbq uses, and whether it responds.

    Prints the store, its engine, the versions, the number of queues, and the median latency of five
    transactions. Writes nothing. The exit code is 1 if the store does not respond.

    Examples:
      fdbq status
      fdbq --store /etc/foundationdb/fdb.cluster status --timeout 2 --json
    """
    from fdbqueue.store.binding import DEFAULT, Engine, fdb

    report: dict[str, object] = {
        "store": DEFAULT.path,
        "engine": "embedded" if DEFAULT.engine is Engine.EMBEDDED else "foundationdb",
        "api_version": fdb.get_api_version(),
        "bindings": bindings_version(),
        "fdbqueue": fdbqueue.__version__,
    }
    try:
        db = context.connect(timeout=timeout)
        queues = len(context.queue_names(db))
        latency = measure(db)
    except StoreError as error:
        return Result({**report, "reachable": False, "error": str(error)}, (), failed=error)
    begin, read, commit = (f"{value:.2f} ms" for value in latency.to_json().values())
    fields = [
        *(("store", str(DEFAULT)), ("engine", DEFAULT.engine.value)),
        ("versions", f"fdbqueue {report['fdbqueue']}, bindings {report['bindings']}, "
         f"API {report['api_version']}"),
        ("reachable", "yes"),
        ("latency", f"begin {begin}, read {read}, commit {commit}"),
        ("queues", queues),
    ]  # fmt: skip
    value = {**report, "reachable": True, "queues": queues, "latency": latency.to_json()}
    return Result(value, terminal.fields(fields))


def measure(db: fdbqueue.fdb.Database) -> Latency:
    """The median latencies of transactions that commit without writing."""
    rounds = [_round(db) for _ in range(ROUNDS)]
    begin, read, commit = (
        sorted(column)[ROUNDS // 2] * 1000 for column in zip(*rounds, strict=True)
    )
    return Latency(begin, read, commit)


def _round(db: fdbqueue.fdb.Database) -> tuple[float, float, float]:
    probe = _probe()
    tr = db.create_transaction()
    times = [time.perf_counter()]
    tr.options.set_timeout(COMMIT_MS)
    tr.get_read_version().wait()
    times.append(time.perf_counter())
    # A snapshot read: the rounds of others, who write to the same key, do not make this one fail.
    tr.snapshot.get(probe).wait()
    times.append(time.perf_counter())
    tr.add_write_conflict_key(probe)
    _commit(db, tr)
    times.append(time.perf_counter())
    begin, read, commit = (later - earlier for earlier, later in pairwise(times))
    return begin, read, commit


def _commit(db: fdbqueue.fdb.Database, tr: fdbqueue.fdb.Transaction) -> None:
    """Commit, or say why not even that is possible."""
    from fdbqueue.store import embedded
    from fdbqueue.store.binding import TIMED_OUT, Engine, describe

    try:
        tr.commit().wait()
    except fdbqueue.fdb.FDBError as error:
        if error.code != TIMED_OUT:
            raise
        store, seconds = describe(db), COMMIT_MS / 1000
        if store.engine is not Engine.EMBEDDED or store.path is None:
            raise StoreUnreachable(store=str(store), seconds=seconds) from None
        problem = f"no commit is made for {seconds:g} s"
        holder = embedded.lock_holder(store.path)
        if holder is not None:
            helps = f"continue it (kill -CONT {holder.pid}), or end it"
            problem += f": {holder}, holds its lock; {helps if holder.stopped else 'end it'}"
        raise StoreError(store=store.path, problem=problem) from None


def _probe() -> bytes:
    """A key for a write conflict without a write: it forces a commit that the store decides."""
    from fdbqueue.schema.keys import DEFAULT_ROOT

    return DEFAULT_ROOT.pack(("latency probe",))


def version(db: fdbqueue.fdb.Database) -> tuple[int, float]:
    """A current version of the database, and this machine's clock at that time, in seconds.

    It is a commit version, because the read versions of an idle cluster are old.
    """
    while True:
        tr = db.create_transaction()
        try:
            tr.add_write_conflict_key(_probe())
            tr.options.set_timeout(COMMIT_MS)
            before = time.time()
            _commit(db, tr)
            return tr.get_committed_version(), (before + time.time()) / 2
        except fdbqueue.fdb.FDBError as error:
            tr.on_error(error).wait()


def skew(db: fdbqueue.fdb.Database) -> float | None:
    """Seconds that this machine's clock is ahead of the cluster's; None if it has none."""
    from fdbqueue.store.clocks import TIME_KEEPER, parse_note

    tr = db.create_transaction()
    try:
        tr.options.set_read_system_keys()
        tr.options.set_timeout(READ_MS)
        rows = tr.get_range(TIME_KEEPER, TIME_KEEPER + b"\xff", limit=1, reverse=True).to_list()
    except fdbqueue.fdb.FDBError:
        return None
    if not rows:
        return None
    noted_at, noted = parse_note(rows[0])
    # The note is up to ten seconds old: the versions since then tell how old.
    now, wall = version(db)
    return wall - (noted_at + (now - noted) / 1_000_000)
