"""The report on delivery history: figures, plots, and an HTML page."""
