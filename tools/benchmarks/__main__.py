"""The entry point of ``tools/bench``."""

import sys
from collections.abc import Sequence

from fdbqueue.cli.main import run

from .commands import app


def _invoke(words: Sequence[str]) -> object:
    return app(words, prog_name="tools/bench", standalone_mode=False)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], _invoke))
