"""fdbqueue, the plain recipe and blind sets, on the embedded engine and on a server."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import baselines
from .handled import record
from .peer import NAME, Client, Missing, Peer, Server, free_port

ROOT = Path(__file__).resolve().parents[3]


class _OnStore(Peer):
    """A peer on a store of fdbqueue."""

    title: str
    durable = "each commit"

    def __init__(self, *, server: bool = False) -> None:
        self._server = server
        self.name = f"{self.title}, {'server' if server else 'embedded'}"

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


class _Queue(Client):
    def __init__(self, address: str) -> None:
        import fdbqueue

        self.db = fdbqueue.open(address)
        try:
            self.queue = fdbqueue.Queue.open(self.db, NAME)
        except fdbqueue.errors.QueueNotFound:
            self.queue = fdbqueue.Queue.create(self.db, NAME)
        self.taken: list[Any] = []

    def put(self, payloads: Sequence[bytes]) -> None:
        if len(payloads) == 1:
            self.queue.enqueue(self.db, payloads[0])
        else:
            self.queue.enqueue_many(self.db, payloads)

    def take(self, most: int) -> Sequence[bytes]:
        # One transaction acknowledges and takes the next, as in Queue.consume.
        if most == 1:
            delivery = self.queue.receive(self.db, lease=60, ack=self.taken)
            self.taken = [] if delivery is None else [delivery]
        else:
            self.taken = self.queue.receive_many(self.db, most, lease=60, ack=self.taken)
        return [delivery.message.payload for delivery in self.taken]

    def finish(self) -> None:
        if self.taken:
            self.queue.ack(self.db, self.taken)


class FdbQueue(_OnStore):
    """This fdbqueue."""

    title = "fdbqueue"
    client = _Queue
    works = True

    def work(self, address: str) -> None:
        import fdbqueue

        opened = _Queue(address)
        worker = fdbqueue.Worker(opened.db)
        worker.add(opened.queue, record)
        worker.run()


class _RecipeKeys(Client):
    def __init__(self, address: str) -> None:
        import fdbqueue

        self.db: Any = fdbqueue.open(address)
        self.space: Any = fdbqueue.fdb.Subspace((NAME,))

    def put(self, payloads: Sequence[bytes]) -> None:
        baselines.put_all(self.db, self.space, payloads)

    def take(self, most: int) -> Sequence[bytes]:
        taken: Sequence[bytes] = baselines.pop_first(self.db, self.space, most)
        return taken


class Recipe(_OnStore):
    """FoundationDB's queue recipe: no leases, so a crash loses what its consumer had popped."""

    title = "plain recipe"
    client = _RecipeKeys


class _BlindKeys(_RecipeKeys):
    def put(self, payloads: Sequence[bytes]) -> None:
        baselines.set_blindly(self.db, self.space, [os.urandom(12) for _ in payloads], payloads)

    def take(self, most: int) -> Sequence[bytes]:
        nothing = [b"0" * 100] * most
        for _ in range(2):
            self.put(nothing)
        return nothing


class BlindSets(_OnStore):
    """Sets of random keys: one commit to enqueue, two to receive and acknowledge."""

    title = "blind sets"
    client = _BlindKeys
    limit = True
