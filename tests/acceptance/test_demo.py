"""``tools/demo``, small: its first half needs no Java."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import DEADLINE

ROOT = Path(__file__).parent.parent.parent


def test_without_java_the_first_half_runs_and_says_what_to_install(
    environment: dict[str, str], tmp_path: Path
) -> None:
    small = ("--messages", "300")
    done = subprocess.run(
        [sys.executable, "-m", "flights", *small, "--report", tmp_path / "page.html"],
        check=False,
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": str(ROOT / "tools"), "JAVA_HOME": str(tmp_path)},
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert "acknowledged, each exactly once" in " ".join(done.stdout.split())
    said = " ".join(done.stdout.split())
    assert "300 messages had it once, 0 more than once" in said
    assert "WRONG" not in said
    assert "The second half, on Spark, is left out. Spark needs Java 17 or later" in said
    assert "install it" in said
    assert not (tmp_path / "page.html").exists()
