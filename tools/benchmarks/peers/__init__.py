"""fdbqueue beside other queues: the same work, on the same machine, in one run."""
