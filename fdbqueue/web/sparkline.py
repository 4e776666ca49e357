"""A sparkline: how many messages were ready in the last minutes, as the path of an SVG."""

from __future__ import annotations

from collections.abc import Sequence

from .watcher import Sample

WIDTH, HEIGHT = 100, 20
SECONDS = 300.0


def path(samples: Sequence[Sample], now: float) -> str:
    """Steps from one sample to the next, the newest at the right; empty before the second."""
    if len(samples) < 2:
        return ""
    top = max(1, *(each.ready for each in samples))
    begin = now - SECONDS
    points = []
    for each in samples:
        x = max(0.0, (each.at - begin) / SECONDS * WIDTH)
        y = HEIGHT - 1 - (HEIGHT - 2) * each.ready / top
        points.append((x, y))
    steps = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    steps += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
    return "".join([*steps, f"H{WIDTH}"])
