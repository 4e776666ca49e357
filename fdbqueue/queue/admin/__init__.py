"""What operators do to a queue."""
