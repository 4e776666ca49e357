"""The package that people install: what is in it, and that it works where nothing else is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import fdbqueue
from tests.acceptance.running import first_line
from tests.patience import DEADLINE

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "docker-compose.yml",
    "pyproject.toml",
    "pyspark_fdbqueue.py",
]
FOLDERS = ["docs", "fdbqueue", "tests", "tools"]
EXAMPLE = """
import sys, fdbqueue
db = fdbqueue.open(sys.argv[1])
queue = fdbqueue.Queue.open(db, "package")
queue.enqueue(db, b"in a package")
delivery = queue.receive(db)
queue.ack(db, delivery)
print(delivery.message.payload.decode(), fdbqueue.__file__)
"""


def elsewhere(**more: str) -> dict[str, str]:
    """The environment without this checkout's modules and stores, and ``more``."""
    own = ("FDB", "PYTHON", "COVERAGE")
    return {k: v for k, v in os.environ.items() if not k.startswith(own)} | more


def run(
    *command: str | Path,
    cwd: Path | None = None,
    timeout: float = DEADLINE,
    env: dict[str, str] | None = None,
) -> str:
    """What a command prints, without this checkout's modules and stores."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=env or elsewhere(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        shutil.copy(ROOT / name, tree / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tree / "dist", tree)
    return tree / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def install(wheel: Path | str, directory: Path, *options: str | Path) -> Path:
    """A new virtual environment with the wheel; returns its commands' directory."""
    venv.create(directory, with_pip=False, symlinks=True)
    commands = directory / "bin"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        commands / "python",
        "install",
        "--quiet",
        "--no-compile",
    ]
    run(*pip, "--disable-pip-version-check", *options, wheel, timeout=600)
    return commands


def try_out(commands: Path, directory: Path) -> None:
    """Use the library and the command as they were installed."""
    store = directory / "store.fdbq"
    printed = run(commands / "python", "-c", EXAMPLE, store, cwd=directory)
    assert printed.startswith(f"in a package {commands.parent}")
    printed = run(commands / "fdbq", "--version", cwd=directory)
    assert printed == f"fdbq {fdbqueue.__version__}\n"
    listed = run(commands / "fdbq", "--store", store, "queue", "list", cwd=directory)
    assert "package" in listed


def first_program(commands: Path, directory: Path) -> None:
    """Run the first program of the README until its worker has handled a message."""
    (text,) = re.findall(r"^```text\n(import fdbqueue\n.*?)^```", README, re.M | re.S)
    assert len(text.splitlines()) <= 7
    (directory / "first.py").write_text(text)
    env = elsewhere(FDBQUEUE_STORE=str(directory / "first.fdbq"))
    run(commands / "python", "first.py", cwd=directory, env=env)
    assert first_line([commands / "fdbq", "worker", "first"], directory, env) == "brewing assam\n"


def test_the_sdist_and_the_wheel_hold_every_file_of_the_package(built: Path, wheel: Path) -> None:
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "fdbqueue").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {"fdbqueue/py.typed", "fdbqueue/web/templates/base.html"} <= files
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
    assert files - installed == set()
    assert not [each for each in installed if each.startswith(("docs/", "tests/", "tools/"))]
    others = {"docs/web.md", "tests/conftest.py", "tools/setup.sh", "docs/decisions/README.md"}
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {*files, *SOURCES, *others} - inside == set()


def test_the_metadata_is_what_the_project_says(wheel: Path) -> None:
    said = metadata(wheel)
    assert said["Version"] == fdbqueue.__version__
    assert wheel.name == f"fdbqueue-{fdbqueue.__version__}-py3-none-any.whl"
    assert set(said.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    required = {line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert {re.split("[<>=]", line)[0] for line in required} == {
        re.split("[<>=]", line)[0] for line in PROJECT["dependencies"]
    }
    assert said.get_payload() == README


def test_the_change_log_begins_with_this_version() -> None:
    headings = re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == fdbqueue.__version__
    assert headings == sorted(headings, reverse=True)


def test_an_installed_wheel_works_away_from_its_sources(wheel: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    commands = install(wheel, tmp_path / "environment", "--no-deps")
    # What it depends on comes from here; what it is itself, from the wheel.
    (site,) = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    here = next(path for path in sys.path if (Path(path) / "typer").is_dir())
    (site / "dependencies.pth").write_text(here)
    first_program(commands, tmp_path)
    print(f"from pip install to the first handled message: {time.monotonic() - began:.1f} s")
    try_out(commands, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", "[aio,metrics,otel,pydantic,web,zstd]", "[spark]"])
def test_a_clean_environment_needs_nothing_else(wheel: Path, tmp_path: Path, extra: str) -> None:
    commands = install(f"{wheel}{extra}", tmp_path / "environment")
    try_out(commands, tmp_path)
    if "web" in extra:
        run(commands / "python", "-c", "import fdbqueue.web, fdbqueue.aio")
    if "spark" in extra:
        run(commands / "python", "-c", "import fdbqueue.spark")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv (pip install uv)")
def test_uv_installs_the_command_as_a_tool(wheel: Path, tmp_path: Path) -> None:
    places = {"UV_TOOL_DIR": tmp_path / "tools", "UV_TOOL_BIN_DIR": tmp_path / "bin"}
    settings = [f"{name}={path}" for name, path in places.items()]
    run("env", *settings, "uv", "tool", "install", wheel, timeout=600)
    assert run(tmp_path / "bin" / "fdbq", "--version") == f"fdbq {fdbqueue.__version__}\n"
