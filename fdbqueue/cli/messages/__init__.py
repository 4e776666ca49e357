"""Commands about messages: enqueue, receive, and ``fdbq message …``."""
