"""Queries that changed most from one run to another, each with the heads of both lists as pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reid_dist.errors import InputError, StoreError
from reid_dist.reports.browse.subject import open_subject
from reid_dist.reports.comparison.comparison_values import ChangedQuery, Comparison
from reid_dist.reports.pictures import ImageSet, make_pictures
from reid_dist.reports.ranked_pictures import RankedPictures
from reid_dist.reports.recorded_sides import image_roots
from reid_dist.reports.report import Report

# Queries that lost, and that gained; and items of each list.
_EACH: Final = 4
_DEPTH: Final = 8

_NONE: Final = "No pictures of changed queries"


@dataclass(frozen=True, slots=True)
class MovedQuery:
    """A query that changed, and the head of its list in the first and in the second run."""

    changed: ChangedQuery
    lists: tuple[RankedPictures, ...]


@dataclass(frozen=True, slots=True)
class MovedQueries:
    """Queries that changed most under a metric, and a note on the pictures that are missing, or ""."""

    metric: str
    queries: tuple[MovedQuery, ...]
    note: str


def moved_queries(
    paired: Comparison, reports: Sequence[Report], image_root: str | os.PathLike[str] | None = None
) -> MovedQueries | None:
    """Collect pictures of the queries that changed most under the first metric that was tested.

    Relative paths of pictures start at `image_root`, by default where one of the runs says, its own one first.  None
    without such queries or without lists; the note of the result is on what is missing.
    """
    metric = next((each for each in paired.metrics if not each.untested and each.n_lost + each.n_gained), None)
    if metric is None or any(report.topk is None for report in reports):
        return None
    changed = (*metric.lost[:_EACH], *metric.gained[:_EACH])
    lists: list[dict[int, RankedPictures]] = []
    notes: list[str] = []
    for report in reports:
        try:
            others = [other for other in reports if other is not report]
            roots = image_roots([report, *others], image_root)
            found, note = _pictures(report, [each.row for each in changed], roots)
        except (InputError, StoreError) as error:
            return MovedQueries(metric.name, (), f"{_NONE}: {error}.")
        lists.append(found)
        notes.append(note)
    both = [each for each in changed if all(each.row in found for found in lists)]
    return MovedQueries(
        metric.name,
        tuple(MovedQuery(each, tuple(found[each.row] for found in lists)) for each in both),
        " ".join(dict.fromkeys(filter(None, notes))),
    )


def _pictures(report: Report, rows: Sequence[int], roots: Sequence[Path]) -> tuple[dict[int, RankedPictures], str]:
    """Lists of some queries by row, and a note on what is missing."""
    subject = open_subject(report)
    if subject.query is None or subject.gallery is None:
        side = "query" if subject.query is None else "gallery"
        raise InputError(f"the {side} set of {report.heading.title} is not at {report.inputs[side]['uri']}")
    sides = [ImageSet.of(each) for each in (subject.query, subject.gallery)]
    pictures = make_pictures(report, *sides, chosen=rows, n_hardest=0, depth=_DEPTH, root=roots, tables=False)
    return {shown.query.row: shown for shown in pictures.queries}, pictures.note
