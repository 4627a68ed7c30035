"""Evaluation of top-k lists: exact where the lists decide a metric, bounds where they do not."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.core.environment import describe_environment
from reid_dist.core.findings import caution, info
from reid_dist.core.model import Labels, RowRange
from reid_dist.engine.jobs import joined_label_sets
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import CheckedOptions, ranking_spec
from reid_dist.evaluation.no_valid_query import explain_no_valid_query
from reid_dist.evaluation.options import (
    LISTS,
    RankingOptions,
    complete,
    recorded,
    refuse_options,
    refuse_options_of_features,
)
from reid_dist.evaluation.report_assembly import QueryCounts, described_protocol, interval_notes, mean_intervals
from reid_dist.evaluation.sessions import lists_options
from reid_dist.metrics.curves import cmc_curve, mean_precision_recall, rank_curves
from reid_dist.metrics.listed import ListedRanks, metric_bounds, rank_lists, split_metrics
from reid_dist.metrics.metric import Metric, notes_on_metrics
from reid_dist.relevance.assignment import GalleryIndex, assign_listed_relevance, assign_relevance
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports import Report
from reid_dist.reports.item_names import ItemNames
from reid_dist.reports.notes import label_notes, own_row_notes, side_notes
from reid_dist.stores import LabelledSet, LabelSource, as_labelled_set


@lists_options(RankingOptions, evaluation=LISTS)
def evaluate_lists(
    index: ArrayLike,
    query: LabelSource,
    gallery: LabelSource,
    *,
    distance: ArrayLike | None = None,
    **options: Unpack[RankingOptions],
) -> Report:
    """Evaluate lists of the nearest gallery rows of every query.

    Parameters
    ----------
    index
        Gallery rows, shape (n_query, k), integers, nearest first, junk included.  Pad with -1 if the gallery has fewer
        than k rows.
    query, gallery
        Labels of both sides: `LabelledRows`, paths, or feature sets, whose features are not read.
    distance
        Optional distances of these rows, shape (n_query, k); each row must ascend.
    **options
        As in `evaluate`; options that lists do not determine are refused.

    Returns
    -------
    Report
        A report.  ``metrics`` holds the values that the lists determine, ``bounds`` the lowest and highest possible
        mean of the other metrics.  Curves end at the last rank that every list determines; the precision-recall curve
        exists only if the lists determine all ranks.

    Raises
    ------
    InputError, UnknownNameError
        As in `evaluate`; also if `index` has a wrong type or shape, if you ask for mINP and a list ends before the last
        relevant item, or if a metric is not a function of ranks.
    """
    started = time.perf_counter()
    query, gallery = as_labelled_set(query, "query"), as_labelled_set(gallery, "gallery")
    refuse_options_of_features(options, LISTS)
    refuse_options(options, LISTS, "is not available for top-k lists; evaluate the feature stores or a distance block")
    checked = CheckedOptions.of(complete(options), query, gallery)
    if checked.collapse is not None:
        raise InputError(
            f"protocol {checked.protocol.name!r} ranks groups of gallery items ({checked.protocol.collapse}), and "
            "top-k lists hold items; evaluate the feature stores or a distance block"
        )
    rows, near = as_lists(index, distance)
    labels = joined_label_sets(query, gallery, checked.joined, checked.protocol, checked.rows_are_items)
    gallery_labels = GalleryIndex(labels[1], checked.protocol)
    relevance = (
        assign_relevance(checked.protocol, labels[0].take(RowRange(0, query.n_rows)), gallery_labels)
        if checked.truth is None
        else assign_listed_relevance(checked.protocol, checked.truth, gallery.n_rows)
    )
    listed = rank_lists(relevance, gallery_labels.mask, rows, near)
    n_junk_rows = int(gallery_labels.mask.junk_row.sum())
    return _report(checked, query, gallery, labels, rows, listed, n_junk_rows, started)


def as_lists(index: ArrayLike, distance: ArrayLike | None) -> tuple[NDArray[np.integer], NDArray[np.float64] | None]:
    """Take lists as arrays."""
    try:
        rows, near = np.asarray(index), None if distance is None else np.asarray(distance)
    except ValueError as error:
        raise InputError(f"top-k lists must be of one length, shape (n_query, k): {error}") from None
    if rows.dtype.kind not in "iu":
        raise InputError(f"top-k lists must be whole numbers of shape (n_query, k), found {rows.dtype} {rows.shape}")
    if near is not None and near.dtype.kind not in "iuf":
        raise InputError(f"the distances of top-k lists must be numbers, found {near.dtype} {near.shape}")
    return rows, near if near is None else near.astype(np.float64, copy=False)


def _report(
    checked: CheckedOptions,
    query: LabelledSet,
    gallery: LabelledSet,
    labels: tuple[Labels, Labels],
    index: NDArray[np.integer],
    listed: ListedRanks,
    n_junk_rows: int,
    started: float,
) -> Report:
    protocol, options = checked.protocol, checked.values
    zero = protocol.zero_for_invalid
    queries = QueryCounts(listed.best)
    if not queries.valid.any():
        raise explain_no_valid_query(query, gallery, labels, protocol, queries.invalid)
    split = split_metrics(checked.metrics, listed)
    by_name = {metric.name: metric for metric in checked.metrics}
    bounds = {
        name: [by_name[name].mean(values, query.pids, zero_for_invalid=zero) for values in (each.lower, each.upper)]
        for name, each in split.bounded.items()
    }
    last = next((metric.name for metric in checked.metrics if metric.family.needs_last and metric.name in bounds), None)
    if options["metrics"] is not None and last is not None:
        low, high = bounds[last]
        raise InputError(
            f"metric {last!r} needs the rank of every query's last positive, and the lists are cut before it; keep "
            "longer lists",
            details=(
                f"it lies between {low:.4g} and {high:.4g}",
                f"or use R@{index.shape[1]}, or evaluate the feature stores",
            ),
        )
    decided = _decided_ranks(listed, listed.n_listed, options["max_rank"])
    curves = _curves(protocol, listed, decided, options["max_rank"])
    notes = [
        *side_notes(query, gallery, protocol),
        *label_notes(query, gallery, protocol),
        *own_row_notes(query, gallery, protocol, listed.best),
        info("cut_lists", length=index.shape[1], last_rank=decided),
    ]
    if bounds:
        notes.append(caution("bounded_metrics", names=list(bounds)))
    confidence = mean_intervals(split.exact, query, checked)
    notes += [*notes_on_metrics(checked.metrics), *interval_notes(confidence, protocol)]
    inputs: dict[str, Any] = {"query": query.describe(), "gallery": gallery.describe()}
    inputs["lists"] = {"shape": list(index.shape), "content_digest": lists_digest(index)}
    return Report(
        metrics={
            name: by_name[name].mean(values, query.pids, zero_for_invalid=zero) for name, values in split.exact.items()
        },
        curves=curves,
        counts=queries.counts(gallery, n_junk_rows, n_found=int(listed.n_found.sum())),
        per_query=_per_query(query, listed, split.exact, checked.metrics, queries.reason),
        protocol=described_protocol(checked),
        distance={"name": "lists", "definition": "the order of the lists", "source": "the lists"},
        inputs=inputs,
        ties={"rule": "the order of the lists"},
        environment=describe_environment(),
        definitions={metric.name: metric.family.summary for metric in checked.metrics},
        confidence=None if confidence is None else confidence.describe(),
        bounds=bounds,
        notes=notes,
        options=recorded(options),
        spec=ranking_spec(checked, query, gallery, distance=None, lists=lists_digest(index)),
        names=ItemNames.of(query, gallery, None),
        timing={"total": time.perf_counter() - started},
    )


def _decided_ranks(listed: ListedRanks, reach: NDArray[np.int64], max_rank: int) -> int:
    """The last rank that every valid query's list decides, given how far a cut list reaches."""
    unknown = (listed.best.n_relevant > 0) & ~listed.known
    return int(min(max_rank, reach[unknown].min(initial=max_rank)))


