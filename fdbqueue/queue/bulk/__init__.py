"""Many messages at a time: imports, sinks, plans, and operations by selector."""
