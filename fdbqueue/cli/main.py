"""The command line: its commands put together, and its exit codes.

0: done. 1: it failed. 2: wrong usage or invalid input. 130: interrupted. An error is one line on
standard error that starts with ``fdbq:``; nobody is shown a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import fdbqueue

from ..errors import InvalidInput, QueueError
from . import home, terminal
from .declarations import Function, Group, Option, parse

INTERRUPTED = 130

HOME = {
    "status": "monitor.status",
    "doctor": "monitor.doctor",
    "top": "monitor.top",
    "enqueue": "commands.enqueue",
    "receive": "commands.messages",
    "ack": "commands.settlement",
    "extend": "commands.settlement",
    "release": "commands.settlement",
    "reject": "commands.settlement",
    "peek": "commands.messages",
    "browse": "commands.messages",
    "show": "commands.messages",
    "cancel": "commands.messages",
    "edit": "commands.messages",
    "sweep": "monitor.maintenance",
    "worker": "commands.worker",
}
"""The module of each command; its function has the same name."""
GROUPS = {
    "queue": ("commands.queues", "app"),
    "dead": ("commands.dead_letters", "app"),
    "lease": ("commands.leases", "app"),
    "consumer": ("commands.consumers", "app"),
    "subscription": ("commands.subscriptions", "app"),
    "history": ("commands.history", "app"),
    "sink": ("commands.sinks", "app"),
    "pipeline": ("commands.pipeline", "app"),
    "plan": ("commands.plans", "app"),
    "metrics": ("monitor.maintenance", "metrics"),
    "bench": ("commands.bench", "app"),
}
"""The module of each group, and the group in it."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fdbq {fdbqueue.__version__}")
        raise terminal.Exit(0)


