"""``fdbq debug …``."""
