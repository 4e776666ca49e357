"""Many messages at a time: producers, and operations by selector."""
