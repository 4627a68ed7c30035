"""Both sides of a run, opened again where the run found them, for their labels and pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reid_dist.core.formatting import short_digests
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.reports.report_data import ReportData
from reid_dist.stores import FeatureSet, LabelledSet, Role, open_features, open_labels
from reid_dist.stores.opening import recorded_place

SIDES: Final[tuple[Role, Role]] = ("query", "gallery")


def open_side(report: ReportData, side: Role, place: LabelledSet | str | os.PathLike[str] | None = None) -> LabelledSet:
    """Open the labels of a side of a run, with its features where rows were left out.

    Parameters
    ----------
    report
        The run.
    side
        ``query`` or ``gallery``.
    place
        The set, or where it is now; None for where the run found it.

    Raises
    ------
    StoreNotFoundError
        If nothing is there, or the set was in memory.
    StoreError
        If they cannot be read.
    """
    described = report.inputs.get(side)
    recorded = described if isinstance(described, dict) else {}
    if isinstance(place, LabelledSet):
        found = place
    elif place is not None:
        found = _opened(report, place, side)
    elif (uri := recorded_place(recorded, side, "labels_uri")) is None:
        raise StoreNotFoundError("it was in memory")
    else:
        try:
            found = _opened(report, uri, side)
        except StoreNotFoundError:
            raise StoreNotFoundError(f"{uri} is not there") from None
    return found


def _opened(report: ReportData, place: str | os.PathLike[str], side: Role) -> LabelledSet:
    return open_features(place, side) if leaves_out(report) else open_labels(place, side)


def leaves_out(report: ReportData) -> bool:
    """Whether rows of the sets were left out of the run."""
    return any(name in report.spec for name in ("exclude", "drop_duplicates"))


def kept_rows(report: ReportData, query: FeatureSet, gallery: FeatureSet) -> tuple[FeatureSet, FeatureSet]:
    """Both sides without the rows that were left out of the run; StoreNotFoundError where these are not known."""
    from reid_dist.stores.importers.exclusion import Exclusion, leave_out

    exclusion = Exclusion(report.spec.get("exclude", ()), report.spec.get("drop_duplicates"))
    near, far = leave_out(query, gallery, exclusion)
    return near, far


def refuse_other_labels(report: ReportData, side: Role, found: LabelledSet | None) -> None:
    """Refuse labels that are not those of the run."""
    described = report.inputs.get(side)
    recorded = described if isinstance(described, dict) else {}
    if found is not None and recorded.get("labels_digest", found.labels_digest) != found.labels_digest:
        now, before = short_digests(found.labels_digest, recorded["labels_digest"])
        raise InputError(
            f"the labels of {found.describe()['uri']} are not those of the {side} of the run; name the {side} that was "
            f"evaluated with --{side} ({side}=…), or evaluate again",
            details=(f"digest of the labels: {now}", f"recorded in the run: {before}"),
        )


def image_roots(reports: Sequence[ReportData], given: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Directories where relative paths of pictures start: the given one, or those that runs say, in their order."""
    roots = [given] if given is not None else [report.spec.get("image_root") or "." for report in reports]
    return tuple(dict.fromkeys(map(Path, roots)))
