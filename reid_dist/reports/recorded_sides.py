"""Both sides of a run, opened again where the run found them, for their labels and pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.reports.report_data import ReportData
from reid_dist.stores import LabelledSet, Role, open_labels
from reid_dist.stores.opening import recorded_place

SIDES: Final[tuple[Role, Role]] = ("query", "gallery")


def open_side(report: ReportData, side: Role, place: LabelledSet | str | os.PathLike[str] | None = None) -> LabelledSet:
    """Open the labels of a side of a run, and verify that they are those that the run had.

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
    InputError
        If the labels are not those of the run.
    StoreError
        If they cannot be read.
    """
    described = report.inputs.get(side)
    recorded = described if isinstance(described, dict) else {}
    if isinstance(place, LabelledSet):
        found = place
    elif place is not None:
        found = open_labels(place, side)
    elif (uri := recorded_place(recorded, side, "labels_uri")) is None:
        raise StoreNotFoundError("it was in memory")
    else:
        try:
            found = open_labels(uri, side)
        except StoreNotFoundError:
            raise StoreNotFoundError(f"{uri} is not there") from None
    if recorded.get("labels_digest", found.labels_digest) != found.labels_digest:
        raise InputError(
            f"the labels of {found.uri} are not those of the {side} of the run (digest {found.labels_digest[:16]}, "
            f"recorded {recorded['labels_digest'][:16]}); name the {side} that was evaluated with --{side}, "
            f"{side}=…, or evaluate again"
        )
    return found


def image_root_of(report: ReportData, given: str | os.PathLike[str] | None) -> Path:
    """Where relative paths of pictures start: as given, or where the run says, or else the current directory."""
    return Path(given if given is not None else report.spec.get("image_root") or ".")
