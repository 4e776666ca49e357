"""The check: verify the guarantees over histories, on Spark."""
