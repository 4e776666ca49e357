"""``fdbq``: manage queues from a terminal.

Commands import the bindings only when they run: ``--store`` must be known first, and ``--help`` and
shell completion must be fast.
"""

import gc
import signal
import sys


def main() -> None:
    """The console script.

    An interrupt during the imports ends the process silently; Python would print a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Modules stay in memory: scanning them for garbage would take a tenth of the start-up time.
    gc.set_threshold(50_000)
    from .main import run

    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        # Likewise at exit, where Python would scan them several times.
        gc.freeze()
