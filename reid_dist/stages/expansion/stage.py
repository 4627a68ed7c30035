"""Stages of an expansion: neighbour lists, then averages by blocks of rows, written to new stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.task_graph import TaskGraph, execute
from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    InputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from reid_dist.kernels.averaging import average_rows, similarity_weights
from reid_dist.stages.expansion.definition import Expansion
from reid_dist.stages.neighbours import BlockedLists, Items, Resources, find_neighbours, find_top_lists
from reid_dist.stores import FeatureSet, FeatureWriter, Stage
from reid_dist.stores.labels import join_item_ids
from reid_dist.stores.locations import remove
from reid_dist.stores.stored import open_stored

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

COSINE = DISTANCES.get("cosine")

# Bytes of neighbour features that a task reads at once.
_GATHERED_BYTES = 128 << 20
_MOST_ROWS = 8192


@dataclass(frozen=True)
class _Averaging:
    """Averaging of the rows of one set with their neighbours.

    Attributes
    ----------
    stage
        Stage of the workspace that keeps the new rows.
    items
        Averaged items, and candidate neighbours; identical where items are compared among themselves.
    among
        See `items`.
    lists
        Neighbour lists.
    first
        Number of the set's first row in the lists.
    step
        Expansion step.
    n_rows, block_rows
        Number of rows, in total and in a block.
    """

    stage: Stage
    items: Items
    among: Items
    lists: BlockedLists
    first: int
    step: Expansion
    n_rows: int
    block_rows: int

    def part(self, block: int) -> str:
        return f"rows-{block:05d}"

    @property
    def n_blocks(self) -> int:
        return -(-self.n_rows // self.block_rows)

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


def averaged_rows(n_rows: int, dim: int, step: Expansion, n_threads: int) -> int:
    """Rows per averaging task: bounded by the memory of neighbour features, and few enough to occupy all threads."""
    per_row = 4 * dim * (step.n_others + 2)
    return max(1, min(_MOST_ROWS, _GATHERED_BYTES // per_row, -(-n_rows // n_threads)))


def average_task(averaging: _Averaging, block: int, own_row: Int64 | None) -> None:
    """Average a block of rows with their neighbours and write the result to the stage."""
    start = block * averaging.block_rows
    rows = RowRange(start, min(start + averaging.block_rows, averaging.n_rows))
    listed = RowRange(averaging.first + rows.start, averaging.first + rows.stop)
    index, distance = averaging.neighbours(listed, own_row)
    needed = np.unique(index[index >= 0])
    with one_blas_thread():
        features = (
            averaging.among.read_unverified(needed) if len(needed) else np.empty((0, averaging.among.dim), np.float32)
        )
        own = averaging.items.read(listed).features
        place = np.where(index >= 0, np.searchsorted(needed, index), -1)
        weight = similarity_weights(distance, averaging.step.alpha)
        new = average_rows(np.ascontiguousarray(own), place, weight, features, averaging.step.method.unit)
    averaging.stage.write(averaging.part(block), {"features": new})


def expand_sets(
    query: FeatureSet, gallery: FeatureSet, steps: Sequence[Expansion], where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Apply expansion steps in order.

    Parameters
    ----------
    query, gallery
        The two sides, readable by all workers.
    steps
        Expansion steps, applied from left to right.
    where
        Execution, and the workspace that keeps derived stores; finished ones of equal recipe and features are reused.

    Returns
    -------
    Stored sets with new features and the original labels; a side that no step changes is returned unchanged.

    Raises
    ------
    InputError
        If `include_self` is set and items have no ids, or no query is in the gallery by item id.
    RunFailedError, StoreError, PlanError
        If it cannot be done.
    """
    if any(step.include_self and not step.changes_nothing for step in steps):
        # Refused before the first step; steps keep item ids.
        _own_rows(query, gallery)
    for step in steps:
        for _ in range(step.times):
            query, gallery = _expand(query, gallery, step, where)
    return query, gallery


def _expand(query: FeatureSet, gallery: FeatureSet, step: Expansion, where: Resources) -> tuple[FeatureSet, FeatureSet]:
    if step.changes_nothing:
        return query, gallery
    method = step.method
    if method.among_all:
        items = Items((query, gallery))
        near, far = (_ready(features, items.sets, step, where, side) for side, features in enumerate(items.sets))
        if near is not None and far is not None:
            return near, far
        lists = find_neighbours(items, COSINE, step.n_others + 1, where)
        return (
            _derived(query, (query, gallery), step, where, items, items, lists, 0, None),
            _derived(gallery, (query, gallery), step, where, items, items, lists, query.n_rows, None),
        )
    if method.expands_gallery:
        ready_gallery = _ready(gallery, (gallery,), step, where)
        if ready_gallery is None:
            items = Items((gallery,))
            among = find_neighbours(items, COSINE, step.n_others + 1, where)
            ready_gallery = _derived(gallery, (gallery,), step, where, items, items, among, 0, None)
        return query, ready_gallery
    ready_query = _ready(query, (query, gallery), step, where)
    if ready_query is None:
        own_row = _own_rows(query, gallery) if step.include_self else None
        top = find_top_lists(query, gallery, step.k, where)
        among_gallery = Items((gallery,))
        ready_query = _derived(query, (query, gallery), step, where, Items((query,)), among_gallery, top, 0, own_row)
    return ready_query, gallery


