"""Operating points: the table of thresholds, distributions of distances, and calibrations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core import formatting
from reid_dist.reports.documents import restored_number
from reid_dist.reports.plots.chart import Band, Chart, Layer, Line, Rule, Steps, empty_chart, number_axis, share_axis
from reid_dist.reports.plots.embedded import Figure
from reid_dist.reports.tabular.table import Cell, Column, Ends, Kind, Note, Row, Table
from reid_dist.reports.words import RATES, nothing_counted, resampled

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_MEANING: Final = (
    ("FAR, TAR", "shares of the impostor pairs and of the genuine pairs that are accepted"),
    ("FPIR", "share of the non-mated queries (no gallery row has their identity) with an accepted top match"),
    ("FNIR", "share of the mated queries without an accepted top match of their identity"),
    ("precision", "share of the accepted top matches that are of the query's identity"),
)
_KINDS: Final = {"mated_correct": "right", "mated_wrong": "wrong", "non_mated": "non-mated"}
_TITLES: Final = {"pairs": "pairs", "top_matches": "top matches"}


@dataclass(frozen=True)
class _Histogram:
    """Edges, (n,), and counts from each to the next by kind, with intervals of their shares and of rates at edges."""

    edges: Float64
    counts: dict[str, Int64]
    intervals: Mapping[str, Sequence[Sequence[float | None]]]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> _Histogram:
        kinds = {name: np.array(each, np.int64) for name, each in entry.items() if name not in ("edge", "intervals")}
        return cls(np.array(entry["edge"], np.float64), kinds, entry["intervals"])

    def ends(self, name: str) -> Float64:
        """Ends of the intervals of a kind or rate, (n, 2)."""
        return _ends(self.intervals[name], len(self.edges))


def operating_points(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the section names, from the content of ``thresholds.json``."""
    points = point_table(document)
    marks = [
        (point.text, at.value)
        for point, at, *_ in points.cells()
        if point.text in ("EER", "FAR=1e-3") and at.value is not None
    ]
    drawn = {name: _Histogram.of(counts) for name, counts in document["histograms"].items()}
    pairs, tops = drawn["pairs"], drawn["top_matches"]
    return {
        "points": points,
        "meaning": _MEANING,
        "charts": [
            _histogram("Distances of pairs", pairs, "pairs", marks),
            _histogram("Distances of top matches", tops, "queries"),
            _rates(tops, document["counts"]["n_non_mated"]),
            *(_probability(name, each, drawn[name]) for name, each in document["calibration"].items()),
        ],
        "errors": error_table(document),
    }


def point_table(document: Mapping[str, Any]) -> Table:
    """Return the table of thresholds: the rates at each of them with their intervals, and what they are shares of."""
    table, intervals, confidence = document["table"], document["intervals"], document["confidence"]
    rows = []
    for place, point in enumerate(table["point"]):
        threshold = table["threshold"][place]
        at = Cell("all accepted", math.inf) if threshold is None else Cell(f"{threshold:.6g}", float(threshold))
        rates = []
        for name in RATES:
            value = restored_number(table[name][place])
            low, high = (intervals[name][place] if intervals.get(name) else None) or (None, None)
            ends = None if low is None or high is None else Ends(f"[{_share(low)}, {_share(high)}]", low, high)
            rates.append(Cell(formatting.rate(value), value, ends))
        accepted = table["n_accepted"][place]
        rows.append([Cell(point), at, *rates, Cell(formatting.integer(accepted), accepted)])
    return Table(
        title="Thresholds",
        columns=[Column("point", Kind.NAME), *map(Column, ("threshold", *RATES, "accepted"))],
        rows=rows,
        notes=[
            Note("of all pairs; FPIR, FNIR and precision of each query's top match", "FAR, TAR", True),
            *([Note(why, "undefined", True)] if (why := nothing_counted(document["counts"])) else []),
            *([] if confidence is None else [Note(resampled(confidence), "intervals", True)]),
        ],
        interval_head="interval" if confidence is None else f"{100 * confidence['level']:g}%",
    )


