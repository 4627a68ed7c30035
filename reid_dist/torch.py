"""Evaluation inside a training loop.

A loop of validation hands over its batches as they come, in one process or in many::

    from reid_dist.torch import ReIDMetric

    metric = ReIDMetric()
    for images, pids, camids, rows, is_query in loader:
        metric.update(model(images), pids, camids, is_query=is_query, item_ids=rows)
    logger.log_metrics(metric.compute(), step=epoch)
    metric.reset()

It has `update`, `compute` and `reset` as metrics of torchmetrics do, and needs neither that package nor a framework.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError, ReidDistError, RunFailedError
from reid_dist.evaluation.public import evaluate
from reid_dist.stores import FeatureSet
from reid_dist.stores.kept_rows import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from reid_dist.evaluation.options import EvaluationOptions
    from reid_dist.reports import Report


class _Rows(NamedTuple):
    """Rows of some updates, one entry of each array for a row; None for what was not given."""

    features: NDArray[Any]
    pids: NDArray[Any]
    camids: NDArray[Any] | None
    is_query: NDArray[np.bool_] | None
    item_ids: NDArray[Any] | None


class ReIDMetric:
    """Metric for training loops, over the rows of all processes of ``torch.distributed``.

    Parameters
    ----------
    prefix
        Prefix of every metric name, such as ``"val/"``.
    sync
        True gathers the rows of all processes of the default process group if ``torch.distributed`` is initialised.
        Pass a process group to gather the rows of its processes.  False uses only the rows of this process, as needed
        after ``accelerator.gather_for_metrics``.
    **options
        As in `reid_dist.evaluate`: protocol, metrics, distance, rerank, …

    Attributes
    ----------
    report : Report or None
        Report of the last `compute`, with curves, intervals and values per query.  In a process group, only the first
        process has it; it is None in the others.
    """

    def __init__(self, *, prefix: str = "", sync: Any = True, **options: Unpack[EvaluationOptions]) -> None:
        self.prefix, self.sync, self.options = prefix, sync, options
        self.report: Report | None = None
        self._updates: list[_Rows] = []

    def update(
        self,
        features: ArrayLike,
        pids: ArrayLike,
        camids: ArrayLike | None = None,
        *,
        is_query: ArrayLike | bool | None = None,
        item_ids: ArrayLike | None = None,
    ) -> None:
        """Add the rows of a batch; they are copied to the memory of this process.

        Parameters
        ----------
        features
            (n, dim) tensor on any device, or array.  Float16 is kept; bfloat16 becomes float32, which is exact.
        pids, camids
            (n,) identities and cameras, integers or text.
        is_query
            Which rows are queries, (n,) bool, or one bool for the batch; the others are the gallery.  If you leave it
            out of every update, every row is both a query and a gallery item.
        item_ids
            (n,) integers or text that identify the items, such as the indices of the data set.  They are used to drop
            rows that a distributed sampler repeats and to sort the rows, so the result does not depend on the number of
            processes.

        Raises
        ------
        InputError
            If lengths differ, or if the arguments that you pass are not the same in every update.
        """
        rows = np.array(to_numpy(features))
        if rows.ndim != 2:
            raise InputError(f"features must be 2-D (n, dim), found shape {rows.shape}")
        given = _Rows(
            rows,
            _column(pids, "pids", len(rows)),
            None if camids is None else _column(camids, "camids", len(rows)),
            None if is_query is None else _flags(is_query, len(rows)),
            None if item_ids is None else _column(item_ids, "item_ids", len(rows)),
        )
        _refuse_other_kinds([*self._updates[:1], given])
        self._updates.append(given)

    def compute(self) -> dict[str, float]:
        """Evaluate all rows since the last `reset`.

        Returns
        -------
        dict of str to float
            The metrics, shares from 0 to 1, the same in every process.

        Raises
        ------
        InputError
            If the rows cannot be evaluated; raised in every process with the same message.
        RunFailedError
            In the other processes, if the first one failed.
        """
        processes = _processes(self.sync)
        if processes is None:
            return self._evaluated(self._updates)
        outcome: list[Any] = [None, None]
        gathered = processes.gather(_joined(self._updates))
        if gathered is None:
            self.report = None
        else:
            try:
                outcome[0] = self._evaluated([rows for rows in gathered if rows is not None])
            except Exception as error:
                # The other processes wait for an answer.
                text = error.in_one_line if isinstance(error, ReidDistError) else str(error)
                processes.broadcast([text, isinstance(error, InputError)])
                raise
        answer, is_input = processes.broadcast(outcome)
        if isinstance(answer, str):
            raise InputError(answer) if is_input else RunFailedError(answer)
        metrics: dict[str, float] = answer
        return metrics

    def reset(self) -> None:
        """Discard all rows; `report` is kept until the next `compute`."""
        self._updates = []

    def _evaluated(self, updates: Sequence[_Rows]) -> dict[str, float]:
        query, gallery = _sides(updates)
        self.report = evaluate(query, gallery, **self.options)
        return {f"{self.prefix}{name}": float(value) for name, value in self.report.metrics.items()}


class _Processes:
    """The processes of a group of ``torch.distributed``, which must all call the same methods."""

    def __init__(self, distributed: Any, group: Any) -> None:
        self._distributed, self._group = distributed, group
        self._first = 0 if group is None else distributed.get_global_rank(group, 0)

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all processes in the first one, None in the others."""
        is_first = self._distributed.get_rank() == self._first
        found: list[Any] | None = [None] * self._distributed.get_world_size(self._group) if is_first else None
        self._distributed.gather_object(value, found, dst=self._first, group=self._group)
        return found

    def broadcast(self, values: list[Any]) -> list[Any]:
        """The values of the first process, in all."""
        self._distributed.broadcast_object_list(values, src=self._first, group=self._group)
        return values


