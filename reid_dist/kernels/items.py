"""How many items of an identity a query sees, where some are hidden from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.counting import _first_at_least
from reid_dist.kernels.settings import kernel

__all__ = ["ItemTable", "kept_items"]


class ItemTable(NamedTuple):
    """What each query may see of the items of each identity.

    Items of an identity are numbered by (label, gallery row), so that the items that a query may not see because of
    their label have consecutive numbers.

    Attributes
    ----------
    size
        Items of each identity that are not junk for every query, shape (n_identity,), int64.
    label_indptr, label, label_start
        Labels of identity ``i`` are ``label[label_indptr[i]:label_indptr[i + 1]]``, ascending; the number of the first
        item that carries it is in `label_start`; int64.  Empty where no query hides a label.
    hidden_label
        The label that each query may not see, shape (n_query,), int64.
    extra_indptr, extra_identity, extra_number
        Further items that a query may not see, by query: their identities, ascending, and their numbers; int64.
    """

    size: NDArray[np.int64]
    label_indptr: NDArray[np.int64]
    label: NDArray[np.int64]
    label_start: NDArray[np.int64]
    hidden_label: NDArray[np.int64]
    extra_indptr: NDArray[np.int64]
    extra_identity: NDArray[np.int64]
    extra_number: NDArray[np.int64]


@kernel
def kept_items(table: ItemTable, q: int, identity: int, number: int) -> tuple[int, int]:
    """Count an identity's items that a query sees, and those of them that are numbered below `number`."""
    kept = table.size[identity]
    below = number
    begin = table.label_indptr[identity]
    end = table.label_indptr[identity + 1]
    if begin < end:
        at = _first_at_least(table.label, begin, end, table.hidden_label[q])
        if at < end and table.label[at] == table.hidden_label[q]:
            start = table.label_start[at]
            stop = table.label_start[at + 1] if at + 1 < end else table.size[identity]
            kept -= stop - start
            below -= max(0, min(number, stop) - start)
    stop = table.extra_indptr[q + 1]
    at = _first_at_least(table.extra_identity, table.extra_indptr[q], stop, identity)
    while at < stop and table.extra_identity[at] == identity:
        kept -= 1
        below -= int(table.extra_number[at] < number)
        at += 1
    return kept, below
