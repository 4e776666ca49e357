"""What a history says of itself: all that a checker must know of the queues, beside it.

The check of the pipeline on Spark reads it; see ``fdbqueue.spark.checks.operations``.
"""

from __future__ import annotations

from typing import Any

from .checker import EARLY_MS, MIN_LEASE_NS
from .ordering import STRICT
from .place import BROWSERS, MAX_ATTEMPTS, QUEUES, REGIONS
from .replay import EXACT
from .view import LEASE_NS


def rules() -> dict[str, Any]:
    """The rules of a run."""
    return {
        "max_attempts": MAX_ATTEMPTS,
        "min_lease_ns": MIN_LEASE_NS,
        "lease_ns": LEASE_NS,
        "early_ms": EARLY_MS,
        "strict": list(STRICT),
        "exact": list(EXACT),
        "handled": ["worked"],
        "filtered": "filtered",
        "watched": "watched",
        "browsers": {
            name: next((each for each in REGIONS if each in (about or "")), "")
            for name, about in BROWSERS.items()
        },
        "relaxed": {
            name: options["window"]
            for name, options in QUEUES.items()
            if options.get("contention") == "relaxed"
        },
    }
