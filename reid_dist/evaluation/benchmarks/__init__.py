"""Benchmarks by name: the whole recipe of a published evaluation.

A benchmark prescribes what its published code prescribes: relevant and junk items, groups in the ranking, cameras, and
how galleries are drawn and repeated.  Distance, query expansion and re-ranking belong to the model and stay options, as
do further metrics.
"""

from reid_dist.evaluation.benchmarks import published_benchmarks
from reid_dist.evaluation.benchmarks.benchmark import (
    BENCHMARKS,
    Benchmark,
    benchmark_notes,
    refuse_unfit_labels,
    with_benchmark,
)

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "benchmark_notes",
    "published_benchmarks",
    "refuse_unfit_labels",
    "with_benchmark",
]