def _everywhere(
    store: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="The store: an embedded store's path, embedded:PATH, or a cluster file. "
            "Where there is none, fdbq queue create makes one.",
        ),
    ] = None,
    root: Annotated[
        str | None,
        Option(
            metavar="PATH",
            help="The root that the queues lie below, its parts set off by slashes: a/b is "
            "Subspace(('a', 'b')). That of programs by default: fdbqueue.",
        ),
    ] = None,
    version: Annotated[
        bool,
        Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    if store is not None:
        # Read when fdbqueue.store.binding is imported, which no command has done yet.
        os.environ["FDBQUEUE_STORE"] = store
        if not store:
            raise terminal.Refused("--store '': it names no file")
    if root is not None:
        if not all(root.split("/")):
            raise terminal.Refused(f"--root {root!r}: write names, set off by slashes")
        home.root = root


_TYPER = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def _of(module: str, name: str) -> Any:
    return getattr(import_module(f".{module}", __package__), name)


def assembled(outlined: bool = False) -> Any:
    """The application as typer has it. outlined: enough for its help, not for a command."""
    group = Group(
        name="fdbq",
        help="Look after fdbqueue's queues: transactional priority queues on FoundationDB.",
        epilog="The store is --store, else FDBQUEUE_STORE, else the cluster of FDB_CLUSTER_FILE or "
        "of the default cluster file, else an embedded store in your data directory. Exit codes: "
        "0 done, 1 failed, 2 wrong usage or invalid input, 130 interrupted. fdbq COMMAND --help "
        "has examples.",
        no_args_is_help=True,
        **_TYPER,
    )
    group.callback()(_everywhere)
    for name, module in HOME.items():
        group.command(name)(_of(module, name))
    app = group.typer(outlined)
    for module, attribute in GROUPS.values():
        app.add_typer(_of(module, attribute).typer(outlined))
    return app


def part(words: Sequence[str]) -> tuple[Any, int]:
    """The command or the group that words name, as typer has it, and how many words that takes.

    typer takes long to make anything of a whole application, and of what stands above a command.
    """
    group = Group(add_completion=False, **_TYPER)
    if words[0] in HOME:
        group.command(words[0])(_of(HOME[words[0]], words[0]))
        return group.typer(), 1
    whole = _of(*GROUPS[words[0]])
    command = whole.commands.get(words[1] if len(words) > 1 else "")
    if command is not None:
        group.command(words[1])(command)
        return group.typer(), 2
    group.settings |= whole.settings
    group.commands, group.start = whole.commands, whole.start or (lambda: None, {})
    return group.typer(outlined=True), 1


def __getattr__(name: str) -> Any:
    if name == "app":
        return assembled()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _settings(words: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
    """What a command line begins with, of --store and --root, and what is left."""
    settings: dict[str, Any] = {}
    while len(words) > 1 and words[0] in ("--store", "--root"):
        settings[words[0].removeprefix("--")] = words[1]
        words = words[2:]
    return settings, words


def _plain(words: Sequence[str]) -> tuple[Function, dict[str, Any]] | None:
    """The command of a command line and its arguments; None where that is not plain."""
    if words[0] in HOME:
        function, rest = _of(HOME[words[0]], words[0]), words[1:]
    else:
        function = _of(*GROUPS[words[0]]).commands.get(words[1] if len(words) > 1 else "")
        rest = words[2:]
    arguments = None if function is None else parse(function, rest)
    return None if arguments is None else (function, arguments)


def _call(words: Sequence[str]) -> object:
    if words == ["--version"]:
        _version(True)
    settings, left = _settings(words)
    app, name = None, "fdbq"
    if left and left[0] in {*HOME, *GROUPS} and "_FDBQ_COMPLETE" not in os.environ:
        plain = _plain(left)
        _everywhere(**settings)
        if plain is not None:
            function, arguments = plain
            return function(**arguments)
        app, taken = part(left)
        name, words = " ".join([name, *left[:taken]]), left[taken:]
    if app is None:
        app = assembled(words in (["--help"], ["-h"]))
    return app(args=[*words], prog_name=name, standalone_mode=False)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    terminal.prepare()
    warnings.showwarning = lambda message, *_: terminal.complain(f"warning: {message}")
    quiet = signal.getsignal(signal.SIGINT)
    try:
        if quiet is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            code = _call(arguments)
        except terminal.Exit as ended:
            code = ended.exit_code
        sys.stdout.flush()
    except BaseException as error:
        signal.signal(signal.SIGINT, quiet)
        if isinstance(error, SystemExit):
            raise
        return _report(error)
    signal.signal(signal.SIGINT, quiet)
    if code == INTERRUPTED:  # what typer makes of an interrupt
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupted() -> int:
    # What it was about to start, such as the thread of the bindings, may now fail to end.
    sys.unraisablehook = lambda _: None
    terminal.complain("interrupted")
    return INTERRUPTED


def _report(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":  # typer's
        return _interrupted()
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has gone: say nothing more to them, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, terminal.Ended):
        return error.exit_code
    if isinstance(error, terminal.Refused):
        terminal.complain(str(error))
        return error.exit_code
    if isinstance(error, QueueError):
        terminal.complain(str(error))
        return 2 if isinstance(error, InvalidInput) else 1
    if hasattr(error, "format_message"):  # what typer says about a wrong command line
        text = str(error.format_message())
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text, file=sys.stderr)
        else:
            path = getattr(getattr(error, "ctx", None), "command_path", "fdbq")
            terminal.complain(f"{text.rstrip('.')} ({path} --help tells what there is)")
        return 2
    if isinstance(error, OSError):
        terminal.complain(f"{error.filename or 'the system'}: {error.strerror or error}")
        return 1
    # Classes that are there only when the bindings are loaded.
    if type(error).__name__ == "FDBError":
        terminal.complain(f"the database answered: {error}")
        return 1
    if type(error).__module__ == "fdbqueue.store.embedded.errors":
        terminal.complain(str(error))
        return 1
    terminal.complain_of(error)
    return 1
