"""Batches that stay the same, and rows that many tasks bring."""
