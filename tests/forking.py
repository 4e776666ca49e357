"""A process that has imported what commands need, from which they are forked.

Most of a start is imports. Each command is a process of its own, with an environment, a directory
and standard streams of its own.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

from tests.patience import DEADLINE

_MOST_BYTES = 1 << 20
_SHIM = """\
#!{python} -IS
import json, os, re, socket, sys

arguments = sys.argv[1:]
if not ({condition}):
    os.execv({real!r}, [{real!r}, *arguments])
asked = {{"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}}
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({path!r})
    text = json.dumps(asked).encode() + b"\\n"
    socket.send_fds(connection, [text[:1]], [0, 1, 2])
    connection.sendall(text[1:])
    code = int(connection.recv(16))
    os._exit(code if code >= 0 else 128 - code)
"""


class Forking:
    """Starts the process, and has it run commands."""

    def __init__(self, module: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fdbq-")
        self._path = str(Path(self._directory.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, self._path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        self._owner = os.getpid()
        atexit.register(self.end)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"{module} ended with {self._process.wait()}")

    def run(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        streams: Sequence[IO[bytes]],
        directory: Path | None = None,
    ) -> int:
        """Run a command with three standard streams; returns its exit code, as Popen does."""
        place = str(directory or Path.cwd())
        asked = {"arguments": arguments, "environment": environment, "directory": place}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(self._path)
            descriptors = [stream.fileno() for stream in streams]
            text = json.dumps(asked).encode() + b"\n"
            socket.send_fds(connection, [text[:1]], descriptors)
            connection.sendall(text[1:])
            return int(connection.recv(16))

    def program(self, name: str, real: str, condition: str) -> Path:
        """A program that runs its commands here.

        condition: an expression about its ``arguments``, without which it runs the real one.
        """
        shim = Path(self._directory.name) / name
        if not shim.exists():
            shim.write_text(
                _SHIM.format(python=sys.executable, real=real, condition=condition, path=self._path)
            )
            shim.chmod(0o700)
        return shim

    def end(self) -> None:
        """Let the process end."""
        if os.getpid() == self._owner:
            self._process.communicate()
            self._directory.cleanup()


def serve(path: str, command: Callable[[list[str]], None]) -> NoReturn:
    """Fork a process for each connection, until standard input ends."""
    gc.freeze()
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


def _serve(connection: socket.socket, command: Callable[[list[str]], None]) -> NoReturn:
    text, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    while not text.endswith(b"\n"):
        text += connection.recv(_MOST_BYTES)
    pid = os.fork()
    if pid == 0:
        connection.close()
        arguments = _become(descriptors, **json.loads(text))
        try:
            command(arguments)
        except SystemExit as error:
            _end(error.code)
            raise
        _end(0)
    for descriptor in descriptors:
        os.close(descriptor)
    threading.Thread(target=_end_with, args=(connection, pid), daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _end(code: object) -> None:
    """End as Python does, but leave its memory as it is: freeing it would copy most of it."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(code, int):
            os._exit(code & 0xFF)


def _end_with(connection: socket.socket, pid: int) -> None:
    """When who asked for the command is gone, it is told to end."""
    connection.recv(1)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _become(
    descriptors: Sequence[int], arguments: list[str], environment: dict[str, str], directory: str
) -> list[str]:
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
    _choose_again()
    return arguments


def run_module(arguments: list[str]) -> None:
    """Do what ``python -m`` does."""
    _, module, *sys.argv[1:] = arguments
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _choose_again() -> None:
    from fdbqueue.store import binding, location

    binding.DEFAULT = location.choose()