def _own_rows(query: FeatureSet, gallery: FeatureSet) -> Int64:
    """Gallery row of each query by item id, shape (n_queries,), int64; -1 for none."""
    if query.item_ids is None or gallery.item_ids is None:
        raise InputError(
            "include_self finds queries in the gallery by item id, and one of the sets has none; ingest both with "
            "item ids, or leave include_self out"
        )
    wanted, ids = join_item_ids(query.item_ids, gallery.item_ids)
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    own_row = np.where(ids[order][place] == wanted, order[place], -1)
    if (own_row < 0).all():
        raise InputError(
            f"include_self finds queries in the gallery by item id, and none of the {query.n_rows} item ids of the "
            "query set is there: own rows would count as neighbours; give an image the same item id on both sides, or "
            "leave include_self out if no query is a gallery row"
        )
    return own_row


def _target(
    features: FeatureSet, inputs: tuple[FeatureSet, ...], step: Expansion, where: Resources, side: int = 0
) -> str:
    """Location of the new features of a set.

    `side` separates queries from gallery where both are expanded: if one set is given as both, rows have the same
    neighbours on both sides except for ties, and among tied items each row precedes its copy.
    """
    return where.workspace.place(f"expanded-{_recipe(features, inputs, step, side)[:20]}.zarr")


def _recipe(features: FeatureSet, inputs: tuple[FeatureSet, ...], step: Expansion, side: int) -> str:
    """Fingerprint of everything that new features depend on, recorded in their store."""
    inputs_digests = [each.content_digest for each in inputs]
    return fingerprint(features.content_digest, inputs_digests, str(step.method.name), step, side)


def _ready(
    features: FeatureSet, inputs: tuple[FeatureSet, ...], step: Expansion, where: Resources, side: int = 0
) -> FeatureSet | None:
    """The new features, if they are there already, whole, and those of this recipe."""
    target = _target(features, inputs, step, where, side)
    try:
        stored = open_stored(target)
    except (StoreNotFoundError, IncompleteStoreError):
        return None
    except DamagedStoreError as error:
        where.progress.warn(f"{str(error).partition(';')[0]}: made again")
        remove(target)
        return None
    except StoreError:
        return None
    if stored.manifest.source.get("identity") != _recipe(features, inputs, step, side):
        where.progress.warn(f"{target} holds other features than its name denotes: made again")
        remove(target)
        return None
    return FeatureSet(stored)


def _derived(
    features: FeatureSet,
    inputs: tuple[FeatureSet, ...],
    step: Expansion,
    where: Resources,
    items: Items,
    among: Items,
    lists: BlockedLists,
    first: int,
    own_row: Int64 | None,
) -> FeatureSet:
    """Average all rows of a set, and write the store."""
    target = _target(features, inputs, step, where, int(first > 0))
    block_rows = averaged_rows(features.n_rows, features.dim, step, where.n_threads)
    stage = where.workspace.stage("averages", target, {"recipe": str(step), "block_rows": block_rows})
    averaging = _Averaging(stage, items, among, lists, first, step, features.n_rows, stage.description["block_rows"])
    graph = TaskGraph()
    at = fingerprint(stage.path)[:12]
    for block, rows in enumerate(cut_rows(features.n_rows, averaging.block_rows)):
        if not stage.has(averaging.part(block)):
            own = None if own_row is None else own_row[rows.start : rows.stop]
            key = f"expansion-{at}-{block}"
            graph.finals.append(graph.add(key, average_task, averaging, block, own, stage="expansion"))
    if graph.finals:
        execute(graph, where.client, where.n_threads, where.progress)
    source: dict[str, Any] = {
        "identity": _recipe(features, inputs, step, int(first > 0)),
        "recipe": str(step),
        "of": features.content_digest,
        "inputs": [each.content_digest for each in inputs],
    }
    try:
        with FeatureWriter(
            target,
            dim=features.dim,
            n_rows=features.n_rows,
            # Averages may cancel; a row of zeros is then correct.
            allow_zero=True,
            overwrite=True,
            notes=[*features.notes, f"expanded by {step}"],
            source=source,
        ) as writer:
            for block in range(averaging.n_blocks):
                writer.append(stage.read(averaging.part(block), "features")["features"])
            writer.set_labels(features.labels)
    except StoreExistsError:
        # Another run on this workspace may have finished the same features meanwhile.
        if (ready := _ready(features, inputs, step, where, int(first > 0))) is None:
            raise
        return ready
    where.workspace.remove(stage)
    return FeatureSet.open(target)
