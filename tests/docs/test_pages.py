"""The documentation: every block of Python and of ``fdbq`` commands runs, as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from fdbqueue.store.binding import DEFAULT, Engine
from tests.acceptance.running import prepared
from tests.needs import require_spark
from tests.spark import prepared as prepared_for_spark

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = ROOT / "docs" / "examples"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUEUE = re.compile(r"""(?:Queue\.(?:open|create)\(db, "|\$ fdbq queue create )([\w-]+)""")
RUN = {"python", "console"}
SHOWN = {"sh", "text", "mermaid", "json", "nginx", "sql"}


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[tuple[str, str]]:
    return [block for block in blocks(page) if block[0] in RUN]


def needs_spark(page: Path) -> bool:
    return any("fdbqueue.spark" in code for _, code in runnable(page))


def run(pages: Sequence[Path], place: Path) -> None:
    """Run the blocks of pages, in one process and in a directory with a store."""
    run_blocks_of(map(runnable, pages), place, any(map(needs_spark, pages)))


def run_blocks_of(pages: Iterable[list[tuple[str, str]]], place: Path, with_spark: bool) -> None:
    """Run pages, given as blocks, in one process and in a directory with a store."""
    places, spark = [Path(sys.executable).parent], {}
    ready = DEFAULT.engine is Engine.EMBEDDED  # Else what is prepared has the cluster's bindings.
    if ready:
        places.insert(0, prepared().directory)
        if with_spark:
            spark = prepared_for_spark.environment()
    imported = filter(None, [os.environ.get("PYTHONPATH")])
    environment = {
        **os.environ,
        **spark,
        "FDBQUEUE_STORE": str(place / "store.fdbq"),
        "FDBQUEUE_SYNCHRONOUS": "normal",
        "PATH": os.pathsep.join(map(str, [*places, os.environ["PATH"]])),
        "PYTHONPATH": os.pathsep.join([*imported, str(ROOT), str(EXAMPLES)]),
    }
    with TemporaryFile() as given, TemporaryFile() as told:
        given.write(json.dumps(list(pages)).encode())
        given.seek(0)
        runner, streams = ["-m", "tests.docs.runner"], (given, told, told)
        if ready:
            code = prepared().run(runner, environment, streams, place)
        else:
            command = [sys.executable, *runner]
            code = subprocess.call(
                command, env=environment, cwd=place, stdin=given, stdout=told, stderr=told
            )
        told.seek(0)
        assert code == 0, told.read().decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory and one store for all pages."""
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if runnable(page) and not needs_spark(page)], ids=title
)
def test_the_blocks_of_a_page_run(page: Path, place: Path) -> None:
    """Those of pages on Spark run beside the other tests of it, in ``tests/spark``."""
    run([page], place)


@pytest.mark.slow
def test_all_pages_run_in_order_on_one_store_and_again(tmp_path: Path) -> None:
    require_spark()
    for page in [*PAGES, *PAGES]:
        run([page], tmp_path)


def test_every_page_has_queues_of_its_own() -> None:
    owners: dict[str, Path] = {}
    for page in PAGES:
        for _, code in runnable(page):
            for name in QUEUE.findall(code):
                assert owners.setdefault(name, page) == page, f"{page} uses {name!r}, too"
    assert len(owners) > 20


def test_no_block_escapes_the_test() -> None:
    for page in PAGES:
        for language, code in blocks(page):
            assert language in RUN | SHOWN, f"{page}: what is a block of {language!r}?"
            if language == "sh":
                assert "fdbq " not in code, f"{page}: commands of fdbq belong into a console block"


def targets(page: Path) -> set[Path]:
    """The files that a page links."""
    found = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    return {(page.parent / each).resolve() for each in found if not each.startswith("http")}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        assert [each for each in targets(page) if not each.exists()] == [], page


def test_every_page_is_two_links_from_the_first() -> None:
    near = {ROOT / "docs" / "index.md"}
    for _ in range(2):
        near |= {each for page in near for each in targets(page) if each.suffix == ".md"}
    assert {title(page) for page in {*PAGES[1:]} - near} == {
        f"docs/tutorial/{name}.md"
        for name in ("failures", "urgent-and-later", "customers", "look-after-it")
    }
