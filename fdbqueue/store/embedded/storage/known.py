"""What this process knows of the newest state of a store: the values of keys that it asks for again
and again, with one transaction after another.

A statement of SQLite costs more than most keys of a queue are worth: its options, fences and
counters are read with every operation, and seldom change, or only by the operation itself. They are
known for one state, which the version of the last commit names: once another process has
committed, all is forgotten. Rows that a disk has damaged are found as before, as a value is
remembered from what was checked.
"""

from __future__ import annotations

MOST = 64
"""How many keys; a copy of so many costs less than one statement."""
LONGEST = 1_000
"""The longest value that is remembered when it is read, in bytes."""

Values = dict[bytes, bytes | None]
"""By their keys, with None where there is none."""


class KnownValues:
    """The values known at one state, which the snapshots of that state share and add to."""

    def __init__(self) -> None:
        # In one piece, for threads; the dictionary only grows.
        self._newest: tuple[int, Values] = -1, {}

    def at(self, version: int) -> Values:
        """What is known of the state after a commit."""
        known, values = self._newest
        if version != known:
            values = {}
            if version > known:
                self._newest = version, values
        return values

    def after(self, version: int) -> Values:
        """A copy of what is known of the state after a commit, for the next commit to change."""
        values = self.at(version)
        return values.copy() if len(values) < MOST else {}

    def learn(self, version: int, values: Values) -> None:
        """Know the state after a commit that was made."""
        self._newest = version, values


def remember(values: Values, key: bytes, value: bytes | None) -> None:
    """Add a value that was read, if there is room."""
    if len(values) < MOST and (value is None or len(value) <= LONGEST):
        values[key] = value
