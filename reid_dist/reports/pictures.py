"""The choice of rows for the pictures of a page, and their thumbnails.

Made from top-k lists and the rows that a report names, so a gallery of any size costs a handful of small files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError
from reid_dist.reports.ranked_pictures import Picture, Pictures, RankedPictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.thumbnails import NO_PILLOW, Thumbnails, pillow_is_there
from reid_dist.reports.topk_entries import TopK
from reid_dist.stores import LabelledSet

Root: TypeAlias = str | os.PathLike[str]
"""A directory where relative paths of pictures start."""

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
    root: Root | Sequence[Root] | None = None,
    tables: bool = True,
) -> Pictures:
    """Collect thumbnails of queries and of the nearest items of their lists, and of rows that `tables` of a page name.

    A query without a right item at the head of its list is followed by its nearest right item, where the report or the
    list has it.  The result has no queries, and a note on the reason, where there are no lists, no paths, no Pillow, or
    no picture that can be read.  No query is added once the thumbnails have 4 MB; the note counts those left out for
    that.  `chosen` are query rows to show before the hardest ones; relative paths start at `root`, by default the
    current directory, or at the first of several that has the picture.
    """
    topk = report.topk
    if topk is None:
        return Pictures(note="No pictures: the run has no top-k lists (set topk=10, or --topk 10).")
    n_query = len(topk.index)
    for row in chosen:
        if not 0 <= row < n_query:
            raise InputError(f"chosen query row {row} is none of the {n_query} queries (rows count from 0)")
    sides = {"query": query, "gallery": gallery}
    for side, images in sides.items():
        if images.paths is None:
            return Pictures(note=f"No pictures: the {side} set has no image paths.")
    if not pillow_is_there():
        return Pictures(note=f"No pictures: {NO_PILLOW}.")
    query.require_rows("query", n_query)
    gallery.require_rows("gallery", int(topk.index.max(initial=-1)) + 1)
    roots = [root] if isinstance(root, str | os.PathLike) else ["."] if root is None else root
    reader = _Reader(sides, [*map(Path, roots)])
    wanted = [(int(row), "chosen") for row in dict.fromkeys(chosen)]
    wanted += [(int(row), "hardest") for row in _hardest(report, topk, n_hardest) if row not in set(chosen)]
    right = {each["query"]: each for each in report.hardest}
    shown: list[RankedPictures] = []
    for row, reason in wanted:
        if reader.is_full:
            break
        items = list(_items(topk, row))
        head, rest = items[:depth], items[depth:]
        nearest = None
        if not any(item["mark"] == "right" for item in head):
            nearest = next((item for item in rest if item["mark"] == "right"), None) or _nearest_right(right.get(row))
        shown.append(
            RankedPictures(
                reason=reason,
                query=reader.picture("query", row, mark="query"),
                items=tuple(reader.picture("gallery", **item) for item in head),
                right=None if nearest is None else reader.picture("gallery", **nearest),
            )
        )
    thumbnails = reader.thumbnails(_named_rows(report) if tables else ())
    found = reader.found
    if found.n_read == 0 and found.n_failed:
        return Pictures(
            note=f"No pictures: none of {found.n_failed} could be read; the first: {found.first_failure}; "
            "--image-root (image_root=) names the folder where relative paths start."
        )
    return Pictures(queries=tuple(shown), note=_note(found, len(wanted) - len(shown)), thumbnails=thumbnails)


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


def _items(topk: TopK, row: int) -> Iterator[dict[str, Any]]:
    """Row, mark, rank and distance of the items of one list; an absent entry ends it."""
    rank = 0
    for place, mark in enumerate(topk.marks(slice(row, row + 1))[0].tolist()):
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


def _nearest_right(pair: dict[str, Any] | None) -> dict[str, Any] | None:
    """The nearest relevant item of a query as `_items` has it, from its entry in a report."""
    if pair is None:
        return None
    return {"row": pair["gallery"], "mark": "right", "rank": pair["rank"], "distance": pair["distance"]}


def _named_rows(report: ReportData) -> Iterator[tuple[str, int]]:
    """Side and row of all that tables of likely errors and of the hardest queries name."""
    problems = report.data_problems or {}
    for each in problems.get("identities", ()):
        yield from (("query", row) for row in each["queries"])
    for pair in (*problems.get("suspects", ()), *problems.get("duplicates", ()), *report.hardest):
        yield from ((side, pair[side]) for side in ("query", "gallery"))


class _Reader:
    """Makes pictures of rows, until their thumbnails have some megabytes."""

    def __init__(self, sides: Mapping[str, ImageSet], roots: Sequence[Path]) -> None:
        self._sides, self._n_bytes = sides, 0
        self.found = Thumbnails({side: images.paths for side, images in sides.items()}, roots)

    @property
    def is_full(self) -> bool:
        """Whether no more pictures are added."""
        return self._n_bytes > _MOST_IMAGE_BYTES

    def picture(self, side: str, row: int, **described: Any) -> Picture:
        """Return a row with its labels, the name of its file and its thumbnail."""
        images = self._sides[side]
        return Picture(
            row=row,
            pid=int(images.pids[row]),
            camid=None if images.camids is None else int(images.camids[row]),
            file="" if images.paths is None else str(images.paths[row]),
            image=self._image(side, row),
            **described,
        )

    def thumbnails(self, named: Iterable[tuple[str, int]]) -> dict[str, dict[int, bytes]]:
        """Return thumbnails of rows by side and row."""
        images: dict[str, dict[int, bytes]] = {}
        for side, row in dict.fromkeys(named):
            image = None if self.is_full else self._image(side, row)
            if image is not None:
                images.setdefault(side, {})[row] = image
        return images

    def _image(self, side: str, row: int) -> bytes | None:
        image = self.found.get(side, row)
        self._n_bytes += len(image or b"")
        return image


def _note(found: Thumbnails, n_left_out: int) -> str:
    parts = []
    if found.n_failed:
        of = found.n_failed + found.n_read
        parts.append(f"{found.n_failed} of {of} pictures could not be read; the first: {found.first_failure}.")
    if n_left_out:
        parts.append(
            f"{counted(n_left_out, 'more query')} left out: the pictures fill {_MOST_IMAGE_BYTES // 10**6} MB."
        )
    return " ".join(parts)
