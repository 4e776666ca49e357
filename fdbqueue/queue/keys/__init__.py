"""The keys of a queue: limits, backlogs, and what is known of each."""
