"""Verification over listed pairs: TAR, EER, ROC and accuracy, as LFW and IJB define them.

A pair is accepted when its distance is strictly less than the threshold, as in verification over all pairs.  Distances
are canonical, so that the values do not depend on the order of the pairs or on how the rows are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.core.formatting import counted, percent
from reid_dist.core.model import RowRange
from reid_dist.core.numeric import is_whole
from reid_dist.core.segments import entry_owners, order_of_rows
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.scorers import read_block
from reid_dist.engine.verification.crossings import crossings_of
from reid_dist.engine.verification.measures import Pairs, needs_pairs, verify_pairs, wanted_levels
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.metrics.metric import PAIRS, ByMetric, parse_metrics
from reid_dist.metrics.repeats import mean_and_spread
from reid_dist.relevance.protocols import JUNK_PID
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import Result, plain
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Row, Table, metric_cell, notes_of
from reid_dist.reports.words import named
from reid_dist.stores import FeatureSet, FeatureSource
from reid_dist.stores.featureset import ranges_with, read_scattered
from reid_dist.stores.labels import join_numbers
from reid_dist.stores.opening import as_feature_set

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

SCHEMA: Final = 1
"""The version of results as JSON."""

DEFAULT_METRICS: Final = ("EER", "TAR@FAR=1e-1", "TAR@FAR=1e-2", "TAR@FAR=1e-3", "TAR@FAR=1e-4")

# Rows of the right side that are held at once, in bytes of float32.
_HELD_BYTES: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Share of pairs that a threshold decides rightly.

    Attributes
    ----------
    best
        Under the best threshold of all pairs.
    threshold
        The smallest distance of a pair that is one; infinite if accepting all pairs is best.
    folds
        Accuracy of every fold under the best threshold of the pairs of all others; empty without folds.
    mean, spread
        Over the folds: the mean and the sample standard deviation (ddof 1); NaN without folds.
    """

    best: float
    threshold: float
    folds: tuple[float, ...]
    mean: float
    spread: float


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class PairResult(Result):
    """Result of verification over listed pairs.

    Attributes
    ----------
    metrics
        Value by name of metric.
    thresholds
        Distance below which pairs are accepted, by metric name; infinite if all are accepted.
    accuracy
        Share of pairs that are decided correctly.
    counts
        ``n_genuine`` and ``n_impostor``.
    curves
        ``ROC_FAR``, ``ROC_TAR`` and ``ROC_threshold``, (31,) float64; empty unless requested.
    distance
        The convention, with every parameter.
    inputs
        The sets: uri, shape, dtype, content digest.
    distances
        Canonical distances of the pairs in the order given, (n,) float64; not part of the JSON.
    """

    metrics: dict[str, float]
    thresholds: dict[str, float]
    accuracy: Accuracy
    counts: dict[str, int]
    curves: dict[str, Float64]
    distance: dict[str, str]
    inputs: dict[str, Any]
    distances: Float64 = field(repr=False)

    @property
    def result_digest(self) -> str:
        """SHA-256 over the distances of the pairs and the values as exact bytes, 64 hexadecimal digits."""
        accuracy = (self.accuracy.best, self.accuracy.threshold, *self.accuracy.folds)
        return arrays_digest(
            {
                "distances": {"distances": self.distances},
                "metrics": {name: np.asarray(value) for name, value in self.metrics.items()},
                "accuracy": {"accuracy": np.asarray(accuracy)},
                "curves": self.curves,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain Python values; what is not a finite number is None."""
        described = {name: value for name, value in asdict(self).items() if name != "distances"}
        content: dict[str, Any] = plain({"schema": SCHEMA, **described, "result_digest": self.result_digest})
        return content

    def tables(self) -> Sequence[Table]:
        """Return every metric with its threshold."""
        rows: list[Row] = [
            [name, metric_cell(name, value), _threshold(self.thresholds[name])] for name, value in self.metrics.items()
        ]
        accuracy = self.accuracy
        rows.append(["accuracy", Cell(percent(accuracy.best), accuracy.best), _threshold(accuracy.threshold)])
        meanings = []
        if accuracy.folds:
            spread = f"{percent(accuracy.mean)} ± {100 * accuracy.spread:.2f}"
            rows.append([f"accuracy, {len(accuracy.folds)} folds", Cell(spread, accuracy.mean), "-"])
            folds = "mean ± sample standard deviation; the threshold of a fold is the best of all others"
            meanings = [Note(folds, "folds", True)]
        pairs = [f"{self.counts[f'n_{kind}']:,} {kind}" for kind in ("genuine", "impostor")]
        facts = {
            "pairs": ", ".join(pairs),
            "distance": named(self.distance, "definition"),
            "digest": self.result_digest[:16],
        }
        return [
            Table(
                title="Verification over listed pairs",
                columns=[Column("metric", Kind.NAME), Column("value", Kind.RESULT), Column("threshold")],
                rows=rows,
                notes=[*meanings, *notes_of(facts)],
            )
        ]


def _threshold(value: float) -> Cell:
    return Cell(f"{value:.6g}", value)


def evaluate_pairs(
    left: FeatureSource,
    right: FeatureSource | None,
    pairs: ArrayLike,
    same: ArrayLike | None = None,
    *,
    distance: str = "cosine",
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    roc: bool = False,
    folds: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PairResult:
    """Verify listed pairs of rows: TAR at given FAR, EER, ROC, and accuracy at the best threshold.

    Parameters
    ----------
    left, right
        The sets that hold the first and the second row of every pair; None for `right` if both are in `left`.
    pairs
        Row numbers from 0, (n, 2), integers.
    same
        Whether the rows of a pair have the same identity, (n,), bool or 0 and 1; None compares their pids, which must
        not be -1.
    distance
        Name of a distance.
    metrics
        Metrics over pairs: ``EER``, ``TAR@FAR=x``.
    roc
        Also return the ROC curve.
    folds
        Number of folds of consecutive pairs; the first ones have one pair more if the number does not divide evenly.
        Each fold is decided at the best threshold of all others, as in the protocol of LFW.  None for no folds.
    progress
        Called with the numbers of finished pairs and of all pairs.

    Returns
    -------
    PairResult
        Values, thresholds, accuracy and the distances of the pairs.

    Raises
    ------
    UnknownNameError
        For a distance or metric that does not exist.
    InputError
        If a row does not exist, all pairs are same or all are different, a metric is not defined over pairs, or the
        sets cannot be compared.

    References
    ----------
    Huang et al., Labeled Faces in the Wild, 2007 (accuracy over ten folds); Whitelam et al., CVPRW 2017 (IJB-B: pairs
    of templates).
    """
    measure, wanted = DISTANCES.get(distance), parse_metrics(metrics)
    others = [metric.name for metric in wanted if metric.family.needs != PAIRS]
    if others:
        raise InputError(f"{', '.join(others)}: not over listed pairs; use EER or TAR@FAR=x, or evaluate for ranks")
    near = as_feature_set(left, "query")
    far = near if right is None else as_feature_set(right, "gallery")
    check_sets(near, far, measure)
    rows = _checked_rows(pairs, near, far)
    is_same = _same_pids(near, far, rows) if same is None else _checked_same(same, len(rows))
    _refuse_one_kind(is_same, folds)
    distances = _distances(near, far, rows, measure, progress or (lambda _done, _all: None))
    impostor = distances[~is_same]
    counted_pairs = Pairs(np.sort(distances[is_same]), len(impostor))
    levels = wanted_levels(wanted, roc, counted_pairs.n_genuine, len(impostor)) if needs_pairs(wanted, roc) else []
    found = verify_pairs(wanted, roc, counted_pairs, crossings_of(levels, impostor, counted_pairs.genuine))
    return PairResult(
        metrics=ByMetric(found.metrics),
        thresholds=dict(found.thresholds),
        accuracy=_accuracy(distances, is_same, folds),
        counts=dict(found.counts),
        curves=dict(found.curves),
        distance=measure.describe(),
        inputs={"left": near.describe(), "right": far.describe()},
        distances=distances,
    )


def _checked_rows(pairs: ArrayLike, left: FeatureSet, right: FeatureSet) -> Int64:
    """Row numbers of pairs, (n, 2) int64."""
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows) or rows.dtype.kind not in "iu":
        raise InputError(
            f"pairs must be whole row numbers of shape (n, 2), n at least 1, found {rows.dtype} of shape {rows.shape}"
        )
    rows = rows.astype(np.int64)
    for side, column, features in (("left", 0, left), ("right", 1, right)):
        wrong = np.flatnonzero((rows[:, column] < 0) | (rows[:, column] >= features.n_rows))
        if len(wrong):
            raise InputError(
                f"pair {wrong[0]} has {side} row {rows[wrong[0], column]}, and {features.uri} has rows 0 to "
                f"{features.n_rows - 1} ({counted(len(wrong), 'such pair')}); row numbers start at 0"
            )
    return rows


def _checked_same(same: ArrayLike, n_pairs: int) -> NDArray[np.bool_]:
    values = np.asarray(same)
    if values.shape != (n_pairs,) or not np.isin(values, (0, 1)).all():
        raise InputError(
            f"same must be {n_pairs} values 0 or 1, one for each pair, found {values.dtype} of shape {values.shape}"
        )
    return values.astype(np.bool_)


def _same_pids(left: FeatureSet, right: FeatureSet, rows: Int64) -> NDArray[np.bool_]:
    """Whether the rows of each pair have one pid, (n,); each set numbers its texts for itself."""
    names = left.pid_names, right.pid_names
    pids = [
        join_numbers(side.pids, side.pid_names, *names)[rows[:, column]] for column, side in enumerate((left, right))
    ]
    unknown = np.flatnonzero((pids[0] == JUNK_PID) | (pids[1] == JUNK_PID))
    if len(unknown):
        raise InputError(
            f"pair {unknown[0]} has a row of pid {JUNK_PID}, whose identity is unknown "
            f"({counted(len(unknown), 'such pair')}); label the pairs, or leave these out"
        )
    is_same: NDArray[np.bool_] = pids[0] == pids[1]
    return is_same


def _refuse_one_kind(is_same: NDArray[np.bool_], folds: int | None) -> None:
    n_same = int(is_same.sum())
    if n_same in (0, len(is_same)):
        kind, missing = ("impostor", "genuine") if n_same == 0 else ("genuine", "impostor")
        raise InputError(
            f"all {len(is_same)} pairs are {kind} pairs; add {missing} pairs, or check the labels of pairs"
        )
    if folds is not None and (not is_whole(folds) or not 2 <= folds <= len(is_same)):
        raise InputError(f"folds must be a whole number from 2 to the {len(is_same)} pairs, found {folds!r}")


def _distances(
    left: FeatureSet, right: FeatureSet, rows: Int64, distance: Distance, progress: Callable[[int, int], None]
) -> Float64:
    """Canonical distances of pairs, (n,) float64; every row is read with verification."""
    found = np.empty(len(rows))
    order = order_of_rows(rows[:, 0])
    first = rows[order, 0]
    done = 0
    for start, stop in ranges_with(left, first):
        low, high = np.searchsorted(first, [start, stop])
        near = read_block(left, RowRange(start, stop))
        for mine, far, position in _gathered(right, rows[:, 1], order[low:high]):
            pairs = PairRows(distance.kind, near.features, far, near.norm, squared_norms(far))
            found[mine] = pair_distances(pairs, rows[mine, 0] - start, position)
            done += len(mine)
            progress(done, len(rows))
    return found


def _gathered(features: FeatureSet, row: Int64, pairs: Int64) -> Iterator[tuple[Int64, NDArray[np.float32], Int64]]:
    """Some pairs at a time, ordered by their row of a set: the pairs, rows of the set, and the place of each pair's."""
    ordered = pairs[order_of_rows(row[pairs])]
    distinct, begin = np.unique(row[ordered], return_index=True)
    bounds = np.append(begin, len(ordered))
    step = max(1, _HELD_BYTES // (4 * features.dim))
    for start in range(0, len(distinct), step):
        stop = min(start + step, len(distinct))
        blocks = [block.astype(np.float32) for block in read_scattered(features, distinct[start:stop])]
        place = entry_owners(bounds[start : stop + 1])
        yield ordered[bounds[start] : bounds[stop]], read_only(np.concatenate(blocks)), place


# ---- accuracy --------------------------------------------------------------------------------------------------------


def _accuracy(distances: Float64, is_same: NDArray[np.bool_], folds: int | None) -> Accuracy:
    """Accuracy over all pairs, and over folds of consecutive ones; both arrays (n,)."""
    order = np.argsort(distances, kind="stable")
    ordered, genuine = distances[order], is_same[order]
    threshold, best = _best_threshold(ordered, genuine)
    if folds is None:
        return Accuracy(best, threshold, (), float("nan"), float("nan"))
    fold = np.repeat(np.arange(folds), [len(each) for each in np.array_split(is_same, folds)])[order]
    values = []
    for number in range(folds):
        others = fold != number
        chosen, _ = _best_threshold(ordered[others], genuine[others])
        values.append(float(np.mean((ordered[~others] < chosen) == genuine[~others])))
    return Accuracy(best, threshold, tuple(values), *mean_and_spread(values))


def _best_threshold(ordered: Float64, genuine: NDArray[np.bool_]) -> tuple[float, float]:
    """Threshold of best accuracy among the ascending distances and infinity (smallest on ties), and that accuracy."""
    # Right decisions with the first i pairs accepted: genuine ones among them, and impostors behind them.
    right = np.concatenate([[0], np.cumsum(np.where(genuine, 1, -1))]) + int((~genuine).sum())
    # A threshold accepts all pairs of one distance or none.
    allowed = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
    place = int(np.argmax(np.where(allowed, right, -1)))
    threshold = float(ordered[place]) if place < len(ordered) else float("inf")
    return threshold, int(right[place]) / len(ordered)
