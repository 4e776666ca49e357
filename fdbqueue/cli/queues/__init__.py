"""Commands about a queue as a whole, and about who reads and writes it."""
