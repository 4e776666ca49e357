"""Commands that enqueue, receive, show and settle messages."""
