"""How long tests wait for what they expect: longer than the busiest machine needs.

Nothing waits until its deadline but a test that fails. So there is one, and it is generous.
"""

from __future__ import annotations

DEADLINE = 600
