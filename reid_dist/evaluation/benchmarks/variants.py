"""Numbers that other codes in use give for the same sets.

Codes that differ in the average precision or in invalid queries alone rank alike, so that the values per query serve
both.  Codes that differ in relevant and junk items are ranked in the same pass
(`reid_dist.engine.outputs.protocol_ranks`), which costs at most a tenth more.  Those that rank groups or
draw galleries have extra runs on request, as far as the labels allow: each is the run of that benchmark on the same
sets, by the distance, the stages and the seed of the first, with its average precision and its CMC@1 alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info
from reid_dist.core.model import RankedQueries
from reid_dist.errors import InputError, PlanError
from reid_dist.evaluation.benchmarks.benchmark import Benchmark, benchmark_notes, refuse_unfit_labels
from reid_dist.evaluation.checked_options import Spec
from reid_dist.evaluation.study import begin_study
from reid_dist.metrics.metric import METRICS, Metric, exact_mean
from reid_dist.relevance.protocols import LEFT_OUT, Protocol
from reid_dist.reports import Report
from reid_dist.stages.session import Session
from reid_dist.stores import LabelledSet

SamePass = Mapping[Protocol, RankedQueries]
"""Ranks under the protocols of other codes, from the pass of a benchmark."""

CMC: Final = "CMC@1"


@dataclass(frozen=True)
class Scores:
    """Average precision and CMC@1 of a run, shares; NaN where it has none.

    `n_valid` is None for means over `n_draws` galleries.
    """

    family: str
    precision: float
    cmc: float
    n_valid: int | None = None
    n_draws: int = 1

    def against(self, own: Scores) -> dict[str, Any]:
        """The values with their differences from those of another code, and on what they rest, as of a finding."""
        pairs = ((self.family, self.precision, own.precision), (CMC, self.cmc, own.cmc))
        return {
            "metrics": [(name, value, value - before) for name, value, before in pairs],
            "n_valid": None if self.n_valid == own.n_valid else self.n_valid,
            "n_draws": self.n_draws if self.n_valid is None else None,
        }


def same_pass_protocols(benchmark: Benchmark) -> list[Protocol]:
    """Protocols of other codes that can be ranked in the pass of a benchmark, and are not by its own ranks."""
    if benchmark.draw is not None:
        return []
    rules = [other.protocol for other in benchmark.others if other.draw is None]
    alone = [each.collapse is not None or each.is_listed for each in (benchmark.protocol, *rules)]
    if alone[0]:
        return []
    return [
        each
        for each, is_alone in zip(rules, alone[1:], strict=True)
        if not is_alone and ranking(each) != ranking(benchmark.protocol)
    ]


def under_benchmark(
    report: Report,
    benchmark: Benchmark,
    gallery: LabelledSet,
    same_pass: SamePass | None = None,
    extra_runs: Mapping[str, Scores] | None = None,
) -> Report:
    """Add a benchmark to the report of an evaluation by its rules, with remarks on what the numbers stand for.

    `same_pass` holds the ranks under `same_pass_protocols`, as far as there are any; `extra_runs` what those of
    `extra_run_codes` gave, by name, None where these are left out.
    """
    others = () if report.bounds else other_notes(benchmark, report, same_pass or {}, extra_runs or {})
    notes = [*benchmark_notes(benchmark, gallery), *others, *report.notes]
    spec = {**report.spec, **benchmark_spec(benchmark, other_codes=extra_runs is not None)}
    return replace(report, benchmark=benchmark.describe(), spec=spec, notes=notes)


def benchmark_spec(benchmark: Benchmark | None, *, other_codes: bool) -> dict[str, Any]:
    """Entries of a spec under a benchmark."""
    return {} if benchmark is None else {"benchmark": benchmark.name, "other_codes": other_codes}


def extra_run_codes(benchmark: Benchmark, same_pass: SamePass) -> list[Benchmark]:
    """Other codes that rank neither alike nor in the pass of the benchmark."""
    return [
        other
        for other in benchmark.others
        if not _rank_alike(benchmark, other) and (_differ_in_rows(benchmark, other) or other.protocol not in same_pass)
    ]


# What a model decides; other options are of the benchmark, or about outputs.
_OF_MODEL: Final = ("distance", "expand", "rerank", "seed", "chunk_rows")

RunOfCode = Callable[[Benchmark, dict[str, Any]], Report | Scores]
"""Evaluation by the rules of a benchmark, of one gallery or of drawn ones, with options of `evaluate`."""


def extra_run_scores(
    session: Session,
    benchmark: Benchmark,
    spec: Spec,
    options: Mapping[str, Any],
    sides: tuple[LabelledSet, LabelledSet],
    run: RunOfCode,
    same_pass: SamePass | None = None,
) -> dict[str, Scores]:
    """Scores of the other codes that need extra runs, by name, each kept until all are there.

    `spec` is that of the benchmark's run, and `options` are its options.  Codes that the sets do not fit, or that
    cannot be evaluated on them, are left out.
    """
    others = extra_run_codes(benchmark, same_pass or {})
    if not others:
        return {}
    found: dict[str, Scores] = {}
    runs: dict[object, Report | Scores] = {}
    kept = {name: options[name] for name in _OF_MODEL if name in options}
    with begin_study(session, "codes", [benchmark.name, spec], Scores, folder=None) as study:
        for other in others:

            def evaluate(_: Session, other: Benchmark = other) -> Scores:
                rules = other.protocol
                alike = ranking(rules), other.draw
                if alike not in runs:
                    refuse_unfit_labels(other, *sides)
                    runs[alike] = run(other, {**kept, "metrics": [rules.ap_family, CMC], "confidence": None})
                made = runs[alike]
                return scores_of(made, rules) if isinstance(made, Report) else made

            with contextlib.suppress(InputError, PlanError):
                found[other.name] = study.part(other.name, evaluate)
    return found


def other_notes(
    benchmark: Benchmark,
    report: Report | None = None,
    same_pass: SamePass | None = None,
    extra_runs: Mapping[str, Scores] | None = None,
    own: Scores | None = None,
) -> Iterator[Finding]:
    """Values of other codes with their differences, or the command that gives them.

    `own` are the values of the benchmark itself, by default those of the report; without a report, there are those of
    extra runs alone.
    """
    if report is not None:
        own = scores_of(report)
    for other in benchmark.others:
        rules, named = other.protocol, {"benchmark": other.name, "source": other.source}
        if report is not None and own is not None and _rank_alike(benchmark, other):
            yield info("other_code", **named, shares="ranking", **scores_of(report, rules).against(own))
        elif own is not None and same_pass and rules in same_pass and not _differ_in_rows(benchmark, other):
            yield info("other_code", **named, shares="distances", **_of_ranks(same_pass[rules], rules).against(own))
        elif own is not None and extra_runs and other.name in extra_runs:
            yield info("other_code", **named, shares="", **extra_runs[other.name].against(own))
        else:
            same_rows = not _differ_in_rows(benchmark, other)
            how = "other galleries" if not same_rows else "other items" if rules.collapse is None else "groups"
            yield info("other_code_by_command", **named, ranks=how)


def ranking(rules: Protocol) -> Protocol:
    """A protocol without its name and without what it makes of a ranking."""
    return replace(rules, name="", summary="", source="", invalid_query=LEFT_OUT, ap_family="mAP", reported=())


def _differ_in_rows(one: Benchmark, other: Benchmark) -> bool:
    return not one.draw is None is other.draw


def _rank_alike(one: Benchmark, other: Benchmark) -> bool:
    return not _differ_in_rows(one, other) and ranking(one.protocol) == ranking(other.protocol)


def scores_of(report: Report, rules: Protocol | None = None) -> Scores:
    """Scores from the values per query of a report; `rules` may differ from its own in what they make of a ranking."""
    family = str(report.protocol["ap_family"]) if rules is None else rules.ap_family
    at_zero = report.protocol["invalid_query"] != LEFT_OUT if rules is None else rules.zero_for_invalid
    first = report.per_query["first_rank"]
    return _scores(family, report.per_query[METRICS.get(family).per_query_name], first, at_zero)


def _of_ranks(ranked: RankedQueries, rules: Protocol) -> Scores:
    """Scores from ranks."""
    first = np.where(ranked.n_relevant > 0, ranked.first_rank, np.nan)
    return _scores(rules.ap_family, Metric(METRICS.get(rules.ap_family)).values(ranked), first, rules.zero_for_invalid)


def _scores(family: str, precision: NDArray[np.float64], first: NDArray[np.float64], at_zero: bool) -> Scores:
    """Scores from the average precision and the rank of the first match, NaN for invalid queries, both (n_query,)."""
    hits = np.where(np.isnan(first), np.nan, first == 1)
    average, cmc = (exact_mean(values, zero_for_invalid=at_zero) for values in (precision, hits))
    return Scores(family, average, cmc, n_valid=int((~np.isnan(first)).sum()))
