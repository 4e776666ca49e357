"""Benchmarks for contributors: schemes compared, promised figures, heartbeats and Spark."""
