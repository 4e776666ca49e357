"""Commands that monitor and maintain a whole store."""
