"""Two runs over the same queries, compared query by query.

A difference of two means has little value without the spread of the differences behind it, and the spread of the means
themselves is beside the point: what is hard for one model is hard for the other.  So the runs are paired.  Each metric
that is a mean over queries gets the difference candidate - baseline, its bootstrap interval and a permutation p-value,
both by identity (see :mod:`reid_dist.metrics.confidence`), and a verdict: ``better``, ``worse``, ``same`` or
``undecided``.  :mod:`reid_dist.reports.verdicts` defines them; `minimum_effect` is the smallest effect of interest.

Every metric has a verdict of its own, so the more metrics are compared, the likelier is a false alarm in one of
them.  Every mean over queries grows as retrieval gets better.  Metrics that are no means over queries (TAR@FAR, EER)
have no paired test.  Where both runs have intervals of them at the level of the comparison, the interval of the
difference adds the widths of both, which is wide enough however the runs depend on each other, and the verdict is by
that interval alone; rates that rest on fewer than ten false accepts are ``undecided``.  A lower equal error rate is
better.

Model, distance, expansion and re-ranking may differ: they are what is compared, and the differences are listed.
Protocol, labels and queries must agree, or the values are not comparable.
"""

from reid_dist.reports.comparison.comparison_values import (
    SCHEMA,
    ChangedQuery,
    Comparison,
    Difference,
    MetricComparison,
)
from reid_dist.reports.comparison.paired import compare

__all__ = ["SCHEMA", "ChangedQuery", "Comparison", "Difference", "MetricComparison", "compare"]
