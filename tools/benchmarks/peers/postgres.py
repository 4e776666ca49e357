"""PostgreSQL: a table with SKIP LOCKED, procrastinate and pgqueuer."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..clients import NAME, Client
from .handled import record
from .peer import Peer, Server, running

OWNER = "postgres"


class _OnPostgres(Peer):
    durable = "each commit"
    programs = ("initdb", "postgres")

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        import psycopg

        # PostgreSQL refuses to run as root.
        user = OWNER if os.geteuid() == 0 else None
        data = directory / "data"
        data.mkdir()
        if user:
            shutil.chown(data, OWNER)
            shutil.chown(directory, OWNER)
        create = [self.program("initdb"), "-D", str(data), "-U", OWNER, "-A", "trust"]
        subprocess.run(create, check=True, cwd=directory, user=user, capture_output=True)
        address = f"host={directory} user={OWNER} dbname=postgres"

        def ready() -> bool:
            try:
                psycopg.connect(address).close()
            except psycopg.OperationalError:
                return False
            return True

        serve = [self.program("postgres"), "-D", str(data), "-k", str(directory), "-h", ""]
        log = directory / "log"
        with running(serve, ready, log, directory=directory, user=user) as pid:
            yield Server(address, pid)


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


class SkipLocked(_OnPostgres):
    name = "PostgreSQL, SKIP LOCKED"
    client = _Table
    packages = ("psycopg",)


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


class Procrastinate(_OnPostgres):
    name = "procrastinate"
    client = _Procrastinate
    packages = ("procrastinate", "psycopg")
    takes = False
    works = True

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        with super().serve(directory) as server:
            _Procrastinate(server.address).app.schema_manager.apply_schema()
            yield server

    def work(self, address: str) -> None:
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


class PgQueuer(_OnPostgres):
    name = "pgqueuer"
    client = _PgQueuer
    packages = ("pgqueuer", "psycopg")
    takes = False
    works = True

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        with super().serve(directory) as server:
            client = _PgQueuer(server.address)
            client.runner.run(client.queries.install())
            yield server

    def work(self, address: str) -> None:
        async def run() -> None:
            from pgqueuer import PgQueuer as Application

            application: Any = Application(await _driver(address))

            async def handle(job: Any) -> None:
                record(job.payload)

            application.entrypoint("record")(handle)
            await application.run()

        asyncio.run(run())
