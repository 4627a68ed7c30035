"""Numbers of Hypothesis examples by profile: a quarter in the README's test command, all in CI's long step."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = 60
QUICK = THOROUGH // 4


def examples(n: int) -> int:
    """Examples of a property that runs whole evaluations, from those of the thorough profile."""
    return max(5, n * settings().max_examples // THOROUGH)
