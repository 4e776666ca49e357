"""Commands that look after a whole store."""
