"""Looking at all queues of a store."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..queue import overview
from ..queue.overview import Surveyed
from ..schema.keys import DEFAULT_ROOT
from ..store.binding import fdb
from ..values.durations import Seconds
from .driver import run
from .transactions import Database, Transaction
from .twins import to_original


async def list_queues(
    tr: Database | Transaction,
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> list[str]:
    """See ``fdbqueue.list_queues``."""
    given = to_original(tr)
    return await run(partial(overview.list_queues, given, root=root, timeout=timeout))


async def survey(
    tr: Database | Transaction,
    names: Iterable[str],
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    timeout: Seconds | None = None,
) -> dict[str, Surveyed]:
    """See ``fdbqueue.survey``."""
    given = to_original(tr)
    return await run(partial(overview.survey, given, names, root=root, timeout=timeout))
