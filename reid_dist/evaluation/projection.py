"""Memory that a job needs, from its labels and options: the numbers that its plan is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import segment_offsets
from reid_dist.engine.outputs import JobSizes, Output, group_numbers
from reid_dist.engine.plan import NOTHING_BESIDES, Besides, Plan, make_plan
from reid_dist.engine.scorers import Scorer
from reid_dist.engine.task_graph import Execution
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.relevance.assignment import rows_with_pids
from reid_dist.relevance.ground_truth import RowLists
from reid_dist.stores import LabelledSet


def held_besides(
    checked: CheckedOptions,
    gallery: LabelledSet,
    scorer: Scorer,
    per_query: float,
    outputs: Sequence[Output[Any]],
) -> Besides:
    """Memory of a job besides ranks: that of its outputs and of the re-ranking."""
    held = held_by_outputs(outputs, JobSizes(gallery, checked.protocol, per_query, scorer.shapes[1]))
    if checked.rerank is not None:
        held += checked.rerank.held(sum(shape.n_rows for shape in scorer.shapes), gallery.n_rows)
    return held


def held_by_outputs(outputs: Sequence[Output[Any]], sizes: JobSizes) -> Besides:
    """Memory of outputs together."""
    return sum((output.besides(sizes) for output in outputs), NOTHING_BESIDES)


def most_relevant(checked: CheckedOptions, query: LabelledSet, gallery: LabelledSet) -> float:
    """Relevant pairs of a query, mean over the fullest thousand queries in a row.

    Where groups are ranked, these are the items of the groups that hold relevant items.
    """
    group = None if checked.collapse is None else group_numbers(checked.collapse.label, gallery)
    if checked.truth is not None:
        counts = [_of_lists(lists, group) for lists in checked.truth.lists.values()]
        return _fullest(np.sum(counts, axis=0))
    return most_matches(query, gallery, group)


def _of_lists(lists: RowLists, group: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Rows of every list, shape (n_query,), or the rows of their groups."""
    if group is None:
        return np.diff(lists.indptr)
    return np.diff(segment_offsets(np.bincount(group)[group[lists.rows]])[lists.indptr])


def most_matches(query: LabelledSet, gallery: LabelledSet, group: NDArray[np.int64] | None = None) -> float:
    """Gallery items with the query's pid or of their groups, mean over the fullest thousand queries in a row."""
    pids, of_query = np.unique(query.pids, return_inverse=True)
    rows = rows_with_pids(gallery.pids, pids)
    code = np.searchsorted(pids, gallery.pids[rows])
    counts = np.bincount(code, minlength=len(pids))
    if group is not None:
        size = np.bincount(group)
        pairs = np.unique(code * len(size) + group[rows])
        counts = np.bincount(pairs // len(size), size[pairs % len(size)], len(pids)).astype(np.int64)
    return _fullest(counts[of_query])


def _fullest(counts: NDArray[np.int64]) -> float:
    starts = np.arange(0, len(counts), 1024)
    sums = np.add.reduceat(counts, starts)
    return float((sums / np.diff(np.append(starts, len(counts)))).max())


def plan_for(scorer: Scorer, execution: Execution, per_query: float, besides: Besides) -> Plan:
    """Plan a job with `per_query` relevant pairs of a query."""
    return make_plan(
        *scorer.shapes,
        n_threads=execution.n_threads,
        memory_per_thread=execution.memory_per_thread,
        chunk_rows=execution.chunk_rows,
        relevant_per_query=per_query,
        besides=besides + Besides(bytes_per_pair=scorer.bytes_per_pair),
        policy=execution.policy,
    )
