"""Who consumes: the consumers that wait, and how they are woken."""
