"""Lists of the nearest gallery rows of each query by cosine distance, kept in the workspace."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import find_nearest
from reid_dist.engine.jobs import SearchJob
from reid_dist.engine.plan import make_plan
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.stages.neighbours.lists import BlockedLists
from reid_dist.stages.neighbours.search import Resources
from reid_dist.stores import FeatureSet, Stage

_BLOCK_ROWS = 65536


@dataclass(frozen=True)
class TopLists(BlockedLists):
    """Lists of the k nearest gallery rows of each query, which is not in its own list.

    Attributes
    ----------
    stage
        Stage of the workspace that keeps the lists.
    k
        Length of a list.
    n_rows
        Number of queries.
    block_rows
        Rows of a block.
    """

    stage: Stage
    k: int
    n_rows: int
    block_rows: int
    n_own = 0

    @property
    def n_items(self) -> int:
        """Rows that have a list."""
        return self.n_rows


def find_top_lists(query: FeatureSet, gallery: FeatureSet, k: int, where: Resources) -> TopLists:
    """Find the k nearest gallery rows of every query by cosine distance; finished lists of length k or more are reused.

    Raises
    ------
    RunFailedError, StoreError, PlanError
        If it cannot be done.
    """
    k = min(k, gallery.n_rows)
    of = fingerprint(query.content_digest, gallery.content_digest)
    for stage in where.workspace.stages("toplists"):
        found = stage.description
        if found.get("of") == of and found["k"] >= k and "block_rows" in found:
            lists = TopLists(stage, found["k"], query.n_rows, found["block_rows"])
            if lists.is_complete:
                return lists
    stage = where.workspace.stage("toplists", [of, k], {"of": of, "k": k, "block_rows": _BLOCK_ROWS})
    lists = TopLists(stage, k, query.n_rows, stage.description["block_rows"])
    scorer = FeatureScorer(query, gallery, DISTANCES.get("cosine"))
    plan = make_plan(
        *scorer.shapes,
        n_threads=where.n_threads,
        memory_per_thread=where.memory_per_thread,
        chunk_rows=where.chunk_rows,
        k=k,
    )
    nearest = find_nearest(SearchJob(query, gallery, scorer, plan, k), where.client, where.progress)
    for block in range(lists.n_blocks):
        rows = lists.rows(block)
        here = slice(rows.start, rows.stop)
        lists.stage.write(lists.block_part(block), {"index": nearest.index[here], "distance": nearest.distance[here]})
    return lists
