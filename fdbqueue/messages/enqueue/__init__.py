"""enqueue."""
