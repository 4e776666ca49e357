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
from typing import Annotated

import typer

import fdbqueue

from ..errors import InvalidInput, QueueError
from . import (
    bench,
    consumers,
    dead,
    doctor,
    enqueuing,
    history,
    leases,
    messages,
    pipeline,
    plans,
    queues,
    settling,
    sinks,
    status,
    subscriptions,
    terminal,
    top,
    upkeep,
    worker,
)

INTERRUPTED = 130

app = typer.Typer(
    name="fdbq",
    help="Look after fdbqueue's queues: transactional priority queues on FoundationDB.",
    epilog="The store is --store, else FDBQUEUE_STORE, else the cluster of FDB_CLUSTER_FILE or of "
    "the default cluster file, else an embedded store in your data directory. Exit codes: 0 done, "
    "1 failed, 2 wrong usage or invalid input, 130 interrupted. fdbq COMMAND --help has examples.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    status.status,
    doctor.doctor,
    top.top,
    enqueuing.enqueue,
    messages.receive,
    settling.ack,
    settling.extend,
    settling.release,
    settling.reject,
    messages.peek,
    messages.browse,
    messages.show,
    messages.cancel,
    upkeep.sweep,
    worker.worker,
):
    app.command()(command)
for group in (
    queues.app,
    dead.app,
    leases.app,
    consumers.app,
    subscriptions.app,
    history.app,
    sinks.app,
    pipeline.app,
    plans.app,
    upkeep.metrics,
    bench.app,
):
    app.add_typer(group)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fdbq {fdbqueue.__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    ctx: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The store: an embedded store's path, embedded:PATH, or a cluster file. "
            "Where there is none, fdbq queue create makes one.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    if store is not None:
        # Read when fdbqueue.binding is imported, which no command has done yet.
        os.environ["FDBQUEUE_STORE"] = store
        if not store:
            raise terminal.Refused("--store '': it names no file")
        path = store.removeprefix("embedded:")
        if not os.path.exists(path):
            ctx.call_on_close(lambda: _tell_of_new(path))


def _tell_of_new(path: str) -> None:
    """A mistyped path is a new store, and an empty one."""
    if os.path.exists(path):
        terminal.note(f"{path} is a new store: there was none")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    terminal.prepare()
    warnings.showwarning = lambda message, *_: terminal.complain(f"warning: {message}")
    quiet = signal.getsignal(signal.SIGINT)
    try:
        if quiet is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = app(args=list(arguments), prog_name="fdbq", standalone_mode=False)
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
    if isinstance(error, KeyboardInterrupt | typer.Abort):
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
    if type(error).__module__ == "fdbqueue.embedded.errors":
        terminal.complain(str(error))
        return 1
    terminal.complain_of(error)
    return 1
