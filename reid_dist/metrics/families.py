"""Metric families: what a metric is called, computed from and printed as.

Every fact about a metric is a field of its `MetricFamily`.  Reports, pages, lists and gates read the fields of the
registry `METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.core.registry import Registry

Float64 = NDArray[np.float64]
PerQuery = Callable[[RankedQueries, int], Float64]

# What a metric is computed from.
RANKS = "ranks"
SINGLE_SHOT = "single_shot"
PAIRS = "pairs"
PROBES = "probes"


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
    explanation
        Definition in sentences, for pages; empty for none.
    per_query_name
        Name of its per-query values, with ``k`` in the place of the parameter; empty where there are none.
    per_query
        Values of all queries, shape (n_query,), float64; those of invalid queries are ignored.  Takes the ranks and
        the parameter (0 when there is none).  None where ranks alone do not determine it.
    needs
        What it is computed from: ``ranks``; ``single_shot`` draws; ``pairs``, all that are not junk; or ``probes``.
    lower_is_better
        True for error rates.
    is_share
        Whether values are shares of one, which are printed in percent.
    never_rises
        Whether it never rises when a positive moves down.  Lists of nearest items bound such a metric.
    per_found
        Whether its denominator counts the positives among the first k, so that it may rise when a positive moves down.
        Lists of k items determine such a metric.
    needs_last
        Whether it is undefined without the rank of the last positive: named metrics of cut lists are then refused.
    headline
        Role among the metrics that papers print: ``average``, ``match`` (with parameter 1) or ``last``; empty for none.
    in_every_report
        Whether every report holds its per-query values.
    """

    name: str
    summary: str
    source: str
    explanation: str = ""
    per_query_name: str = ""
    per_query: PerQuery | None = None
    needs: str = RANKS
    lower_is_better: bool = False
    is_share: bool = True
    never_rises: bool = False
    per_found: bool = False
    needs_last: bool = False
    headline: Literal["average", "match", "last", ""] = ""
    in_every_report: bool = False

    @property
    def stem(self) -> str:
        """Name before the parameter."""
        return self.name.partition("@")[0]

    @property
    def has_parameter(self) -> bool:
        """Whether it takes a parameter."""
        return "@" in self.name

    @property
    def takes_share(self) -> bool:
        """Whether the parameter is a false accept rate and not a rank."""
        return self.name.endswith("=x")

    @property
    def has_per_query_values(self) -> bool:
        """Whether it is the mean of one value per query."""
        return self.needs in (RANKS, SINGLE_SHOT)


@dataclass(frozen=True)
class Metric:
    """One metric: a family with its parameter.

    Attributes
    ----------
    family
        The family.
    parameter
        The rank, 0 where it takes none.
    share
        The false accept rate as it was written, such as ``1e-3``; empty where it takes none.
    """

    family: MetricFamily
    parameter: int = 0
    share: str = ""

    @property
    def name(self) -> str:
        """Name in reports."""
        return self._fill(self.family.name)

    @property
    def per_query_name(self) -> str:
        """Name of its per-query values."""
        return self._fill(self.family.per_query_name)

    @property
    def false_accept_rate(self) -> Fraction:
        """The share as an exact number: 0.001 is one in a thousand, not the nearest float."""
        return Fraction(self.share)

    def _fill(self, name: str) -> str:
        if name.endswith("=x"):
            return name.removesuffix("x") + self.share
        stem, at, _ = name.partition("@")
        return f"{stem}@{self.parameter}" if at else name

    def values(self, ranked: RankedQueries) -> Float64:
        """Value of every query, NaN for those without positives; shape (n_query,), float64."""
        if self.family.per_query is None:
            raise AssertionError(f"{self.name} is no function of ranks")
        return np.where(ranked.n_relevant > 0, self.family.per_query(ranked, self.parameter), np.nan)


METRICS: Registry[MetricFamily] = Registry("metric")


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
