"""Maps of features that are learned from gallery rows, of each camera or of all, or from a store of their own.

Statistics are sums over rows in float64.  Their order is that of the rows, cut every `SUMMED_ROWS` rows and
merged in a tree of these cuts, so that it depends on the set alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import first_few
from reid_dist.core.model import UNKNOWN_CAMERA, RowRange, cut_rows
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.checks import check_excluded
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.normalising import add_products, eigenvectors_of, inverse_of, mapped_rows, unit_rows
from reid_dist.stages.expansion.definition import LearnedMap, Normalisation, Whitening
from reid_dist.stages.expansion.output import UNKNOWN_APART, Output, RowWork
from reid_dist.stages.expansion.plan import SUMMED_ROWS, mapped_block_rows, summed_together
from reid_dist.stages.neighbours import Resources
from reid_dist.stores import FeatureSet, Stage
from reid_dist.stores.labelled import joint_labels
from reid_dist.stores.labels import given_labels

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Group of the statistics over all gallery rows.
_ALL = -1

# Share of the largest variance below which a variance may be one of rounding.
_LEAST_VARIANCE = 1e-12

_NO_MATRIX = np.empty((0, 0), np.float64)


@dataclass(frozen=True)
class _Groups:
    """Groups of rows with statistics of their own: a camera's rows, or all rows (`_ALL`).

    `wanted` are their numbers; group i is that of the gallery's camera ``cameras[i]``.  `sides` are query and gallery.
    """

    cameras: Int64
    wanted: tuple[int, ...]
    sides: tuple[_Side, _Side]

    @classmethod
    def of(cls, query: FeatureSet, gallery: FeatureSet, step: LearnedMap) -> _Groups:
        """Choose the groups from the cameras of both sides."""
        if isinstance(step, Whitening) or step.statistics == "all":
            near, far = (_Side(np.full(each.n_rows, _ALL, np.int64)) for each in (query, gallery))
            return cls(np.empty(0, np.int64), (_ALL,), (near, far))
        _check_cameras(query, gallery, step)
        own, joined = joint_labels("camid", (gallery,))[0], joint_labels("camid", (query, gallery))
        cameras, first, sizes = np.unique(own, return_index=True, return_counts=True)
        chosen = (sizes >= step.least_rows) & (cameras != UNKNOWN_CAMERA)
        # As both sides number them; in the gallery's own order, whatever the query set is.
        kinds = joined[1][first[chosen]]
        rules = () if query.camid_names == gallery.camid_names else ("cameras by name",)
        near = _Side.of(query, _places(kinds, joined[0]), rules)
        far = _Side.of(gallery, _places(kinds, joined[1]))
        every = np.concatenate([near.groups, far.groups])
        return cls(cameras[chosen], (*range(len(kinds)), *((_ALL,) if (every == _ALL).any() else ())), (near, far))


@dataclass(frozen=True)
class _Side:
    """Groups of the rows of one side, (n_rows,) int64, with the cameras that take the statistics of all rows.

    `few` are those cameras as they were given; `rules` are of `Output`.
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


def _places(kinds: Int64, labels: Int64) -> Int64:
    """Place of every label among some, (n_rows,) int64; `_ALL` for others."""
    order = np.argsort(kinds)
    return np.append(order, _ALL)[places_among(kinds[order], labels)]


def _check_cameras(query: FeatureSet, gallery: FeatureSet, step: Normalisation) -> None:
    for features, side in ((query, "query"), (gallery, "gallery")):
        if features.camids is None:
            raise InputError(
                f"{step.name} takes statistics of each camera, and the {side} set has no cameras; ingest it with "
                f"camera labels, or use {step.name}(statistics=all)"
            )
    check_excluded("camid", query, gallery)


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


def merge_sums(found: Sequence[_Sums]) -> _Sums:
    """Add sums in the order given."""
    first, *others = found
    total = _Sums(first.counts.copy(), first.sums.copy(), first.products.copy())
    for each in others:
        total.counts[:] += each.counts
        total.sums[:] += each.sums
        total.products[:] += each.products
    return total


