"""Counts with their nouns: ``1 camera``, ``2 cameras``, ``1,234 queries``."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["counted", "have", "plural"]

_VOWELS = "aeiou"


def counted(number: int, noun: str, *, separator: str = ",") -> str:
    """Return a count and its noun, in the number that the count asks for.

    Parameters
    ----------
    number
        The count.
    noun
        Its noun in the singular; of several words, the last one changes.
    separator
        Between thousands; empty for none.
    """
    digits = f"{number:,}".replace(",", separator)
    return f"{digits} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the regular plural of a noun: ``query`` gives ``queries``, ``match`` gives ``matches``."""
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")


def have(subjects: Collection[object] | int) -> str:
    """Return ``has`` for one subject and ``have`` for several."""
    number = subjects if isinstance(subjects, int) else len(subjects)
    return "has" if number == 1 else "have"
