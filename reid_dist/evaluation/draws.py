"""Which gallery rows a split keeps: a function of seed, split and gallery row.

Row ``r`` gets output ``r`` of a SplitMix64 stream whose start is output ``s`` (the split) of the stream that starts at
the seed, and of every identity the rows with the smallest numbers are kept.  The finaliser of SplitMix64 is a bijection
of 64-bit words, so two rows never get the same number.  Draws do not depend on chunking, read order or NumPy version.

Benchmarks whose authors publish their draws (SYSU-MM01 does) have other draws of the same kind: their mean estimates
the same expectation, but split s here is not their split s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import entry_numbers, run_offsets
from reid_dist.errors import InputError
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.relevance.protocols import JUNK_PID

Int64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How galleries are drawn: `per_identity` rows of every identity, or of every identity under every camera.

    Where there are fewer rows, all are drawn.  With `rest_as_queries`, the rows that are not drawn are the queries;
    with `of_queries`, the queries are drawn, and the gallery is whole.
    """

    repeats: int = 10
    per_identity: int = 1
    per_camera: bool = False
    seed: int = 0
    rest_as_queries: bool = False
    of_queries: bool = False

    def __post_init__(self) -> None:
        if self.rest_as_queries and self.of_queries:
            raise InputError("of_queries draws the queries, and rest_as_queries the gallery; leave one of them out")


def row_numbers(rows: Int64, seed: int, split: int) -> NDArray[np.uint64]:
    """Number by which every row is drawn in a split: uint64, of the shape of `rows`, different for different rows."""
    start = int(stream_outputs(seed, np.array([split], np.int64))[0])
    return stream_outputs(start, rows)


def draw_rows(pids: Int64, camids: Int64 | None, draw: Draw, split: int, known: Int64 | None = None) -> Int64:
    """Rows of the gallery of a split, ascending, int64; pids and camids are (n,) int64.

    `known` are the rows to draw from, ascending; None for all but those of pid -1.
    """
    if known is None:
        known = np.flatnonzero(pids != JUNK_PID)
    numbers = row_numbers(known, draw.seed, split)
    keys = [numbers, pids[known]]
    if draw.per_camera:
        if camids is None:
            raise InputError("a draw of every camera needs camids, and the gallery has none; draw by identity alone")
        keys.append(camids[known])
    order = np.lexsort(keys)
    place = entry_numbers(run_offsets(*(key[order] for key in keys[1:])))
    return np.sort(known[order[place < draw.per_identity]])
