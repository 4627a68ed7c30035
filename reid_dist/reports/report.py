"""The answer of an evaluation: its numbers, and everything that says what they mean."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.reports.digest import result_digest
from reid_dist.reports.documents import SavedDocument
from reid_dist.reports.extras import (
    checked_bounds,
    checked_breakdowns,
    checked_confidence,
    checked_run,
    checked_verification,
)
from reid_dist.reports.files import ALL, DOCUMENT, ReportFiles, read_files, report_writers
from reid_dist.reports.heading import Heading, make_heading
from reid_dist.reports.html import render_html
from reid_dist.reports.pictures import Pictures
from reid_dist.reports.plain import plain
from reid_dist.reports.summary import report_frame, summarise
from reid_dist.reports.topk import TopK

__all__ = ["SCHEMA", "Report"]

SCHEMA: Final = 1
"""The version of ``report.json``; a reader refuses every other one."""

SAVED: Final = SavedDocument(DOCUMENT, SCHEMA, "report")
"""``report.json``: how it is written, and verified when it is read."""

_COUNTS: Final = ("n_query", "n_valid", "n_gallery", "n_junk", "n_invalid_by_reason")
_DESCRIPTIONS: Final = ("protocol", "distance", "rerank", "expand", "inputs", "ties", "environment", "timing")
# Beside them, with None or nothing where they were not asked for.
_EXTRAS: Final = ("confidence", "bounds", "breakdowns", "verification", "options", "run")


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """One evaluation.  Mappings keep their order, which is the order in which they are printed.

    Attributes
    ----------
    metrics
        Value by name, shares in 0 … 1; NaN where a metric has no value.
    curves
        1-D float64 by name.  The CMC family stands under its own name (``CMC``, ``CMC_allshots`` or
        ``CMC_single_shot``; value ``k - 1`` is rank ``k``); ``precision_recall`` holds the mean interpolated
        precision at recall 0.00, 0.01, … 1.00.
    counts
        ``n_query``, ``n_valid``, ``n_gallery``, ``n_junk`` (query-gallery pairs) and ``n_invalid_by_reason``
        (count by reason) at least; others beside them.
    per_query
        (n_query,) arrays by name: float64 (NaN where the query is invalid), int64, bool or strings.  ``reason``
        is "" for a valid query.
    protocol, distance
        The conventions, with every parameter.
    rerank, expand
        What stood before the ranking, with every parameter; None for nothing.
    inputs
        For ``query`` and ``gallery``: uri, shape, dtype, content digest.
    ties
        What orders items of equal distance.
    environment
        Versions, host, CPU, git commit.
    timing
        Seconds by stage, in the order of the stages.
    topk
        The nearest items of every query; None when nobody asked.
    definitions
        The convention in words by name of metric.
    confidence
        Intervals of the means: ``level``, ``unit`` (what was resampled), ``n_units``, ``n_resamples``, ``seed`` and
        ``intervals`` ({metric: [low, high]}); None where none were asked for.  Not part of the digest.
    bounds
        [lowest, highest] possible value by metric, where only the heads of the rankings were known.
    breakdowns
        Tables by name, columns by name; None in a column where there is no valid query (0 for groups of queries under
        a protocol that counts an invalid query as 0).  ``camera`` and ``identity`` have one entry per ``camid`` or
        ``pid`` of the queries, the name of a label column one per ``value``, each with ``n_query``, ``n_valid`` and one
        column per metric; a camera or an identity is the number or the text that it was given as.  ``camera_pair`` has
        ``query_camid``, ``gallery_camid`` and a matrix (query cameras, gallery cameras) of ``n_valid`` and of each
        metric.  ``gallery_size`` has ``order`` ("stored" or "random"), ``seed``, ``n_rows`` (gallery rows that have
        entered, ascending) and one column per metric.
    verification
        Counts (``n_genuine``, ``n_impostor``, ``n_mated``, ``n_non_mated``) and ``thresholds`` ({metric: distance})
        behind the metrics of verification and open-set search; None where there are none.
    options
        What was asked, where it is not told elsewhere.
    run
        Where the report comes from, as far as it is known: ``name``, ``description``, ``date`` (ISO 8601, UTC) and
        ``command``, all of them texts.  Not part of the digest.
    notes
        What the reader of the numbers should know.
    pictures
        Ranked pictures for the page; kept in ``pictures.json``, not in ``report.json``.

    Raises
    ------
    InputError
        If a count is missing, or an array or a table has another shape or kind than stated above.
    """

    metrics: dict[str, float]
    curves: dict[str, NDArray[np.float64]]
    counts: dict[str, Any]
    per_query: dict[str, NDArray[Any]]
    protocol: dict[str, Any]
    distance: dict[str, Any]
    inputs: dict[str, Any]
    rerank: dict[str, Any] | None = None
    expand: dict[str, Any] | None = None
    ties: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    topk: TopK | None = None
    definitions: dict[str, str] = field(default_factory=dict)
    confidence: dict[str, Any] | None = None
    bounds: dict[str, list[float]] = field(default_factory=dict)
    breakdowns: dict[str, dict[str, Any]] = field(default_factory=dict)
    verification: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    pictures: Pictures | None = None

    def __post_init__(self) -> None:
        missing = [name for name in _COUNTS if name not in self.counts]
        if missing:
            raise InputError(f"counts of a report lack {', '.join(missing)}")
        n_query = int(self.counts["n_query"])
        curves = {name: _frozen(_float_curve(name, values)) for name, values in self.curves.items()}
        per_query = {name: _frozen(_column(name, values, n_query)) for name, values in self.per_query.items()}
        if self.topk is not None and len(self.topk.index) != n_query:
            raise InputError(f"topk holds {len(self.topk.index)} lists for {n_query} queries")
        object.__setattr__(self, "metrics", {name: float(value) for name, value in self.metrics.items()})
        object.__setattr__(self, "curves", curves)
        object.__setattr__(self, "per_query", per_query)
        object.__setattr__(self, "confidence", checked_confidence(self.confidence, self.metrics))
        object.__setattr__(self, "bounds", checked_bounds(self.bounds))
        object.__setattr__(self, "breakdowns", checked_breakdowns(self.breakdowns))
        object.__setattr__(self, "verification", checked_verification(self.verification))
        object.__setattr__(self, "run", checked_run(self.run))

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over metrics, curves and per-query values as exact bytes, 64 hexadecimal digits.

        Equal answers have equal digests, wherever and however fast they were computed.  The layout is in
        :mod:`reid_dist.reports.digest`.
        """
        return result_digest(self.metrics, self.curves, self.per_query)

    @property
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""
        stages = [self.protocol, self.distance, self.expand, self.rerank]
        return make_heading(self.run, stages, self.environment, self.result_digest)

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

        What is not a finite number is None there, as JSON knows no other; ``infinite`` lists the infinities as
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
        return SAVED.sealed(document)

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
                timing={stage: _number(value) for stage, value in document["timing"].items()},
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


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _float_curve(name: str, values: object) -> NDArray[np.float64]:
    curve = np.asarray(values)
    if curve.ndim != 1 or curve.dtype.kind not in "iuf":
        raise InputError(f"curve {name!r} must be a 1-D array of numbers, found {curve.dtype} {curve.shape}")
    return curve.astype(np.float64, copy=False)


def _column(name: str, values: object, n_query: int) -> NDArray[Any]:
    """Return a per-query array in the one dtype of its kind, so that equal values have equal bytes."""
    array = np.asarray(values)
    dtypes: dict[str, Any] = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}
    # A string array of no width at all cannot be written by numpy.
    dtypes["U"] = array.dtype if array.dtype.itemsize else np.dtype("<U1")
    if array.shape != (n_query,) or array.dtype.kind not in dtypes:
        raise InputError(
            f"per-query {name!r} must hold one number or string for each of {n_query} queries, "
            f"found {array.dtype} {array.shape}"
        )
    return array.astype(dtypes[array.dtype.kind], copy=False)


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


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _metrics_of(document: Mapping[str, Any]) -> dict[str, float]:
    metrics = {name: _number(value) for name, value in document["metrics"].items()}
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
