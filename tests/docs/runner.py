"""Runs pages, given as JSON: of each the blocks, in their order.

Blocks of Python of one page share their names. A console block has commands after ``$``, and
below each what it prints; an ellipsis there stands for anything, and at the end of a line for
more lines, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any


def run_python(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "block", "exec", dont_inherit=True), names)


def run_console(text: str) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, expected = part.split("\n", 1)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"$ {command}\n{done.stdout}{done.stderr}ended with {done.returncode}")
        pattern = ".*".join(re.escape(piece) for piece in expected.strip().split("…"))
        if not re.fullmatch(pattern, done.stdout.strip(), re.DOTALL):
            sys.exit(f"$ {command}\nprinted\n{done.stdout}\nand not\n{expected}")


def run_blocks(blocks: Iterable[Sequence[str]]) -> None:
    """Run the blocks of a page: of each its language and its text."""
    names: dict[str, Any] = {"__name__": "page"}
    for language, code in blocks:
        if language == "python":
            run_python(code, names)
        else:
            run_console(code)


def main() -> None:
    # No page may use what is there for old programs only.
    warnings.filterwarnings("error", category=DeprecationWarning, module="page")
    for blocks in json.load(sys.stdin):
        run_blocks(blocks)


if __name__ == "__main__":
    main()
