"""Tests of the embedded engine itself; they have nothing to say about a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from fdbqueue.store.binding import DEFAULT, Engine

if DEFAULT.engine is not Engine.EMBEDDED:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.store")


@pytest.fixture(autouse=True)
def _normal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that kill no machine need no fsync."""
    monkeypatch.setenv("FDBQUEUE_SYNCHRONOUS", "normal")
