"""Values that were found elsewhere to pass the levels of lists, entered into these.

They are what `reid_dist.kernels.symmetric` finds in tiles, of which those that pass were listed on a device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import kernel
from reid_dist.kernels.symmetric import Side, is_long, reach_farther
from reid_dist.kernels.topk import lag_of, make_scratch, shorten


@kernel
def enter_rows(
    item: NDArray[np.int32],
    other: NDArray[np.int32],
    values: NDArray[np.floating],
    less: NDArray[np.floating],
    side: Side,
) -> None:
    """Add pairs to the lists of the items of one side; arrays (n,), those of an item together.

    Screening values are `values` less the elements of `less`, by place of the other item; it has none for values that
    are screening values themselves.
    """
    lists = side.lists
    scratch, lag = make_scratch(lists.value.shape[1]), lag_of(lists.k)
    # Unpacked once, outside of the loop.
    list_level, lower_bounds, list_value, list_column = lists.level, side.lower_bound, lists.value, lists.column
    list_size, k, capacity = lists.size, lists.k, lists.value.shape[1]
    label, other_label = side.label, side.other_label
    has_labels, has_bias = len(label) > 0, len(less) > 0
    for p in range(len(item)):
        q, c = int(item[p]), int(other[p])
        value = values[p] - less[c] if has_bias else values[p]
        if not (value >= list_level[q] or value <= lower_bounds[q]) or value == -np.inf:
            continue
        if has_labels and label[q] == other_label[c]:
            continue
        if value >= list_level[q]:
            size = list_size[q]
            list_value[q, size], list_column[q, size] = value, c
            list_size[q] = size + 1
            if is_long(size + 1, k, lag, capacity):
                shorten(q, lists, scratch)
        if value <= lower_bounds[q]:
            reach_farther(side, q, c)
