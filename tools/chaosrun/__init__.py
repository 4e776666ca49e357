"""Chaos: torture a queue with processes that are killed, paused and lied to, and check the rest."""
