"""What is known to fail, by what will mend it."""

from __future__ import annotations

import pytest

agenda = pytest.mark.xfail(strict=True, reason="One end: settle, the agenda, work with a budget")
