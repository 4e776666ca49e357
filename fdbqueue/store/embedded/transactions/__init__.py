"""A transaction: its reads, its writes, and how it ends."""
