"""The entry point of ``python -m benchmarks.harness``."""

import os
import sys

from .adapter import Adapter
from .settings import Refused, Settings


def main() -> int:
    """Run until SIGTERM; returns the exit code."""
    try:
        settings = Settings.of(os.environ)
    except Refused as refused:
        print(f"fdbqueue: {refused}", file=sys.stderr)
        return 2
    Adapter(settings, sys.stdin).run()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The producer may wait for a line that never comes.
    os._exit(code)
