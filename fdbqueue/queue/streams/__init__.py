"""What Spark and imports need of a queue: imports, sinks and plans."""
