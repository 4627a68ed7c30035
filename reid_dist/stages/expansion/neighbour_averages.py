"""Expansion of sets, step by step; averages of rows with their neighbours are a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.distances import DISTANCES
from reid_dist.errors import InputError
from reid_dist.kernels.exponential import similarity_weights
from reid_dist.kernels.normalising import add_rows, unit_rows
from reid_dist.stages.expansion.convolution import add_listed, convolve_sets, entries_of
from reid_dist.stages.expansion.expansion_steps import Convolution, Expansion, Step
from reid_dist.stages.expansion.learned_maps import map_sets
from reid_dist.stages.expansion.new_features import FeatureStage, NewSet, feature_blocks, new_sets
from reid_dist.stages.neighbours import Items, NeighbourLists, Resources, find_neighbours, find_top_lists
from reid_dist.stores import FeatureSet
from reid_dist.stores.labels import join_item_ids

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

COSINE = DISTANCES.get("cosine")


@dataclass(frozen=True)
class Averages(FeatureStage):
    """Averages of the rows of a set with their neighbours; `own_row` are gallery rows that are no neighbours."""

    kind: ClassVar[str] = "averages"

    lists: NeighbourLists
    step: Expansion
    own_row: Int64 | None

    def of_rows(self, rows: RowRange) -> Averages:
        """Without the own rows of other queries."""
        own_row = None if self.own_row is None else self.own_row[rows.start : rows.stop]
        return replace(self, own_row=own_row)

    def new_rows(self, rows: RowRange, listed: RowRange) -> NDArray[np.float32]:
        """Averages of a range of rows."""
        lists, unit = self.lists, self.step.method.unit
        index, distance = self._neighbours(listed)
        weight = similarity_weights(distance, self.step.alpha)
        own = np.arange(len(rows))
        total = np.zeros((len(rows), lists.items.dim))
        add_rows(total, own, own, np.ones(len(rows)), lists.items.read(listed).features, unit)
        add_listed(total, *entries_of(index, weight), lists.candidates, unit)
        new = unit_rows(total) if unit else total / (1 + np.count_nonzero(index >= 0, axis=1))[:, None]
        return new.astype(np.float32)

    def _neighbours(self, rows: RowRange) -> tuple[Int64, Float64]:
        """First `step.n_others` neighbours of some items, the item itself excluded, and their distances."""
        n_others = self.step.n_others
        index, distance = self.lists.others(rows)
        if self.own_row is None:
            return index[:, :n_others], distance[:, :n_others]
        # The query's own row is removed from any rank; a stable sort moves it last and keeps the order of the others.
        own_row = self.own_row[:, None]
        order = np.argsort(index == own_row, axis=1, kind="stable")[:, :n_others]
        kept = np.take_along_axis(index, order, 1)
        absent = kept == own_row
        return np.where(absent, -1, kept), np.where(absent, np.inf, np.take_along_axis(distance, order, 1))


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
    own_row = _own_rows(query, gallery) if step.include_self else None

    def averages(made: NewSet, lists: NeighbourLists) -> Averages:
        blocks = feature_blocks(made.features.n_rows, step.row_bytes(query.dim), where.n_threads)
        return Averages(blocks, made, query.n_rows if made.side else 0, (), lists, step, own_row)

    def listed(*sets: FeatureSet) -> NeighbourLists:
        return find_neighbours(Items(sets), COSINE, step.n_others + 1, where, farthest=False)

    if step.method.among_all:
        # If one set is given as both, rows have the same neighbours on both sides except for ties, and among tied
        # items each row precedes its copy: hence one store per side.
        both = [NewSet(features, (query, gallery), step, side) for side, features in enumerate((query, gallery))]
        query, gallery = new_sets(both, lambda: listed(query, gallery), averages, where)
    elif step.method.expands_gallery:
        (gallery,) = new_sets([NewSet(gallery, (gallery,), step)], lambda: listed(gallery), averages, where)
    else:
        wanted = NewSet(query, (query, gallery), step)
        (query,) = new_sets([wanted], lambda: find_top_lists(query, gallery, step.k, where), averages, where)
    return query, gallery


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
