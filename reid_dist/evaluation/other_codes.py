"""Runs of other codes in use that cannot share the pass of a benchmark: they rank groups, or draw galleries.

Each is the run of that benchmark on the same sets, by the distance, the stages and the seed of the first, with its
average precision and its CMC@1 alone.  It costs what that run costs; codes that rank alike share one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from reid_dist.errors import InputError, PlanError
from reid_dist.evaluation.benchmarks.definition import Benchmark
from reid_dist.evaluation.benchmarks.resolving import refuse_unfit_labels
from reid_dist.evaluation.benchmarks.variants import CMC, Beside, Scores, codes_apart, ranking, scores_of
from reid_dist.reports import Report
from reid_dist.stores import LabelledSet

# What a model decides; other options are of the benchmark, or about outputs.
_OF_MODEL: Final = ("distance", "expand", "rerank", "seed", "chunk_rows")

Run = Callable[[Benchmark, dict[str, Any]], Report | Scores]
"""Evaluation by the rules of a benchmark, of one gallery or of drawn ones, with options of `evaluate`."""


def scores_apart(
    benchmark: Benchmark,
    options: Mapping[str, Any],
    query: LabelledSet,
    gallery: LabelledSet,
    run: Run,
    beside: Beside | None = None,
) -> dict[str, Scores]:
    """Scores of the other codes that need runs of their own, by name; `options` are those of the benchmark's run.

    Codes that these sets do not fit, or that cannot be evaluated on them, are left out.
    """
    found: dict[str, Scores] = {}
    runs: dict[object, Report | Scores] = {}
    kept = {name: options[name] for name in _OF_MODEL if name in options}
    for other in codes_apart(benchmark, beside or {}):
        rules = other.protocol
        alike = ranking(rules), other.draw
        with contextlib.suppress(InputError, PlanError):
            if alike not in runs:
                refuse_unfit_labels(other, query, gallery)
                metrics = [rules.ap_family, CMC]
                named = {"metrics": metrics, "confidence": None}
                runs[alike] = run(other, {**kept, **named})
            made = runs[alike]
            found[other.name] = scores_of(made, rules) if isinstance(made, Report) else made
    return found
