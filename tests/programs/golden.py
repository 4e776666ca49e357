"""Programs with the results of a real server, as they are stored."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .running import Program, Results

PATH = Path(__file__).with_name("golden.json.xz")


class Golden(NamedTuple):
    """A program, and what a server made of it."""

    seed: int
    program: Program
    results: Results


def load() -> list[Golden]:
    """All that are stored."""
    lines = lzma.decompress(PATH.read_bytes()).decode().splitlines()
    return [Golden(*json.loads(line)) for line in lines]


def store(golden: Iterable[Golden]) -> None:
    """Store them in place of what there was."""
    lines = "\n".join(json.dumps(one, separators=(",", ":")) for one in golden)
    PATH.write_bytes(lzma.compress(lines.encode(), preset=9))


def difference(golden: Golden, results: Results) -> str | None:
    """How results differ from those of the server; None if they do not."""
    together = zip(golden.program, golden.results, results, strict=True)
    for n, (step, server, here) in enumerate(together):
        if server != here:
            told = [f"{number} {json.dumps(each)}" for number, each in enumerate(golden.program)]
            return "\n".join(
                [
                    f"program {golden.seed}, step {n}: {json.dumps(step)}",
                    f"on the server: {json.dumps(server)}",
                    f"here:          {json.dumps(here)}",
                    "of:",
                    *told[: n + 1],
                ]
            )
    return None
