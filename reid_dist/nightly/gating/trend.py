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

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.metrics.confidence import bootstrap_intervals, sign_flip_p_values
from reid_dist.nightly.gating.nights import Night, Tested, distinct, finding_of_metrics, points
from reid_dist.nightly.gating.settings import TrendGate
from reid_dist.nightly.history.values import BETTER, INCOMPARABLE, SAME, UNDECIDED, WORSE, Change, Finding
from reid_dist.reports.verdicts import p_value_text, verdict_of

Float64 = NDArray[np.float64]

_GATE: Final = "trend"
# A stream of its own, beside those of bootstrap and sign flips.
_STREAM: Final = 3
_EQUAL: Final = 1e-12


def gate_trend(
    nights: Sequence[Night], tonight: Night, pids: NDArray[np.int64], *, n_earlier: int, gate: TrendGate
) -> Finding:
    """Return the finding of the trend of the last nights.

    `nights` are earlier comparable ones, oldest first; one per different result is enough, and `n_earlier` is the
    number of nights behind them.  `pids` has the identity of every query, shape (n_query,).
    """
    series = distinct([*nights, tonight])
    if not tonight.values:
        return Finding(gate=_GATE, verdict=INCOMPARABLE, reason="no gated metric has values per query")
    if len(series) == 1 and n_earlier:
        changes = tuple(
            Change(name=name, baseline=value, candidate=value, difference=0.0, low=0.0, high=0.0, verdict=SAME)
            for name, value in ((name, float(np.nanmean(each))) for name, each in tonight.values.items())
        )
        reason = f"the same result in all {n_earlier + 1} nights, to the last bit"
        return Finding(gate=_GATE, verdict=SAME, reason=reason, baseline=nights[0].number, changes=changes)
    if len(series) < gate.minimum_results:
        reason = f"no verdict yet ({len(series)} of {gate.minimum_results} results that differ)"
        return Finding(gate=_GATE, verdict=INCOMPARABLE, reason=reason)
    order = (WORSE, BETTER, UNDECIDED, SAME, INCOMPARABLE)
    against, first = f"{len(series)} different results since run {series[0].number}", series[0].number
    return finding_of_metrics(_GATE, _fitted(series, pids, gate), order, against=against, baseline=first)


def announced_once(found: Finding, before: Finding, run: int) -> Finding:
    """Return a rising trend as no news, if the finding of the night before, of a run, had a rise already.

    The changes keep their verdicts, by which the next night knows of the rise.  A falling trend stays a loss.
    """
    has_risen = any(change.verdict == BETTER for change in before.changes)
    if found.verdict != BETTER or not has_risen:
        return found
    return replace(found, verdict=SAME, reason=f"rising as in run {run}: {found.reason}")


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


def _fitted(series: Sequence[Night], pids: NDArray[np.int64], gate: TrendGate) -> list[Tested]:
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
        verdict = INCOMPARABLE
        if interval.is_known:
            verdict = verdict_of(
                difference, interval, p_value, level=level, n_units=found.n_units, smallest_effect=gate.minimum_effect
            )
        middle = float(means.mean())
        change = Change(
            name=name,
            baseline=middle - difference / 2,
            candidate=middle + difference / 2,
            difference=difference,
            low=interval.low if interval.is_known else None,
            high=interval.high if interval.is_known else None,
            verdict=verdict,
        )
        fitted.append(Tested(change, _in_words(change, p_value, gate, by_nights=of_nights > flips[name])))
    return fitted


def _in_words(change: Change, p_value: float, gate: TrendGate, *, by_nights: bool) -> str:
    """Describe a change with the p-value that decides, which is the larger one of the two tests."""
    if change.difference is None or change.low is None or change.high is None:
        return f"{change.name} cannot be tested: fewer than two identities"
    level = 100 * (1 - 2 * gate.false_alarm / (len(gate.metrics) if gate.metrics else 2))
    moved = "falls" if change.difference < 0 else "rises"
    return (
        f"{change.name} {moved} by {points(abs(change.difference))} points from first to last ({level:.6g} % "
        f"interval over identities [{100 * change.low:+.2f}, {100 * change.high:+.2f}]; what decides is the test by "
        f"{'the order of nights' if by_nights else 'identities'}, p {p_value_text(p_value)})"
    )
