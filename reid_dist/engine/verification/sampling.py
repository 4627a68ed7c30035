r"""Brackets around levels that are known before the tiles, from the canonical distances of a sample of pairs.

*The sample* consists of groups: some queries in a row, with every few of some gallery rows in a row.  Rows of an
identity or of a camera are often neighbours and alike, so that the pairs of a group are no independent draws, but the
groups nearly are: the spread of their counts gives the error of the sample.  Which rows these are follows from the
numbers of rows alone, and distances are canonical, so that brackets are the same bits wherever they are computed.

*A bracket* holds the distances at which a level may be reached, given that the true number of impostors at a distance
or nearer differs from the estimate by at most some standard deviations.  A bracket of rare impostors contains few
pairs, even if it reaches to the tenth nearest of the sample; elsewhere the error of the sample is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.segments import entry_owners
from reid_dist.engine.outputs import QueryBlock, visibility_of
from reid_dist.engine.reductions import HiddenColumns, KeyCounts, add_key_counts, ordered_keys, pair_rows
from reid_dist.engine.verification.crossings import EVERYTHING, Guesses, Level, Range, first_place
from reid_dist.kernels.canonical import pair_distances
from reid_dist.kernels.splitmix import stream_outputs

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Groups of pairs, from whose spread the error is estimated; a store reads a chunk of each side for every group.
_N_GROUPS = 16
# One of so many pairs is in the sample, within limits: its distances take some hundredths of the time of the tiles.
_PAIRS_PER_SAMPLED = 256
_FEWEST_PAIRS, _MOST_PAIRS = 2**14, 2**20
# Gallery rows that are read for a sampled one: of a chunk of a store, all are read.
_MOST_STEP = 8
_SEED = 0

# Standard deviations of the error that the first guess allows for, the most that memory has room for; and the second.
_DEVIATIONS = (4.0, 3.5, 3.0, 2.5)
_MOST_DEVIATIONS = 16.0
# Number of the sampled impostor, or a farther one, by which the groups are compared.
_FEW_NEAREST = 64

# Maximal counts of genuine distances: the error of each is the share of one of them.
_GENUINE_COUNTS = 2**14


@dataclass(frozen=True, slots=True)
class Sample:
    """Impostor distances of some groups of pairs, and the pairs that these stand for."""

    # Canonical distances of each group, in no order.
    groups: tuple[Float64, ...]
    # Number of all impostors, and counts of the distances of all genuine pairs by ordered key.
    n_impostor: int
    genuine: KeyCounts
    # Maximal counts of distances in a partial result.
    most_counts: int


def join_samples(blocks: Sequence[Sample]) -> Sample:
    """Join the samples of all blocks of queries."""
    groups = zip(*(block.groups for block in blocks), strict=True)
    genuine = add_key_counts([block.genuine for block in blocks])
    return Sample(
        tuple(np.concatenate(parts) for parts in groups),
        sum(block.n_impostor for block in blocks),
        genuine.shrunk(_GENUINE_COUNTS),
        blocks[0].most_counts,
    )


def sampled_rows(n_query: int, n_gallery: int) -> list[tuple[RowRange, RowRange, int]]:
    """Query rows and gallery rows of every group of the sample, and the step between those of the gallery."""
    wanted = min(max(n_query * n_gallery // _PAIRS_PER_SAMPLED, _FEWEST_PAIRS), _MOST_PAIRS) // _N_GROUPS
    near = min(math.isqrt(wanted), max(1, n_query // _N_GROUPS))
    far = min(wanted // near, max(1, n_gallery // _N_GROUPS))
    near = min(wanted // far, max(1, n_query // _N_GROUPS))
    step = min(_MOST_STEP, max(1, n_gallery // _N_GROUPS // far))
    # Sets are often in one order, and queries nearest to rows at their own place: other places are compared.
    order = np.argsort(stream_outputs(_SEED, np.arange(_N_GROUPS)))
    ours, theirs = _stretches(n_query, near, 1), _stretches(n_gallery, far * step, 2)
    return [(rows, theirs[place], step) for rows, place in zip(ours, order.tolist(), strict=True)]


def _stretches(n_rows: int, length: int, stream: int) -> list[RowRange]:
    """Some rows in a row from every part of a set, at a place of the part that is drawn."""
    bounds = np.arange(_N_GROUPS + 1) * (n_rows - length + 1) // _N_GROUPS
    places = np.maximum(np.diff(bounds), 1).astype(np.uint64)
    drawn = stream_outputs(_SEED, np.arange(_N_GROUPS) + stream * _N_GROUPS) % places
    return [RowRange(start, start + length) for start in (bounds[:-1] + drawn.astype(np.int64)).tolist()]


def sample_block(block: QueryBlock, n_query: int) -> Sample:
    """Sampled pairs of a block of the `n_query` queries of the job."""
    seen, items = visibility_of(block), block.thresholds.items
    groups = []
    for near, far, step in sampled_rows(n_query, block.labels.index.n_gallery):
        start, stop = max(near.start, block.rows.start), min(near.stop, block.rows.stop)
        groups.append(_distances(block, RowRange(start, stop), far, step) if start < stop else np.empty(0))
    n_impostor = int((block.relevance.n_kept - np.diff(block.relevance.relevant_indptr))[seen.counted].sum())
    genuine = KeyCounts.of(ordered_keys(np.repeat(items.distance, np.diff(items.positive_start))))
    return Sample(tuple(groups), n_impostor, genuine.shrunk(_GENUINE_COUNTS), block.bracket_counts)


def _distances(block: QueryBlock, rows: RowRange, gallery_rows: RowRange, step: int) -> Float64:
    """Canonical distances of the impostors among some queries of a block and every `step`-th of some gallery rows."""
    scorer, seen = block.scorer, visibility_of(block)
    gallery = scorer.open_gallery(gallery_rows)
    query = scorer.meet(scorer.open_query(rows, gallery_rows), gallery)
    gallery = gallery.take(np.arange(0, len(gallery), step))
    place = np.arange(rows.start, rows.stop) - block.rows.start
    hidden = HiddenColumns(seen.hidden.take(place), seen.mask, gallery)
    bias, bias_of = hidden.bias(np.zeros(len(gallery)), RowRange(0, len(gallery)), np.arange(len(query)))
    counted = np.isfinite(bias)[bias_of] & seen.counted[place, None]
    counted[entry_owners(hidden.indptr), hidden.column] = False
    column, owner = np.nonzero(counted.T)
    return pair_distances(pair_rows(scorer.distance, query, gallery), owner, column)


def guesses_of_sample(levels: Sequence[Level], sample: Sample) -> Guesses:
    """Brackets that may contain levels; the first ones are narrower where memory for their impostors is short."""
    estimate = _Estimate(sample)
    for deviations in _DEVIATIONS:
        found = {level: estimate.bracket(level, deviations) for level in levels}
        if sum(map(estimate.n_inside, found.values())) <= sample.most_counts:
            break
    return {level: (bracket, estimate.bracket(level, _MOST_DEVIATIONS)) for level, bracket in found.items()}


class _Estimate:
    """Numbers of pairs at most at a distance, between bounds."""

    def __init__(self, sample: Sample) -> None:
        self._groups = [ordered_keys(group) for group in sample.groups if len(group)]
        self._key, count = np.unique(np.concatenate([np.empty(0, np.int64), *self._groups]), return_counts=True)
        # Sampled impostors nearer than each key.
        self._nearer = np.append(0, np.cumsum(count))
        self._n_impostor = sample.n_impostor
        # Impostors that a sampled one stands for.
        self._scale = sample.n_impostor / max(int(self._nearer[-1]), 1)
        self._genuine, self._shift = sample.genuine.key, sample.genuine.shift
        self._n_genuine = np.append(0, np.cumsum(sample.genuine.count))

    def n_inside(self, bracket: Range) -> float:
        """Number of impostors in a bracket."""
        near, far = self._nearer[np.searchsorted(self._key, bracket)].tolist()
        return float(far - near) * self._scale

    def bracket(self, level: Level, deviations: float) -> Range:
        """Keys between which a level is reached unless the error is larger than so many standard deviations."""
        middle = first_place(len(self._key), lambda at: level.reached(*self._bounds(at, 0.0)[1]))
        spread = self._spread(min(max(middle, _FEW_NEAREST), len(self._key) - 1)) if len(self._key) else 1.0
        least, most = deviations * math.sqrt(spread), deviations**2
        near = first_place(len(self._key), lambda at: level.reached(*self._bounds(at, least, most)[1]))
        far = first_place(len(self._key), lambda at: level.reached(*self._bounds(at, least)[0]))
        low = int(self._key[near - 1]) + 1 if near else EVERYTHING[0]
        high = int(self._key[far]) + 1 if far < len(self._key) else EVERYTHING[1]
        return low, max(high, low + 1)

    def _spread(self, at: int) -> float:
        """Variance of the number of impostors at most as far as a sampled one, over that of independent pairs."""
        found = np.array([np.count_nonzero(group <= self._key[at]) for group in self._groups], np.float64)
        sizes = np.array([len(group) for group in self._groups])
        rest = found - sizes * (found.sum() / sizes.sum())
        n_groups = len(found)
        # Of few groups the spread says little.
        return max(1.0, math.fsum(rest * rest) * n_groups / max(n_groups - 1, 1) / float(found.sum()))

    def _bounds(self, at: int, error: float, more: float = 0.0) -> tuple[tuple[int, int], tuple[int, int]]:
        """Fewest and most impostors and genuine pairs at most as far as a sampled impostor.

        `error` is that of the number 1, which grows with its root, and `more` are added to the most impostors.
        """
        number, key = int(self._nearer[at + 1]), self._key[at] >> self._shift
        off = error * math.sqrt(number)
        fewest = max(0, math.floor((number - off) * self._scale))
        most = min(self._n_impostor, math.ceil((number + off + more) * self._scale))
        far = int(np.searchsorted(self._genuine, key, "right"))
        # Genuine pairs of one key without its lowest bits may lie before the impostor or behind it.
        near = far if not self._shift else int(np.searchsorted(self._genuine, key, "left"))
        return (fewest, int(self._n_genuine[near])), (most, int(self._n_genuine[far]))
