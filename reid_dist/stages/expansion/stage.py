"""Stages of an expansion: neighbour lists, then averages by blocks of rows, written to new stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import DISTANCES
from reid_dist.errors import InputError
from reid_dist.kernels.exponential import similarity_weights
from reid_dist.kernels.normalising import add_rows, unit_rows
from reid_dist.stages.expansion.convolution import add_listed, convolve_sets, entries_of
from reid_dist.stages.expansion.definition import Convolution, Expansion, Step
from reid_dist.stages.expansion.learned_maps import map_sets
from reid_dist.stages.expansion.output import Output, RowWork
from reid_dist.stages.expansion.plan import averaged_rows
from reid_dist.stages.neighbours import Items, NeighbourLists, Resources, find_neighbours, find_top_lists
from reid_dist.stores import FeatureSet
from reid_dist.stores.labels import join_item_ids

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

COSINE = DISTANCES.get("cosine")


@dataclass(frozen=True)
class _Averaging(RowWork):
    """Averaging of the rows of one set with their neighbours.

    `first` is the number of the set's first row in the lists.
    """

    lists: NeighbourLists
    first: int
    step: Expansion

    def neighbours(self, rows: RowRange, own_row: Int64 | None) -> tuple[Int64, Float64]:
        """First `step.n_others` neighbours of some rows, the item itself excluded, and their distances."""
        n_others = self.step.n_others
        index, distance = self.lists.others(rows)
        if own_row is None:
            return index[:, :n_others], distance[:, :n_others]
        # The query's own row is removed from any rank; a stable sort moves it last and keeps the order of the others.
        order = np.argsort(index == own_row[:, None], axis=1, kind="stable")[:, :n_others]
        kept = np.take_along_axis(index, order, 1)
        absent = kept == own_row[:, None]
        return np.where(absent, -1, kept), np.where(absent, np.inf, np.take_along_axis(distance, order, 1))


def average_task(averaging: _Averaging, block: int, own_row: Int64 | None) -> None:
    """Average a block of rows with their neighbours and write the result to the stage."""
    rows = averaging.rows(block)
    listed = RowRange(averaging.first + rows.start, averaging.first + rows.stop)
    index, distance = averaging.neighbours(listed, own_row)
    lists, unit = averaging.lists, averaging.step.method.unit
    weight = similarity_weights(distance, averaging.step.alpha)
    with one_blas_thread():
        own = np.arange(len(rows))
        total = np.zeros((len(rows), lists.items.dim))
        add_rows(total, own, own, np.ones(len(rows)), lists.items.read(listed).features, unit)
        add_listed(total, *entries_of(index, weight), lists.candidates, unit)
        new = unit_rows(total) if unit else total / (1 + np.count_nonzero(index >= 0, axis=1))[:, None]
    averaging.stage.write(averaging.part(block), {"features": new.astype(np.float32)})


def expand_sets(
    query: FeatureSet, gallery: FeatureSet, steps: Sequence[Step], where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Apply expansion steps in order, from left to right; finished stores of equal recipe and features are reused.

    Returns stored sets with new features and the original labels; a side that no step changes is returned unchanged.
    Raises `InputError` if `include_self` is set and items have no ids, or no query is in the gallery by item id.
    """
    if any(isinstance(step, Expansion) and step.include_self and not step.changes_nothing for step in steps):
        # Refused before the first step; steps keep item ids.
        _own_rows(query, gallery)
    for step in steps:
        for _ in range(step.times):
            query, gallery = _expand(query, gallery, step, where)
    return query, gallery


def _expand(query: FeatureSet, gallery: FeatureSet, step: Step, where: Resources) -> tuple[FeatureSet, FeatureSet]:
    if isinstance(step, Convolution):
        return convolve_sets(query, gallery, step, where)
    if not isinstance(step, Expansion):
        return map_sets(query, gallery, step, where)
    if step.changes_nothing:
        return query, gallery
    if step.method.among_all:
        # If one set is given as both, rows have the same neighbours on both sides except for ties, and among tied
        # items each row precedes its copy: hence one store per side.
        both = query, gallery
        outputs = [Output(features, both, step, where, side) for side, features in enumerate(both)]
        near, far = (output.ready() for output in outputs)
        if near is not None and far is not None:
            return near, far
        lists = find_neighbours(Items(both), COSINE, step.n_others + 1, where, farthest=False)
        return _averaged(outputs[0], step, lists), _averaged(outputs[1], step, lists, first=query.n_rows)
    if step.method.expands_gallery:
        output = Output(gallery, (gallery,), step, where)
        ready = output.ready()
        if ready is None:
            lists = find_neighbours(Items((gallery,)), COSINE, step.n_others + 1, where, farthest=False)
            ready = _averaged(output, step, lists)
        return query, ready
    output = Output(query, (query, gallery), step, where)
    ready = output.ready()
    if ready is None:
        own_row = _own_rows(query, gallery) if step.include_self else None
        ready = _averaged(output, step, find_top_lists(query, gallery, step.k, where), own_row=own_row)
    return ready, gallery


def _averaged(
    output: Output, step: Expansion, lists: NeighbourLists, *, first: int = 0, own_row: Int64 | None = None
) -> FeatureSet:
    """Average all rows of a set, listed from item `first`; `own_row` are gallery rows that are no neighbours."""
    features = output.features
    block_rows = averaged_rows(features.n_rows, features.dim, step, output.where.n_threads)
    return output.made("averages", _Averaging, (lists, first, step), block_rows, average_task, own_row)


def _own_rows(query: FeatureSet, gallery: FeatureSet) -> Int64:
    """Gallery row of each query by item id, shape (n_queries,), int64; -1 for none."""
    if query.item_ids is None or gallery.item_ids is None:
        raise InputError(
            "include_self finds queries in the gallery by item id, and one of the sets has none; ingest both with "
            "item ids, or leave include_self out"
        )
    wanted, ids = join_item_ids(query.item_ids, gallery.item_ids)
    order = np.argsort(ids, kind="stable")
    own_row = np.append(order, -1)[places_among(ids[order], wanted)]
    if (own_row < 0).all():
        raise InputError(
            f"include_self finds queries in the gallery by item id, and none of the {query.n_rows} item ids of the "
            "query set is there: own rows would count as neighbours; give an image the same item id on both sides, or "
            "leave include_self out if no query is a gallery row"
        )
    return own_row
