"""One query with the pictures of its list: a view for a notebook, and a page of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.reports.documents import Summarised
from reid_dist.reports.html import page_environment
from reid_dist.reports.pictures import ImageSet, make_pictures
from reid_dist.reports.ranked_pictures import RankedPictures
from reid_dist.reports.recorded_sides import SIDES, Place, image_roots, open_sides
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.sections.queries import picture_tiles, query_facts
from reid_dist.reports.tabular.table import Column, Kind, Note, Table
from reid_dist.stores.folders import written_whole


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ShownQuery(Summarised):
    """A query and the nearest items of its list; notebooks show them as thumbnails.

    Attributes
    ----------
    title
        Row of the query, its average precision, and the rank of its first relevant item.
    pictures
        The query and its items, nearest first, junk included.
    note
        Note about pictures that could not be read, or "".
    """

    title: str
    pictures: RankedPictures
    note: str = ""

    def summary(self) -> Table:
        """Return the list as a table without pictures, as shown in a console."""
        return Table(
            title=self.title,
            columns=[*(Column(head, Kind.TEXT) for head in ("item", "row", "labels", "file")), Column("distance")],
            rows=[
                [tile["sign"], tile["row"], ", ".join(tile["labels"]), tile["file"], tile["distance"] or "-"]
                for tile in picture_tiles(self.pictures)
            ],
            notes=[Note(self.note)] if self.note else [],
        )

    def _repr_html_(self) -> str:
        """Return the pictures as HTML that needs no other file."""
        return self._render("shown_query.html.j2")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained HTML page and return its path; an existing file is replaced.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        target = Path(path)
        try:
            with written_whole(target) as file:
                file.write(self._render("shown_query_page.html.j2").encode("utf-8", "replace"))
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror or error}; choose another path") from None
        return target

    def _render(self, template: str) -> str:
        content = {"title": self.title, "tiles": picture_tiles(self.pictures), "note": self.note}
        return page_environment().get_template(template).render(content)


def show_query(
    report: ReportData,
    row: int,
    *,
    depth: int = 10,
    query: Place | None = None,
    gallery: Place | None = None,
    image_root: str | os.PathLike[str] | None = None,
) -> ShownQuery:
    """Collect the pictures of a query; parameters and errors are those of `Report.show_query`."""
    if report.topk is None:
        raise InputError(
            "show_query shows the top-k lists of a report, and this one has none: evaluate with topk=10 (--topk 10)"
        )
    opened = open_sides(report, {"query": query, "gallery": gallery})
    for side, why in opened.lost.items():
        raise StoreNotFoundError(
            f"the {side} set, which has the paths of the pictures, was not found: {why}; pass it, or its path, as "
            f"{side}=…"
        )
    if opened.unknown_rows:
        raise StoreNotFoundError(f"query row {row} cannot be shown: {opened.unknown_rows}")
    images = [ImageSet.of(opened.found[side]) for side in SIDES]
    roots = image_roots([report], image_root)
    pictures = make_pictures(report, *images, chosen=[row], n_hardest=0, depth=depth, root=roots, tables=False)
    if not pictures.queries:
        raise InputError(f"query row {row} cannot be shown. {pictures.note}")
    (shown,) = pictures.queries
    return ShownQuery(
        title=": ".join(filter(None, (f"Query row {row}", query_facts(report, row)))),
        pictures=shown,
        note=pictures.note,
    )
