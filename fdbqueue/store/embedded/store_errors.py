"""Errors of the store itself, as opposed to FoundationDB's numbered errors."""

from __future__ import annotations


class EngineError(RuntimeError):
    """Raised when the engine cannot be put in place, for example after the bindings were loaded."""


class StoreFileError(Exception):
    """Raised when the file of an embedded store cannot be used; the root of this tree.

    Attributes:
        path: the file.
        detail: what the operating system or SQLite said, possibly empty.
    """

    text = "the embedded store cannot be used"

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        message = f"{self.text}: {self.path}"
        return f"{message} ({self.detail})" if self.detail else message


class NotAStoreFile(StoreFileError):
    """Raised when the file exists but is not an embedded store."""

    text = "the file is not an embedded store"


class OtherFormat(StoreFileError):
    """Raised when the file has another format than that of this engine.

    Attributes:
        found: the format version in the file.
        supported: the format version that this engine reads.
    """

    text = "the embedded store has another format"

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(path, f"format {found}, this version reads {supported}")
        self.found = found
        self.supported = supported

    def __reduce__(self) -> tuple[type[OtherFormat], tuple[str, int, int]]:
        return type(self), (self.path, self.found, self.supported)


class NotWritable(StoreFileError):
    """Raised when the file, or the directory that holds it, is read-only."""

    text = "the embedded store cannot be written"


class NoDirectory(StoreFileError):
    """Raised when the directory that should hold the store does not exist."""

    text = "the directory of the embedded store does not exist"


class StoreMisplaced(StoreFileError):
    """Raised when the file, or one beside it, was moved, removed, replaced or linked, so that what
    one process commits another would not find; nothing of the transaction was written."""

    text = "the embedded store is not in its place"


class StoreFull(StoreFileError):
    """Raised when there is no room left for the store; nothing of the transaction was written."""

    text = "there is no room left for the embedded store"


class StoreCorrupt(StoreFileError):
    """Raised when a part of the file is damaged, by a failing disk, say, or another program."""

    text = "the embedded store is corrupt; put a copy of it in its place"


class StoreFailed(StoreFileError):
    """Raised when SQLite reports a failure of the file; nothing of the transaction was written."""

    text = "the embedded store failed"
