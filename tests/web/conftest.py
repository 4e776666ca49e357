from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from fdbqueue.store.binding import fdb
from fdbqueue.web import application


@pytest.fixture
def pages(db: fdb.Database, space: fdb.Subspace) -> TestClient:
    """The pages for everybody, read-only."""
    app = application(db, root=space, name="a store", hosts=["testserver"])
    return TestClient(app, raise_server_exceptions=True)
