"""Both sides of a run, opened again where the run found them, for their labels and pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from reid_dist.core.formatting import short_digests
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.reports.report_data import ReportData
from reid_dist.stores import FeatureSet, LabelledSet, Role, open_features, open_labels
from reid_dist.stores.opening import recorded_place

SIDES: Final[tuple[Role, Role]] = ("query", "gallery")

Place: TypeAlias = LabelledSet | str | os.PathLike[str]
"""A side of a run, or where it is now."""


class OpenedSides(NamedTuple):
    """Sides that were found, why others were not, and why rows that were left out of a run are not known, or ""."""

    found: dict[Role, LabelledSet]
    lost: dict[Role, str]
    unknown_rows: str = ""


def open_sides(report: ReportData, places: Mapping[Role, Place | None]) -> OpenedSides:
    """Open the labels of both sides of a run, without the rows that were left out of it.

    Parameters
    ----------
    report
        The run.
    places
        The sets, or where they are now; None for where the run found them.

    Raises
    ------
    StoreNotFoundError
        If there is nothing at a place that is given.
    StoreError
        If a side cannot be read.
    InputError
        If a side has other labels than those of the run.
    """
    found: dict[Role, LabelledSet] = {}
    lost: dict[Role, str] = {}
    for side, place in places.items():
        uri = recorded_place(_recorded(report, side), side, "labels_uri")
        try:
            if isinstance(place, LabelledSet):
                found[side] = place
            elif (where := uri if place is None else place) is not None:
                found[side] = _opened(report, where, side)
            else:
                lost[side] = "it was in memory"
        except StoreNotFoundError:
            if place is not None:
                raise
            lost[side] = f"{uri} is not there"
    unknown = ""
    if _leaves_out(report):
        found, unknown = _kept_rows(report, found, lost)
    for side, labels in found.items():
        _refuse_other_labels(report, side, labels)
    return OpenedSides(found, lost, unknown)


def _recorded(report: ReportData, side: Role) -> dict[str, Any]:
    described = report.inputs.get(side)
    return described if isinstance(described, dict) else {}


def _opened(report: ReportData, place: str | os.PathLike[str], side: Role) -> LabelledSet:
    return open_features(place, side, finite=False) if _leaves_out(report) else open_labels(place, side)


def _leaves_out(report: ReportData) -> bool:
    """Whether rows of the sets were left out of the run, which takes features to find them again."""
    return any(name in report.spec for name in ("exclude", "drop_duplicates"))


def _kept_rows(
    report: ReportData, found: dict[Role, LabelledSet], lost: Mapping[Role, str]
) -> tuple[dict[Role, LabelledSet], str]:
    """Leave out of both sides what was left out of the run, which takes both; none, and why, where it is not known."""
    from reid_dist.stores.importers.exclusion import Exclusion, leave_out

    query, gallery = (found.get(side) for side in SIDES)
    if isinstance(query, FeatureSet) and isinstance(gallery, FeatureSet):
        exclusion = Exclusion(report.spec.get("exclude", ()), report.spec.get("drop_duplicates"))
        try:
            return dict(zip(SIDES, leave_out(query, gallery, exclusion), strict=True)), ""
        except StoreNotFoundError as error:
            return {}, f"rows were left out of the run, and there is {error}"
    if found and lost:
        return {}, "rows were left out of the run, and one side is missing"
    return found, ""


def _refuse_other_labels(report: ReportData, side: Role, found: LabelledSet) -> None:
    recorded = _recorded(report, side).get("labels_digest", found.labels_digest)
    if recorded != found.labels_digest:
        now, before = short_digests(found.labels_digest, recorded)
        raise InputError(
            f"the labels of {found.describe()['uri']} are not those of the {side} of the run; name the {side} that was "
            f"evaluated with --{side} ({side}=…), or evaluate again",
            details=(f"digest of the labels: {now}", f"recorded in the run: {before}"),
        )


def image_roots(reports: Sequence[ReportData], given: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Directories where relative paths of pictures start: the given one, or those that runs say, in their order."""
    roots = [given] if given is not None else [report.spec.get("image_root") or "." for report in reports]
    return tuple(dict.fromkeys(map(Path, roots)))
