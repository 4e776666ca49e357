"""What the documentation takes from the code is what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.reference import pages


@pytest.mark.parametrize(
    ("page", "wanted"), pages().items(), ids=lambda value: getattr(value, "name", "")
)
def test_a_page_is_up_to_date(page: Path, wanted: str) -> None:
    assert page.read_text() == wanted, "run: python tools/reference.py"
