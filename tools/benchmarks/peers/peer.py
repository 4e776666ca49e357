"""What a queue does to take part in the comparison, and how its server is started."""

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
from typing import Any

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
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for the processes of the clients."""

    @property
    def how(self) -> How:
        """How these are started: each chooses its store by its environment."""
        return How("spawn", self.environment)


class Store:
    """Where a peer keeps its messages: a path."""

    programs: Sequence[str] = ()

    @contextmanager
    def served(self, directory: Path) -> Iterator[Server]:
        """Serve until the end of the block, with the data in an empty directory."""
        yield Server(str(directory / "data"))


@dataclass(frozen=True)
class Daemon(Store):
    """A server of its own. Its words may name {directory}, {port} and {other}, another port.

    ready: raises while nobody can connect. before, after: commands that run then. user: for which
    root starts it, if it must not be root.
    """

    command: str
    address: str
    ready: Callable[[str], object]
    before: str = ""
    after: str = ""
    user: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> Sequence[str]:  # type: ignore[override]
        """Those that the machine must have."""
        return [each.split()[0] for each in (self.before, self.command, self.after) if each]

    @contextmanager
    def served(self, directory: Path) -> Iterator[Server]:
        ports = {"port": str(free_port()), "other": str(free_port())}

        def named(text: str) -> str:
            return text.format(directory=directory, **ports)

        def words(command: str) -> list[str]:
            name, *given = named(command).split()
            return [program(name), *given]

        user = self.user if os.geteuid() == 0 else None
        if user:
            shutil.chown(directory, user)
        own = {name: named(text) for name, text in self.environment.items()}
        how: dict[str, Any] = {"cwd": directory, "user": user, "env": {**os.environ, **own}}
        if self.before:
            subprocess.run(words(self.before), check=True, capture_output=True, **how)
        log, address = directory / "log", named(self.address)
        with log.open("wb") as output:
            process = subprocess.Popen(
                words(self.command), stdout=output, stderr=output, start_new_session=True, **how
            )
        try:
            _wait(process, log, lambda: self.ready(address))
            yield Server(address, process.pid)
        finally:
            if self.after:
                subprocess.run(words(self.after), check=False, capture_output=True, **how)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ready()
            return
        except Exception as error:  # whatever a client raises while its server starts
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-500:]
                raise Missing(f"the server did not start: {error}\n{tail}") from error
        time.sleep(0.05)


@dataclass(frozen=True)
class Peer:
    """One queue. It runs in other processes, too, and so can be pickled."""

    name: str
    client: Callable[[str], Client]
    """A connection of this process to an address."""
    store: Store
    durable: str = "each commit"
    """When an acknowledged message survives a crash of the machine."""
    packages: Sequence[str] = ()
    """Modules that it imports, as they are installed by pip."""
    prepare: Callable[[str], object] | None = None
    """Makes what clients need, where connecting does not."""
    work: Callable[[str], object] | None = None
    """Runs its own worker, if it has one, in this process until it is killed. Its handler passes
    each payload to ``handled.record``."""
    enqueues_batches: bool = True
    """Whether one call enqueues several messages."""
    receives_batches: bool = True
    """Whether one call receives several messages."""
    takes: bool = True
    """Whether a program can receive and acknowledge without the peer's own worker."""
    limit: bool = False
    """Whether this is a limit of the store rather than a queue, so that nothing can be lost."""

    def check(self) -> None:
        """Raise ``Missing`` if the peer cannot run here."""
        for package in self.packages:
            if find_spec(package) is None:
                raise Missing(f"pip install {package}")
        for name in self.store.programs:
            program(name)


def program(name: str) -> str:
    """The path of a program of the machine; raises ``Missing``."""
    found = shutil.which(name, path=os.pathsep.join(PLACES)) or shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
