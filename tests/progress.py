"""How far an operation is that spans transactions: kept, and stopped after some of them."""

from __future__ import annotations

from typing import Any


class Steps(list[Any]):
    """A ``progress=`` that keeps what it is told, and stops the operation after ``most`` steps."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most

    def __call__(self, told: Any) -> bool:
        self.append(told)
        return self._most is None or len(self) < self._most
