"""A Spark session on this machine, for the jobs, ``fdbq`` and the tests."""

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

from ..errors import MissingJava, MissingPackage
from .registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Given = SparkSession | Callable[[], SparkSession] | None
    """A session, or what makes one; None for one on this machine."""

_starting = threading.RLock()
"""Sessions are made, and the data source is registered, by one thread at a time."""

OLDEST_JAVA = 17
_QUIET = Path(__file__).with_name("log4j2.properties")
_SHORT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags that make a Java that lives for a minute start sooner, and run slower later."""


def given(spark: Given) -> SparkSession:
    """The session that a job is to run on: the one that it was given, or what makes one; else one
    on this machine. Jobs ask for it when they have checked all else: Java takes seconds to start.
    """
    if spark is None:
        return local()
    return spark() if callable(spark) else spark


def local(
    name: str = "fdbqueue",
    *,
    master: str = "local[*]",
    short: bool = False,
    java_options: str = "",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, or a new one on this machine, with ``fdbqueue`` registered.

    master: how many cores it may use: ``local[2]``, or all with ``local[*]``.
    short: whether it is needed for a minute only, and should start fast.
    java_options: further options of Java. config: further settings of Spark.

    Its Python processes are this Python and use this process's store; it has no web page and logs
    errors only. A session that exists is taken as it is. Raises ``MissingPackage``,
    ``MissingJava``.
    """
    check_java()
    with _starting:
        return _local(name, master, _java(short, java_options), config or {})


def _local(name: str, master: str, java_options: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark import sql

    # Said at every start with a newer pandas; nothing here needs pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    session = sql.SparkSession.getActiveSession()
    if session is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        # Java must be told before it starts, so these are no settings of the session.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault(
            "PYSPARK_SUBMIT_ARGS",
            f'--driver-java-options "{java_options}" pyspark-shell',
        )
        builder = sql.SparkSession.builder.appName(name).master(master)
        for key, value in {**_CONFIG, **config}.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    register(session)
    return session


_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def check_java() -> str:
    """The path of a Java that Spark runs on: of ``JAVA_HOME``, else on the path.

    Raises ``MissingPackage`` where there is no Spark to run, and ``MissingJava``.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise MissingPackage(purpose="Spark", package="pyspark and pyarrow", extra="spark")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise MissingJava(found="there is none on the PATH")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise MissingJava(found=f"{java} does not run") from None
    version = java_version(said)
    if version is None or version < OLDEST_JAVA:
        shown = said.splitlines()[0] if said else "of no version"
        raise MissingJava(found=f"{java} is {shown}")
    return java


def java_version(said: str) -> int | None:
    """The major version in what ``java -version`` says; None if it is not there."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def _java(short: bool, options: str) -> str:
    flags = [f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"]
    return " ".join([*flags, *(_SHORT if short else ()), options]).strip()
