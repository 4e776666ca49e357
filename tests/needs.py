"""What some tests need and a machine may lack: then they say so, and fail where CI is set."""

from __future__ import annotations

import os

import pytest

from fdbqueue.errors import MissingJava, MissingPackage
from fdbqueue.spark import check_java


def require_spark() -> None:
    """Skip the test where Spark cannot run."""
    try:
        check_java()
    except (MissingPackage, MissingJava) as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
