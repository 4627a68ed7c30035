r"""Brackets around levels that are known before the tiles, from a histogram of a sample of pairs.

*The sample* consists of groups: some queries, every so many of the set, with every so many of some gallery rows in a
row.  Rows of an identity or of a camera are often neighbours and alike: few of them are in one group.  Queries differ
more than anything else, and each is in two groups, so that all count alike; the difference of the two, which does not
depend on how queries differ, gives the error of the sample.  Which rows these are follows from the numbers of rows
alone.

*A bracket* holds the distances at which a level may be reached, given that the true number of impostors at a distance
or nearer differs from the estimate by at most some standard deviations.  Between the edges of a bin of the histogram,
impostors are taken to be spread evenly, unless a bin beside it is empty: its distances may all be equal.

*The size* of the sample balances the time that it takes with that of the pairs in brackets, whose distances are
computed one by one: their number falls with the root of that of sampled pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.outputs.impostor_distances import ImpostorBrackets, visibility_of
from reid_dist.engine.outputs.output import JobSizes, QueryBlock
from reid_dist.engine.plan import DEFAULT_TILE, ExtraMemory
from reid_dist.engine.reductions.impostor_counts import CountImpostors
from reid_dist.engine.reductions.key_counts import KeyCounts, ScreenScale, add_key_counts, ordered_keys
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.engine.verification.crossings import END, Level, edges_of
from reid_dist.engine.verification.measures import wanted_levels
from reid_dist.kernels.impostors import falling_keys, key_edges
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.metrics.metric import parse_metrics

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Groups of pairs, one and another half of which share their queries, and stretches of gallery rows, each of which is
# read for some groups.
_N_GROUPS, _N_STRETCHES = 16, 4
_HALF = _N_GROUPS // 2
# Pairs of the sample: so many times the two thirds' power of the number of all pairs, each counted with the standard
# deviations of the levels, within limits.
_SAMPLED = 12.0
_FEWEST_PAIRS, _MOST_SHARE = 2**14, 1 / 16
# Bytes of the gallery rows that are in memory at once, with what queries hold for them.
_READ_BYTES = 2**25
# Gallery rows that are read for a sampled one.
_MOST_STEP = 8
# Share of false accepts that an equal error rate is taken for, as long as nothing is known.
_USUAL_ERROR_RATE = 0.1
_SEED = 0

# Standard deviations of the error that brackets allow for, the most that memory has room for.
_DEVIATIONS = (3.5, 3.0, 2.5, 2.0)
# Fewer sampled impostors say little about how much groups differ.
_FEW_NEAREST = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """Impostors of some groups of pairs, and the pairs that these stand for."""

    # Counts of each group by key of the falling value; see `reid_dist.kernels.impostors`.
    groups: tuple[KeyCounts, ...]
    # The same of all genuine pairs.
    genuine: KeyCounts
    # Number of all impostors.
    n_impostor: int
    # Maximal counts of distances in a partial result.
    most_counts: int
    scale: ScreenScale


def join_samples(blocks: Sequence[Sample]) -> Sample:
    """Join the samples of all blocks of queries."""
    groups = zip(*(block.groups for block in blocks), strict=True)
    return replace(
        blocks[0],
        groups=tuple(map(add_key_counts, groups)),
        genuine=add_key_counts([block.genuine for block in blocks]),
        n_impostor=sum(block.n_impostor for block in blocks),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of both sides, of which all pairs are sampled: queries, and places in a stretch of gallery rows; int64."""

    queries: Int64
    stretch: RowRange
    places: Int64