def error_table(document: Mapping[str, Any]) -> Table:
    """Return the errors of the calibrations by prior: expected calibration error, Brier score, that of the prior."""
    rows: list[Row] = []
    for name, calibration in document["calibration"].items():
        for entry in calibration["priors"]:
            ends = entry["intervals"]
            rows.append(
                [
                    _TITLES[name],
                    f"{_share(entry['prior'])}%, {'stated' if entry['stated'] else 'run'}",
                    _error(entry["calibration_error"], ends["calibration_error"]),
                    _error(entry["brier"], ends["brier"]),
                    _error(entry["brier_of_prior"], None),
                ]
            )
    heads = ("calibration error", "Brier score", "of the prior alone")
    words = (
        "five-fold cross-validation over identities; calibration error: mean distance "
        "between probability and share of matches, over 15 bins of probability"
    )
    return Table(
        title="Errors of the calibrations",
        columns=[Column("calibration of", Kind.NAME), Column("prior", Kind.TEXT), *map(Column, heads)],
        rows=rows,
        notes=[Note(words, "errors", True)],
    )


def _error(value: float | None, interval: Sequence[float | None] | None) -> Cell:
    if value is None:
        return Cell("undefined")
    low, high = (None, None) if interval is None else interval
    ends = None if low is None or high is None else Ends(f"[{low:.3g}, {high:.3g}]", low, high)
    return Cell(f"{value:.3g}", value, ends)


def _share(value: float) -> str:
    return formatting.rate_digits(value, 3)


def _histogram(title: str, found: _Histogram, unit: str, marks: Sequence[tuple[str, float]] = ()) -> Figure:
    edges, counts = found.edges, found.counts
    ends = {name: found.ends(name) for name in counts}
    dashed = f" Dashed rules: {' and '.join(name for name, _ in marks)}." if marks else ""
    upright = " Vertical rules: intervals of the shares." if _any(ends) else ""
    caption = f"Shares within each kind.{dashed}{upright}"
    shown = {_KINDS.get(name, name): name for name in counts}
    kinds = {word: (counts[name], ends[name]) for word, name in shown.items() if counts[name].any()}
    return Figure(_histogram_chart(title, edges, kinds, unit, marks), caption)


def _histogram_chart(
    title: str,
    edges: Float64,
    kinds: Mapping[str, tuple[Int64, Float64]],
    unit: str,
    marks: Sequence[tuple[str, float]],
) -> Chart:
    """How each kind is spread over bins of distances, as shares of its number, with the intervals of the shares.

    Bins go from each of the edges to the next; the last one is open, and is drawn as wide as the others.
    """
    if not kinds or len(edges) < 2:
        return empty_chart(f"{title}: all distances are equal")
    filled = np.flatnonzero(np.sum([counts for counts, _ in kinds.values()], axis=0))
    bins = slice(int(filled[0]), int(filled[-1]) + 1)
    stops = np.append(edges[1:], 2.0 * edges[-1] - edges[-2])
    shares = {name: counts / counts.sum() for name, (counts, _) in kinds.items()}
    top = max(float(np.nanmax([*shares[name], *ends[:, 1]])) for name, (_, ends) in kinds.items())
    layers: list[Layer] = [Rule(at=at, name=f"{name}: {at:.6g}", text=name) for name, at in marks]
    for number, (name, (_, ends)) in enumerate(kinds.items()):
        corners = np.append(edges[bins], stops[bins][-1])
        layers.append(Steps(edges=corners, y=shares[name][bins], name=name, series=number, filled=True))
        if np.isfinite(ends).any():
            # Intervals of several kinds stand side by side in a bin.
            across = edges + (stops - edges) * (number + 1) / (len(kinds) + 1)
            low, high = np.where(ends[:, 1:] > ends[:, :1], ends, np.nan)[bins].T
            layers.append(Band(x=across[bins], low=low, high=high, name=name, series=number, upright=True))
    x = number_axis("distance", float(edges[bins][0]), float(stops[bins][-1]))
    y = replace(share_axis(f"share of {unit}", 0.0, top, formatting.rate), high=1.05 * top)
    return Chart(title=title, words=f"{title}: {', '.join(kinds)}", x=x, y=y, layers=layers)


