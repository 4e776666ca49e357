"""PostgreSQL: a table with SKIP LOCKED, procrastinate and pgqueuer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..clients import NAME, Client
from .handled import record
from .peer import Daemon, Peer


def _ready(address: str) -> None:
    import psycopg

    psycopg.connect(address).close()


POSTGRES = Daemon(
    "postgres -D {directory}/data -k {directory} -c listen_addresses=",
    "host={directory} user=postgres dbname=postgres",
    _ready,
    before="initdb -D {directory}/data -U postgres -A trust",
    user="postgres",
)


class _Table(Client):
    def __init__(self, address: str) -> None:
        import psycopg

        self.connection: Any = psycopg.connect(address, autocommit=True)
        self.cursor = self.connection.cursor()
        self.cursor.execute("SELECT pg_advisory_lock(1)")
        self.cursor.execute(
            f"""CREATE TABLE IF NOT EXISTS {NAME} (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea NOT NULL)"""
        )
        self.cursor.execute("SELECT pg_advisory_unlock(1)")

    def put(self, payloads: Sequence[bytes]) -> None:
        self.cursor.execute(
            f"INSERT INTO {NAME} (payload) SELECT unnest(%s::bytea[])", (list(payloads),)
        )

    def take(self, most: int) -> Sequence[bytes]:
        with self.connection.transaction():
            self.cursor.execute(
                f"SELECT id, payload FROM {NAME} ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED",
                (most,),
            )
            rows = self.cursor.fetchall()
            ids = [row[0] for row in rows]
            self.cursor.execute(f"DELETE FROM {NAME} WHERE id = ANY(%s)", (ids,))
        return [bytes(row[1]) for row in rows]


class _Procrastinate(Client):
    def __init__(self, address: str) -> None:
        import procrastinate

        connector = procrastinate.SyncPsycopgConnector(conninfo=address)
        self.app: Any = procrastinate.App(connector=connector)
        self.app.open()
        self.task = self.app.task(name="record")(record)

    def enqueue(self, payload: bytes) -> None:
        self.task.defer(payload=payload.decode())

    def put(self, payloads: Sequence[bytes]) -> None:
        self.task.batch_defer(*({"payload": payload.decode()} for payload in payloads))


def _apply_schema(address: str) -> None:
    _Procrastinate(address).app.schema_manager.apply_schema()


def _work_on_jobs(address: str) -> None:
    import procrastinate

    app: Any = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=address))
    app.task(name="record")(record)
    app.run_worker(delete_jobs="successful")


class _PgQueuer(Client):
    def __init__(self, address: str) -> None:
        from pgqueuer import Queries

        self.runner = asyncio.Runner()
        self.queries: Any = Queries(self.runner.run(_driver(address)))

    def put(self, payloads: Sequence[bytes]) -> None:
        count = len(payloads)
        enqueued = self.queries.enqueue(["record"] * count, list(payloads), [0] * count)
        self.runner.run(enqueued)


async def _driver(address: str) -> Any:
    import psycopg
    from pgqueuer import PsycopgDriver

    return PsycopgDriver(await psycopg.AsyncConnection.connect(address, autocommit=True))


def _install(address: str) -> None:
    client = _PgQueuer(address)
    client.runner.run(client.queries.install())


def _work_on_entries(address: str) -> None:
    async def run() -> None:
        from pgqueuer import PgQueuer as Application

        application: Any = Application(await _driver(address))

        async def handle(job: Any) -> None:
            record(job.payload)

        application.entrypoint("record")(handle)
        await application.run()

    asyncio.run(run())


SKIP_LOCKED = Peer("PostgreSQL, SKIP LOCKED", _Table, POSTGRES, packages=("psycopg",))
PROCRASTINATE = Peer(
    "procrastinate",
    _Procrastinate,
    POSTGRES,
    packages=("procrastinate", "psycopg"),
    prepare=_apply_schema,
    work=_work_on_jobs,
    takes=False,
)
PGQUEUER = Peer(
    "pgqueuer",
    _PgQueuer,
    POSTGRES,
    packages=("pgqueuer", "psycopg"),
    prepare=_install,
    work=_work_on_entries,
    takes=False,
)