def solve_task(stage: Stage, step: LearnedMap, wanted: Sequence[int], found: _Sums) -> None:
    """Write mean and matrix of every group to the stage; a matrix without rows where rows are only centred."""
    for place, group in enumerate(wanted):
        n_rows, sums = int(found.counts[place]), found.sums[place]
        matrix = _NO_MATRIX
        if len(found.products[place]):
            products = found.products[place]
            if isinstance(step, Normalisation):
                matrix = _inverse(products, n_rows, step)
            else:
                matrix = _axes(products - np.multiply.outer(sums, sums) / n_rows, n_rows, step)
        stage.write(_part(group), {"mean": sums / n_rows, "matrix": matrix})


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
            f"{step.name} projects on {n_axes} axes, and the {n_rows} rows that they are learned from vary along "
            f"{rank} alone; use {step.name}(dim={max(1, rank)}) or less, or learn from more rows"
        )
    return np.ascontiguousarray((axis[::-1][:n_axes] / np.sqrt(variance[::-1][:n_axes])[:, None]).T)


def _n_axes(step: LearnedMap, dim: int) -> int:
    """Features of a mapped row."""
    return dim if isinstance(step, Normalisation) or step.dim == "all" else int(step.dim)


def _part(group: int) -> str:
    return "group-all" if group == _ALL else f"group-{group:05d}"


@dataclass(frozen=True)
class _Mapping(RowWork):
    """Mapping of the rows of one set with the statistics of their groups."""

    statistics: Stage
    features: FeatureSet
    dim: int
    made: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """Cameras that have no statistics of their own."""
        return list(self.made)


def map_task(mapping: _Mapping, block: int, own: Int64) -> None:
    """Map a block of rows, whose groups are `own`, and write it to the stage."""
    rows = mapping.rows(block)
    units = unit_rows(read_only(mapping.features.read(rows.start, rows.stop)))
    new = np.empty((len(units), mapping.dim), np.float32)
    for group in np.unique(own).tolist():
        known = mapping.statistics.read(_part(group), "mean", "matrix")
        members = own == group
        new[members] = mapped_rows(np.ascontiguousarray(units[members]), known["mean"], known["matrix"])
    mapping.stage.write(mapping.part(block), {"features": new})


def map_sets(
    query: FeatureSet, gallery: FeatureSet, step: LearnedMap, where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Map both sets with statistics of the gallery, or of another store; finished stores are reused."""
    groups, learned = _Groups.of(query, gallery, step), _learned_from(gallery, step)
    statistics: Stage | None = None
    made = []
    for features, side in zip((query, gallery), groups.sides, strict=True):
        output = Output(features, (features, learned), step, where, rules=side.rules)
        ready = output.ready()
        if ready is None:
            statistics = statistics or _statistics(learned, step, groups, where)
            ready = _mapped(output, step, statistics, side)
        made.append(ready)
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


def _mapped(output: Output, step: LearnedMap, statistics: Stage, side: _Side) -> FeatureSet:
    features = output.features
    dim = _n_axes(step, features.dim)
    block_rows = mapped_block_rows(features.n_rows, features.dim, output.where.n_threads)
    more = (statistics, features, dim, side.notes)
    return output.made("mapped", _Mapping, more, block_rows, map_task, side.groups, dim)


def _statistics(features: FeatureSet, step: LearnedMap, groups: _Groups, where: Resources) -> Stage:
    """Stage with the statistics of every group; finished ones are reused."""
    identity = fingerprint(features.content_digest, step, groups.cameras.tolist())
    stage = where.workspace.stage("statistics", identity, {"recipe": str(step), "cameras": groups.cameras.tolist()})
    left = [group for group in groups.wanted if not stage.has(_part(group))]
    whitens = not (isinstance(step, Normalisation) and step.operation == "centre")
    # Without groups by camera, the rows may be those of another store.
    own = groups.sides[1].groups if len(groups.cameras) else np.full(features.n_rows, _ALL, np.int64)
    together = summed_together(features.dim, whitens)
    graph, at = TaskGraph(), fingerprint(stage.path)[:12]
    for first in range(0, len(left), together):
        wanted = left[first : first + together]
        leaves = [
            graph.add(
                f"sums-{at}-{first}-{place}",
                sum_task,
                *(features, rows, own[rows.start : rows.stop], wanted, whitens),
                stage="statistics",
            )
            for place, rows in enumerate(cut_rows(features.n_rows, SUMMED_ROWS))
        ]
        total = graph.add_tree(f"merged-{at}-{first}", merge_sums, leaves=leaves)
        graph.finals.append(graph.add(f"solved-{at}-{first}", solve_task, stage, step, wanted, total))
    where.run(graph)
    return stage
