"""The items that a night and its baseline both have, where a gallery or a query set grew or was relabelled.

A report holds values of the ranking of a whole gallery, so that values of tonight's larger one do not compare with it.
Tonight's features of the items of the baseline do: a second evaluation, of these rows alone, is compared instead.

*Prefix.*  The first rows have the labels of the baseline (its labels digest): rows were appended.

*Items.*  Otherwise the sets of the baseline must still be where they were, with the content that they had.  Items are
matched by their ids, else by their image paths, and count as common where their identity and camera are equal as well.
Where all of the baseline's are common, its report stands; otherwise it is evaluated again on the common ones, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import ReidDistError
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.nightly.history.history_values import Past
from reid_dist.reports import Report
from reid_dist.stores import FeatureSet, open_features
from reid_dist.stores.labels import given_labels, join_item_ids
from reid_dist.stores.opening import recorded_place

Int64: TypeAlias = NDArray[np.int64]

_SIDES: Final = ("query", "gallery")


class Obstacle(StrEnum):
    """Why a night is not compared on common items; `reid_dist.nightly.wording` has the words."""

    # The ranking is given, or refers to rows by their numbers, or is drawn.
    NO_FEATURES = "no_features"
    ROW_NUMBERS = "row_numbers"
    # The sets of the baseline are gone or have another content; items have no ids; none is common.
    OVERWRITTEN = "overwritten"
    NO_IDS = "no_ids"
    NOTHING_COMMON = "nothing_common"
    # The evaluation failed.
    FAILED = "failed"


class NotCommonError(ReidDistError):
    """A night cannot be compared on common items: an `Obstacle`, and the words of an error."""

    def __init__(self, obstacle: Obstacle, text: str = "") -> None:
        super().__init__(text or obstacle)
        self.facts: dict[str, str] = {"obstacle": obstacle} | ({"why": text} if text else {})


@dataclass(frozen=True)
class CommonItems:
    """Reports of tonight and of the baseline over the items of both.

    `query_rows` are the rows of tonight's query set, (n_query,); `facts` count the items, and those of tonight.
    """

    tonight: Report
    baseline: Report
    query_rows: Int64
    facts: Mapping[str, Any]


def on_common_items(job: PipelineJob, past: Past, evaluate: Callable[[FeatureSet, FeatureSet], Report]) -> CommonItems:
    """Evaluate a job on the items that it has in common with an entry, whose report is there.

    Raises
    ------
    NotCommonError
        If that cannot be done.
    """
    if job.lists is not None or job.distances is not None or past.report is None:
        raise NotCommonError(Obstacle.NO_FEATURES)
    if job.ground_truth is not None:
        raise NotCommonError(Obstacle.ROW_NUMBERS)
    try:
        now = dict(zip(_SIDES, job.sides.open(), strict=True))
        found = {side: _common_rows(now[side], past, side) for side in _SIDES}
        tonight = evaluate(*(now[side].take(rows) for side, (rows, _, _) in found.items()))
        baseline = past.report
        if any(kept is not None for _, kept, _ in found.values()):
            if job.fuse:
                raise NotCommonError(Obstacle.OVERWRITTEN)
            sets = (_baseline_set(past, side) for side in _SIDES)
            kept = (rows for _, rows, _ in found.values())
            baseline = evaluate(
                *(each if rows is None else each.take(rows) for each, rows in zip(sets, kept, strict=True))
            )
    except NotCommonError:
        raise
    except ReidDistError as error:
        raise NotCommonError(Obstacle.FAILED, str(error)) from error
    facts = {
        "by": "prefix" if all(by == "prefix" for _, _, by in found.values()) else "items",
        **{f"n_{side}": len(rows) for side, (rows, _, _) in found.items()},
        **{f"of_{side}": each.n_rows for side, each in now.items()},
    }
    return CommonItems(tonight, baseline, found["query"][0], facts)


def _common_rows(now: FeatureSet, past: Past, side: str) -> tuple[Int64, Int64 | None, str]:
    """Return the common rows of tonight's set, those of the baseline's (None for all), and how they were found.

    Both are in the order of the baseline.
    """
    described = past.entry.inputs[side]
    n_before, digest = int(described["shape"][0]), described.get("labels_digest")
    every = np.arange(min(n_before, now.n_rows))
    if digest is not None and n_before <= now.n_rows:
        first = now if n_before == now.n_rows else now.take(every)
        if first.labels_digest == digest:
            return every, None, "prefix"
    before = _baseline_set(past, side)
    old, new = _names(before, now)
    _, at_old, at_new = np.intersect1d(old, new, assume_unique=True, return_indices=True)
    order = np.argsort(at_old)
    at_old, at_new = at_old[order], at_new[order]
    equal = _has_equal_labels(before, now, at_old, at_new)
    at_old, at_new = at_old[equal].astype(np.int64), at_new[equal].astype(np.int64)
    if not len(at_old):
        raise NotCommonError(Obstacle.NOTHING_COMMON)
    return at_new, None if len(at_old) == before.n_rows else at_old, "items"


def _baseline_set(past: Past, side: str) -> FeatureSet:
    """Open a set of the baseline where it was, if it has the content that it had."""
    described = past.entry.inputs[side]
    place = recorded_place(described, "query" if side == "query" else "gallery")
    try:
        found = None if place is None else open_features(place, role=side)
    except ReidDistError:
        found = None
    if found is None or found.content_digest != described.get("content_digest"):
        raise NotCommonError(Obstacle.OVERWRITTEN)
    return found


def _names(before: FeatureSet, now: FeatureSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the ids of the items of two sets, or else their image paths; both unique in each set."""
    for old, new in ((before.item_ids, now.item_ids), (before.image_paths, now.image_paths)):
        if old is None or new is None:
            continue
        old, new = join_item_ids(old, new)
        if all(len(np.unique(each)) == len(each) for each in (old, new)):
            return old, new
    raise NotCommonError(Obstacle.NO_IDS)


def _has_equal_labels(before: FeatureSet, now: FeatureSet, at_old: Int64, at_new: Int64) -> NDArray[np.bool_]:
    """Return whether identity and camera of paired rows are equal, as they were given, shape (n_pairs,)."""
    equal = np.ones(len(at_old), bool)
    for labels, names in (("pids", "pid_names"), ("camids", "camid_names")):
        old, new = (getattr(each, labels) for each in (before, now))
        if (old is None) != (new is None):
            return np.zeros(len(at_old), bool)
        if old is not None:
            texts = [
                np.asarray(given_labels(column[rows], getattr(each, names))).astype(np.str_)
                for each, column, rows in ((before, old, at_old), (now, new, at_new))
            ]
            equal &= texts[0] == texts[1]
    return equal
