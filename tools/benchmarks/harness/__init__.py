"""fdbqueue for an independent harness of job queues: ``python -m benchmarks.harness``.

The harness is hardbyte/postgresql-job-queue-benchmarking. It starts a process for each system, with
settings in environment variables, and reads lines of JSON from it: one that describes the system,
and every few seconds one for each metric. Its CONTRIBUTING_ADAPTERS.md describes the protocol.
"""
