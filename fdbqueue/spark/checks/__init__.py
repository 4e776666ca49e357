"""The check: the guarantees verified over histories, by Spark."""
