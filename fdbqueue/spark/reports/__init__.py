"""The report on delivery history: figures, plots, and a page."""
