"""The choice of queries for the pictures of a page, and their thumbnails.

Made from top-k lists alone, so a gallery of any size costs a handful of small files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError
from reid_dist.reports.ranked_pictures import Picture, Pictures, RankedPictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.thumbnails import NO_PILLOW, UnreadableImageError, pillow_is_there, thumbnail
from reid_dist.reports.topk_entries import TopK
from reid_dist.stores import LabelledSet

_MOST_IMAGE_BYTES = 4_000_000  # of thumbnails in all; a few kilobytes each


@dataclass(frozen=True)
class ImageSet:
    """Paths of image files and labels of the queries or of the gallery, shape (n,); None where there are none."""

    paths: NDArray[np.str_] | None
    pids: NDArray[np.int64]
    camids: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, labels: LabelledSet) -> ImageSet:
        """Return those of a set."""
        return cls(labels.image_paths, labels.pids, labels.camids)

    def require_rows(self, side: str, n_rows: int) -> None:
        """Refuse columns of fewer rows."""
        for name, column in vars(self).items():
            if column is not None and len(column) < n_rows:
                raise InputError(f"{side} {name} hold {counted(len(column), 'row')}, the lists are for {n_rows}")


def make_pictures(
    report: ReportData,
    query: ImageSet,
    gallery: ImageSet,
    *,
    chosen: Sequence[int] = (),
    n_hardest: int = 8,
    depth: int = 10,
    root: str | os.PathLike[str] | None = None,
) -> Pictures:
    """Collect thumbnails of queries and of the nearest items of their lists.

    The result has no queries, and a note on the reason, where there are no lists, no paths, no Pillow, or no picture
    that can be read.  No query is added once the thumbnails have 4 MB; the note counts those left out for that.
    `chosen` are query rows to show before the hardest ones; relative paths start at `root`, by default the current
    directory.
    """
    topk = report.topk
    if topk is None:
        return Pictures(note="No pictures: the run has no top-k lists (set topk=10, or --topk 10).")
    n_query = len(topk.index)
    for row in chosen:
        if not 0 <= row < n_query:
            raise InputError(f"chosen query row {row} is none of the {n_query} queries (rows count from 0)")
    for side, images in (("query", query), ("gallery", gallery)):
        if images.paths is None:
            return Pictures(note=f"No pictures: the {side} set has no image paths.")
    if not pillow_is_there():
        return Pictures(note=f"No pictures: {NO_PILLOW}.")
    query.require_rows("query", n_query)
    gallery.require_rows("gallery", int(topk.index.max(initial=-1)) + 1)
    reader = _Reader(Path() if root is None else Path(root))
    wanted = [(int(row), "chosen") for row in dict.fromkeys(chosen)]
    wanted += [(int(row), "hardest") for row in _hardest(report, topk, n_hardest) if row not in set(chosen)]
    shown: list[RankedPictures] = []
    for row, reason in wanted:
        if reader.n_bytes > _MOST_IMAGE_BYTES:
            break
        picture = reader.picture(query, row, mark="query")
        items = tuple(reader.picture(gallery, **item) for item in _items(topk, row, depth))
        shown.append(RankedPictures(reason=reason, query=picture, items=items))
    if reader.n_read == 0 and reader.n_failed:
        return Pictures(
            note=f"No pictures: none of {reader.n_failed} could be read; the first: {reader.first_failure}."
        )
    return Pictures(queries=tuple(shown), note=_note(reader, len(wanted) - len(shown)))


def _hardest(report: ReportData, topk: TopK, n_most: int) -> NDArray[np.int64]:
    """Rows of the hardest queries of a report.

    Without AP by query these are the queries whose first relevant item has the highest rank in their lists; none
    without labels.  Those whose list holds none come first; a list does not determine whether such a query is valid.
    """
    rows = report.hardest_queries(n_most)
    if len(rows):
        return rows
    if topk.relevant is None or not topk.k:
        return np.zeros(0, np.int64)
    first = np.where(topk.relevant.any(axis=1), topk.relevant.argmax(axis=1), topk.k)
    return np.argsort(-first, kind="stable")[:n_most]


def _items(topk: TopK, row: int, depth: int) -> Iterator[dict[str, Any]]:
    """Row, mark, rank and distance of the head of one list; an absent entry ends it."""
    rank = 0
    marks = topk.marks(slice(row, row + 1))[0, :depth].tolist()
    for place, mark in enumerate(marks):
        if not mark:
            return
        distance = float(topk.distance[row, place])
        rank += mark != "junk"
        yield {
            "row": int(topk.index[row, place]),
            "mark": mark,
            "rank": None if mark == "junk" else rank,
            "distance": distance if math.isfinite(distance) else None,
        }


class _Reader:
    """Reads thumbnails, relative paths from `root`, and counts them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.n_bytes = self.n_read = self.n_failed = 0
        self.first_failure = ""

    def picture(self, images: ImageSet, row: int, **described: Any) -> Picture:
        paths, camids = images.paths, images.camids
        return Picture(
            row=row,
            pid=int(images.pids[row]),
            camid=None if camids is None else int(camids[row]),
            image=self._read("" if paths is None else str(paths[row])),
            **described,
        )

    def _read(self, path: str) -> bytes | None:
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
