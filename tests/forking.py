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
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

from tests.patience import DEADLINE

_MOST_BYTES = 1 << 20
_PLACE = tempfile.gettempdir()
"""Asked for once: a test may replace it by a directory of its own, which goes when it ends."""
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
    _, code = map(int, connection.makefile())
    os._exit(code if code >= 0 else 128 - code)
"""


class Forked:
    """A process that runs; what ``subprocess.Popen`` has for one whose streams are text."""

    def __init__(self, connection: socket.socket, stdin: IO[str], *read: IO[str]) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb", buffering=0)
        self.pid = int(self._answers.readline())
        self.stdin, self.stdout, self.stderr = stdin, read[0], (*read, None)[1]
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit code, or minus the signal."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = int(self._answers.readline())
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it prints until its end."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        with ThreadPoolExecutor() as both:
            out, said = both.map(_rest, [self.stdout, self.stderr])
        self.wait(timeout)
        self._answers.close()
        self._connection.close()
        return out, said

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _rest(stream: IO[str] | None) -> str:
    """What can still be read from a stream, which is closed."""
    if stream is None or stream.closed:
        return ""
    with stream:
        return stream.read()


class Forking:
    """Starts the process, and has it run commands."""

    def __init__(self, module: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fdbq-", dir=_PLACE)
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
        descriptors = [stream.fileno() for stream in streams]
        with self._ask(arguments, environment, descriptors, directory) as connection:
            connection.settimeout(DEADLINE)
            _, code = map(int, connection.makefile())
            return code

    def start(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        directory: Path | None = None,
        stderr: bool = False,
    ) -> Forked:
        """Start a command whose standard streams are pipes, standard error only if asked for."""
        pipes = [os.pipe() for _ in range(2 + stderr)]
        (given, stdin), *read = pipes
        theirs = [given, *(write for _, write in read)]
        connection = self._ask(
            arguments, environment, [*theirs, *([] if stderr else [2])], directory
        )
        for descriptor in theirs:
            os.close(descriptor)
        return Forked(connection, os.fdopen(stdin, "w"), *(os.fdopen(end) for end, _ in read))

    def _ask(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        descriptors: Sequence[int],
        directory: Path | None,
    ) -> socket.socket:
        place = str(directory or Path.cwd())
        asked = {"arguments": arguments, "environment": environment, "directory": place}
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        text = json.dumps(asked).encode() + b"\n"
        socket.send_fds(connection, [text[:1]], descriptors)
        connection.sendall(text[1:])
        return connection

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
    connection.sendall(b"%d\n" % pid)
    for descriptor in descriptors:
        os.close(descriptor)
    threading.Thread(target=_end_with, args=(connection, pid), daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
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
        lines = 1 if name == "stderr" else -1
        file = os.fdopen(standard, usual.mode, lines, errors=usual.errors, closefd=False)
        setattr(sys, name, file)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    _choose_again()
    return arguments


def run_program(arguments: list[str]) -> None:
    """Do what ``python`` does with the path of a program."""
    sys.argv = arguments
    sys.path[:0] = [str(Path(arguments[0]).parent)]
    runpy.run_path(arguments[0], run_name="__main__")


def run_module(arguments: list[str]) -> None:
    """Do what ``python -m`` does."""
    _, module, *sys.argv[1:] = arguments
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _choose_again() -> None:
    from fdbqueue.store import binding, location

    binding.DEFAULT = location.choose()
