"""Plain values: they know nothing of a store."""
