"""The storage operations of a queue: transactional functions over its keys."""
