"""The documentation: every block of Python and of ``fdbq`` commands runs, as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import require_spark

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNER = Path(__file__).parent / "runner.py"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = {"python", "console"}
SHOWN = {"sh", "text", "mermaid", "json", "sql"}


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    runnable = [block for block in blocks(page) if block[0] in RUN]
    if any("fdbqueue.spark" in code for _, code in runnable):
        require_spark()
    environment = {
        **os.environ,
        "FDBQUEUE_STORE": str(tmp_path / "store.fdbq"),
        "FDBQUEUE_SYNCHRONOUS": "normal",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, RUNNER],
        check=False,
        input=json.dumps(runnable),
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_no_block_escapes_the_test(page: Path) -> None:
    for language, code in blocks(page):
        assert language in RUN | SHOWN, f"what is a block of {language!r}?"
        if language == "sh":
            assert "fdbq " not in code, "commands of fdbq belong into a console block"


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
