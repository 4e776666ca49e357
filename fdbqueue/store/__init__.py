"""Which FoundationDB: the bindings, the connection, the clocks, and the embedded engine."""