def _rates(found: _Histogram, n_non_mated: int) -> Figure:
    """Rates of top matches at every edge; some of the non-mated queries may have no top match."""
    counts = found.counts
    below = {name: np.append(0, np.cumsum(values)[:-1]) for name, values in counts.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = {
            "precision": below["mated_correct"] / sum(below.values()),
            "1 - FNIR": below["mated_correct"] / (counts["mated_correct"].sum() + counts["mated_wrong"].sum()),
            "FPIR": below["non_mated"] / np.int64(n_non_mated),
        }
    ends = {
        "precision": found.ends("precision"),
        "1 - FNIR": 1.0 - found.ends("FNIR")[:, ::-1],
        "FPIR": found.ends("FPIR"),
    }
    shaded = " Shaded: intervals." if _any(ends) else ""
    caption = f"Outcome of top matches closer than a threshold.{shaded}"
    return Figure(_rates_chart("Top matches accepted", found.edges, rates, ends), caption)


def _rates_chart(title: str, edges: Float64, rates: Mapping[str, Float64], ends: Mapping[str, Float64]) -> Chart:
    """Shares against the threshold, at the edges, with their intervals."""
    if len(edges) < 2:
        return empty_chart(f"{title}: all distances are equal")
    known = [name for name, values in rates.items() if np.isfinite(values).any()]
    layers: list[Layer] = [
        Band(x=edges, low=ends[name][:, 0], high=ends[name][:, 1], name=name, series=number)
        for number, name in enumerate(known)
        if np.isfinite(ends[name]).any()
    ]
    layers += [Line(x=edges, y=rates[name], name=name, series=number) for number, name in enumerate(known)]
    x, y = number_axis("threshold", float(edges[0]), float(edges[-1])), share_axis("share", write=formatting.rate)
    return Chart(title=title, words=f"{title}: {', '.join(known)}", x=x, y=y, layers=layers)


def _probability(name: str, calibration: Mapping[str, Any], histogram: _Histogram) -> Figure:
    starts = np.array(calibration["from"], np.float64)
    priors = {f"prior {_share(entry['prior'])}%": entry for entry in calibration["priors"]}
    values = {key: np.array(entry["probability"], np.float64) for key, entry in priors.items()}
    ends = {key: _ends(entry["intervals"]["probability"], len(starts)) for key, entry in priors.items()}
    title = f"Probability that {'a pair' if name == 'pairs' else 'a top match'} is a match"
    shaded = " Shaded: intervals." if _any(ends) else ""
    caption = (
        "Match probability at each distance: a non-increasing step function, fitted by isotonic regression, for each "
        f"share of matches (prior).{shaded}"
    )
    end = _end(histogram.edges, sum(histogram.counts.values()))
    return Figure(_probability_chart(title, starts, end, values, ends), caption)


def _probability_chart(
    title: str, starts: Float64, end: float, probabilities: Mapping[str, Float64], ends: Mapping[str, Float64]
) -> Chart:
    """The probability of a match in steps of distance, by prior, with intervals; the last step is open."""
    edges = np.append(starts, max(end, float(starts[-1])))
    if not edges[-1] > edges[0]:
        return empty_chart(f"{title}: all distances are equal")
    layers: list[Layer] = [
        Band(x=np.repeat(edges, 2)[1:-1], low=low, high=high, name=name, series=number)
        for number, name in enumerate(probabilities)
        if np.isfinite(ends[name]).any()
        for low, high in [np.repeat(ends[name], 2, axis=0).T]
    ]
    layers += [
        Steps(edges=edges, y=values, name=name if len(probabilities) > 1 else "", series=number)
        for number, (name, values) in enumerate(probabilities.items())
    ]
    x = number_axis("distance", float(edges[0]), float(edges[-1]))
    y = share_axis("probability", write=formatting.rate)
    return Chart(title=title, words=f"{title}: {', '.join(probabilities)}", x=x, y=y, layers=layers)


def _ends(intervals: Sequence[Sequence[float | None]], n: int) -> Float64:
    """Ends of intervals, (n, 2), from those of a document: NaN for none."""
    ends = [[restored_number(low), restored_number(high)] for low, high in intervals]
    return np.array(ends or [[math.nan, math.nan]] * n, np.float64)


def _any(ends: Mapping[str, Float64]) -> bool:
    return any(np.isfinite(each).any() for each in ends.values())


def _end(edges: Any, counts: Any) -> float:
    """Where the last bin with counts ends, or begins if it is open."""
    return float(edges[min(int(np.flatnonzero(counts)[-1]) + 1, len(edges) - 1)])
