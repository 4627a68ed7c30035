"""Report of operating points: its values, its file, and its page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from reid_dist.core.findings import Finding
from reid_dist.core.formatting import counted, duration
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import DocumentReport, make_frame, restored_number
from reid_dist.reports.heading import Heading, make_heading, weak_evidence
from reid_dist.reports.tabular.table import Table, notes_of
from reid_dist.reports.words import call, named

DOCUMENT: Final = "thresholds.json"
PAGE: Final = "thresholds.html"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperatingPoints(DocumentReport):
    """Error rates at distance thresholds, and the match probability at a distance.

    A pair, and the nearest kept row of a query (its *top match*), is accepted when its distance is strictly less than
    the threshold.  Mated queries have a relevant row in the gallery; non-mated queries have no row of their identity.
    Queries whose only rows of their identity are junk are neither, and count for pairs only.

    Attributes
    ----------
    table
        Columns of equal length, by ascending threshold: ``point`` (how the threshold was chosen: ``FAR=x``, ``FPIR=x``,
        ``EER``, ``T=x``), ``threshold`` (infinite if everything is accepted), ``FAR`` and ``TAR`` (shares of the
        impostor and genuine pairs accepted), ``FPIR`` (share of the non-mated queries with an accepted top match),
        ``FNIR`` (share of the mated queries without an accepted top match that is relevant), ``precision`` (share of
        the accepted top matches that are relevant) and ``n_accepted`` (top matches accepted); NaN where nothing is
        counted.
    intervals
        [low, high] of each rate by name, in the order of the table rows; empty lists without intervals.
    histograms
        For ``pairs`` and ``top_matches``: ``edge``, ascending (a bin ends where the next begins, and the last one is
        open), and the counts of every bin: ``genuine`` and ``impostor`` pairs, top matches ``mated_correct``,
        ``mated_wrong`` and ``non_mated``.  ``intervals``, [low, high] of every bin: of the share of the bin in its
        kind, by kind, and for top matches of ``FPIR``, ``FNIR`` and ``precision`` at the edges.
    calibration
        For ``pairs`` and ``top_matches``: steps that begin at the distances ``from``, with their numbers of ``matches``
        and ``others``, and ``priors``, one entry for the share of matches that the run has, and one for a stated one:
        ``prior``, ``stated``, ``probability`` of every step, ``calibration_error`` (expected calibration error) and
        ``brier`` of probabilities fitted on other identities, ``brier_of_prior`` (the prior used as every probability),
        and ``intervals`` of ``probability``, ``calibration_error`` and ``brier``.
    counts
        ``n_query``, ``n_valid``, ``n_gallery``, ``n_genuine``, ``n_impostor``, ``n_mated``, ``n_non_mated`` and others.
    confidence
        How the intervals were computed; None without intervals.  The digest does not cover intervals.
    protocol, distance, rerank, expand, inputs, environment, timing, run, spec, notes
        As in a `reid_dist.reports.Report`.
    options
        The requested points, the level of intervals and the seed.
    evaluated
        Result digest of the report of their run; empty for none.
    """

    # The first had no intervals of histograms, of rates at their edges and of calibration errors.
    schema = 2
    _what = "report of operating points"
    # A run with damaged points beside it is whole without them.
    _remedy = f"delete {DOCUMENT}, and run `reid-dist thresholds` again"
    document = DOCUMENT
    page = PAGE

    table: dict[str, Any]
    intervals: dict[str, Any]
    histograms: dict[str, dict[str, Any]]
    calibration: dict[str, dict[str, Any]]
    counts: dict[str, Any]
    confidence: dict[str, Any] | None
    protocol: dict[str, Any]
    distance: dict[str, Any]
    rerank: dict[str, Any] | None = None
    expand: dict[str, Any] | None = None
    inputs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    evaluated: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    notes: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        table = {name: list(values) if name == "point" else _column(values) for name, values in self.table.items()}
        # JSON has no infinity, and a threshold is a number.
        table["threshold"] = np.where(np.isnan(table["threshold"]), math.inf, table["threshold"])
        object.__setattr__(self, "table", table)
        histograms = {
            name: {kind: values if kind == "intervals" else np.asarray(values) for kind, values in each.items()}
            for name, each in self.histograms.items()
        }
        object.__setattr__(self, "histograms", histograms)

    @property
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""
        stages = [self.protocol, self.distance, self.expand, self.rerank]
        return make_heading(self.run, stages, self.environment, self.result_digest)

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over table, histograms and calibrations as exact bytes, 64 hexadecimal digits."""
        table = {name: np.array(values) for name, values in self.table.items()}
        calibrations: dict[str, Any] = {}
        for name, each in self.calibration.items():
            arrays = {f"{name}.{kind}": np.asarray(each[kind]) for kind in ("from", "matches", "others")}
            for place, entry in enumerate(each["priors"]):
                for kind in ("prior", "probability", "calibration_error", "brier"):
                    arrays[f"{name}.{place}.{kind}"] = _column(entry[kind])
            calibrations |= arrays
        counts = {
            name: {kind: values for kind, values in each.items() if kind != "intervals"}
            for name, each in self.histograms.items()
        }
        return arrays_digest({"table": table, **counts, "calibration": calibrations})

    @property
    def weak_evidence(self) -> list[Finding]:
        """Findings about weak evidence: few valid queries, few identities."""
        n_units = None if self.confidence is None else self.confidence["n_units"]
        return weak_evidence(self.counts, self.protocol, n_units)

    def tables(self) -> Sequence[Table]:
        """Return the table of thresholds with its evidence below, and the calibration errors."""
        from reid_dist.reports.sections.operating_point_section import error_table, point_table

        points = point_table(self.to_dict())
        counts = self.counts
        facts = {
            **self.heading.chosen("date", "command"),
            "pairs": ", ".join(counted(counts[f"n_{kind}"], f"{kind} pair") for kind in ("genuine", "impostor")),
            "queries": f"{counted(counts['n_mated'], 'mated query')}, "
            f"{counted(counts['n_non_mated'], 'non-mated query')}",
            "protocol": named(self.protocol, "summary"),
            "distance": named(self.distance, "definition"),
            **{name: call(value) for name, value in (("expand", self.expand), ("rerank", self.rerank)) if value},
            "time": duration(self.timing["total"]),
            **self.heading.chosen("version", "digest"),
        }
        notes = notes_of(facts, self.findings)
        return [replace(points, title=self.heading.title, notes=[*points.notes, *notes]), error_table(self.to_dict())]

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with one row per threshold and the columns of `table`.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``).
        """
        columns = {name: values for name, values in self.table.items() if name != "point"}
        return make_frame(columns, index="point", names=self.table["point"])

    def to_html(self) -> str:
        """Return a self-contained HTML page without scripts; the same report gives the same bytes."""
        from reid_dist.reports.operating_page import render_operating_points

        return render_operating_points(self.to_dict(), self.findings)

    @classmethod
    def _restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name."""
        return {**entries, "table": {name: [*values] for name, values in entries["table"].items()}}


def _column(values: Any) -> Any:
    """An array of a document, in which None is not finite."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = np.array([restored_number(value) for value in array.ravel().tolist()]).reshape(array.shape)
    return array
