"""Spark sessions, and ``format("fdbqueue")`` in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingPackage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    SessionLike = SparkSession | Callable[[], SparkSession] | None
    """A session, or a function that makes one; None for a local one."""

_starting = threading.RLock()
"""One thread at a time makes a session or registers the data source."""

OLDEST_JAVA = 17
_LOGGING = Path(__file__).with_name("log4j2.properties")
_FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Else Spark asks for this machine's name, which the network of a laptop may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def resolve(spark: SessionLike) -> SparkSession:
    """The session that a job runs on. Starting Java takes seconds, so jobs check the rest first."""
    if spark is None:
        return local()
    session = spark() if callable(spark) else spark
    register(session)
    return session


def local(
    name: str = "fdbqueue",
    *,
    master: str = "local[*]",
    short: bool = False,
    java_options: str = "",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, or a new one on this machine, with ``fdbqueue`` registered.

    master: the cores to use: ``local[2]``, or all with ``local[*]``.
    short: start Java faster, for sessions of a minute or so; it runs slower later.
    java_options: further options of Java. config: further settings of Spark.

    A new session runs this Python, uses this process's store, logs errors only and has no web
    page. An active session is returned as it is. Raises ``MissingPackage``.
    """
    check_java()
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    flags = [logging, *(_FAST_START if short else ()), java_options]
    with _starting:
        from pyspark import sql

        # PySpark warns at every start beside a newer pandas, which nothing here needs.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        session = sql.SparkSession.getActiveSession()
        if session is None:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            # Settings of the session come too late for these: Java reads them as it starts.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault(
                "PYSPARK_SUBMIT_ARGS",
                f'--driver-java-options "{" ".join(flags).strip()}" pyspark-shell',
            )
            builder = sql.SparkSession.builder.appName(name).master(master)
            for key, value in {**_CONFIG, **(config or {})}.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
        register(session)
        return session


def register(spark: SparkSession) -> None:
    """Make ``format("fdbqueue")`` known to a session, which becomes the active one of this thread.

    A write looks the format up in the active session of its thread, and a new thread has none.

    Raises ``MissingPackage`` if Spark's Python packages are missing or too old.
    """
    try:
        from .source.source import FdbQueueSource
    except ImportError as error:
        raise MissingPackage(
            purpose=f"Spark ({error})", package="pyspark>=4.2 and pyarrow>=18", extra="spark"
        ) from None
    with _starting:
        spark.dataSource.register(FdbQueueSource.known_to(spark))
        # What makes a session the active one: there is no call for that alone.
        spark.createDataFrame([], "activates STRING")


def check_java() -> str:
    """The path of a Java that can run Spark, from ``JAVA_HOME`` or else the ``PATH``.

    Raises ``MissingPackage`` without Spark, or without a suitable Java.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise MissingPackage(purpose="Spark", package="pyspark and pyarrow", extra="spark")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise _no_java("there is none on the PATH")
    try:
        # It is written to stderr, by every Java.
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise _no_java(f"{java} does not run") from None
    version = java_version(text)
    if version is None or version < OLDEST_JAVA:
        shown = text.splitlines()[0] if text else "of no version"
        raise _no_java(f"{java} is {shown}")
    return java


def _no_java(found: str) -> MissingPackage:
    remedy = (
        "install it (Debian and Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install "
        "java-17-openjdk-headless; macOS: brew install openjdk@17), or set JAVA_HOME to where it is"
    )
    return MissingPackage(purpose="Spark", package=f"Java 17 or later, and {found}", remedy=remedy)


def java_version(text: str) -> int | None:
    """The major version in the output of ``java -version``, or None."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
