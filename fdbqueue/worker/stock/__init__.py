"""What a worker holds of a queue, and what follows each event: pure."""
