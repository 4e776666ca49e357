"""What a queue does to take part in the comparison."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ..clients import Client
from ..processes import How

START_SECONDS = 60.0
PLACES = [
    *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
    "/usr/lib/rabbitmq/bin",
]
"""Where Debian keeps the programs of servers; on the PATH it has wrappers that switch the user."""


class Missing(Exception):
    """Raised when a peer cannot run on this machine; the text says what to install."""


@dataclass(frozen=True)
class Server:
    """A peer that is ready: where its clients find it, and the process that serves them."""

    address: str
    pid: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables for the processes of the clients."""

    @property
    def how(self) -> How:
        """How these are started: each chooses its store by its environment."""
        return How("spawn", self.environment)


class Peer:
    """One queue, with its server if it has one.

    A peer runs in other processes, too, and so can be pickled.
    """

    name: str
    client: Callable[[str], Client]
    durable: str
    """When an acknowledged message survives a crash of the machine."""
    packages: tuple[str, ...] = ()
    """Modules that it imports, as they are installed by pip."""
    programs: tuple[str, ...] = ()
    enqueues_batches = True
    """Whether one call enqueues several messages."""
    receives_batches = True
    """Whether one call receives several messages."""
    takes = True
    """Whether a program can receive and acknowledge without the peer's own worker."""
    works = False
    """Whether the peer has a worker of its own."""
    limit = False
    """Whether this is a limit of the store rather than a queue, so that nothing can be lost."""

    def check(self) -> None:
        """Raise ``Missing`` if the peer cannot run here."""
        for package in self.packages:
            if find_spec(package) is None:
                raise Missing(f"pip install {package}")
        for program in self.programs:
            self.program(program)

    @staticmethod
    def program(name: str) -> str:
        """The path of a program of the machine; raises ``Missing``."""
        found = shutil.which(name, path=os.pathsep.join(PLACES)) or shutil.which(name)
        if found is None:
            raise Missing(f"{name} is not installed")
        return found

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        """Start the peer with its data in a directory, which is empty; stop it at the end."""
        yield Server(str(directory / "data"))

    def connect(self, address: str) -> Client:
        """A connection of this process."""
        return self.client(address)

    def work(self, address: str) -> None:
        """Run the peer's own worker in this process until it is killed.

        Its handler passes each payload to ``handled.record``.
        """
        raise NotImplementedError


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str],
    ready: Callable[[], bool],
    log: Path,
    *,
    directory: Path | None = None,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server until the end of the block; yields its process id once it is ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=directory,
            user=user,
            env=environment,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = log.read_text(errors="replace")[-500:]
                    raise Missing(f"{command[0]} did not start:\n{tail}")
                time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
