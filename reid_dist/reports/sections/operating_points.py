"""Operating points: the table of thresholds, distributions of distances, and calibrations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from reid_dist.core import formatting
from reid_dist.reports.documents import restored_number
from reid_dist.reports.plots.operating_points import histogram_plot, probability_plot, rates_plot
from reid_dist.reports.words import resampled

RATES: Final = ("FAR", "TAR", "FPIR", "FNIR", "precision")
"""Rates of the table, in its order."""

_MEANING: Final = (
    ("FAR, TAR", "shares of the impostor pairs and of the genuine pairs that are accepted"),
    ("FPIR", "share of the non-mated queries (no gallery row has their identity) with an accepted top match"),
    ("FNIR", "share of the mated queries without an accepted top match of their identity"),
    ("precision", "share of the accepted top matches that are of the query's identity"),
)
_KINDS: Final = {"mated_correct": "right", "mated_wrong": "wrong", "non_mated": "non-mated"}
_TITLES: Final = {"pairs": "pairs", "top_matches": "top matches"}


def operating_points(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the section names, from the content of ``thresholds.json``."""
    rows = point_rows(document)
    marks = [(row["point"], row["at"]) for row in rows if row["point"] in ("EER", "FAR=1e-3")]
    drawn = {
        name: (
            np.array(counts["edge"], np.float64),
            {kind: np.array(values, np.int64) for kind, values in counts.items() if kind not in ("edge", "intervals")},
        )
        for name, counts in document["histograms"].items()
    }
    pairs, tops = drawn["pairs"], drawn["top_matches"]
    confidence = document["confidence"]
    return {
        "rows": rows,
        "rates": RATES,
        "meaning": _MEANING,
        "resampled": None if confidence is None else resampled(confidence),
        "charts": [
            _histogram("Distances of pairs", *pairs, "pairs", marks),
            _histogram("Distances of top matches", *tops, "queries"),
            _rates(*tops),
            *(_probability(name, each, *drawn[name]) for name, each in document["calibration"].items()),
        ],
        "errors": error_rows(document),
    }


def point_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table: point, threshold, and (name, rate, interval) of every rate."""
    table, intervals = document["table"], document["intervals"]
    rows = []
    for place, point in enumerate(table["point"]):
        threshold = table["threshold"][place]
        cells = []
        for name in RATES:
            ends = intervals[name][place] if intervals.get(name) else None
            cells.append((name, formatting.rate(restored_number(table[name][place])), _interval(ends)))
        rows.append(
            {
                "point": point,
                "at": math.inf if threshold is None else float(threshold),
                "threshold": "all accepted" if threshold is None else f"{threshold:.6g}",
                "cells": cells,
                "accepted": formatting.integer(table["n_accepted"][place]),
            }
        )
    return rows


def error_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return calibration, prior, expected calibration error, Brier score, and that of the prior, by calibration."""
    rows = []
    for name, calibration in document["calibration"].items():
        for entry in calibration["priors"]:
            ends = entry["intervals"]
            kind = "stated" if entry["stated"] else "run"
            rows.append(
                [
                    _TITLES[name],
                    f"{_share(entry['prior'])} %, {kind}",
                    _with_interval(entry["calibration_error"], ends["calibration_error"]),
                    _with_interval(entry["brier"], ends["brier"]),
                    f"{entry['brier_of_prior']:.3g}",
                ]
            )
    return rows


def _with_interval(value: float | None, ends: Sequence[float | None] | None) -> str:
    if value is None:
        return "undefined"
    low, high = (None, None) if ends is None else ends
    return f"{value:.3g}" if low is None or high is None else f"{value:.3g} [{low:.3g}, {high:.3g}]"


def _interval(ends: Sequence[float | None] | None) -> str:
    low, high = (None, None) if ends is None else ends
    if low is None or high is None:
        return "-"
    return f"[{_share(low)}, {_share(high)}]"


def _share(value: float) -> str:
    return formatting.rate(float(f"{value:.3g}")).removesuffix(" %")


def _histogram(
    title: str, edges: Any, counts: Mapping[str, Any], unit: str, marks: Sequence[tuple[str, float]] = ()
) -> dict[str, Any]:
    counts = {_KINDS.get(name, name): values for name, values in counts.items()}
    stops = [*(f"{edge:.6g}" for edge in edges[1:].tolist()), ""]
    table = {
        "heads": ["from", "to", *counts],
        "rows": [
            [f"{edge:.6g}", stop, *(formatting.integer(int(values[place])) for values in counts.values())]
            for place, (edge, stop) in enumerate(zip(edges.tolist(), stops, strict=True))
            if any(int(values[place]) for values in counts.values())
        ],
    }
    dashed = f" Dashed rules: {' and '.join(name for name, _ in marks)}." if marks else ""
    caption = f"{title}, each kind as shares of its number.{dashed}"
    return {"plot": histogram_plot(title, edges, counts, unit, marks), "caption": caption, "table": table}


def _rates(edges: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Rates of top matches at every edge."""
    below = {name: np.append(0, np.cumsum(values)[:-1]) for name, values in kinds.items()}
    accepted = sum(below.values())
    n_mated, n_non_mated = kinds["mated_correct"].sum() + kinds["mated_wrong"].sum(), kinds["non_mated"].sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = {
            "precision": below["mated_correct"] / accepted,
            "1 - FNIR": below["mated_correct"] / n_mated,
            "FPIR": below["non_mated"] / n_non_mated,
        }
    table = {
        "heads": ["threshold", *rates],
        "rows": [
            [f"{edge:.6g}", *(formatting.rate(float(values[place])) for values in rates.values())]
            for place, edge in enumerate(edges.tolist())
        ],
    }
    return {
        "plot": rates_plot("Top matches accepted", edges, rates),
        "caption": "What becomes of top matches nearer than a threshold.",
        "table": table,
    }


def _probability(name: str, calibration: Mapping[str, Any], edges: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    starts = np.array(calibration["from"], np.float64)
    priors = {f"prior {_share(entry['prior'])} %": entry["probability"] for entry in calibration["priors"]}
    ends = calibration["priors"][0]["intervals"]["probability"]
    bounds = [[restored_number(low), restored_number(high)] for low, high in ends]
    table = {
        "heads": ["from distance", "matches", "others", *priors, *(["interval"] if ends else [])],
        "rows": [
            [
                f"{start:.6g}",
                formatting.integer(calibration["matches"][place]),
                formatting.integer(calibration["others"][place]),
                *(formatting.rate(values[place]) for values in priors.values()),
                *([_interval(ends[place])] if ends else []),
            ]
            for place, start in enumerate(starts.tolist())
        ],
    }
    title = f"Probability that {'a pair' if name == 'pairs' else 'a top match'} is a match"
    caption = (
        f"{title}, at its distance: never rising steps (isotonic regression) for a share of matches (prior). Shaded: "
        "interval of the first."
    )
    values = {key: np.array(each) for key, each in priors.items()}
    return {
        "plot": probability_plot(title, starts, _end(edges, sum(kinds.values())), values, bounds),
        "caption": caption,
        "table": table,
    }


def _end(edges: Any, counts: Any) -> float:
    """Where the last bin with counts ends, or begins if it is open."""
    return float(edges[min(int(np.flatnonzero(counts)[-1]) + 1, len(edges) - 1)])
