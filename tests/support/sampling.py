"""What the README's test command takes of properties and of parametrized tests; CI's long step takes all.

Properties run a sixth of their Hypothesis examples.  Of parametrized tests marked ``quick_cases(n)``, n cases run,
which hold as many pairs of parameter values as n cases can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from hypothesis import settings

THOROUGH = 60
QUICK = THOROUGH // 6


def examples(n: int) -> int:
    """Examples of a property that runs whole evaluations, from those of the thorough profile."""
    return max(5, n * settings().max_examples // THOROUGH)


def spread_cases(cases: Sequence[Mapping[str, Any]], n: int) -> set[int]:
    """Choose n cases, one by one: the next is the first with the most values, then pairs of values, not yet chosen."""
    values = [{(name, repr(value)) for name, value in case.items()} for case in cases]
    pairs = [set(combinations(sorted(each), 2)) for each in values]
    chosen: list[int] = []
    seen_values: set[Any] = set()
    seen_pairs: set[Any] = set()
    while len(chosen) < min(n, len(cases)):
        left = [place for place in range(len(cases)) if place not in chosen]
        best = max(left, key=lambda place: (len(values[place] - seen_values), len(pairs[place] - seen_pairs), -place))
        chosen.append(best)
        seen_values |= values[best]
        seen_pairs |= pairs[best]
    return set(chosen)
