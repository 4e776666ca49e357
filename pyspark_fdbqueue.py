"""How Spark finds ``format("fdbqueue")`` by itself, in every session: it looks for modules with
such a name on the path of Python, and takes their ``DefaultSource``."""

from contextlib import suppress

# Where the packages that it needs are too old, Spark is to find all others still.
with suppress(ImportError):
    from fdbqueue.spark.source.source import FdbQueueSource as DefaultSource

__all__ = ["DefaultSource"]
