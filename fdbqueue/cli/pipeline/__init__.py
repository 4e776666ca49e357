"""What the jobs of ``fdbq pipeline`` print and ask."""
