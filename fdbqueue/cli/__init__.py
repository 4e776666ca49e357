"""``fdbq``: looking after queues from a terminal.

The commands import what stands on the bindings when they run, never before: ``--store`` has to be
known by then, and ``--help`` and shell completion must be quick.
"""

from .main import main as main
