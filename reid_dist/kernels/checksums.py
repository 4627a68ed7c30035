"""Sums of the words of a row times fixed factors: the kernel of `reid_dist.stores.digests`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import kernel


@kernel
def weighted_sums(words: NDArray[np.unsignedinteger[Any]], factors: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sums of the elements of each row times `factors`, modulo 2^64: shapes (n, dim), (dim,) and (n,)."""
    out = np.empty(words.shape[0], np.uint64)
    for i in range(words.shape[0]):
        row = words[i]
        total = np.uint64(0)
        for j in range(len(row)):
            total += np.uint64(row[j]) * factors[j]
        out[i] = total
    return out
