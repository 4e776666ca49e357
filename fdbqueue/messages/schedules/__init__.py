"""Schedules: messages that come again and again.

A schedule keeps one delayed message, its next tick. Whoever makes that message ready puts the next
one in its place, in the same transaction. So ticks need no process and no timer of their own, and
each comes once: its message is made ready once.
"""
