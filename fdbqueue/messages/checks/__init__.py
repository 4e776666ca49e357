"""Checks of what is stored against what is promised, for ``verify``."""
