"""A deterministic simulation of processes that use queues; see docs/simulation.md."""
