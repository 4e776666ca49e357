"""What a process of a run is told, and the clocks of those that are lied to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from fdbqueue.store.clocks import Clock


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is told: who it is, where everything is, and what it must suffer."""

    role: str
    name: str
    seed: int
    store: str
    root: str
    history: str
    stop: str
    threads: int = 1
    skew_ms: int = 0
    buggify: bool = False
    interrupts: float = 0.0
    """Seconds between signals whose handler raises in the first thread; 0 for none."""

    def to_text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Job:
        """From the command line."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Skewed(Clock):
    """A machine whose wall clock is wrong by some milliseconds."""

    skew_ms: int

    def wall_ms(self) -> int:
        """The wrong wall clock."""
        return super().wall_ms() + self.skew_ms


@dataclass(frozen=True)
class Later(Skewed):
    """Both clocks a while ahead: what would lapse by then has lapsed."""

    def versions_ahead(self) -> int:
        """How far the version to be is ahead."""
        return self.skew_ms * 1000
