"""What users hold: ``Queue`` and its parts."""
