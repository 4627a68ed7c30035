"""What a metric is: its family, its name and the facts about it, the reading of names, and means over queries.

Every fact about a metric is a field of its `MetricFamily`.  Reports, pages, lists and gates read the fields of the
registry `METRICS`, which `reid_dist.metrics.families` fills.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.exact_sums import exact_sum
from reid_dist.core.findings import Finding, info
from reid_dist.core.model import RankedQueries
from reid_dist.core.registry import Registry, unknown_name
from reid_dist.errors import InputError

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
PerQuery = Callable[[RankedQueries, int], Float64]
V = TypeVar("V")

MACRO = "macro_"
"""Prefix of the names of macro means."""

# What a metric is computed from.
RANKS = "ranks"
SINGLE_SHOT = "single_shot"
PAIRS = "pairs"
PROBES = "probes"
NEAREST = "nearest"


@dataclass(frozen=True)
class MetricFamily:
    """A metric, or a family of metrics with one parameter.

    Attributes
    ----------
    name
        ``mAP``, or with the place of the parameter: ``CMC@k``, ``TAR@FAR=x``.
    summary
        The formula or the definition, one line.
    source
        The paper or the program that it comes from.
    brief
        The convention in a few words without a formula, for headlines; empty for none.
    explanation
        Definition in sentences, for pages; empty for none.
    per_query_name
        Name of its per-query values, with ``k`` in the place of the parameter; empty where there are none.
    per_query
        Values of all queries, shape (n_query,), float64; those of invalid queries are ignored.  Takes the ranks and
        the parameter (0 when there is none).  None where ranks alone do not determine it.
    needs
        What it is computed from: ``ranks``; ``single_shot`` draws; ``pairs``, all that are not junk; ``probes``; or
        the ``nearest`` kept row of every query.
    lower_is_better
        True for error rates.
    is_share
        Whether values are shares of one, which are printed in percent.
    never_rises
        Whether it never rises when a positive moves down.  Lists of nearest items bound such a metric.
    per_found
        Whether its denominator counts the positives among the first k, so that it may rise when a positive moves down.
        Lists of k items determine such a metric.
    first_alone
        Whether the rank of the first positive determines it.
    first_k_alone
        Whether the ranks of the first k positives determine it: all others are beyond k.
    needs_last
        Whether it is undefined without the rank of the last positive: named metrics of cut lists are then refused.
    needs_unknown
        Whether it needs queries whose identity has no row in the gallery.
    of_one_query
        Whether distances of different queries are not compared, where single distances matter at all.
    without_bounds
        Why no bounds over all orders of tied items are computed; empty where they are, or where ties make no
        difference.
    headline
        Role among the metrics that papers print: ``average``, ``match`` (with parameter 1) or ``last``; empty for none.
    in_every_report
        Whether every report holds its per-query values.
    macro
        Whether it is the mean over identities of the mean over the queries of each; of other families, queries have
        equal weights.
    """

    name: str
    summary: str
    source: str
    brief: str = ""
    explanation: str = ""
    per_query_name: str = ""
    per_query: PerQuery | None = None
    needs: str = RANKS
    lower_is_better: bool = False
    is_share: bool = True
    never_rises: bool = False
    per_found: bool = False
    first_alone: bool = False
    first_k_alone: bool = False
    needs_last: bool = False
    needs_unknown: bool = False
    of_one_query: bool = False
    without_bounds: str = ""
    headline: Literal["average", "match", "last", ""] = ""
    in_every_report: bool = False
    macro: bool = False

    @property
    def stem(self) -> str:
        """Name before the parameter, for a macro mean that of the metric of its values."""
        return self.name.removeprefix(MACRO).partition("@")[0]

    @property
    def has_parameter(self) -> bool:
        """Whether it takes a parameter."""
        return "@" in self.name

    @property
    def takes_share(self) -> bool:
        """Whether the parameter is a false accept rate and not a rank."""
        return self.name.endswith("@FAR=x")

    @property
    def has_per_query_values(self) -> bool:
        """Whether it is the mean of one value per query."""
        return self.needs in (RANKS, SINGLE_SHOT)


@dataclass(frozen=True)
class Metric:
    """One metric: a family with its rank (0 for none), or its rate or distance as it was written, such as ``1e-3``.

    `spelled` is a name of it that has two meanings, if it was asked for by one.
    """

    family: MetricFamily
    parameter: int = 0
    written: str = ""
    spelled: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Name in reports."""
        return self._fill(self.family.name)

    @property
    def per_query_name(self) -> str:
        """Name of its per-query values."""
        return self._fill(self.family.per_query_name)

    @property
    def n_positives(self) -> int | None:
        """Number of the nearest positives of a query whose ranks determine it; None for all of them."""
        if self.family.first_alone:
            return 1
        return self.parameter if self.family.first_k_alone else None

    @property
    def false_accept_rate(self) -> Fraction:
        """The share as an exact number: 0.001 is one in a thousand, not the nearest float."""
        return Fraction(self.written)

    @property
    def threshold(self) -> float:
        """The distance below which an answer is accepted."""
        return float(self.written)

    def _fill(self, name: str) -> str:
        if name.endswith("=x"):
            return name.removesuffix("x") + self.written
        stem, at, _ = name.partition("@")
        return f"{stem}@{self.parameter}" if at else name

    def values(self, ranked: RankedQueries) -> Float64:
        """Value of every query, NaN for those without positives; shape (n_query,), float64."""
        if self.family.per_query is None:
            raise AssertionError(f"{self.name} is no function of ranks")
        return np.where(ranked.n_relevant > 0, self.family.per_query(ranked, self.parameter), np.nan)

    def averaged(self, values: Float64, pids: Int64, *, zero_for_invalid: bool = False) -> Float64:
        """What the metric is the plain mean of, given values and identities of queries; all of shape (n_query,).

        NaN where a query does not count.  For a macro mean, the mean of an identity is at the first of its queries that
        count, the others are NaN: sums and numbers by identity are then those of its mean, so that intervals and tests
        by identity are those of the macro mean.
        """
        if zero_for_invalid:
            values = np.nan_to_num(values, nan=0.0)
        if not self.family.macro:
            return values
        found, counted = np.full(len(values), np.nan), np.flatnonzero(~np.isnan(values))
        for rows in rows_by_label(pids[counted])[1]:
            found[counted[rows[0]]] = exact_mean(values[counted[rows]])
        return found

    def mean(self, values: Float64, pids: Int64, *, zero_for_invalid: bool = False) -> float:
        """Value of the metric, given values and identities of queries, shape (n_query,); NaN where no query counts."""
        return exact_mean(self.averaged(values, pids, zero_for_invalid=zero_for_invalid))


