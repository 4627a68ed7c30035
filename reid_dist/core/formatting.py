"""Numbers, bytes, durations, shares, counts with their nouns, and tables, as text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

TABLE_FORMS: Final = {
    "text": ".txt",
    "markdown": ".md",
    "latex": ".tex",
    "csv": ".csv",
    "json": ".json",
    "html": ".html",
}
"""Forms in which results are written, and the suffix of a file of each."""

NOTE_LEVELS: Final = ("none", "short", "full")
"""Which notes are written with a table: none, those without which it cannot be read, or all."""

_VOWELS = "aeiou"
_MOST_NAMED = 3
_SHORT_DIGEST, _WHOLE_DIGEST = 12, 64
_HEX = frozenset("0123456789abcdef")


def counted(number: int, noun: str, *, separator: str = ",") -> str:
    """Return a count and its noun, of which the last word becomes plural; `separator` between thousands."""
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


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` texts in one line, and how many more there are."""
    shown = separator.join(texts[:most])
    last = " and" if separator == ", " else f"{separator}and"
    return f"{shown}{last} {len(texts) - most} more" if len(texts) > most else shown


def joined(names: Sequence[str]) -> str:
    """Return names for a sentence, the first few of many: ``a, b and c``, ``a, b, c and 4 more``."""
    more = len(names) - _MOST_NAMED
    *others, last = [*names[:_MOST_NAMED], f"{more} more"] if more > 0 else names
    return f"{', '.join(others)} and {last}" if others else last


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters, the last one an ellipsis if it is cut."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def short_digests(*values: object) -> list[str]:
    """Return SHA-256 digests among values by their first 12 digits, by all where the first ones agree."""
    texts = [str(value) for value in values]
    heads = [text[:_SHORT_DIGEST] if len(text) == _WHOLE_DIGEST and _HEX.issuperset(text) else text for text in texts]
    return heads if len(set(heads)) == len(set(texts)) else texts


def percent(value: float) -> str:
    """Return a share of one in percent with two decimals."""
    return "undefined" if math.isnan(value) else f"{100 * value:.2f}%"


def rate(value: float) -> str:
    """Return a share of one in percent with as many decimals as it takes: an error rate may be very small."""
    if math.isnan(value):
        return "undefined"
    return f"{rate_digits(value)}%"


def rate_digits(value: float, digits: int = 4) -> str:
    """Return a share of one in percent, without the sign, to so many significant digits."""
    # Through Decimal, so that a rate of 10^-8 is 0.000001% and not 1e-06%.
    return f"{Decimal(f'{100 * value:.{digits}g}'):f}"


def compact(value: float) -> str:
    """Return a count for the tick of an axis: ``500``, ``20k``, ``1.5M``."""
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.0f}"


def integer(value: float | None) -> str:
    """Return a count with thousands separated, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{int(value):,}"


def share(part: float, whole: float) -> str:
    """Return ``part`` of ``whole`` in percent with one decimal."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def duration(seconds: float) -> str:
    """Return a time in milliseconds, seconds, minutes or hours, by its length."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def utc_now() -> str:
    """Return the time: UTC, ISO 8601 with seconds and ``Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def upper_first(text: str) -> str:
    """Return a text with its first letter in upper case and the others as they are."""
    return text[:1].upper() + text[1:]


def rough_duration(seconds: float) -> str:
    """Return an estimated time with one or two digits: ``about 12 s``, ``about 3 min``, ``about 1.5 h``."""
    if seconds < 100:
        return f"about {seconds:.2g} s"
    return f"about {seconds / 60:.0f} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"


def byte_size(n_bytes: float) -> str:
    """Return a number of bytes in the largest binary unit that it reaches: ``12.5 MiB``, ``340 GiB``, ``17 B``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 2**power:
            return f"{n_bytes / 2**power:,.{0 if n_bytes >= 100 * 2**power else 1}f} {unit}"
    return f"{n_bytes:.0f} B"
