"""Maps of features that are learned from gallery rows, of each camera or of all, or from a store of their own.

Statistics are sums over rows in float64.  Their order is that of the rows, cut every `SUMMED_ROWS` rows and
merged in a tree of these cuts, so that it depends on the set alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import first_few
from reid_dist.core.model import UNKNOWN_CAMERA, RowRange, cut_rows
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.normalising import add_products, eigenvectors_of, inverse_of, mapped_rows, unit_rows
from reid_dist.stages.expansion.expansion_steps import LearnedMap, Normalisation, Whitening
from reid_dist.stages.expansion.new_features import (
    UNKNOWN_APART,
    FeatureStage,
    NewSet,
    check_cameras,
    feature_blocks,
    new_sets,
)
from reid_dist.stages.parts import Blocks, Parts, PartStage, run
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet
from reid_dist.stores.labels import given_labels, joint_labels

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SUMMED_ROWS = 8192
"""Gallery rows whose sums are made by one task; statistics depend on it, as sums in float64 do on their order."""

# Bytes of the sums of outer products that a task makes at once.
_SUMS_BYTES = 128 << 20

# Group of the statistics over all gallery rows.
_ALL = -1

# Share of the largest variance below which a variance may be one of rounding.
_LEAST_VARIANCE = 1e-12

_NO_MATRIX = np.empty((0, 0), np.float64)


@dataclass(frozen=True)
class _Side:
    """Groups of the rows of one side, (n_rows,) int64: a camera's with statistics of its own, or `_ALL`.

    `few` are the cameras that take the statistics of all rows, as they were given; `rules` are those of `NewSet`.
    """

    groups: Int64
    few: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @classmethod
    def of(cls, features: FeatureSet, groups: Int64, rules: tuple[str, ...] = ()) -> _Side:
        """Find the cameras of the rows that take the statistics of all rows."""
        camids = joint_labels("camid", (features,))[0][groups == _ALL]
        unknown = (UNKNOWN_APART,) if (camids == UNKNOWN_CAMERA).any() else ()
        few = given_labels(np.unique(camids[camids != UNKNOWN_CAMERA]), features.camid_names)
        return cls(groups, tuple(map(str, few)), (*rules, *unknown))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on cameras without statistics of their own."""
        found = "normalised with all gallery rows, as too few are of their camera: cameras "
        notes = (found + first_few(self.few, 10),) if self.few else ()
        unknown = "normalised with all gallery rows: rows of unknown camera (-1)"
        return (*notes, unknown) if UNKNOWN_APART in self.rules else notes


def _sides(query: FeatureSet, gallery: FeatureSet, step: LearnedMap) -> tuple[Int64, tuple[_Side, _Side]]:
    """Cameras of the gallery with statistics of their own, and both sides; group i is that of camera i."""
    if isinstance(step, Whitening) or step.statistics == "all":
        near, far = (_Side(np.full(each.n_rows, _ALL, np.int64)) for each in (query, gallery))
        return np.empty(0, np.int64), (near, far)
    check_cameras(query, gallery, step, "takes statistics of each camera", "statistics=all)")
    own, joined = joint_labels("camid", (gallery,))[0], joint_labels("camid", (query, gallery))
    cameras, first, sizes = np.unique(own, return_index=True, return_counts=True)
    chosen = (sizes >= step.least_rows) & (cameras != UNKNOWN_CAMERA)
    # As both sides number them; in the gallery's own order, whatever the query set is.
    kinds = joined[1][first[chosen]]
    rules = () if query.camid_names == gallery.camid_names else ("cameras by name",)
    near, far = _Side.of(query, _places(kinds, joined[0]), rules), _Side.of(gallery, _places(kinds, joined[1]))
    return cameras[chosen], (near, far)


def _places(kinds: Int64, labels: Int64) -> Int64:
    """Place of every label among some, (n_rows,) int64; `_ALL` for others."""
    order = np.argsort(kinds)
    return np.append(order, _ALL)[places_among(kinds[order], labels)]


@dataclass(frozen=True)
class _Sums:
    """Sums over the rows of some groups: counts (n,) int64, sums (n, dim) and the upper triangles of products."""

    counts: Int64
    sums: Float64
    # Shape (n, dim, dim); (n, 0, 0) where only means are wanted.
    products: Float64