METRICS: Registry[MetricFamily] = Registry("metric")

_MACRO_SUMMARY = "mean over identities of the mean over the queries of each"

MACRO_MEANS = MetricFamily(
    f"{MACRO}METRIC",
    f"{_MACRO_SUMMARY}, of every metric that has values per query: {MACRO}mAP, {MACRO}CMC@1",
    "the mean of groups of the breakdown by identity",
    macro=True,
)
"""Their line in lists of metrics."""


def macro_mean(metric: Metric) -> Metric:
    """Macro mean of a metric; `InputError` for one that has no value per query."""
    family, name = metric.family, f"{MACRO}{metric.name}"
    if not family.has_per_query_values:
        raise InputError(f"metric {name!r}: {metric.name} has no values per query, so that it has no mean by identity")
    explained = f"{MACRO}{family.name}: {_MACRO_SUMMARY}, by {family.name}."
    return replace(
        metric,
        family=replace(
            family,
            name=f"{MACRO}{family.name}",
            summary=f"{_MACRO_SUMMARY}: {family.summary}",
            explanation=f"{explained} {family.explanation}".strip(),
            macro=True,
        ),
    )


def rank_metric(
    name: str, per_query_name: str, summary: str, source: str, **facts: Any
) -> Callable[[PerQuery], PerQuery]:
    """Register a per-query function of ranks as a metric; `facts` are other fields of `MetricFamily`."""

    def register(function: PerQuery) -> PerQuery:
        METRICS.register(
            MetricFamily(name, summary, source, per_query_name=per_query_name, per_query=function, **facts)
        )
        return function

    return register