def _curves(protocol: Protocol, listed: ListedRanks, decided: int, max_rank: int) -> dict[str, NDArray[np.float64]]:
    """Curves as far as the lists decide them."""
    zero = protocol.zero_for_invalid
    curves: dict[str, NDArray[np.float64]] = {}
    if protocol.cmc_family == "CMC" and decided:
        curves["CMC"] = cmc_curve(listed.best, decided, zero_for_invalid=zero)
    # A positive beyond the list comes after all of its negatives, not after all of its items.
    among_negatives = _decided_ranks(listed, listed.n_listed - listed.n_found, max_rank)
    if protocol.cmc_family == "CMC_allshots" and among_negatives:
        all_shots = rank_curves(listed.best, among_negatives, zero_for_invalid=zero)
        curves["CMC_allshots"] = all_shots["CMC_allshots"]
    if (listed.known | (listed.best.n_relevant == 0)).all():
        curves["precision_recall"] = mean_precision_recall(listed.best, zero_for_invalid=zero)
    if decided:
        ranks = rank_curves(listed.best, decided, zero_for_invalid=zero)
        curves |= {"P": ranks["P"], "R": ranks["R"]}
    return curves


def _per_query(
    query: LabelledSet,
    listed: ListedRanks,
    exact: dict[str, NDArray[np.float64]],
    metrics: list[Metric],
    reasons: NDArray[np.str_],
) -> dict[str, NDArray[Any]]:
    """Values of every query, with bounds of AP and INP."""
    average, inverse = metric_bounds("mAP", listed), metric_bounds("mINP", listed)
    first = (listed.n_found > 0) | (listed.known & (listed.best.n_relevant > 0))
    return {
        "AP_lower": average.lower,
        "AP_upper": average.upper,
        "INP_lower": inverse.lower,
        "INP_upper": inverse.upper,
        "first_rank": np.where(first, listed.best.first_rank, np.nan),
        "n_relevant": listed.best.n_relevant,
        "n_found": listed.n_found,
        "n_listed": listed.n_listed,
        "n_kept": listed.best.n_kept,
        "reason": reasons,
        "pid": query.pids,
        **({} if query.camids is None else {"camid": query.camids}),
        **{metric.per_query_name: exact[metric.name] for metric in metrics if metric.name in exact},
    }


def lists_digest(index: NDArray[np.integer]) -> str:
    """SHA-256 of lists, shape (n_query, k), in 64 hexadecimal digits; the same for every type of whole numbers."""
    shape = f"lists {index.shape}".encode()
    return hashlib.sha256(shape + np.ascontiguousarray(index, dtype="<i8").tobytes()).hexdigest()
