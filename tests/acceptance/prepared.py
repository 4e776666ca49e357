"""A process that has imported ``fdbq``, from which commands are forked: most of a start is imports.

Each command is a process of its own, with an environment, a directory and standard streams of its
own. What it must not find prepared, such as the choice of the engine, is tested without this.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, NoReturn

from tests.patience import DEADLINE

NEEDS_ITS_OWN_START = {"bench", "pipeline", "top", "worker"}
"""Commands that start processes, or go on until they are stopped."""
_MOST_BYTES = 1 << 20
_SHIM = """\
#!{python} -IS
import json, os, socket, sys

arguments = sys.argv[1:]
if {own!r}.intersection(arguments[:1]):
    os.execv({real!r}, ["fdbq", *arguments])
asked = {{"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}}
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({path!r})
    text = json.dumps(asked).encode()
    socket.send_fds(connection, [text[:1]], [0, 1, 2])
    connection.sendall(text[1:])
    connection.shutdown(socket.SHUT_WR)
    code = int(connection.recv(16))
    os._exit(code if code >= 0 else 128 - code)
"""


class Prepared:
    """Starts the process, and has it run commands."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fdbq-")
        self._path = str(Path(self._directory.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.prepared", self._path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self._owner = os.getpid()
        atexit.register(self.end)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(
        self, arguments: Sequence[str], environment: dict[str, str], streams: Sequence[IO[bytes]]
    ) -> int:
        """Run a command with three standard streams; returns its exit code, as Popen does."""
        asked = {"arguments": arguments, "environment": environment, "directory": os.getcwd()}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(self._path)
            descriptors = [stream.fileno() for stream in streams]
            text = json.dumps(asked).encode()
            socket.send_fds(connection, [text[:1]], descriptors)
            connection.sendall(text[1:])
            connection.shutdown(socket.SHUT_WR)
            return int(connection.recv(16))

    @cached_property
    def directory(self) -> Path:
        """Where there is an ``fdbq`` for shells that runs its commands here."""
        shim = Path(self._directory.name) / "fdbq"
        real = str(Path(sys.executable).parent / "fdbq")
        own = NEEDS_ITS_OWN_START
        shim.write_text(_SHIM.format(python=sys.executable, real=real, own=own, path=self._path))
        shim.chmod(0o700)
        return shim.parent

    def end(self) -> None:
        """Let the process end."""
        if os.getpid() == self._owner:
            self._process.communicate()
            self._directory.cleanup()


def main(path: str) -> None:
    """Fork a process for each connection, until standard input ends."""
    from fdbqueue.cli import main as command  # a module takes its name when it is imported

    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    if os.fork() == 0:
        sys.stdin.read()
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _serve(connection, command)
        connection.close()


def _import_all() -> None:
    import fdbqueue

    for module in pkgutil.walk_packages(fdbqueue.__path__, "fdbqueue."):
        if not module.name.startswith(("fdbqueue.spark", "fdbqueue.testing")):
            importlib.import_module(module.name)


def _serve(connection: socket.socket, command: Callable[[], None]) -> NoReturn:
    text, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    while more := connection.recv(_MOST_BYTES):
        text += more
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(descriptors, **json.loads(text))
        command()
        raise SystemExit
    _, status = os.waitpid(pid, 0)
    connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(
    descriptors: Sequence[int], arguments: list[str], environment: dict[str, str], directory: str
) -> None:
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    # Those that are there know what their files were, such as whether they can be sought in.
    for standard, name in enumerate(("stdin", "stdout", "stderr")):
        usual = getattr(sys, name)
        file = os.fdopen(standard, usual.mode, errors=usual.errors, closefd=False)
        setattr(sys, name, file)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["fdbq", *arguments]
    _choose_again()


def _choose_again() -> None:
    from fdbqueue.store import binding, location

    binding.DEFAULT = location.choose()


if __name__ == "__main__":
    main(sys.argv[1])
