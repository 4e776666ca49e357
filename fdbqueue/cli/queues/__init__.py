"""Commands about a queue as a whole, and about its readers and writers."""