def sum_task(features: FeatureSet, rows: RowRange, own: Int64, wanted: Sequence[int], whitens: bool) -> _Sums:
    """Sums of some rows by the groups `wanted`; `own` are the groups of the rows."""
    units = unit_rows(read_only(features.read(rows.start, rows.stop)))
    dim = features.dim
    size = dim if whitens else 0
    found = _Sums(np.zeros(len(wanted), np.int64), np.zeros((len(wanted), dim)), np.zeros((len(wanted), size, size)))
    for place, group in enumerate(wanted):
        members = units if group == _ALL else np.ascontiguousarray(units[own == group])
        found.counts[place] = len(members)
        if whitens:
            add_products(members, found.sums[place], found.products[place])
        else:
            for row in members:
                found.sums[place] += row
    return found


def summed_together(dim: int, whitens: bool) -> int:
    """Groups whose sums are made by one task; each has a matrix of (dim, dim) where rows are whitened."""
    return max(1, _SUMS_BYTES // (8 * dim * (dim if whitens else 1)))


def merge_sums(found: Sequence[_Sums]) -> _Sums:
    """Add sums in the order given."""
    first, *others = found
    total = _Sums(first.counts.copy(), first.sums.copy(), first.products.copy())
    for each in others:
        total.counts[:] += each.counts
        total.sums[:] += each.sums
        total.products[:] += each.products
    return total


@dataclass(frozen=True)
class Statistics(PartStage):
    """Mean and matrix of every group, each a part, that of all rows last; without a matrix, rows are only centred.

    `wanted` are the groups to compute, and `own` is the group of every row.
    """

    kind: ClassVar[str] = "statistics"
    progress: ClassVar[str] = "statistics"

    features: FeatureSet
    step: LearnedMap
    cameras: tuple[int, ...]
    wanted: tuple[int, ...] = field(compare=False)
    own: Int64 = field(compare=False)

    def place(self, group: int) -> int:
        """Number of the part of a group."""
        return len(self.cameras) if group == _ALL else group

    def fill(self, parts: Parts, missing: Sequence[int], done: frozenset[str], where: Resources) -> None:
        """Sum the rows of the missing groups, some groups at a time, and solve for each."""
        left = [group for group in self.wanted if self.place(group) in set(missing)]
        together = summed_together(self.features.dim, self.step.whitens)
        graph, at = TaskGraph(), fingerprint(parts.stage.path)[:12]
        for first in range(0, len(left), together):
            wanted = left[first : first + together]
            leaves = [
                graph.add(
                    f"sums-{at}-{first}-{place}",
                    sum_task,
                    *(self.features, rows, self.own[rows.start : rows.stop], wanted, self.step.whitens),
                    stage=self.progress,
                )
                for place, rows in enumerate(cut_rows(self.features.n_rows, SUMMED_ROWS))
            ]
            total = graph.add_tree(f"merged-{at}-{first}", merge_sums, leaves=leaves)
            places = [self.place(group) for group in wanted]
            graph.finals.append(graph.add(f"solved-{at}-{first}", solve_task, parts, self.step, places, total))
        where.run(graph)


def solve_task(parts: Parts, step: LearnedMap, places: Sequence[int], found: _Sums) -> None:
    """Write mean and matrix of every group as the parts of these numbers."""
    for place, part in enumerate(places):
        n_rows, sums = int(found.counts[place]), found.sums[place]
        matrix = _NO_MATRIX
        if len(found.products[place]):
            products = found.products[place]
            if isinstance(step, Normalisation):
                matrix = _inverse(products, n_rows, step)
            else:
                matrix = _axes(products - np.multiply.outer(sums, sums) / n_rows, n_rows, step)
        parts.write(part, {"mean": sums / n_rows, "matrix": matrix})


def _inverse(products: Float64, n_rows: int, step: Normalisation) -> Float64:
    """Inverse of a sum of outer products plus ``n_rows * ridge`` on its diagonal; (dim, dim)."""
    regular = products.copy()
    regular[np.diag_indices_from(regular)] += n_rows * step.ridge
    return inverse_of(regular)


def _axes(centred: Float64, n_rows: int, step: Whitening) -> Float64:
    """Principal axes divided by the square roots of their variances, as columns: (dim, number of axes)."""
    variance, axis = eigenvectors_of(centred / n_rows)
    n_axes = _n_axes(step, len(centred))
    rank = int(np.count_nonzero(variance > _LEAST_VARIANCE * variance[-1]))
    if n_axes > rank:
        raise InputError(
            f"{step.name} projects on {n_axes} axes, and the {n_rows} rows that they are learned from vary only "
            f"along {rank}; use {step.name}(dim={max(1, rank)}) or less, or learn from more rows"
        )
    return np.ascontiguousarray((axis[::-1][:n_axes] / np.sqrt(variance[::-1][:n_axes])[:, None]).T)


def _n_axes(step: LearnedMap, dim: int) -> int:
    """Features of a mapped row."""
    return dim if isinstance(step, Normalisation) or step.dim == "all" else int(step.dim)


@dataclass(frozen=True)
class Mapped(FeatureStage):
    """Rows of a set mapped with the statistics of their groups, which are parts of these numbers."""

    kind: ClassVar[str] = "mapped"

    step: LearnedMap
    statistics: Parts
    groups: Int64

    @property
    def dim(self) -> int:
        """Features of a mapped row."""
        return _n_axes(self.step, self.made.features.dim)

    def of_rows(self, rows: RowRange) -> Mapped:
        """Without the groups of other rows."""
        return replace(self, groups=self.groups[rows.start : rows.stop])

    def new_rows(self, rows: RowRange, listed: RowRange) -> NDArray[np.float32]:
        """Map a range of rows."""
        units = unit_rows(read_only(self.made.features.read(rows.start, rows.stop)))
        new = np.empty((len(units), self.dim), np.float32)
        for group in np.unique(self.groups).tolist():
            known = self.statistics.block(group, "mean", "matrix")
            members = self.groups == group
            new[members] = mapped_rows(np.ascontiguousarray(units[members]), known["mean"], known["matrix"])
        return new


def map_sets(
    query: FeatureSet, gallery: FeatureSet, step: LearnedMap, where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Map both sets with statistics of the gallery, or of another store; finished stores are reused."""
    found, sides = _sides(query, gallery, step)
    learned, cameras = _learned_from(gallery, step), tuple(found.tolist())
    # Without groups by camera, the rows may be those of another store.
    own = sides[1].groups if cameras else np.full(learned.n_rows, _ALL, np.int64)
    needs_all = any((side.groups == _ALL).any() for side in sides)
    wanted = (*range(len(cameras)), *((_ALL,) if needs_all else ()))
    # The groups of all cameras, and then that of all rows.
    statistics = Statistics(Blocks(len(cameras) + 1, 1), learned, step, cameras, wanted, own)
    solved = cache(lambda: run(statistics, where))

    def mapped(made: NewSet, found: Parts, side: _Side) -> Mapped:
        blocks = feature_blocks(made.features.n_rows, step.row_bytes(query.dim), where.n_threads)
        places = np.where(side.groups == _ALL, len(cameras), side.groups)
        return Mapped(blocks, made, step, found, places)

    made: list[FeatureSet] = []
    for features, side in zip((query, gallery), sides, strict=True):
        new = NewSet(features, (features, learned), step, rules=side.rules, notes=side.notes)
        made += new_sets([new], solved, partial(mapped, side=side), where)
    return made[0], made[1]


def _learned_from(gallery: FeatureSet, step: LearnedMap) -> FeatureSet:
    """Rows that a map is learned from."""
    learned = gallery if isinstance(step, Normalisation) or step.on == "gallery" else FeatureSet.open(step.on)
    if learned.dim != gallery.dim:
        raise InputError(
            f"{step} learns from rows of {learned.dim} features, and those of the gallery have {gallery.dim}"
        )
    if (n_axes := _n_axes(step, gallery.dim)) > gallery.dim:
        raise InputError(
            f"{step} projects on {n_axes} axes, and rows have {gallery.dim} features; use {gallery.dim} or less"
        )
    return learned
