"""Lists of neighbours: merged, and looked up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import filled
from reid_dist.kernels.settings import kernel


@kernel
def merge_lists(
    index: NDArray[np.int64],
    distance: NDArray[np.float64],
    more_index: NDArray[np.int64],
    more_distance: NDArray[np.float64],
    out_index: NDArray[np.int64],
    out_distance: NDArray[np.float64],
) -> None:
    """Merge lists of different items, each by (distance, item), into the first k of both.

    Items and distances have shapes (n, a), (n, b) and, written, (n, k); -1 and inf after the last entry.
    """
    for i in range(out_index.shape[0]):
        a = 0
        b = 0
        for place in range(out_index.shape[1]):
            has_a = a < index.shape[1] and index[i, a] >= 0
            has_b = b < more_index.shape[1] and more_index[i, b] >= 0
            if not has_a and not has_b:
                out_index[i, place] = -1
                out_distance[i, place] = np.inf
                continue
            first = has_a and (
                not has_b
                or distance[i, a] < more_distance[i, b]
                or (distance[i, a] == more_distance[i, b] and index[i, a] < more_index[i, b])
            )
            if first:
                out_index[i, place] = index[i, a]
                out_distance[i, place] = distance[i, a]
                a += 1
            else:
                out_index[i, place] = more_index[i, b]
                out_distance[i, place] = more_distance[i, b]
                b += 1


@kernel
def listed_distances(
    indptr: NDArray[np.int64],
    member: NDArray[np.int32],
    index: NDArray[np.integer],
    distance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Distances of the members of sets in the list of their row; NaN for members that are not in the list.

    Members of row ``i`` are ``member[indptr[i]:indptr[i + 1]]``; `index` and `distance` have shape (n, k).
    """
    found = filled(np.empty(len(member), np.float64), np.nan)
    for i in range(len(indptr) - 1):
        for place in range(indptr[i], indptr[i + 1]):
            for listed in range(index.shape[1]):
                if index[i, listed] == member[place]:
                    found[place] = distance[i, listed]
                    break
    return found