LARGEST_RANK = 2**31 - 1
"""No set has more items, and 32 bits hold it wherever a rank is counted."""

# How the field writes CMC@k; `R@k` is none of these, it is TREC's recall.
_RANK_K = re.compile(r"(?:(?:rank|top|hit)[-_@ ]?|r[-_]?)(?P<rank>[0-9]+)", re.IGNORECASE)
# Names of the hit rate elsewhere, of which some are also those of recall.
_HIT_RATE_K = re.compile(
    r"(?:hr|hits?(?:[-_ ]?rate)?|recall|accuracy|acc)(?:[-_@ ]|[-_ ]?at[-_ ]?)?(?P<rank>[0-9]+|[kn]?)", re.IGNORECASE
)
# R is not a rank here, but the number of relevant items of each query.
_AT_R = re.compile(r"map@r", re.IGNORECASE)
_WITH_PARAMETER = re.compile(r"(?P<stem>[^@]+)@(?P<parameter>.+)")
_RANK = re.compile(r"0*[1-9][0-9]{0,9}")
# Parameters that are written as KEY=x: what they are, and an example.
_WRITTEN = {"FAR": ("a false accept rate", "0.001"), "T": ("a distance", "0.4")}
_DECIMAL = re.compile(r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,3})?|[0-9]+\.")


def parse_metric(text: str) -> Metric:
    """Read a metric's name: ``mAP``, ``CMC@10``.

    ``rank-K``, ``rankK``, ``RK``, ``top-K``, ``topK``, ``hit@K``, ``HR@K``, ``accuracy@K`` and ``Recall@K``, in any
    case, are other spellings of ``CMC@K``, and ``MAP@R`` is one of ``mAP_R``.  ``macro_`` before a name is its macro
    mean.
    """
    if text.startswith(MACRO) and not text.startswith(2 * MACRO):
        return macro_mean(parse_metric(text.removeprefix(MACRO)))
    if _AT_R.fullmatch(text):
        return Metric(METRICS.get("mAP_R"))
    if (spelled := _RANK_K.fullmatch(text)) is not None:
        return Metric(METRICS.get("CMC@k"), _rank(text, spelled["rank"]))
    if (spelled := _HIT_RATE_K.fullmatch(text)) is not None:
        if not spelled["rank"].isdecimal():
            raise InputError(f"metric {text!r} needs a rank: Recall@10, for example, which is CMC@10 here")
        return Metric(METRICS.get("CMC@k"), _rank(text, spelled["rank"]), spelled=text)
    match = _WITH_PARAMETER.fullmatch(text)
    if match is None:
        if text in METRICS and not METRICS.get(text).has_parameter:
            return Metric(METRICS.get(text))
        if f"{text}@k" in METRICS:
            raise InputError(f"metric {text!r} needs a rank: {text}@10, for example")
        for key, (what, example) in _WRITTEN.items():
            if f"{text}@{key}=x" in METRICS:
                raise InputError(f"metric {text!r} needs {what}: {text}@{key}={example}, for example")
        raise unknown_name("metric", text, METRICS.names())
    stem, parameter = match["stem"], match["parameter"]
    for key, (what, example) in _WRITTEN.items():
        if f"{stem}@{key}=x" in METRICS:
            before, equals, written = parameter.partition("=")
            if before != key or not equals:
                raise InputError(f"metric {text!r} takes {what}: {stem}@{key}={example}, for example")
            return Metric(METRICS.get(f"{stem}@{key}=x"), written=_decimal(text, written, key))
    name = f"{stem}@k"
    if name not in METRICS:
        raise unknown_name("metric", text, METRICS.names())
    return Metric(METRICS.get(name), _rank(text, parameter))


def _rank(metric: str, text: str) -> int:
    """Validate a rank."""
    if _RANK.fullmatch(text) is None or int(text) > LARGEST_RANK:
        raise InputError(
            f"metric {metric!r}: the rank after @ must be a positive integer, at most 2**31 - 1, found {text!r}"
        )
    return int(text)


