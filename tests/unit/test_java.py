"""Which Java Spark would run on, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fdbqueue.errors import MissingPackage
from fdbqueue.spark import check_java
from fdbqueue.spark.spark_session import java_version


def java(home: Path, says: str, status: int = 0) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("The operation couldn't be completed.", None),
        ("", None),
    ],
)
def test_java_tells_its_version_in_many_ways(said: str, version: int | None) -> None:
    assert java_version(said) == version


def test_the_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == str(path)


@pytest.mark.parametrize(
    ("says", "status", "found"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 0, 'is openjdk version "11.0.2"'),
        ("Unable to locate a Java Runtime.", 1, "does not run"),
        ("", 0, "is"),
    ],
)
def test_a_java_that_spark_does_not_run_on_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, status: int, found: str
) -> None:
    java(tmp_path, says, status)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingPackage, match=f"bin/java {found}.*apt install openjdk-17"):
        check_java()


def test_no_java_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage, match="there is none on the PATH"):
        check_java()
