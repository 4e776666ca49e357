"""The entry point of ``tools/bench``."""

import sys
from collections.abc import Sequence
from importlib import import_module

from fdbqueue.cli.main import run

from .declare import app

DECLARED = (
    "bars", "beside", "costs", "engine", "blocks", "producers", "tasks", "fairness",
    "worker", "spark", "web", "peers.command",
)  # fmt: skip
"""The modules that declare benchmarks."""


def _invoke(words: Sequence[str]) -> object:
    for module in DECLARED:
        import_module(f"benchmarks.{module}")
    return app(words, prog_name="tools/bench", standalone_mode=False)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], _invoke))
