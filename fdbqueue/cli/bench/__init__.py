"""A benchmark of queues: schemes, processes that use them, and what is checked and reported."""
