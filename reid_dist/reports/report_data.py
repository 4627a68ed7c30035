"""Values of an evaluation with their conventions, their digest and their files."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding
from reid_dist.errors import InputError
from reid_dist.metrics.metric import ByMetric, MetricFamily, headline_families
from reid_dist.relevance.protocols import ZERO
from reid_dist.reports.breakdown_tables import checked_breakdowns
from reid_dist.reports.digest import result_digest
from reid_dist.reports.documents import DocumentReport, plain, require_digest, restored_number
from reid_dist.reports.entry_checks import (
    checked_bounds,
    checked_confidence,
    checked_run,
    checked_verification,
)
from reid_dist.reports.heading import Heading, make_heading, weak_evidence
from reid_dist.reports.item_names import ItemNames
from reid_dist.reports.report_files import (
    BESIDE,
    DOCUMENT,
    PAGE,
    PER_QUERY,
    PER_QUERY_PARQUET,
    PICTURES,
    TOPK,
    Writer,
    unpack_arrays,
    write_parquet,
)
from reid_dist.reports.topk_entries import TopK
from reid_dist.stores.archive import write_arrays

if TYPE_CHECKING:
    from reid_dist.reports.ranked_pictures import Pictures

HARDEST: Final = 20
"""Queries in the entry `hardest`, and in tables of the hardest queries."""

_COUNTS: Final = ("n_query", "n_valid", "n_gallery", "n_junk", "n_invalid_by_reason")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReportData(DocumentReport):
    """Values of one evaluation.  Mappings keep their order, which is the printed order.

    Attributes
    ----------
    metrics
        Values by name, shares from 0 to 1; NaN if a metric has no value.  Every spelling of a name works as a key.
    curves
        1-D float64 by name.  The CMC family has its own name (``CMC``, ``CMC_allshots`` or
        ``CMC_single_shot``; value ``k - 1`` is rank ``k``); ``precision_recall`` holds the mean interpolated
        precision at recall 0.00, 0.01, … 1.00, unless the metrics need only the ranks of the nearest positives.
    counts
        ``n_query``, ``n_valid``, ``n_gallery``, ``n_junk`` (query-gallery pairs) and ``n_invalid_by_reason``
        (count by reason) at least, and others.
    per_query
        (n_query,) arrays by name: float64 (NaN where the query is invalid), int64, bool or strings.  ``reason``
        is "" for a valid query.  ``AP`` and ``INP`` exist if all positives were ranked.
    protocol, distance
        The conventions, with every parameter.
    rerank, expand
        Stages before the ranking, with every parameter; None for none.
    inputs
        For ``query`` and ``gallery``: uri, shape, dtype, content digest.
    ties
        How items at equal distance are ordered.
    environment
        Versions, host, CPU, git commit.
    timing
        Seconds by stage, in the order of the stages.
    topk
        The nearest items of every query; None unless requested.
    definitions
        The convention in words by name of metric.
    confidence
        Intervals of the means: ``level``, ``unit`` (what was resampled), ``n_units``, ``n_resamples``, ``seed`` and
        ``intervals`` ({metric: [low, high]}); None unless requested.  Not part of the digest.
    bounds
        [lowest, highest] possible value by metric, if only the top of each ranking was known.
    breakdowns
        Tables by name, each with columns by name.  A value is None if a group has no valid query (0 under a protocol
        that counts invalid queries as 0).  ``camera`` and ``identity`` have one entry per ``camid`` or ``pid`` of the
        queries, and a label column one per ``value``, each with ``n_query``, ``n_valid`` and one column per metric.
        Cameras and identities keep the numbers or texts of the input.  ``camera_pair`` has ``query_camid``,
        ``gallery_camid`` and a matrix (query cameras, gallery cameras) of ``n_valid`` and of each metric.
        ``gallery_size`` has ``order`` ("stored" or "random"), ``seed``, ``n_rows`` (gallery rows included, ascending)
        and one column per metric.
    verification
        Counts (``n_genuine``, ``n_impostor``, ``n_mated``, ``n_non_mated``) and ``thresholds`` ({metric: distance})
        of the verification and open-set metrics; None without such metrics.
    data_problems
        Likely label errors, duplicates and shifted cameras, if lists were requested; see
        :mod:`reid_dist.reports.data_problems`.  Not part of the digest.
    hardest
        The hardest queries, hardest first, each with its nearest relevant item: ``query`` and ``gallery`` (rows),
        ``rank``, ``distance``, ``pids`` and, if both sides have them, ``camids`` and file names ``paths`` of both.
        Empty if single items are not ranked.  Not part of the digest.
    stage_changes
        Changes made by the stages before the ranking, if requested: ``level`` and ``unit`` of the intervals, and
        ``without``, with ``stages`` and ``metrics`` of each run that omits stages.  Not part of the digest.
    options
        The other options of the evaluation.
    benchmark
        The benchmark that was evaluated: ``name``, ``summary``, ``source`` and others; None without one.
    run
        Origin of the report, as far as known: ``name``, ``description``, ``date`` (ISO 8601, UTC) and ``command``, all
        strings.  Not part of the digest.
    spec
        Everything that the values depend on: content digests of the inputs, every option of `evaluate`, and the parts
        of the protocol.  Empty in reports of earlier versions.  Not part of the digest.
    notes
        Findings on the validity of the numbers; ``str`` gives the sentence of each.
    names
        Item ids and image paths of queries, and of the gallery rows in lists; None if the sets have none.  Stored in
        ``per_query.npz`` and ``topk.npz``.  Not part of the digest.
    pictures
        Ranked pictures for the page; stored in ``pictures.json``, not in ``report.json``.
    operating_points
        Operating points of the run for the page, read from ``thresholds.json`` in the same directory.

    Raises
    ------
    InputError
        If a count is missing, or an array or table does not have the shape or type stated above.
    """

    _what = "report"
    document = DOCUMENT
    page = PAGE
    _beside = BESIDE

    # In the order of the document.
    metrics: dict[str, float]
    curves: dict[str, NDArray[np.float64]]
    counts: dict[str, Any]
    per_query: dict[str, NDArray[Any]]
    protocol: dict[str, Any]
    distance: dict[str, Any]
    rerank: dict[str, Any] | None = None
    expand: dict[str, Any] | None = None
    inputs: dict[str, Any]
    ties: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    confidence: dict[str, Any] | None = None
    bounds: dict[str, list[float]] = field(default_factory=dict)
    breakdowns: dict[str, dict[str, Any]] = field(default_factory=dict)
    verification: dict[str, Any] | None = None
    data_problems: dict[str, Any] | None = None
    hardest: list[dict[str, Any]] = field(default_factory=list)
    stage_changes: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    benchmark: dict[str, str] | None = None
    run: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    notes: list[Finding] = field(default_factory=list)
    topk: TopK | None = None
    names: ItemNames | None = None
    pictures: Pictures | None = None
    operating_points: DocumentReport | None = None

    def __post_init__(self) -> None:
        missing = [name for name in _COUNTS if name not in self.counts]
        if missing:
            raise InputError(f"counts of a report lack {', '.join(missing)}")
        n_query = int(self.counts["n_query"])
        curves = {name: _frozen(_float_curve(name, values)) for name, values in self.curves.items()}
        per_query = {name: _frozen(_column(name, values, n_query)) for name, values in self.per_query.items()}
        if self.topk is not None and len(self.topk.index) != n_query:
            raise InputError(f"topk holds {len(self.topk.index)} lists for {n_query} queries")
        if self.topk is not None and self.topk.names is not self.names:
            object.__setattr__(self, "topk", replace(self.topk, names=self.names))
        checked = {
            "metrics": ByMetric({name: float(value) for name, value in self.metrics.items()}),
            "curves": curves,
            "per_query": per_query,
            "confidence": checked_confidence(self.confidence, self.metrics),
            "bounds": ByMetric(checked_bounds(self.bounds)),
            "breakdowns": checked_breakdowns(self.breakdowns),
            "verification": checked_verification(self.verification),
            "data_problems": plain(self.data_problems),
            "hardest": plain(self.hardest),
            "run": checked_run(self.run),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over metrics, curves and per-query values as exact bytes, 64 hexadecimal digits.

        Equal results have equal digests, regardless of where and how they were computed.  The layout is in
        :mod:`reid_dist.reports.digest`.
        """
        return result_digest(self.metrics, self.curves, self.per_query)

    @property
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""
        stages = [self.protocol, self.distance, self.expand, self.rerank]
        return make_heading(self.run, stages, self.environment, self.result_digest)

    @property
    def is_one_set(self) -> bool:
        """Whether query and gallery are the same rows."""
        sides = [self.inputs.get(side) for side in ("query", "gallery")]
        digests = [side.get("content_digest") for side in sides if isinstance(side, Mapping)]
        return len(digests) == len(sides) and digests[0] is not None and digests[0] == digests[1]

    @property
    def n_identities(self) -> int | None:
        """Number of identities behind the means; None if unknown."""
        pids, reasons = self.per_query.get("pid"), self.per_query.get("reason")
        if pids is None or reasons is None:
            return None
        counts_as_zero = self.protocol.get("invalid_query") == ZERO
        number = len(np.unique(pids if counts_as_zero else pids[reasons == ""]))
        # Relevance by lists needs no identities, and one pid for all queries is then a placeholder.
        return None if number == 1 and "ground_truth" in self.protocol else number

    @property
    def weak_evidence(self) -> list[Finding]:
        """Findings about weak evidence: few valid queries, few identities."""
        return weak_evidence(self.counts, self.protocol, self.n_identities)

    def per_query_headline(self, role: str) -> MetricFamily:
        """Return the first headline metric with values in `per_query`, if any; the protocol's own AP comes first."""
        families = headline_families(role, str(self.protocol.get("ap_family")))
        return next((family for family in families if family.per_query_name in self.per_query), families[0])

    def hardest_queries(self, n_most: int = HARDEST) -> NDArray[np.int64]:
        """Rows of the valid queries sorted by AP, then INP, then row, lowest first; empty without AP per query."""
        average = self.per_query.get(self.per_query_headline("average").per_query_name)
        if average is None:
            return np.zeros(0, np.int64)
        rows = np.flatnonzero(np.isfinite(average))
        inverse = self.per_query.get(self.per_query_headline("last").per_query_name, average)
        return rows[np.lexsort((rows, inverse[rows], average[rows]))][:n_most]

    def _entries(self) -> dict[str, Any]:
        """Entries of ``report.json`` without schema and digests.

        ``infinite`` lists the infinities, which JSON does not have, as ``[section, name, position, sign]`` (position
        None outside ``curves``).
        """
        entries = super()._entries()
        del entries["per_query"], entries["operating_points"]
        topk, pictures, names = self.topk, self.pictures, self.names
        thresholds = (self.verification or {}).get("thresholds", {})
        return entries | {
            "topk": None if topk is None else {"k": topk.k, "digest": topk.digest},
            "names": None if names is None else {"digest": names.digest},
            "pictures": None if pictures is None else {"digest": pictures.digest},
            "infinite": _infinities(self.metrics, self.curves, thresholds),
        }

    def _writers(self) -> dict[str, Writer]:
        """Functions that write the files beside the document and the page; parquet only where pyarrow is installed."""
        per_query, list_names = self.per_query, dict[str, NDArray[Any]]()
        if self.names is not None:
            per_query, list_names = {**per_query, **self.names.query}, self.names.list_arrays
        writers: dict[str, Writer] = {PER_QUERY: partial(write_arrays, arrays=per_query, compressed=True)}
        if importlib.util.find_spec("pyarrow") is not None:
            writers[PER_QUERY_PARQUET] = partial(write_parquet, per_query)
        if self.topk is not None:
            writers[TOPK] = partial(write_arrays, arrays={**self.topk.arrays, **list_names}, compressed=True)
        if self.pictures is not None:
            text = self.pictures.to_json().encode("ascii")
            writers[PICTURES] = lambda file: file.write(text)
        return writers

    @classmethod
    def _restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name."""
        # A report of an earlier version has no names.
        topk, pictures, names = entries["topk"], entries["pictures"], entries.setdefault("names", None)
        per_query = unpack_arrays(read(PER_QUERY), f"{PER_QUERY} of {where}")
        lists: dict[str, Any] = {} if topk is None else unpack_arrays(read(TOPK), f"{TOPK} of {where}")
        if names is not None:
            entries["names"] = ItemNames.taken_from(per_query, lists)
            require_digest("names", entries["names"].digest, names["digest"])
        if topk is not None:
            entries["topk"] = TopK(**lists)
            require_digest("topk", entries["topk"].digest, topk["digest"])
        if pictures is not None:
            from reid_dist.reports.ranked_pictures import Pictures

            text = read(PICTURES)
            entries["pictures"] = Pictures.from_json(text.decode("ascii"))
            require_digest("pictures", hashlib.sha256(text).hexdigest(), pictures["digest"])
        values = {
            "metrics": {name: restored_number(value) for name, value in entries["metrics"].items()},
            "curves": {name: np.array(values, dtype=np.float64) for name, values in entries["curves"].items()},
            "thresholds": (entries["verification"] or {}).get("thresholds", {}),
        }
        for section, name, position, sign in entries["infinite"]:
            target = values[section] if position is None else values[section][name]
            target[name if position is None else position] = sign * math.inf
        return entries | {
            "operating_points": None,
            # Reports of earlier versions do not have it.
            "hardest": entries.get("hardest", []),
            "metrics": values["metrics"],
            "curves": values["curves"],
            "per_query": per_query,
            "timing": {stage: restored_number(value) for stage, value in entries["timing"].items()},
        }


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
