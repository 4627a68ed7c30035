"""Gate of the trend: a loss in many small steps.

Each result of the last nights is taken once, in the order of the nights.  A straight line is fitted to the nightly
means, and its change from the first to the last of them gets a verdict by
:func:`reid_dist.reports.verdicts.verdict_of`.  Its interval is a bootstrap of identities.  Its p-value is the larger
one of two:

*identities*: the change is a mean over queries of values that are antisymmetric in time.  If the results are
exchangeable, each identity's nights might as well have come in reverse, which turns the sign: a sign-flip test by
identity, which accounts for the noise of the queries, paired over all nights;

*nights*: if the results are exchangeable, every order of the nightly means is equally likely: a permutation test, which
accounts for whatever moves a whole night, such as the seed of a training.

A rise is announced in the night in which it is first found; see `announced_once`.

Both must agree.  The first alone mistakes an effect on whole nights for a trend; the second alone mistakes a change
between two models, each with many nights that differ by little more than rounding.

Sources: Good, Permutation, Parametric and Bootstrap Tests of Hypotheses, 2005 (tests of trend by permutation); Phipson
and Smyth, SAGMB 2010 (no p-value is zero).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.metrics.confidence import bootstrap_intervals, sign_flip_p_values
from reid_dist.nightly.gating.accuracy import finding_of_changes
from reid_dist.nightly.gating.gate_settings import TrendGate
from reid_dist.nightly.history.history_values import Change, Code, Decider, Finding, Outcome
from reid_dist.reports import Report
from reid_dist.reports.comparison.conditions import differing_conditions
from reid_dist.reports.comparison.paired import query_values, untestable
from reid_dist.reports.verdicts import verdict_of

Float64 = NDArray[np.float64]

_GATE: Final = "trend"
# A stream of its own, beside those of bootstrap and sign flips.
_STREAM: Final = 3
_EQUAL: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Night:
    """Gated metrics of one night, with the number of its run.

    Nights with equal result digests have equal values: by name of metric, shape (n_query,), float64; NaN where a query
    does not count.
    """

    number: int
    digest: str
    values: Mapping[str, Float64]


def gate_trend(
    nights: Sequence[Night], tonight: Night, pids: NDArray[np.int64], *, n_earlier: int, gate: TrendGate
) -> Finding:
    """Return the finding of the trend of the last nights.

    `nights` are earlier comparable ones, oldest first; one per different result is enough, and `n_earlier` is the
    number of nights behind them.  `pids` has the identity of every query, shape (n_query,).
    """
    series = distinct([*nights, tonight])
    if not tonight.values:
        return Finding(gate=_GATE, verdict=Outcome.INCOMPARABLE, code=Code.NO_VALUES)
    if len(series) == 1 and n_earlier:
        changes = tuple(
            Change(name=name, baseline=value, candidate=value, difference=0.0, low=0.0, high=0.0, verdict=Outcome.SAME)
            for name, value in ((name, float(np.nanmean(each))) for name, each in tonight.values.items())
        )
        return Finding(
            gate=_GATE,
            verdict=Outcome.SAME,
            code=Code.EQUAL_NIGHTS,
            facts={"n_nights": n_earlier + 1},
            baseline=nights[0].number,
            changes=changes,
        )
    if len(series) < gate.minimum_results:
        facts: dict[str, Any] = {"n": len(series), "needed": gate.minimum_results, "unit": "result"}
        return Finding(gate=_GATE, verdict=Outcome.INCOMPARABLE, code=Code.WAITING, facts=facts)
    order = (Outcome.WORSE, Outcome.BETTER, Outcome.UNDECIDED, Outcome.SAME, Outcome.INCOMPARABLE)
    fitted, first = _fitted(series, pids, gate), series[0].number
    return finding_of_changes(_GATE, fitted, order, Code.LINE, {"n_results": len(series)}, first)


def announced_once(found: Finding, past: Sequence[tuple[int, Finding]], *, repeats: int | None = None) -> Finding:
    """Return a rising trend as no news, if it was announced in one of the nights behind it, or nothing is new tonight.

    `past` are the runs of these nights, oldest first, with their findings; `repeats` is the last run if tonight's
    result is its.  The changes keep their verdicts.  A falling trend stays a loss until it is accepted.
    """
    if found.verdict != Outcome.BETTER:
        return found
    announced = [
        each.facts.get("as_in", run) for run, each in past if each.verdict == Outcome.BETTER or "as_in" in each.facts
    ]
    if announced:
        return replace(found, verdict=Outcome.SAME, facts={**found.facts, "as_in": announced[-1]})
    return found if repeats is None else replace(found, verdict=Outcome.SAME, facts={**found.facts, "repeats": repeats})


def tested_metrics(candidate: Report, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics with values per query, of at least one query that counts."""
    return tuple(
        name
        for name in metrics
        if not untestable(candidate, name) and not np.isnan(query_values(candidate, name)).all()
    )


