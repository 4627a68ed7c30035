"""Searches without labels: nearest neighbours, neighbour graphs, and re-ranked distances for study."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Neighbours, RowRange, cut_rows
from reid_dist.core.temporary import temporary_folder
from reid_dist.engine.checks import check_count, check_excluded, check_sets
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import SearchJob
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.errors import InputError
from reid_dist.evaluation.projection import plan_for
from reid_dist.evaluation.sessions import Shown, begin_session
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import find_neighbours
from reid_dist.stages.reranking.k_reciprocal import KReciprocal, make_weights, parse_k_reciprocal, weighing
from reid_dist.stages.reranking.neighbour_graph import KeptRows, NeighbourGraph
from reid_dist.stages.reranking.rerankers import Reranking, parse_rerank, rerank_scorer
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet, FeatureSource, as_feature_set

if TYPE_CHECKING:
    from distributed import Client

# Pairs that are scored at once.
_PAIRS_AT_ONCE = 2**20


def nearest(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    k: int = 10,
    distance: str = "cosine",
    exclude: str | None = None,
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
) -> Neighbours:
    """Find the k nearest gallery rows of every query by (canonical distance, gallery row).

    Parameters
    ----------
    query, gallery
        The two feature sets, or their paths.  If both are the same set, each pair of blocks is computed only once, and
        each item is first in its own list even if it has duplicates.
    k
        Number of neighbours.  Lists with fewer rows are padded with index -1 and distance inf.
    exclude
        Label of rows to leave out: ``"camid"``, ``"pid"`` or a label column.  Rows with the same value as the query are
        left out, -1 included; an item that is first in its own list stays there.  None leaves out no row.
    distance, chunk_rows, client, workspace, progress
        As in `evaluate`.

    Raises
    ------
    InputError, UnknownNameError, PlanError, RunFailedError
        As in `evaluate`; also if one of the sets lacks the label.
    """
    measure = DISTANCES.get(distance)
    check_count("k", k)
    with begin_session(client, workspace, progress, chunk_rows) as session:
        query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
        check_sets(query, gallery, measure)
        if exclude is not None:
            check_excluded(exclude, query, gallery)
        same = query is gallery or (query.n_rows == gallery.n_rows and query.content_digest == gallery.content_digest)

        def attempt() -> Neighbours:
            with session.visible(query, gallery) as (near, far):
                if same:
                    with session.placed() as placed:
                        return _among_themselves(Items((near,), exclude), measure, k, placed.resources())
                execution = session.execution()
                scorer = FeatureScorer(near, far, measure, exclude)
                lists = NearestRows(k)
                plan = plan_for(scorer, execution, 0.0, lists.memory)
                job = SearchJob(near, far, scorer, plan, (lists,), policy=execution.policy)
                return run_job(job, execution).of(NearestRows)

        return session.retried(attempt)


def _among_themselves(items: Items, distance: Distance, k: int, where: Resources) -> Neighbours:
    """Neighbours of all items, each itself first."""
    # No list is longer than the set.
    lists = find_neighbours(items, distance, min(k, items.n_items), where, farthest=False)
    index = np.full((items.n_items, k), -1, np.int64)
    found = np.full((items.n_items, k), np.inf)
    width = min(k, lists.k)
    for rows in lists.parts.blocks:
        here = slice(rows.start, rows.stop)
        index[here, :width] = lists.index(rows)[:, :width]
        found[here, :width] = lists.distances(rows)[:, :width]
    return Neighbours(index, found)


def k_reciprocal_graph(
    features: FeatureSource,
    *,
    rerank: str | KReciprocal = "k_reciprocal",
    distance: str = "cosine",
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
) -> NeighbourGraph:
    """Compute the k-reciprocal neighbour graph within one set, for instance for clustering.

    Parameters
    ----------
    features
        The set, or its path.
    rerank
        The re-ranking.  Its ``lambda_value`` is ignored, because the Jaccard distance is not mixed with another one.
    distance, chunk_rows, client, progress
        As in `evaluate`.
    workspace
        As in `evaluate`.  It holds the graph, so keep it as long as you use the graph.  None uses a temporary
        directory, which is removed when the graph is no longer used.

    Returns
    -------
    NeighbourGraph
        Weights after averaging over k2 items, and neighbour lists; `NeighbourGraph.save` writes it.

    Raises
    ------
    InputError, UnknownNameError, PlanError, RunFailedError
        As in `evaluate`.

    Examples
    --------
    >>> graph = k_reciprocal_graph(train, rerank="k_reciprocal(k1=30,k2=6,variant=faiss_k1)")  # doctest: +SKIP
    >>> graph.to_scipy()  # doctest: +SKIP
    >>> graph.save("graph.zarr")  # doctest: +SKIP
    """
    measure, spec = DISTANCES.get(distance), parse_k_reciprocal(rerank, "k_reciprocal_graph")
    features = as_feature_set(features)
    if spec.mode != "transductive":
        raise InputError("a graph of one set has no queries to put in; leave out mode=inductive")
    # The mixture with the plain distance is no property of the graph.
    described = {name: value for name, value in spec.describe().items() if name not in ("lambda_value", "mode")}
    of = {"rerank": described, "distance": measure.describe(), "inputs": {"features": features.describe()}}
    temporary = None
    try:
        with begin_session(client, workspace, progress, chunk_rows) as session:
            # The graph may use directions although the distance does not.
            check_sets(features, features, spec.graph_distance(measure))
            if session.workspace is None:
                temporary = temporary_folder()
                session = session.within(temporary)

            def attempt() -> NeighbourGraph:
                with session.visible(features, features) as (seen, _):
                    rows = _graph_rows(seen, measure, spec, session.resources())
                return NeighbourGraph(rows, of, temporary=temporary)

            return session.retried(attempt)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _graph_rows(features: FeatureSet, measure: Distance, spec: KReciprocal, where: Resources) -> KeptRows:
    """Run the stages of a graph."""
    graph_distance, k = spec.graph_distance(measure), max(2, spec.n_near, spec.n_half)
    lists = find_neighbours(Items((features,)), graph_distance, k, where)
    _, means = make_weights(lists, weighing(spec, graph_distance), spec.k2, where)
    return KeptRows(means, lists, k)


def reranked_distances(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    rerank: str | Reranking = "k_reciprocal",
    rows: Sequence[int] | NDArray[np.integer] | None = None,
    distance: str = "cosine",
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
) -> NDArray[np.float64]:
    """Compute re-ranked distances of single queries to the whole gallery, for analysis and small sets.

    Parameters
    ----------
    query, gallery
        The two feature sets, or their paths.
    rerank
        The re-ranking; see `reid-dist list rerankers`.
    rows
        Query rows, in any order; None for all.
    distance, chunk_rows, client, workspace, progress
        As in `evaluate`.

    Returns
    -------
    numpy.ndarray
        Shape (len(rows), n_gallery), float64.

    Raises
    ------
    InputError, UnknownNameError, PlanError, RunFailedError
        As in `evaluate`; also if a row does not exist.
    """
    measure, spec = DISTANCES.get(distance), parse_rerank(rerank)
    with begin_session(client, workspace, progress, chunk_rows) as session:
        query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
        check_sets(query, gallery, measure)
        chosen = _checked_rows(rows, query.n_rows)
        block = np.empty((len(chosen), gallery.n_rows))

        def attempt() -> None:
            with session.visible(query, gallery) as (near, far), session.placed() as placed:
                scorer = rerank_scorer(near, far, measure, spec, placed.resources())
                for place, row in enumerate(chosen.tolist()):
                    for cut in cut_rows(gallery.n_rows, _PAIRS_AT_ONCE):
                        columns = np.arange(cut.start, cut.stop)
                        owner = np.zeros(len(columns), np.int64)
                        block[place, columns] = scorer.pair_distances(RowRange(row, row + 1), owner, columns)

        session.retried(attempt)
    return block


def _checked_rows(rows: Sequence[int] | NDArray[np.integer] | None, n_query: int) -> NDArray[np.int64]:
    if rows is None:
        return np.arange(n_query)
    given = np.asarray(rows)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InputError(f"rows must be a sequence of query rows, found {rows!r}")
    chosen = given.astype(np.int64)
    wrong = chosen[(chosen < 0) | (chosen >= n_query)]
    if len(wrong):
        raise InputError(f"rows must be from 0 to {n_query - 1}, found {int(wrong[0])}")
    return chosen
