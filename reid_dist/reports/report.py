"""The report of an evaluation: its values, saved and loaded, as a table, as pandas and as a page."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.reports.documents import SavedDocument, plain, restored_number
from reid_dist.reports.files import ALL, DOCUMENT, ReportFiles, read_files, report_writers
from reid_dist.reports.html import render_html
from reid_dist.reports.ranked_pictures import Pictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.summary import report_frame, summarise
from reid_dist.reports.topk import TopK

SCHEMA: Final = 1
"""The version of ``report.json``; a reader refuses every other one."""

SAVED: Final = SavedDocument(DOCUMENT, SCHEMA, "report")
"""``report.json``: how it is written, and verified when it is read."""

_DESCRIPTIONS: Final = ("protocol", "distance", "rerank", "expand", "inputs", "ties", "environment", "timing")
# Beside them; None or empty where they were not requested.
_EXTRAS: Final = ("confidence", "bounds", "breakdowns", "verification", "options", "run")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report(ReportData):
    """One evaluation: the values of `ReportData`, and the files, tables and the page that are made of them."""

    def __repr__(self) -> str:
        return summarise(self).to_text()

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return summarise(self).to_html()

    def to_pandas(self, table: Literal["per_query", "metrics"] = "per_query") -> Any:
        """Return a `pandas.DataFrame`.

        Parameters
        ----------
        table
            ``"per_query"``: one row per query in the order of the query set, its index named ``query``; ``pid`` and,
            if there are any, ``camid`` first, then all other arrays of `per_query`.  ``"metrics"``: one row per metric,
            with ``value``, the ends ``low`` and ``high`` of its interval (NaN for none) and its ``definition``.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``), or there is no such table.
        """
        return report_frame(self, table)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``report.json``, made of plain Python values.

        Numbers that are not finite are None, as JSON has no others; ``infinite`` lists the infinities as
        ``[section, name, position, sign]`` (position None outside ``curves``), so that nothing is lost.
        """
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "metrics": plain(self.metrics),
            "curves": plain(self.curves),
            "counts": plain(self.counts),
        }
        document |= {name: plain(getattr(self, name)) for name in _DESCRIPTIONS + _EXTRAS}
        topk = self.topk
        document |= {
            "definitions": plain(self.definitions),
            "notes": plain(self.notes),
            "topk": None if topk is None else {"k": topk.k, "digest": topk.digest},
            "pictures": None if self.pictures is None else {"digest": _text_digest(self.pictures.to_json())},
            "infinite": _infinities(self.metrics, self.curves, _thresholds(self.verification)),
            "result_digest": self.result_digest,
        }
        return SAVED.with_digest(document)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as indented ASCII JSON; every float reads back to the same bits."""
        return SAVED.text(self.to_dict())

    def to_html(self) -> str:
        """Return the page: one file that needs neither network nor scripts."""
        return render_html(self)

    def save(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write ``report.json``, ``report.html``, ``per_query.npz`` and what belongs to them; return the directory.

        ``report.json`` comes last and whole: a directory that has one is a finished report.

        Parameters
        ----------
        directory
            A local directory, missing or empty.
        overwrite
            Also write into a directory that holds something; files of other names are left alone.

        Raises
        ------
        StoreExistsError
            If the directory holds anything and ``overwrite`` is false.
        StoreError
            If it cannot be written.
        """
        others = report_writers(
            page=self.to_html(),
            per_query=self.per_query,
            topk=None if self.topk is None else self.topk.arrays,
            pictures=None if self.pictures is None else self.pictures.to_json(),
        )
        return SAVED.save(directory, self.to_dict(), others, overwrite=overwrite, known=ALL)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Report:
        """Read what :meth:`save` wrote, and verify it.

        Raises
        ------
        StoreNotFoundError
            If there is no report.
        IncompleteStoreError
            If its writer never finished.
        DamagedStoreError
            If a file cannot be decoded, or anything but the timing is not what was written.
        StoreError
            If it is of another schema, or of an earlier version.
        """
        return cls.from_files(read_files(directory, SAVED.verify), f"report in {directory}")

    @classmethod
    def from_files(cls, files: ReportFiles, where: str) -> Report:
        """Return the report that these files hold, verified.

        Parameters
        ----------
        files
            Their content.
        where
            What an error calls the report.

        Raises
        ------
        DamagedStoreError
            If anything but the timing is not what was written.
        StoreError
            If it is of another schema, or of an earlier version.
        """
        document = files.document
        SAVED.verify(document, where)
        try:
            report = cls(
                metrics=_metrics_of(document),
                curves=_curves_of(document),
                counts=document["counts"],
                per_query=files.per_query,
                topk=None if files.topk is None else TopK(**files.topk),
                definitions=document["definitions"],
                notes=document["notes"],
                pictures=None if files.pictures is None else Pictures.from_json(files.pictures),
                **{name: document[name] for name in _DESCRIPTIONS if name != "timing"},
                **_extras_of(document),
                timing={stage: restored_number(value) for stage, value in document["timing"].items()},
            )
            digests = [document[name] and document[name]["digest"] for name in ("topk", "pictures")]
            written = document["result_digest"], *digests
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise DamagedStoreError(f"{where} is not as it was written: {error!r}") from error
        pictures = None if files.pictures is None else _text_digest(files.pictures)
        found = report.result_digest, report.topk and report.topk.digest, pictures
        for what, expected, actual in zip(("result", "topk", "pictures"), written, found, strict=True):
            if expected != actual:
                raise DamagedStoreError(
                    f"{where} was changed after it was written: its {what} digest is {actual}, "
                    f"recorded is {expected}; evaluate again"
                )
        return report


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _infinities(
    metrics: Mapping[str, float], curves: Mapping[str, NDArray[np.float64]], thresholds: Mapping[str, float | None]
) -> list[list[Any]]:
    found: list[list[Any]] = [
        [section, name, None, int(math.copysign(1, value))]
        for section, values in (("metrics", metrics), ("thresholds", thresholds))
        for name, value in values.items()
        if value is not None and math.isinf(value)
    ]
    for name, curve in curves.items():
        found += [["curves", name, int(at), int(np.sign(curve[at]))] for at in np.flatnonzero(np.isinf(curve))]
    return found


def _thresholds(verification: Mapping[str, Any] | None) -> Mapping[str, float | None]:
    thresholds: Mapping[str, float | None] = (verification or {}).get("thresholds", {})
    return thresholds


def _metrics_of(document: Mapping[str, Any]) -> dict[str, float]:
    metrics = {name: restored_number(value) for name, value in document["metrics"].items()}
    return metrics | {name: sign * math.inf for section, name, _, sign in document["infinite"] if section == "metrics"}


def _curves_of(document: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    curves = {name: np.array(values, dtype=np.float64) for name, values in document["curves"].items()}
    for section, name, at, sign in document["infinite"]:
        if section == "curves":
            curves[name][at] = sign * math.inf
    return curves


def _extras_of(document: Mapping[str, Any]) -> dict[str, Any]:
    extras = {name: document[name] for name in _EXTRAS}
    for section, name, _, sign in document["infinite"]:
        if section == "thresholds":
            extras["verification"]["thresholds"][name] = sign * math.inf
    return extras
