"""``fdbq stream …``: Spark jobs on queues, and what streams have left."""