def night_of(number: int, report: Report, candidate: Report, metrics: Sequence[str]) -> Night | None:
    """Return the values of an earlier night; `metrics` are those of :func:`tested_metrics` of the latest, `candidate`.

    None where the nights do not compare: another protocol, labels, queries, or valid queries, or a missing metric.
    """
    old, new = (each.per_query.get("pid") for each in (report, candidate))
    if any(differing_conditions(report, candidate)) or old is None or new is None or not np.array_equal(old, new):
        return None
    if any(untestable(report, name) for name in metrics):
        return None
    values = {name: query_values(report, name) for name in metrics}
    if any(not np.array_equal(np.isnan(query_values(candidate, name)), np.isnan(values[name])) for name in metrics):
        return None
    return Night(number, report.result_digest, values)


def distinct(nights: Sequence[Night]) -> list[Night]:
    """Return the nights, oldest first, each result once: at the last night that has it."""
    last = {night.digest: place for place, night in enumerate(nights)}
    return [nights[place] for place in sorted(last.values())]


def night_weights(n: int) -> Float64:
    """Weights of n equally spaced means, shape (n,), whose sum gives the change of the fitted line from end to end."""
    place = np.arange(n) - (n - 1) / 2
    weights: Float64 = (n - 1) * place / np.vecdot(place, place)
    return weights


def permutation_p_value(means: Float64, *, n_resamples: int, seed: int) -> float:
    """Two-sided p-value of the change of a line fitted to means in time, shape (n,), over random orders of them."""
    weights = night_weights(len(means))
    centred = means - means.mean()
    observed = abs(float(np.vecdot(weights, centred)))
    orders = np.random.default_rng((seed, _STREAM)).permuted(np.tile(centred, (n_resamples, 1)), axis=1)
    tolerance = _EQUAL * float(np.abs(weights).max() * np.abs(centred).sum())
    as_far = int(np.count_nonzero(np.abs(np.vecdot(orders, weights)) >= observed - tolerance))
    return (1 + as_far) / (1 + n_resamples)


def _fitted(series: Sequence[Night], pids: NDArray[np.int64], gate: TrendGate) -> list[Change]:
    weights, names = night_weights(len(series)), [*series[-1].values]
    changes = {
        name: sum(weight * night.values[name] for weight, night in zip(weights, series, strict=True)) for name in names
    }
    # Two-sided tests at twice the rate, shared by the metrics: each end has the rate for itself.
    level = 1 - 2 * gate.false_alarm / len(names)
    found = bootstrap_intervals(changes, pids, level=level, n_resamples=gate.n_resamples, seed=gate.seed)
    flips = sign_flip_p_values(changes, pids, n_resamples=gate.n_resamples, seed=gate.seed)
    fitted = []
    for name in names:
        means = np.array([np.nanmean(night.values[name]) for night in series])
        interval, difference = found.intervals[name], float(np.vecdot(weights, means))
        of_nights = permutation_p_value(means, n_resamples=gate.n_resamples, seed=gate.seed)
        p_value = max(flips[name], of_nights)
        verdict: str = Outcome.INCOMPARABLE
        if interval.is_known:
            verdict = verdict_of(
                difference, interval, p_value, level=level, n_units=found.n_units, smallest_effect=gate.minimum_effect
            )
        change = Change(
            name=name,
            # As they were measured; the difference is that of the line.
            baseline=float(means[0]),
            candidate=float(means[-1]),
            difference=difference,
            low=interval.low if interval.is_known else None,
            high=interval.high if interval.is_known else None,
            verdict=verdict,
            # The larger p-value decides.
            test=Decider.NIGHTS if of_nights > flips[name] else Decider.IDENTITIES,
            p_value=p_value,
            level=level,
            n_units=found.n_units,
        )
        fitted.append(change)
    return fitted
