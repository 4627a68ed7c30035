"""Normalisation of features with statistics of gallery rows, of each camera or of all.

Statistics are sums over gallery rows in float64.  Their order is that of the rows, cut every `SUMMED_ROWS` rows and
merged in a tree of these cuts, so that it depends on the gallery alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import first_few
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.normalising import add_products, inverse_of, mapped_rows, unit_rows
from reid_dist.stages.expansion.definition import Normalisation
from reid_dist.stages.expansion.output import Output, RowWork
from reid_dist.stages.expansion.plan import SUMMED_ROWS, mapped_block_rows, summed_together
from reid_dist.stages.neighbours import Resources
from reid_dist.stores import FeatureSet, Stage

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Group of the statistics over all gallery rows.
_ALL = -1

_NO_MATRIX = np.empty((0, 0), np.float64)


@dataclass(frozen=True)
class _Groups:
    """Groups of rows with statistics of their own: a camera's rows, or all rows (`_ALL`).

    `wanted` are their numbers, and the camera of group i is ``cameras[i]``.  `few` are cameras of either side that take
    the statistics of all rows.
    """

    cameras: Int64
    wanted: tuple[int, ...]
    few: tuple[int, ...]

    @classmethod
    def of(cls, query: FeatureSet, gallery: FeatureSet, step: Normalisation) -> _Groups:
        """Choose the groups from the cameras of both sides."""
        if step.statistics == "all":
            return cls(np.empty(0, np.int64), (_ALL,), ())
        near, far = (_cameras(features, side, step) for features, side in ((query, "query"), (gallery, "gallery")))
        cameras, sizes = np.unique(far, return_counts=True)
        cameras = cameras[sizes >= step.least_rows]
        few = tuple(np.setdiff1d(np.concatenate([near, far]), cameras).tolist())
        return cls(cameras, (*range(len(cameras)), *((_ALL,) if few else ())), few)

    def of_rows(self, features: FeatureSet) -> Int64:
        """Group of every row, (n_rows,) int64."""
        if features.camids is None or not len(self.cameras):
            return np.full(features.n_rows, _ALL, np.int64)
        place = np.minimum(np.searchsorted(self.cameras, features.camids), len(self.cameras) - 1)
        return np.where(self.cameras[place] == features.camids, place, _ALL)


def _cameras(features: FeatureSet, side: str, step: Normalisation) -> Int64:
    """Cameras of a side, (n_rows,) int64."""
    if features.camids is None:
        raise InputError(
            f"{step.name} takes statistics of each camera, and the {side} set has no cameras; ingest it with camera "
            f"labels, or use {step.name}(statistics=all)"
        )
    return features.camids


@dataclass(frozen=True)
class _Sums:
    """Sums over the rows of some groups: counts (n,) int64, sums (n, dim) and the upper triangles of products."""

    counts: Int64
    sums: Float64
    # Shape (n, dim, dim); (n, 0, 0) where only means are wanted.
    products: Float64


def sum_task(gallery: FeatureSet, rows: RowRange, own: Int64, wanted: Sequence[int], whitens: bool) -> _Sums:
    """Sums of some gallery rows by the groups `wanted`; `own` are the groups of the rows."""
    units = unit_rows(read_only(gallery.read(rows.start, rows.stop)))
    dim = gallery.dim
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


def solve_task(stage: Stage, step: Normalisation, wanted: Sequence[int], found: _Sums) -> None:
    """Write mean and matrix of every group to the stage; the matrix is empty where rows are only centred."""
    for place, group in enumerate(wanted):
        n_rows, sums = int(found.counts[place]), found.sums[place]
        matrix = _NO_MATRIX
        if step.operation == "whiten":
            centred = found.products[place] - np.multiply.outer(sums, sums) / n_rows
            centred[np.diag_indices_from(centred)] += n_rows * step.ridge
            matrix = inverse_of(centred)
        stage.write(_part(group), {"mean": sums / n_rows, "matrix": matrix})


def _part(group: int) -> str:
    return "group-all" if group == _ALL else f"group-{group:05d}"


@dataclass(frozen=True)
class _Mapping(RowWork):
    """Mapping of the rows of one set with the statistics of their groups."""

    statistics: Stage
    features: FeatureSet
    few: tuple[int, ...]

    @property
    def notes(self) -> list[str]:
        """Cameras that have no statistics of their own."""
        if not self.few:
            return []
        cameras = first_few([*map(str, self.few)], 10)
        return [f"normalised with all gallery rows, as too few are of their camera: cameras {cameras}"]


def map_task(mapping: _Mapping, block: int, own: Int64) -> None:
    """Map a block of rows, whose groups are `own`, and write it to the stage."""
    rows = mapping.rows(block)
    units = unit_rows(read_only(mapping.features.read(rows.start, rows.stop)))
    new = np.empty(units.shape, np.float32)
    for group in np.unique(own).tolist():
        known = mapping.statistics.read(_part(group), "mean", "matrix")
        members = own == group
        new[members] = mapped_rows(np.ascontiguousarray(units[members]), known["mean"], known["matrix"])
    mapping.stage.write(mapping.part(block), {"features": new})


def normalise_sets(
    query: FeatureSet, gallery: FeatureSet, step: Normalisation, where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Normalise both sets with statistics of the gallery; finished stores are reused."""
    groups = _Groups.of(query, gallery, step)
    outputs = [Output(features, (features, gallery), step, where) for features in (query, gallery)]
    statistics: Stage | None = None
    made = []
    for output in outputs:
        ready = output.ready()
        if ready is None:
            statistics = statistics or _statistics(gallery, step, groups, where)
            ready = _mapped(output, statistics, groups)
        made.append(ready)
    return made[0], made[1]


def _mapped(output: Output, statistics: Stage, groups: _Groups) -> FeatureSet:
    features = output.features

    def work_in(stage: Stage, block_rows: int) -> RowWork:
        return _Mapping(stage, features.n_rows, block_rows, statistics, features, groups.few)

    block_rows = mapped_block_rows(features.n_rows, features.dim, output.where.n_threads)
    return output.made("normalised", work_in, block_rows, map_task, groups.of_rows(features))


def _statistics(gallery: FeatureSet, step: Normalisation, groups: _Groups, where: Resources) -> Stage:
    """Stage with the statistics of every group; finished ones are reused."""
    identity = fingerprint(gallery.content_digest, step, groups.cameras.tolist())
    stage = where.workspace.stage("statistics", identity, {"recipe": str(step), "cameras": groups.cameras.tolist()})
    left = [group for group in groups.wanted if not stage.has(_part(group))]
    whitens, own = step.operation == "whiten", groups.of_rows(gallery)
    together = summed_together(gallery.dim, whitens)
    graph, at = TaskGraph(), fingerprint(stage.path)[:12]
    for first in range(0, len(left), together):
        wanted = left[first : first + together]
        leaves = [
            graph.add(
                f"sums-{at}-{first}-{place}",
                sum_task,
                *(gallery, rows, own[rows.start : rows.stop], wanted, whitens),
                stage="statistics",
            )
            for place, rows in enumerate(cut_rows(gallery.n_rows, SUMMED_ROWS))
        ]
        total = graph.add_tree(f"merged-{at}-{first}", merge_sums, leaves=leaves)
        graph.finals.append(graph.add(f"solved-{at}-{first}", solve_task, stage, step, wanted, total))
    where.run(graph)
    return stage
