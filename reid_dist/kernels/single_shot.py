"""Items that come before the positives of each query, as entries: the place of the first such positive, the identity.

*Inactive positives.*  A far positive has thousands of items before it and a negligible probability.  Each item of an
identity with ``n`` items weighs ``floor(2^32 / n)``.  Beyond a limit (see
`reid_dist.engine.reductions.single_shot_counts`) a positive is *inactive*: its share is defined as 0, and items are
listed for nearer positives only.  Weights are integers and sums of them only grow, so a positive that is inactive given
a part of the gallery is inactive given all of it, and the active positives do not depend on the blocks of the gallery.

*Oversized groups.*  Thousands of items of one identity (distractors with pid 0) would only fill the lists.  They are
counted per positive, and have no weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import kernel
from reid_dist.kernels.placing import PlacedPairs


@kernel
def list_items(
    placed: PlacedPairs,
    start: NDArray[np.int64],
    active: NDArray[np.int64],
    bits: int,
    entry: NDArray[np.signedinteger],
    oversized: NDArray[np.int32],
) -> int:
    """Write entries of the pairs before an active positive to `entry`, which has room for all; return their number.

    `start` holds the first positive of each query, and `active` the number of those that are active.  The number of an
    item is its identity, or -1 - g in oversized group ``g``, whose items are counted in `oversized`, shape (n_positive,
    n_oversized).
    """
    n = 0
    for i in range(len(placed.query)):
        q = placed.query[i]
        first, n_active = start[q], active[q]
        for p in range(placed.start[i], placed.start[i + 1]):
            place, identity = np.int64(placed.place[p]), np.int64(placed.number[p])
            if place >= n_active:
                continue
            if identity < 0:
                oversized[first + place, -1 - identity] += 1
            else:
                entry[n] = ((first + place) << bits) | identity
                n += 1
    return n


@kernel
def add_weights(
    entry: NDArray[np.signedinteger], bits: int, weight: NDArray[np.int64], totals: NDArray[np.int64]
) -> None:
    """Add the weight of the identity of each entry to the total of its place, shape (n_positive,)."""
    mask = (1 << bits) - 1
    for e in range(len(entry)):
        totals[np.int64(entry[e]) >> bits] += weight[np.int64(entry[e]) & mask]


@kernel
def keep_active(entry: NDArray[np.signedinteger], bits: int, is_active: NDArray[np.bool_]) -> int:
    """Move the entries before active positives to the front; return how many there are.

    `is_active` has shape (n_positive,).
    """
    n = np.int64(0)
    for e in range(len(entry)):
        # Written always, kept when it counts: no branch.
        entry[n] = entry[e]
        n += np.int64(is_active[np.int64(entry[e]) >> bits])
    return int(n)
