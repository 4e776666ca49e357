"""A line of the report of ``fdbq doctor``."""

from __future__ import annotations

from msgspec import Struct, structs

OK, WARNING, PROBLEM = "ok", "warning", "problem"
"""A problem needs a person; a warning is to be known."""


class Finding(Struct, frozen=True):
    """One line of the report. ``advice`` is a command or a hint."""

    state: str
    check: str
    subject: str
    detail: str
    advice: str = ""

    def lines(self) -> list[str]:
        """For people."""
        found = [f"{self.state:<8} {self.check} {self.subject}: {self.detail}"]
        return [*found, f"         → {self.advice}"] if self.advice else found

    def to_json(self) -> dict[str, str]:
        """JSON-ready."""
        return structs.asdict(self)
