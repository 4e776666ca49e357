"""What the checker finds, in readable form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .history import Operation


@dataclass(frozen=True)
class Violation:
    """A guarantee that does not hold, and the operations that show it."""

    kind: str
    detail: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        ordered = sorted(self.operations, key=lambda operation: operation.began)
        return "\n    ".join([f"{self.kind}: {self.detail}", *map(str, ordered)])


def violation(kind: str, detail: str, operations: Iterable[Operation | None] = ()) -> Violation:
    """A violation, shown by those of the operations that there are."""
    return Violation(kind, detail, tuple(one for one in operations if one is not None))
