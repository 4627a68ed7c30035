"""Corrected p-values of many comparisons, and the letters that state them.

Two runs that share a letter do not differ significantly (compact letter display: Piepho, "An algorithm for a
letter-based representation of all-pairwise comparisons", J. Computational and Graphical Statistics 13, 2004).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase
from typing import TypeVar

_Key = TypeVar("_Key")


def holm(p_values: Mapping[_Key, float]) -> dict[_Key, float]:
    """P-values corrected for their number, so that each can be compared with one level.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979: the
    smallest of n is multiplied by n, the next by n - 1, and none falls below the one before it.
    """
    corrected, so_far = {}, 0.0
    for at, (key, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        so_far = max(so_far, min(1.0, (len(p_values) - at) * p_value))
        corrected[key] = so_far
    return {key: corrected[key] for key in p_values}


def compact_letters(n_items: int, differing: Collection[tuple[int, int]]) -> list[str]:
    """Letters of every item: two items share one if and only if their pair, (low, high), is not among `differing`.

    Items are taken in the order of their numbers, so that the first has an ``a``.
    """
    sets = [frozenset(range(n_items))]
    for first, second in sorted(differing):
        halves = []
        for members in sets:
            if first in members and second in members:
                halves += [members - {first}, members - {second}]
            else:
                halves.append(members)
        sets = _largest(halves)
    sets.sort(key=lambda members: sorted(members))
    letters = [""] * n_items
    for number, members in enumerate(sets):
        for item in members:
            letters[item] += _letter(number)
    return letters


def _largest(sets: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Every set once that lies in no other."""
    distinct = list(dict.fromkeys(sets))
    return [members for members in distinct if not any(members < other for other in distinct)]


def _letter(number: int) -> str:
    """``a`` to ``z``, then ``a1`` to ``z1``, ``a2``, …."""
    turn, place = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[place] + (str(turn) if turn else "")
