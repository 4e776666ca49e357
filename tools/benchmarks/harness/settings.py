"""What the harness asks for, from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SCENARIO = "long_horizon"
MODES = ("fixed", "depth-target")
PACING = ("harness", "adapter")


class Refused(Exception):
    """Raised when a setting is none; the text names it."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    mode: "fixed" enqueues ``rate`` messages a second, "depth-target" keeps ``depth`` messages
    ready. harness_paces: the harness says on standard input when to enqueue how many. batch: most
    messages of one call. tick: seconds between two calls. rate_file: has a rate that replaces
    ``rate`` while the run goes on. size: bytes of a payload. work: seconds that a handler takes.
    sample: seconds between two samples. instance: which of several processes this is; only the
    first tells what is the same for all.
    """

    mode: str
    harness_paces: bool
    rate: float
    batch: int
    tick: float
    rate_file: Path | None
    depth: int
    workers: int
    size: int
    work: float
    sample: float
    instance: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Raises ``Refused``."""
        scenario = given.get("SCENARIO", SCENARIO)
        if scenario != SCENARIO:
            raise Refused(f"SCENARIO: {scenario!r} is not here, only {SCENARIO}")
        mode = _choice(given, "PRODUCER_MODE", MODES)
        pacing = _choice(given, "PRODUCER_PACING", PACING)
        rate_file = given.get("PRODUCER_RATE_CONTROL_FILE")
        return cls(
            mode=mode,
            harness_paces=pacing == "harness" and mode == "fixed",
            rate=_number(given, "PRODUCER_RATE", 800, 0),
            batch=int(_number(given, "PRODUCER_BATCH_MAX", 128, 1)),
            tick=_number(given, "PRODUCER_BATCH_MS", 25, 1) / 1000,
            rate_file=Path(rate_file) if rate_file else None,
            depth=int(_number(given, "TARGET_DEPTH", 1_000, 0)),
            workers=int(_number(given, "WORKER_COUNT", 32, 1)),
            size=int(_number(given, "JOB_PAYLOAD_BYTES", 256, 0)),
            work=_number(given, "JOB_WORK_MS", 1, 0) / 1000,
            sample=_number(given, "SAMPLE_EVERY_S", 5, 0.1),
            instance=int(_number(given, "BENCH_INSTANCE_ID", 0, 0)),
        )

    def rate_now(self) -> float:
        """The rate at this moment; the given one if the file has none."""
        if self.rate_file is None:
            return self.rate
        try:
            return max(0.0, float(self.rate_file.read_text()))
        except (OSError, ValueError):
            return self.rate


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    found = given.get(name, choices[0])
    if found not in choices:
        raise Refused(f"{name}: {found!r} is none of {', '.join(choices)}")
    return found


def _number(given: Mapping[str, str], name: str, default: float, least: float) -> float:
    text = given.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        raise Refused(f"{name}: {text!r} is not a number") from None
    if not least <= number < 1e9:
        raise Refused(f"{name}: {text} is not {least:g} or more")
    return number
