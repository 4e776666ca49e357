"""``fdbq``: looking after queues from a terminal.

The commands import what stands on the bindings when they run, never before: ``--store`` has to be
known by then, and ``--help`` and shell completion must be quick.
"""

import gc
import signal
import sys


def main() -> None:
    """The console script.

    Until there is somebody to catch an interrupt, it ends the process without a word: Python
    would print a traceback of whatever import it is at.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is imported stays: looking among it for garbage is a tenth of what a start costs.
    gc.set_threshold(50_000)
    from .main import run

    sys.exit(run(sys.argv[1:]))
