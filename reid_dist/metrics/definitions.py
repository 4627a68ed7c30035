"""All metrics, the reading of their names, and the mean over queries.

A rank metric is defined in `reid_dist.metrics.rank_metrics`, every other one in `reid_dist.metrics.other_metrics`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.registry import did_you_mean
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.metrics.families import METRICS, PAIRS, PROBES, RANKS, SINGLE_SHOT, Metric, MetricFamily
from reid_dist.metrics.other_metrics import OTHER_METRICS
from reid_dist.metrics.rank_metrics import first_rank, last_rank, positive_number

__all__ = [
    "LARGEST_RANK",
    "METRICS",
    "PAIRS",
    "PROBES",
    "RANKS",
    "SINGLE_SHOT",
    "Metric",
    "MetricFamily",
    "curve_family",
    "default_metrics",
    "exact_mean",
    "example_names",
    "first_rank",
    "headline_metrics",
    "last_rank",
    "metric_family",
    "metric_names",
    "notes_on_metrics",
    "parse_metric",
    "parse_metrics",
    "positive_number",
    "reported_name",
]

Float64 = NDArray[np.float64]

# Rank metrics register themselves where they are defined, and come first.
for _family in OTHER_METRICS:
    METRICS.register(_family)

LARGEST_RANK = 2**31 - 1
"""No set has more items, and 32 bits hold it wherever a rank is counted."""

# How the field writes CMC@k; `R@k` is none of these, it is TREC's recall.
_RANK_K = re.compile(r"(?:(?:rank|top|hit)[-_@ ]?|r[-_]?)(?P<rank>[0-9]+)", re.IGNORECASE)
_WITH_PARAMETER = re.compile(r"(?P<stem>[^@]+)@(?P<parameter>.+)")
_RANK = re.compile(r"0*[1-9][0-9]{0,9}")
_DECIMAL = re.compile(r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,3})?|[0-9]+\.")


def parse_metric(text: str) -> Metric:
    """Read a metric's name: ``mAP``, ``CMC@10``.

    ``rank-K``, ``rankK``, ``RK``, ``top-K``, ``topK`` and ``hit@K``, in any case, are other spellings of ``CMC@K``.
    """
    if (spelled := _RANK_K.fullmatch(text)) is not None:
        return Metric(METRICS.get("CMC@k"), _rank(text, spelled["rank"]))
    match = _WITH_PARAMETER.fullmatch(text)
    if match is None:
        if text in METRICS and not METRICS.get(text).has_parameter:
            return Metric(METRICS.get(text))
        if f"{text}@k" in METRICS:
            raise InputError(f"metric {text!r} needs a rank: {text}@10, for example")
        if f"{text}@FAR=x" in METRICS:
            raise InputError(f"metric {text!r} needs a false accept rate: {text}@FAR=0.001, for example")
        raise UnknownNameError(did_you_mean("metric", text, METRICS.names()))
    stem, parameter = match["stem"], match["parameter"]
    name, equals, share = f"{stem}@k", "", ""
    if f"{stem}@FAR=x" in METRICS:
        name, (before, equals, share) = f"{stem}@FAR=x", parameter.partition("=")
        if before != "FAR" or not equals:
            raise InputError(f"metric {text!r} takes a false accept rate: {stem}@FAR=0.001, for example")
        return Metric(METRICS.get(name), share=_share(text, share))
    if name not in METRICS:
        raise UnknownNameError(did_you_mean("metric", text, METRICS.names()))
    return Metric(METRICS.get(name), _rank(text, parameter))


def _rank(metric: str, text: str) -> int:
    """Validate a rank."""
    if _RANK.fullmatch(text) is None or int(text) > LARGEST_RANK:
        raise InputError(
            f"metric {metric!r}: the rank after @ must be a positive integer, at most 2**31 - 1, found {text!r}"
        )
    return int(text)


def _share(metric: str, text: str) -> str:
    """Validate a false accept rate."""
    if _DECIMAL.fullmatch(text) is None or not 0 <= Fraction(text) <= 1:
        raise InputError(f"metric {metric!r}: the false accept rate must be a number from 0 to 1, found {text!r}")
    return text


def metric_names(given: object) -> list[str]:
    """Return names of metrics as a list: of a list of names, or of one text; commas separate names in either."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"metrics must be a list of names such as 'mAP', found {given!r}")
    names = [name.strip() for text in texts for name in text.split(",")]
    if "" in names:
        raise InputError(f"metrics must be names such as 'mAP', and one of {given!r} is empty")
    return names


def parse_metrics(names: str | Sequence[str]) -> list[Metric]:
    """Read several names; one that is given twice counts once."""
    return list({metric.name: metric for metric in map(parse_metric, metric_names(names))}.values())


def reported_name(name: str) -> str:
    """Return the name under which reports have a metric, whatever its spelling; other names are returned unchanged."""
    try:
        return parse_metric(name).name
    except InputError:
        return name


def metric_family(name: str) -> MetricFamily | None:
    """Return the family of a metric, whatever the spelling of its name; None for a name that no metric has."""
    try:
        return parse_metric(name).family
    except InputError:
        return None


def curve_family(name: str) -> MetricFamily | None:
    """Return the metric that a curve over ranks, such as ``CMC`` or ``P``, holds at every k; None for other curves."""
    return METRICS.get(f"{name}@k") if f"{name}@k" in METRICS else None


def headline_metrics(names: Iterable[str] = (), ap_family: str = "") -> list[str]:
    """Return those of `names` (of all) that papers print: an average precision, a CMC at 1, and mINP."""
    given = list(names)
    chosen = []
    for role in ("average", "match", "last"):
        families = [family for family in METRICS if family.headline == role]
        families.sort(key=lambda family: family.name != ap_family)
        found = [f"{family.stem}@1" if family.has_parameter else family.name for family in families]
        chosen += [name for name in found if not given or name in given][:1]
    return chosen


def example_names(*needs: str, parameter: int = 5, share: str = "0.1") -> list[str]:
    """Return one metric of every family that is computed from one of `needs`."""
    families = [family for family in METRICS if family.needs in needs]
    return [
        Metric(family, 0 if family.takes_share else parameter, share if family.takes_share else "").name
        for family in families
    ]


def notes_on_metrics(metrics: Sequence[Metric]) -> list[str]:
    """Return notes on metrics whose names have two meanings: ``R@k`` is recall, not the hit rate."""
    recall = [metric for metric in metrics if metric.family.name == "R@k"]
    if not recall:
        return []
    names, rates = ", ".join(metric.name for metric in recall), ", ".join(f"CMC@{each.parameter}" for each in recall)
    return [
        f"{names}: recall, the share of all relevant items among the first k; the hit rate (a match among the first k) "
        f"is {rates}"
    ]


def default_metrics(cmc_family: str, ap_family: str, reported: Sequence[str] = ()) -> list[str]:
    """Metrics of a report by default: mAP, mINP, the protocol's AP, its CMC at 1, 5 and 10, and its own."""
    names = ["mAP", "mINP"] + ([ap_family] if ap_family != "mAP" else [])
    return [*names, *(f"{cmc_family}@{k}" for k in (1, 5, 10)), *reported]


def exact_mean(values: Float64, *, zero_for_invalid: bool = False) -> float:
    """Mean of values (n_query,), NaN for invalid queries: their exact sum, rounded once, divided by their number."""
    kept = values[~np.isnan(values)]
    number = len(values) if zero_for_invalid else len(kept)
    return math.fsum(kept.tolist()) / number if number else math.nan
