"""Labels of two sets, brought to a form in which equal labels are equal.

One rule holds for pids, camids and item ids: digits are a number, so that ``01`` is ``1`` and 1, unless one of the sets
holds two spellings of that number; then it is compared as written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.stores.labels import Texts, ambiguous_numbers, number_in_digits

_WORDS_FROM = 10**18
"""Words that meet numbers of another set are numbered from here on, beyond every number in digits."""


def numbers_among(texts: Iterable[str]) -> set[int]:
    """Return the numbers that texts in digits are."""
    return {value for value in map(number_in_digits, texts) if value is not None}


def _spelled(text: str, ambiguous: set[int]) -> str:
    """Digits without leading zeros; anything else, and ambiguous numbers, as written."""
    value = number_in_digits(text)
    return text if value is None or value in ambiguous else str(value)


def join_numbers(numbers: NDArray[np.int64], own: Texts, query: Texts, gallery: Texts) -> NDArray[np.int64]:
    """Number the labels of one of two sets so that equal labels of both get equal numbers.

    Parameters
    ----------
    numbers
        (n,) labels of the set.
    own, query, gallery
        The texts of numbers in this set and in both.

    Returns
    -------
    (n,) int64; what is not positive in a set of texts (junk) stays.
    """
    if own is None:
        return numbers
    ambiguous = ambiguous_numbers(query or (), gallery or ())
    spelled = [_spelled(text, ambiguous) for text in own]
    every = {_spelled(text, ambiguous) for text in (*(query or ()), *(gallery or ()))}
    if query is None or gallery is None:
        # The other set has numbers: digits are those numbers, and words are beyond all of them.
        words = {text: _WORDS_FROM + at for at, text in enumerate(sorted(t for t in every if _plain(t) is None))}
        table = np.array([words[text] if (value := _plain(text)) is None else value for text in spelled])
    else:
        table = np.searchsorted(np.array(sorted(every)), np.array(spelled)) + 1
    return np.where(numbers > 0, table[np.maximum(numbers, 1) - 1], numbers)


def _plain(text: str) -> int | None:
    """The number that a text is the plain spelling of."""
    value = number_in_digits(text)
    return value if value is not None and str(value) == text else None


def join_item_ids(
    query: NDArray[Any], gallery: NDArray[Any]
) -> tuple[NDArray[np.int64] | NDArray[np.str_], NDArray[np.int64] | NDArray[np.str_]]:
    """Bring the item ids of two sets to one form, in which equal ids are equal.

    Parameters
    ----------
    query, gallery
        (n,) and (m,) int64 or text.

    Returns
    -------
    The same arrays where they can be compared as they are; otherwise texts, digits without leading zeros.

    Raises
    ------
    InputError
        If one has numbers, the other texts, and none are equal.
    """
    if query.dtype.kind != "U" and gallery.dtype.kind != "U":
        return query, gallery
    written = [side.astype(np.str_) for side in (query, gallery)]
    ambiguous = ambiguous_numbers(*(np.unique(side).tolist() for side in written))
    made = [np.array([_spelled(text, ambiguous) for text in side.tolist()], dtype=np.str_) for side in written]
    if query.dtype.kind != gallery.dtype.kind and not np.isin(made[0], made[1]).any():
        raise InputError(
            f"item ids of the query set are {query.dtype}, of the gallery {gallery.dtype}, and none are equal; "
            "give both the same kind"
        )
    return made[0], made[1]
