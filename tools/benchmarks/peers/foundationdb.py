"""fdbqueue, the plain recipe and blind sets, on the embedded engine and on a server."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import fdbqueue

from ..baselines import BlindSets, PlainRecipe
from ..clients import NAME, Client
from ..ways import Layer
from .handled import record
from .peer import Missing, Peer, Server, Store, free_port

ROOT = Path(__file__).resolve().parents[3]


class _Embedded(Store):
    @contextmanager
    def served(self, directory: Path) -> Iterator[Server]:
        store = f"embedded:{directory}/store.fdbq"
        yield Server(store, environment={"FDBQUEUE_STORE": store})


class _Cluster(Store):
    """A server of one process, by tools/fdbserver."""

    @property
    def programs(self) -> Sequence[str]:  # type: ignore[override]
        return () if os.environ.get("FDB_BIN") else ("fdbserver",)

    @contextmanager
    def served(self, directory: Path) -> Iterator[Server]:
        home = directory / "fdb"
        environment = {**os.environ, "FDB_DIR": str(home), "FDB_PORT": str(free_port())}

        def tell(what: str) -> str:
            command = [str(ROOT / "tools" / "fdbserver"), what]
            done = subprocess.run(
                command, check=False, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                raise Missing(f"tools/fdbserver {what}: {done.stderr[-300:]}")
            return done.stdout

        try:
            tell("start")
            exports = shlex.split(tell("env").replace("export ", ""))
            client = dict(export.split("=", 1) for export in exports)
            yield Server(client["FDBQUEUE_STORE"], int((home / "pid").read_text()), client)
        finally:
            tell("reset")


def _connect(made: Callable[[Any, Any], Client], address: str) -> Client:
    return made(fdbqueue.open(address), fdbqueue.fdb.Subspace((NAME,)))


def _queue(db: Any, _: Any) -> Layer:
    return Layer(db, fdbqueue.Queue.open(db, NAME, create=True))


def _work(address: str) -> None:
    db = fdbqueue.open(address)
    worker = fdbqueue.Worker(db)
    worker.add(fdbqueue.Queue.open(db, NAME), record)
    worker.run()


def _on(where: str, store: Store) -> list[Peer]:
    """fdbqueue, a recipe, and a limit."""
    recipe, sets = partial(_connect, PlainRecipe), partial(_connect, BlindSets)
    return [
        Peer(f"fdbqueue, {where}", partial(_connect, _queue), store, work=_work),
        Peer(f"plain recipe, {where}", recipe, store),
        Peer(f"blind sets, {where}", sets, store, limit=True),
    ]


ON_STORES = [*_on("embedded", _Embedded()), *_on("server", _Cluster())]
