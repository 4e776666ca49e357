"""Prints the cluster file that fdbqueue would use here, if the cluster responds."""

from __future__ import annotations

import sys

import fdbqueue
from fdbqueue.errors import StoreError
from fdbqueue.store.binding import DEFAULT, Engine, default_cluster_file

SECONDS = 5.0


def main() -> int:
    if DEFAULT.engine is not Engine.FOUNDATIONDB:
        return 1
    try:
        fdbqueue.open(timeout=SECONDS)
    except StoreError:
        return 1
    print(DEFAULT.path or default_cluster_file())
    return 0


sys.exit(main())