def _processes(sync: Any) -> _Processes | None:
    """The processes to gather rows of; None for this one alone."""
    # Without torch there is no group of its processes.
    torch = sys.modules.get("torch")
    if sync is False or torch is None:
        return None
    distributed: Any = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    group = None if sync is True else sync
    return None if distributed.get_world_size(group) <= 1 else _Processes(distributed, group)


def _column(values: ArrayLike, name: str, n_rows: int) -> NDArray[Any]:
    array = np.array(to_numpy(values))
    if array.shape != (n_rows,):
        raise InputError(f"{name} must have one entry per row of features, ({n_rows},), found shape {array.shape}")
    return array


def _flags(values: ArrayLike | bool, n_rows: int) -> NDArray[np.bool_]:
    array = np.asarray(to_numpy(values))
    if array.dtype != np.bool_:
        raise InputError(f"is_query must be True, False or an array of these, found {array.dtype}")
    return np.full(n_rows, array) if array.ndim == 0 else _column(array, "is_query", n_rows)


def _refuse_other_kinds(updates: Sequence[_Rows]) -> None:
    """Refuse updates that do not fit one another."""
    for name in ("camids", "is_query", "item_ids"):
        if len({getattr(each, name) is None for each in updates}) > 1:
            raise InputError(f"{name} is given in some updates and left out of others; give it in all of them, or none")
    widths = {each.features.shape[1] for each in updates}
    if len(widths) > 1:
        raise InputError(f"features of different updates have {' and '.join(map(str, sorted(widths)))} columns")


def _joined(updates: Sequence[_Rows]) -> _Rows | None:
    """All rows as one update; None for none."""
    if not updates:
        return None
    joined: dict[str, Any] = {
        name: None if getattr(updates[0], name) is None else np.concatenate([getattr(each, name) for each in updates])
        for name in _Rows._fields
    }
    return _Rows(**joined)


def _sides(updates: Sequence[_Rows]) -> tuple[FeatureSet, FeatureSet]:
    """The sets of queries and of gallery rows."""
    _refuse_other_kinds(updates)
    rows = _joined(updates)
    if rows is None:
        raise InputError("there is nothing to evaluate: call update before compute, in at least one process")
    if rows.is_query is None:
        side = _side(rows, np.ones(len(rows.pids), bool), "rows")
        return side, side
    return _side(rows, rows.is_query, "queries"), _side(rows, ~rows.is_query, "gallery rows")


def _side(rows: _Rows, chosen: NDArray[np.bool_], name: str) -> FeatureSet:
    """One set, each item once and in the order of the item ids."""
    places = np.flatnonzero(chosen)
    if not len(places):
        raise InputError(f"none of the {counted(len(chosen), 'row')} are {name}; is_query says which rows are queries")
    if rows.item_ids is not None:
        items, first, own = np.unique(rows.item_ids[places], return_index=True, return_inverse=True)
        for label, values in (("pids", rows.pids), ("camids", rows.camids)):
            if values is not None and (differs := values[places] != values[places][first][own]).any():
                item = items[own[int(differs.argmax())]]
                raise InputError(f"item_ids names several items {item!s} of different {label}: give every item its own")
        places = places[first]
    # Features that lie one after the other are not copied.
    kept = slice(places[0], places[-1] + 1) if (np.diff(places) == 1).all() else places
    columns = [None if each is None else each[kept] for each in (rows.camids, rows.item_ids)]
    return FeatureSet.from_arrays(rows.features[kept], rows.pids[kept], *columns)
