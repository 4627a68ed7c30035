"""The choice of queries for the pictures of a page, and their thumbnails.

Made from top-k lists alone, so a gallery of any size costs a handful of small files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError
from reid_dist.reports.hardest import hardest_by_lists, hardest_queries
from reid_dist.reports.ranked_pictures import Picture, Pictures, RankedPictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.thumbnails import UnreadableImageError, pillow_is_there, thumbnail
from reid_dist.reports.topk import TopK

_MOST_IMAGE_BYTES = 4_000_000  # of thumbnails in all; a few kilobytes each

Paths = Sequence[Any] | NDArray[np.str_]
Labels = Sequence[int] | NDArray[np.integer]


def make_pictures(
    source: ReportData | TopK,
    query_paths: Paths | None,
    gallery_paths: Paths | None,
    *,
    chosen: Sequence[int] = (),
    n_hardest: int = 8,
    depth: int = 10,
    root: str | os.PathLike[str] | None = None,
    query_pids: Labels | None = None,
    query_camids: Labels | None = None,
    gallery_pids: Labels | None = None,
    gallery_camids: Labels | None = None,
) -> Pictures:
    """Collect thumbnails of queries and of the nearest items of their lists.

    Parameters
    ----------
    source
        A report with top-k lists, or the lists.  The hardest queries are those of lowest AP; by lists alone, those
        whose first relevant item has the highest rank.
    query_paths, gallery_paths
        (n_query,) and (n_gallery,) paths of image files; None where there are none.
    chosen
        Query rows to show besides, first and in this order.
    n_hardest
        How many of the hardest queries to show.
    depth
        How many items of a list to show at most.
    root
        Where relative paths start; the current directory when None.
    query_pids, query_camids
        (n_query,) labels for the captions; by default those of the report.
    gallery_pids, gallery_camids
        (n_gallery,) labels for the captions.

    Returns
    -------
    Pictures
        Without queries, and with a note on the reason, where there are no lists, no paths, no Pillow, or no picture
        that can be read.  No query is added once the thumbnails have 4 MB; the note counts those left out for that.

    Raises
    ------
    InputError
        If a chosen row is none of the query set, or paths or labels are too few.
    """
    topk, hardest = (
        (source, hardest_by_lists(source, n_hardest)) if isinstance(source, TopK) else _of_report(source, n_hardest)
    )
    if topk is None:
        return Pictures(note="No pictures: no top-k lists were kept (set topk=10, --topk 10).")
    n_query = len(topk.index)
    for row in chosen:
        if not 0 <= row < n_query:
            raise InputError(f"chosen query row {row} is none of the {n_query} queries (rows count from 0)")
    if query_paths is None or gallery_paths is None:
        side = "query" if query_paths is None else "gallery"
        return Pictures(note=f"No pictures: the {side} set has no image paths.")
    if not pillow_is_there():
        return Pictures(note="No pictures: Pillow is not installed (pip install 'reid-dist[pictures]').")
    if not isinstance(source, TopK):
        query_pids = source.per_query.get("pid") if query_pids is None else query_pids
        query_camids = source.per_query.get("camid") if query_camids is None else query_camids
    n_gallery = int(topk.index.max(initial=-1)) + 1
    _require_rows("query", n_query, {"paths": query_paths, "pids": query_pids, "camids": query_camids})
    _require_rows("gallery", n_gallery, {"paths": gallery_paths, "pids": gallery_pids, "camids": gallery_camids})
    reader = _Reader(Path() if root is None else Path(root))
    queries = _Side(reader, query_paths, query_pids, query_camids)
    gallery = _Side(reader, gallery_paths, gallery_pids, gallery_camids)
    wanted = [(int(row), "chosen") for row in dict.fromkeys(chosen)]
    wanted += [(int(row), "hardest") for row in hardest if row not in set(chosen)]
    shown: list[RankedPictures] = []
    for row, reason in wanted:
        if reader.n_bytes > _MOST_IMAGE_BYTES:
            break
        query = queries.picture(row, mark="query")
        shown.append(RankedPictures(reason=reason, query=query, items=_items(topk, row, depth, gallery)))
    if reader.n_read == 0 and reader.n_failed:
        return Pictures(
            note=f"No pictures: none of {reader.n_failed} could be read; the first: {reader.first_failure}."
        )
    return Pictures(queries=tuple(shown), note=_note(reader, len(wanted) - len(shown)))


def _of_report(report: ReportData, n_hardest: int) -> tuple[TopK | None, NDArray[np.int64]]:
    rows = hardest_queries(report, n_hardest)
    if not len(rows) and report.topk is not None:
        rows = hardest_by_lists(report.topk, n_hardest)
    return report.topk, rows


def _items(topk: TopK, row: int, depth: int, gallery: _Side) -> tuple[Picture, ...]:
    """Return the head of one list; an absent entry ends it."""
    found: list[Picture] = []
    rank = 0
    for place in range(min(depth, topk.k)):
        index = int(topk.index[row, place])
        if index < 0:
            break
        mark = _mark(topk, row, place)
        rank += mark != "junk"
        distance = float(topk.distance[row, place])
        found.append(
            gallery.picture(
                index,
                mark=mark,
                rank=None if mark == "junk" else rank,
                distance=distance if math.isfinite(distance) else None,
            )
        )
    return tuple(found)


def _mark(topk: TopK, row: int, place: int) -> str:
    if topk.junk is not None and topk.junk[row, place]:
        return "junk"
    if topk.relevant is None:
        return "not judged"
    return "right" if topk.relevant[row, place] else "wrong"


class _Reader:
    """Reads thumbnails and keeps count of them.

    Parameters
    ----------
    root
        Where relative paths start.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.n_bytes = self.n_read = self.n_failed = 0
        self.first_failure = ""

    def read(self, path: str) -> bytes | None:
        try:
            if not path:
                raise UnreadableImageError("empty path")
            image = thumbnail(self.root / path)
        except UnreadableImageError as error:
            self.n_failed += 1
            self.first_failure = self.first_failure or f"{path!r}: {error}"
            return None
        self.n_read += 1
        self.n_bytes += len(image)
        return image


@dataclass(frozen=True)
class _Side:
    """Paths and labels of the query set or of the gallery."""

    reader: _Reader
    paths: Paths
    pids: Labels | None
    camids: Labels | None

    def picture(self, row: int, *, mark: str, rank: int | None = None, distance: float | None = None) -> Picture:
        return Picture(
            row=row,
            mark=mark,
            rank=rank,
            pid=None if self.pids is None else int(self.pids[row]),
            camid=None if self.camids is None else int(self.camids[row]),
            distance=distance,
            image=self.reader.read(str(self.paths[row])),
        )


def _note(reader: _Reader, n_left_out: int) -> str:
    parts = []
    if reader.n_failed:
        of = reader.n_failed + reader.n_read
        parts.append(f"{reader.n_failed} of {of} pictures could not be read; the first: {reader.first_failure}.")
    if n_left_out:
        parts.append(
            f"{counted(n_left_out, 'more query')} left out: the pictures fill {_MOST_IMAGE_BYTES // 10**6} MB."
        )
    return " ".join(parts)


def _require_rows(side: str, n_rows: int, columns: dict[str, Paths | Labels | None]) -> None:
    for name, column in columns.items():
        if column is not None and len(column) < n_rows:
            raise InputError(f"{side} {name} hold {counted(len(column), 'row')}, the lists are for {n_rows}")
