"""The command line: all commands, error messages and exit codes.

Exit codes: 0 success, 1 failure, 2 wrong usage or invalid input, 130 interrupted. An error is one
line on standard error that starts with ``fdbq:``, never a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import typer
import typer.core
import typer.main

import fdbqueue

from ..errors import InvalidInput, NotFound, QueueError, QueueNotFound
from ..values.text import meant
from . import context, terminal, trail
from .commands import Group
from .parameters import flag, option

INTERRUPTED = 130
STYLE: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""How ``fdbq`` and tools like it show help and errors."""
COMMANDS = {
    "status": "monitor.status",
    "doctor": "monitor.doctor",
    "top": "monitor.top",
    "enqueue": "messages.enqueue",
    "receive": "messages.receive",
    "web": "web",
}
"""The module of each command; its function has the command's name."""
GROUPS = {
    "worker": "worker",
    "queue": "queues.queue",
    "message": "messages.message",
    "schedule": "queues.schedule",
    "group": "queues.group",
    "limit": "queues.limit",
    "subscription": "queues.subscription",
    "stream": "streams.stream",
    "metrics": "monitor.metrics",
    "debug": "debug",
}
"""The module of each group of commands; the group is its ``app``."""

PARTS = {"subscription": "subscriptions", "schedule": "schedules", "group": "groups"}
"""Of what an error says that there is none, the part of a queue that lists what there is."""


class Commands(Mapping[str, Any]):
    """The commands and groups, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _made(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*COMMANDS, *GROUPS])

    def __len__(self) -> int:
        return len(COMMANDS) + len(GROUPS)


@cache
def _made(name: str) -> Any:
    module = import_module(f".{(COMMANDS | GROUPS)[name]}", __package__)
    made = Group("fdbq", "", **STYLE)
    if name in GROUPS:
        made.add_typer(module.app)
    else:
        made.command()(getattr(module, name))
    found = typer.main.get_group(made).commands[name]
    for each in getattr(found, "commands", {}).values():
        trail.noted(name, each)
    return found


class Fdbq(typer.core.TyperGroup):
    """All commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fdbq {fdbqueue.__version__}")
        raise typer.Exit


def _settings(
    store: str | None = option(
        "FILE",
        "The store: the path of an embedded store, embedded:PATH, or a cluster file. "
        "fdbq queue create creates an embedded store if it does not exist.",
    ),
    root: str | None = option(
        "PATH",
        "The root subspace of the queues: a/b stands for Subspace(('a', 'b')). "
        "By default fdbqueue, as in programs.",
    ),
    version: bool = flag("Print the version.", "--version", callback=_version, is_eager=True),
) -> None:
    if store is not None:
        # fdbqueue.store.binding reads this when a command first imports it.
        os.environ["FDBQUEUE_STORE"] = store
        if not store:
            raise terminal.CommandError("--store '' is empty: give the path of a file")
    if root is not None:
        if not all(root.split("/")):
            raise terminal.CommandError(f"--root {root!r}: write names separated by slashes")
        context.root = root


app = typer.Typer(
    name="fdbq",
    cls=Fdbq,
    help="Manage the queues of fdbqueue: transactional priority queues on FoundationDB.",
    epilog="fdbq uses the store of --store, else of FDBQUEUE_STORE, else the cluster of "
    "FDB_CLUSTER_FILE or of the default cluster file, else an embedded store in your data "
    "directory. A DURATION is a number of seconds, or for example 250ms, 15m, 1h30m or 7d. "
    "Exit codes: 0 success, 1 failure, 2 wrong usage or invalid input, 130 interrupted. fdbq "
    "COMMAND --help shows examples.",
    no_args_is_help=True,
    **STYLE,
)
app.callback()(_settings)


@cache
def command() -> Any:
    """All commands, as a command that runs those of its words."""
    return typer.main.get_command(app)


def _invoke(words: Sequence[str]) -> object:
    return command().main(args=[*words], prog_name="fdbq", standalone_mode=False)


def run(arguments: Sequence[str], invoke: Callable[[Sequence[str]], object] = _invoke) -> int:
    """Run one command line, of ``fdbq`` or of a tool like it; returns its exit code."""
    terminal.prepare()
    warnings.showwarning = lambda message, *_: terminal.print_error(f"warning: {message}")
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is signal.SIG_DFL:
            # Somebody has put back the default action, which would end this without a word.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = invoke(arguments)
        sys.stdout.flush()
    except BaseException as error:
        signal.signal(signal.SIGINT, before)
        if isinstance(error, SystemExit):
            raise
        return _report(error)
    signal.signal(signal.SIGINT, before)
    if code == INTERRUPTED:  # typer's exit code for an interrupt
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupted() -> int:
    # Threads that were about to start, such as that of the bindings, may now fail.
    sys.unraisablehook = lambda _: None
    terminal.print_error("interrupted")
    return INTERRUPTED


def _told(error: QueueError) -> str:
    """An error in words: of a queue, or part of a queue, that was not found with a similar name."""
    if not isinstance(error, QueueNotFound | NotFound):
        return str(error)
    given = vars(error)
    try:
        # Short: the error is what was asked for, and the hint is beside it.
        db = context.connect(timeout=1)
        if isinstance(error, QueueNotFound):
            names = context.queue_names(db)
        else:
            part = getattr(context.queue(given["queue"]), PARTS[given["kind"]])
            names = [each.name for each in part.list(db)]
    except Exception:  # also for what is not listed by its name
        return str(error)
    hint = meant(given["name"], names)
    return error.text.partition(": ")[0].format(**given) + hint if hint else str(error)


def _report(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _interrupted()
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone: print nothing more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, terminal.Terminated):
        return error.exit_code
    if isinstance(error, terminal.CommandError):
        terminal.print_error(str(error))
        return error.exit_code
    if isinstance(error, QueueError):
        terminal.print_error(_told(error))
        return 2 if isinstance(error, InvalidInput) else 1
    if hasattr(error, "format_message"):  # typer's usage errors
        text = str(error.format_message()).replace("Value error, ", "")  # pydantic's
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text, file=sys.stderr)
        else:
            path = getattr(getattr(error, "ctx", None), "command_path", "fdbq")
            terminal.print_error(f"{text.rstrip('.')} (see {path} --help)")
        return 2
    if isinstance(error, OSError):
        terminal.print_error(f"{error.filename or 'system error'}: {error.strerror or error}")
        return 1
    # Classes that exist only once the bindings are loaded.
    if type(error).__name__ == "FDBError":
        terminal.print_error(f"the database returned an error: {error}")
        return 1
    if type(error).__module__ == "fdbqueue.store.embedded.store_errors":
        terminal.print_error(str(error))
        return 1
    terminal.print_internal_error(error)
    return 1