def _decimal(metric: str, text: str, key: str) -> str:
    """Validate a false accept rate or a distance."""
    if _DECIMAL.fullmatch(text) is None or (key == "FAR" and Fraction(text) > 1):
        allowed = "the false accept rate must be a number from 0 to 1"
        raise InputError(
            f"metric {metric!r}: {allowed if key == 'FAR' else 'the distance must be a number from 0'}, found {text!r}"
        )
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


class ByMetric(dict[str, V]):
    """Values by names of metrics, found under every spelling; its keys are the names in reports."""

    def __missing__(self, name: str) -> V:
        if name not in self:
            raise KeyError(name)
        return self[reported_name(name)]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and super().__contains__(reported_name(name)))

    def get(self, name: str, default: Any = None) -> Any:
        """Value under a name; the default if there is none."""
        return super().get(reported_name(name) if name in self else name, default)


def metric_family(name: str) -> MetricFamily | None:
    """Return the family of a metric, whatever the spelling of its name; None for a name that no metric has."""
    try:
        return parse_metric(name).family
    except InputError:
        return None


def curve_family(name: str) -> MetricFamily | None:
    """Return the metric that a curve over ranks, such as ``CMC`` or ``P``, holds at every k; None for other curves."""
    return METRICS.get(f"{name}@k") if f"{name}@k" in METRICS else None


def headline_families(role: str, first: str = "") -> list[MetricFamily]:
    """Return the metrics of a role in headlines, the one named `first` before the others."""
    families = [family for family in METRICS if family.headline == role]
    return sorted(families, key=lambda family: family.name != first)


def headline_metrics(names: Iterable[str] = (), ap_family: str = "") -> list[str]:
    """Return those of `names` (of all) that papers print: an average precision, a CMC at 1, and mINP."""
    given = list(names)
    chosen = []
    for role in ("average", "match", "last"):
        families = headline_families(role, ap_family)
        found = [f"{family.stem}@1" if family.has_parameter else family.name for family in families]
        chosen += [name for name in found if not given or name in given][:1]
    return chosen


def example_names(*needs: str) -> list[str]:
    """Return one metric of every family that is computed from one of `needs`."""
    families = [family for family in METRICS if family.needs in needs]
    return [Metric(family, 5, written="0.1").name for family in families]


def notes_on_metrics(metrics: Sequence[Metric]) -> list[Finding]:
    """Return notes on metrics whose names have two meanings: ``R@k`` is recall, ``Recall@k`` the hit rate."""
    notes = [
        info("hit_rate_named_recall", spelled=metric.spelled, metric=metric.name, k=metric.parameter)
        for metric in metrics
        if metric.spelled
    ]
    if recall := [metric for metric in metrics if metric.family.stem == "R"]:
        rates = [f"CMC@{metric.parameter}" for metric in recall]
        notes.append(info("recall_is_a_share", names=[metric.name for metric in recall], hit_rates=rates))
    return notes


def default_metrics(cmc_family: str, ap_family: str, reported: Sequence[str] = ()) -> list[str]:
    """Metrics of a report by default: mAP, mINP, the protocol's AP, its CMC at 1, 5 and 10, and its own."""
    names = ["mAP", "mINP"] + ([ap_family] if ap_family != "mAP" else [])
    return [*names, *(f"{cmc_family}@{k}" for k in (1, 5, 10)), *reported]


def exact_mean(values: Float64, *, zero_for_invalid: bool = False) -> float:
    """Mean of values (n_query,), NaN for invalid queries: their exact sum, rounded once, divided by their number."""
    kept = values[~np.isnan(values)]
    return exact_quotient(kept, len(values) if zero_for_invalid else len(kept))


def exact_quotient(values: Float64, number: int) -> float:
    """Exact sum of values, shape (n,), rounded once, divided by a number; NaN for 0."""
    return exact_sum(values) / number if number else math.nan


def rows_by_label(labels: NDArray[Any]) -> tuple[NDArray[Any], list[NDArray[np.intp]]]:
    """Distinct labels, ascending, and the rows of each, ascending, of labels of shape (n,)."""
    kinds, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return kinds, np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts))[:-1]
