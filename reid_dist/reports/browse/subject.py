"""The run whose lists are shown: its report, the labels and paths of both sides, and a run to compare it with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.reports.comparison.conditions import differing_conditions, has_other_gallery, refuse_unlike
from reid_dist.reports.comparison.paired import pair_values
from reid_dist.reports.failure_kinds import CommonLabels, find_failures
from reid_dist.reports.recorded_sides import image_roots, open_sides
from reid_dist.reports.report import Report
from reid_dist.reports.topk_entries import TopK
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import joint_labels

_LENGTH: Final = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Against:
    """A run to compare with.

    Attributes
    ----------
    title
        Its name.
    loss
        What each query loses against it: its average precision there less that in the run shown, shape (n_query,),
        NaN where either has none.
    topk
        Its lists; None where it has none, or of another gallery.
    """

    title: str
    loss: NDArray[np.float64]
    topk: TopK | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A run with lists.

    Attributes
    ----------
    report, topk
        The run, and its lists.
    query, gallery
        Labels of both sides; None where they were not found.
    roots
        Where relative paths of pictures start: the first of these directories that has the picture.
    against
        The run to compare with.
    notes
        What is missing, a sentence each.
    """

    report: Report
    topk: TopK
    query: LabelledSet | None
    gallery: LabelledSet | None
    roots: tuple[Path, ...] = (Path(),)
    against: Against | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_query(self) -> int:
        """Number of queries."""
        return len(self.topk.index)

    def column(self, name: str) -> NDArray[Any] | None:
        """Values of all queries by name, shape (n_query,), if the report has them."""
        return self.report.per_query.get(name)

    @cached_property
    def failures(self) -> dict[str, NDArray[np.bool_]]:
        """Kinds of failures by name, each of shape (n_query,)."""
        reasons = self.column("reason")
        valid = np.ones(self.n_query, np.bool_) if reasons is None else reasons == ""
        return find_failures(self.topk, valid, self._common_labels())

    def _common_labels(self) -> CommonLabels | None:
        if self.query is None or self.gallery is None:
            return None
        sides = (self.query, self.gallery)
        with_cameras = all(side.camids is not None for side in sides)
        return CommonLabels(*joint_labels("pid", sides), *(joint_labels("camid", sides) if with_cameras else ()))


def open_subject(
    report: Report,
    *,
    query: str | os.PathLike[str] | None = None,
    gallery: str | os.PathLike[str] | None = None,
    image_root: str | os.PathLike[str] | None = None,
    against: Report | None = None,
) -> Subject:
    """Open the labels of a run with lists.

    Parameters
    ----------
    report
        The run.
    query, gallery
        Where its sides are now; None for where they were.  A side that is no longer there is a note, and its labels
        and pictures are not shown.
    image_root
        Where relative paths of pictures start; None for where one of the runs says, or else the current directory.
    against
        A run over the same queries to compare with.

    Raises
    ------
    InputError
        If the run has no lists, a side has other labels than those of the run, or the runs cannot be compared.
    StoreNotFoundError
        If there is nothing at a place that is given.
    StoreError
        If a side cannot be read.
    """
    topk = report.topk
    if topk is None:
        command = report.run.get("command", "")
        made = f" (this run: {command})" if command else ""
        # Not computed here: the lists may be those of a re-ranking, which takes as long as the run.
        raise InputError(
            f"the run has no topk.npz, the lists to show; evaluate again with --topk {_LENGTH} and another --output"
            f"{made}"
        )
    opened = open_sides(report, {"query": query, "gallery": gallery})
    notes = [
        f"Labels and pictures of the {side} are not shown: {why}; pass its store with --{side}."
        for side, why in opened.lost.items()
    ]
    if opened.unknown_rows:
        notes.append(f"Labels and pictures are not shown: {opened.unknown_rows}.")
    other = None if against is None else _compared(report, against, notes)
    runs = [each for each in (report, against) if each is not None]
    return Subject(
        report=report,
        topk=topk,
        roots=image_roots(runs, image_root),
        against=other,
        query=opened.found.get("query"),
        gallery=opened.found.get("gallery"),
        notes=tuple(notes),
    )


def _compared(report: Report, against: Report, notes: list[str]) -> Against:
    conditions = tuple(differing_conditions(against, report))
    refuse_unlike(against, report, conditions, allow_different=True)
    name = report.per_query_headline("average").name
    pair = pair_values(name, against, report)
    if pair.untested:
        raise InputError(
            f"losses are differences of {name} by query, and it has none in both runs: {pair.untested.words}"
        )
    title = against.heading.title
    notes.extend(f"Other conditions in {title}: {each}." for each in conditions)
    same_items = not has_other_gallery(against, report)
    if against.topk is not None and not same_items:
        notes.append(f"The lists of {title} are not shown, because they belong to another gallery.")
    return Against(title=title, loss=-pair.difference, topk=against.topk if same_items else None)
