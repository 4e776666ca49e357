"""From ready to settled: taking, leasing, settling, and what follows a failure."""