def sampled_groups(n_query: int, n_gallery: int, levels: Sequence[Level]) -> list[Group]:
    """All groups of the sample; those of a stretch follow each other."""
    n_pairs = n_query * n_gallery
    shares = np.array([_USUAL_ERROR_RATE if each.per_genuine else each.wanted / n_pairs for each in levels])
    error = float(np.sqrt(shares * np.maximum(1.0 - shares, 0.0)).sum())
    most = max(_MOST_SHARE * n_pairs, _FEWEST_PAIRS)
    wanted = int(min(max(_SAMPLED * (error * n_pairs) ** (2 / 3), _FEWEST_PAIRS), most)) // _N_GROUPS
    near = min(math.isqrt(wanted), max(1, n_query // _HALF))
    far = min(wanted // near, max(1, n_gallery // _N_GROUPS))
    near = min(wanted // far, max(1, n_query // _HALF))
    stride, step = n_query // near, max(1, min(n_gallery // (_N_STRETCHES * far), _MOST_STEP))
    bounds = np.arange(_N_STRETCHES + 1) * (n_gallery - far * step + 1) // _N_STRETCHES
    places = np.maximum(np.diff(bounds), 1).astype(np.uint64)
    starts = bounds[:-1] + (stream_outputs(_SEED, np.arange(_N_STRETCHES)) % places).astype(np.int64)
    return [
        Group(
            np.arange(group % _HALF * stride // _HALF, n_query, stride)[:near],
            RowRange(start, start + far * step),
            np.arange(group % step, far * step, step),
        )
        for group, start in enumerate(np.repeat(starts, _N_GROUPS // _N_STRETCHES).tolist())
    ]


def sample_block(block: QueryBlock, n_query: int, levels: Sequence[Level]) -> Sample:
    """Sampled pairs of a block of the `n_query` queries of the job; `levels` are those expected."""
    seen, items, scorer = visibility_of(block), block.thresholds.items, block.scorer
    groups, scale = sampled_groups(n_query, block.labels.index.n_gallery, levels), scorer.falling_scale
    counts = [[KeyCounts.of(np.empty(0, np.int64))] for _ in groups]
    bytes_per_row = 4 * scorer.shapes[1].dim + len(block.rows) * scorer.bytes_per_pair
    for stretch, those in itertools.groupby(enumerate(groups), lambda numbered: numbered[1].stretch):
        of_stretch = list(those)
        for cut in cut_rows(len(stretch), max(1, _READ_BYTES // bytes_per_row)):
            here = RowRange(stretch.start + cut.start, stretch.start + cut.stop)
            gallery = scorer.open_gallery(here)
            query = scorer.meet(scorer.open_query(block.rows, here), gallery)
            for number, group in of_stretch:
                near, far = _within(group.queries, block.rows), _within(group.places, cut)
                if len(near) and len(far):
                    impostors = CountImpostors(replace(seen, hidden=seen.hidden.take(near), counted=seen.counted[near]))
                    rows = query.take(near), gallery.take(far)
                    counts[number] += run_tiles(*rows, scorer.distance, DEFAULT_TILE, [impostors])
    n_impostor = int((block.relevance.n_kept - np.diff(block.relevance.relevant_indptr))[seen.counted].sum())
    genuine = np.repeat(scale.falling(items.distance), np.diff(items.positive_start))
    groups_found = tuple(map(add_key_counts, counts))
    return Sample(groups_found, KeyCounts.of(falling_keys(genuine)), n_impostor, block.bracket_counts, scale)


def _within(places: Int64, rows: RowRange) -> Int64:
    """Places in a range of rows, from its start."""
    return places[(places >= rows.start) & (places < rows.stop)] - rows.start


def edges_of_sample(levels: Sequence[Level], sample: Sample) -> tuple[float, ...]:
    """Edges of brackets that may contain levels, as of `reid_dist.engine.reductions.impostor_counts.CollectImpostors`.

    They are narrower where memory for the impostors in them is short.
    """
    bins = _Bins(sample)
    of_all = [bins.brackets(levels, deviations) for deviations in _DEVIATIONS]
    # Where no others fit, the widest ones leave the fewest levels to find in another pass.
    falling = next((each for each in of_all if bins.n_inside(each) <= sample.most_counts), of_all[0])
    keys = ordered_keys(sample.scale.distance(falling))
    return edges_of((min(low, END - 1), min(max(low, high) + 1, END)) for low, high in keys.tolist())


class _Bins:
    """Numbers of pairs at most at a falling value, between bounds: at the edges of the bins of a histogram."""

    def __init__(self, sample: Sample) -> None:
        keys = np.unique(np.concatenate([each.key for each in (*sample.groups, sample.genuine)]))
        largest = float(np.finfo(np.float32).max)
        self._low, self._high = (np.clip(edges, -largest, largest) for edges in key_edges(keys))
        of_groups = np.array([_up_to(group, keys) for group in sample.groups])
        found = of_groups.sum(axis=0)
        size = float(found[-1])
        # Impostors that a sampled one stands for.
        scale = sample.n_impostor / max(size, 1.0)
        self._n_impostor, self._scale, self._found = sample.n_impostor, scale, found
        self._genuine = _up_to(sample.genuine, keys)
        self._share = found / max(size, 1.0)
        # Variance of the number of sampled impostors: of independent pairs, and of groups, if that is larger.
        alone = found * (1.0 - self._share)
        rest = of_groups - np.outer(of_groups[:, -1], self._share)
        between = rest[: len(rest) // 2] - rest[len(rest) // 2 :]
        ratio = (between * between).sum(axis=0) / np.maximum(alone, 1.0)
        few = min(int(np.searchsorted(found, _FEW_NEAREST)), len(found) - 1)
        ratio[:few] = ratio[few]
        self._variance = alone * np.maximum(ratio, 1.0)
        gap = np.diff(keys) > 1
        self._is_lonely = np.append(gap, True) | np.append(True, gap)

    def n_inside(self, brackets: Float64) -> float:
        """Number of impostors in brackets of falling values, shape (n, 2)."""
        ends = np.interp(brackets, self._high, self._found)
        return float((ends[:, 1] - ends[:, 0]).sum()) * self._scale

    def brackets(self, levels: Sequence[Level], deviations: float) -> Float64:
        """Falling values, (n_level, 2), between which levels are reached unless errors are larger than that."""
        off, few = deviations * np.sqrt(self._variance), deviations**2
        most = (self._found + off + few * (1.0 - self._share)) * self._scale
        fewest = (self._found - off - few * self._share) * self._scale
        most, fewest = (
            np.concatenate([[start], np.clip(np.maximum.accumulate(each), 0, self._n_impostor)])
            for each, start in ((most, min(few * self._scale, self._n_impostor)), (fewest, 0.0))
        )
        nearest = np.stack([self._low, np.where(self._is_lonely, self._low, self._high)], axis=1).ravel()
        farthest = np.stack([np.where(self._is_lonely, self._high, self._low), self._high], axis=1).ravel()
        # Of the genuine pairs in a bin, all or none may be as near as any impostor in it.
        before = np.append(0, self._genuine[:-1])
        found = np.empty((len(levels), 2))
        for place, level in enumerate(levels):
            reached = level.per_impostor * np.stack([most[:-1], most[1:]], axis=1)
            reached += level.per_genuine * self._genuine[:, None]
            # Half a pair less, so that it is the first place of several at which the number is reached.
            found[place, 0] = np.interp(level.wanted - level.per_impostor / 2, reached.ravel(), nearest, left=-np.inf)
            passed = level.per_impostor * np.stack([fewest[:-1], fewest[1:]], axis=1)
            passed += level.per_genuine * before[:, None]
            found[place, 1] = np.interp(level.wanted, passed.ravel(), farthest, right=np.inf)
        return found


def _up_to(counts: KeyCounts, keys: Int64) -> Float64:
    """Sum of counts up to each of some keys, which include theirs, shape (n,)."""
    return np.cumsum(np.bincount(np.searchsorted(keys, counts.key), counts.count, len(keys)))


@dataclass(frozen=True)
class LevelBrackets(ImpostorBrackets):
    """Exact counts of impostors around the levels of metrics over pairs, and of the ROC."""

    reads_thresholds: ClassVar[bool] = True
    prepares: ClassVar[bool] = True

    # Names of the metrics.
    names: tuple[str, ...] = ()
    roc: bool = False

    def _levels(self, n_genuine: int, n_impostor: int) -> list[Level]:
        return wanted_levels(parse_metrics(self.names), self.roc, n_genuine, n_impostor)

    def summary(self, block: QueryBlock) -> Sample:
        """Sampled distances of impostors, and the numbers of pairs."""
        n_query = len(block.labels.query.pids)
        return sample_block(block, n_query, self._levels(1, n_query * block.labels.index.n_gallery))

    def prepared(self, summaries: Sequence[Sample]) -> Self:
        """Brackets around all levels; none without genuine pairs or impostors, which is refused later."""
        sample = join_samples(summaries)
        n_genuine, n_impostor = sample.genuine.total, sample.n_impostor
        if not n_genuine or not n_impostor:
            return self
        return replace(self, edges=edges_of_sample(self._levels(n_genuine, n_impostor), sample) or self.edges)

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Counts."""
        return super().extra_memory(sizes) + ExtraMemory(prepares=True)
