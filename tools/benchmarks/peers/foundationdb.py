"""fdbqueue, the plain recipe and blind sets, on the embedded engine and on a server."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fdbqueue

from ..baselines import BlindSets, PlainRecipe
from ..clients import NAME, Client
from ..ways import Layer
from .handled import record
from .peer import Missing, Peer, Server, free_port

ROOT = Path(__file__).resolve().parents[3]


class _OnStore(Peer):
    """A queue on a store of fdbqueue."""

    durable = "each commit"

    def __init__(self, title: str, made: Callable[[Any, Any], Client], server: bool) -> None:
        self._made = made
        self._server = server
        self.name = f"{title}, {'server' if server else 'embedded'}"

    def connect(self, address: str) -> Client:
        return self._made(fdbqueue.open(address), fdbqueue.fdb.Subspace((NAME,)))

    def check(self) -> None:
        if self._server and not os.environ.get("FDB_BIN"):
            self.program("fdbserver")

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        if not self._server:
            store = f"embedded:{directory}/store.fdbq"
            yield Server(store, environment={"FDBQUEUE_STORE": store})
            return
        with tempfile.TemporaryDirectory(prefix="fdb-") as home:
            environment = {**os.environ, "FDB_DIR": home, "FDB_PORT": str(free_port())}
            script = str(ROOT / "tools" / "fdbserver")
            started = subprocess.run(
                [script, "start"], check=False, env=environment, capture_output=True, text=True
            )
            try:
                if started.returncode:
                    raise Missing(f"tools/fdbserver start: {started.stderr[-300:]}")
                told = subprocess.run(
                    [script, "env"], env=environment, capture_output=True, text=True, check=True
                ).stdout
                exports = shlex.split(told.replace("export ", ""))
                client = dict(export.split("=", 1) for export in exports)
                pid = int((Path(home) / "pid").read_text())
                yield Server(client["FDBQUEUE_STORE"], pid, client)
            finally:
                subprocess.run([script, "reset"], env=environment, capture_output=True, check=False)


def _queue(db: Any, _: Any) -> Layer:
    return Layer(db, fdbqueue.Queue.open(db, NAME, create=True))


class _FdbQueue(_OnStore):
    works = True

    def work(self, address: str) -> None:
        db = fdbqueue.open(address)
        worker = fdbqueue.Worker(db)
        worker.add(fdbqueue.Queue.open(db, NAME), record)
        worker.run()


def on_store(*, server: bool) -> list[Peer]:
    """The peers on a store: fdbqueue, a recipe, and a limit."""
    sets = _OnStore("blind sets", BlindSets, server)
    sets.limit = True
    return [
        _FdbQueue("fdbqueue", _queue, server),
        _OnStore("plain recipe", PlainRecipe, server),
        sets,
    ]
