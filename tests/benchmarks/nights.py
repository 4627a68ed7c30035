"""Rates of false alarms and times to detection of all gates together, over nights with a history.

Models that differ by their noise are evaluated once each.  A history draws identities with replacement, each with its
queries, and gives every identity the models in an order of its own: nights are exchangeable, and all differences are
noise.  Thirty nights precede tonight.  The first of them is the reference, as none was accepted; the last thirteen
are the trend with tonight.

Losses.  Tonight is a model that lost one point of mAP at once; or every night's model is worse than the one before by
the same small step, and the first night is counted that any gate calls worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist import Report
from reid_dist.nightly.gating.accuracy import gate_accuracy
from reid_dist.nightly.gating.gate_settings import AccuracyGate, TrendGate
from reid_dist.nightly.gating.trend import Night, gate_trend, night_weights
from reid_dist.nightly.history.history_values import Entry, Estimate, Past
from reid_dist.reports.verdicts import WORSE
from reid_dist.stores.synthetic import make_sets
from tests.benchmarks import gates

__all__ = ["Losses", "Models", "first_losses", "losses", "make_models", "make_slide", "nights", "tally_nights"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

N_EARLIER = 30
N_SLIDE = 14
N_UNCHANGED = 4000
STEP = 0.0033

ACCURACY, TREND = AccuracyGate(), TrendGate()

# In standard errors: smaller losses are worse in no gate, and are not resampled.
_AGAINST = {"last": (slice(-2, -1), 2.5), "reference": (slice(0, 1), 2.5)}
_TREND = 2.8


@dataclass(frozen=True)
class Models:
    """Values of the same queries in many models."""

    # By name of metric, shape (n_models, n_query).
    values: Mapping[str, Float64]
    # Rows of every identity.
    rows: Sequence[Int64]

    @property
    def n_models(self) -> int:
        return len(next(iter(self.values.values())))

    @cached_property
    def sums(self) -> dict[str, Float64]:
        """Values summed by identity: shape (n_identities, n_models), by name of metric."""
        return {name: np.stack([each[:, rows].sum(axis=1) for rows in self.rows]) for name, each in self.values.items()}

    def followed_by(self, tonight: Mapping[str, Float64]) -> Models:
        """Return these models and one more, by name of metric shape (n_query,)."""
        return Models({name: np.vstack([each, tonight[name]]) for name, each in self.values.items()}, self.rows)

    def history(self, rng: np.random.Generator, n_nights: int, *, last: int | None = None) -> History:
        """Draw identities, and a model for every identity and night; an identity that is drawn twice is two.

        With `last`, one more night, on which all have this model, and which no other night has.
        """
        drawn = rng.integers(len(self.rows), size=len(self.rows))
        n_models = self.n_models - (last is not None)
        models = rng.permuted(np.tile(np.arange(n_models), (len(drawn), 1)), axis=1)[:, :n_nights]
        if last is not None:
            models = np.column_stack([models, np.full(len(drawn), last)])
        return History(self, drawn, models)

    def in_order(self, rng: np.random.Generator) -> History:
        """Draw identities; the models are the nights, in their order."""
        drawn = rng.integers(len(self.rows), size=len(self.rows))
        return History(self, drawn, np.tile(np.arange(self.n_models), (len(drawn), 1)))


@dataclass(frozen=True)
class History:
    """Nights over drawn identities; the first one is the reference, the last one tonight."""

    # Models to draw from.
    models: Models
    # Identities, shape (n_identities,).
    drawn: Int64
    # Model of every identity and night, shape (n_identities, n_nights).
    order: Int64

    @property
    def n_nights(self) -> int:
        return self.order.shape[1]

    @property
    def n_query(self) -> int:
        return sum(len(self.models.rows[identity]) for identity in self.drawn)

    def until(self, n_nights: int) -> History:
        """Return the first nights."""
        return replace(self, order=self.order[:, :n_nights])

    def sums(self) -> dict[str, Float64]:
        """Values summed by identity, shape (n_identities, n_nights), by name of metric."""
        return {
            name: np.take_along_axis(each[self.drawn], self.order, axis=1) for name, each in self.models.sums.items()
        }

    def columns(self) -> tuple[dict[str, Float64], Int64]:
        """Values by name of metric, shape (n_nights, n_query), and pids."""
        sizes = [len(self.models.rows[identity]) for identity in self.drawn]
        rows = np.concatenate([self.models.rows[identity] for identity in self.drawn])
        pids = np.repeat(np.arange(len(self.drawn)), sizes)
        values = {name: each[self.order[pids].T, rows] for name, each in self.models.values.items()}
        return values, pids


def make_models(kinship: float, n_models: int, *, scale: float = 1.0) -> Models:
    """Evaluate models that differ by noise alone, as `gates.make_pairs` makes two of them."""
    shape, own = gates.shape_and_noise(kinship, scale)
    sets = make_sets(shape, 0)
    return _models([gates.evaluated(sets, shape, own, 1 + at) for at in range(n_models)])


def make_slide(kinship: float, *, scale: float = 1.0, step: float = STEP, n_nights: int = N_SLIDE) -> Models:
    """Evaluate models, each worse than the one before by about `step` in mAP."""
    shape, own = gates.shape_and_noise(kinship, scale)
    sets = make_sets(shape, 0)
    first = gates.evaluated(sets, shape, own, 101)
    with_noise = partial(gates.evaluated, sets, shape)
    *_, last = gates.worse_by(step * (n_nights - 1), first, lambda noise: with_noise(noise, 100 + n_nights), own)
    noises = np.linspace(own, last, n_nights)[1:]
    return _models([first, *(with_noise(float(noise), 102 + at) for at, noise in enumerate(noises))])


def _models(reports: Sequence[Report]) -> Models:
    pids = reports[0].per_query["pid"]
    valid = ~np.isnan(reports[0].per_query["AP"])
    rows = [np.flatnonzero((pids == pid) & valid) for pid in np.unique(pids[valid])]
    values = {name: np.stack([each.per_query[key] for each in reports]) for name, key in gates.COLUMNS.items()}
    return Models(values, rows)


@dataclass(frozen=True)
class Losses:
    """Losses found on a night: of accuracy against any run, and in the trend."""

    accuracy: bool
    trend: bool

    @property
    def any(self) -> bool:
        return self.accuracy or self.trend


def losses(
    history: History, *, gate: AccuracyGate = ACCURACY, trend: TrendGate = TREND, gate_all: bool = False
) -> Losses:
    """Apply the gates to the last night of a history; with `gate_all` also to nights that are clearly not worse."""
    sums, n_query = history.sums(), history.n_query
    lost = {name for name in _AGAINST if gate_all or _may_have_lost(sums, n_query, gate.minimum_effect, name)}
    falls = gate_all or _may_fall(sums, n_query, trend)
    if not lost and not falls:
        return Losses(accuracy=False, trend=False)
    values, pids = history.columns()
    tonight = history.n_nights - 1
    nights = [Night(at, f"{at}", {name: each[at] for name, each in values.items()}) for at in range(tonight + 1)]
    if lost:
        reports = {at: gates.report_of(dict(nights[at].values), pids) for at in {0, tonight - 1, tonight}}
        earlier = {at: Past(at, _entry(each, at), each) for at, each in reports.items()}
        # One after the other, until one is a loss: the verdict is that of all of them together.
        tests: dict[str, dict[str, Any]] = {
            "last": {"last_good": earlier[tonight - 1]},
            "reference": {"last_good": None, "reference": earlier[0]},
        }
        facts = earlier[tonight].entry
        found = (
            gate_accuracy(reports[tonight], facts, same_options=None, gate=gate, **tests[against]).verdict
            for against in tests
            if against in lost
        )
        lost = {"any"} if WORSE in found else set()
    if falls:
        past = nights[max(0, tonight + 1 - trend.nights) : tonight]
        falls = gate_trend(past, nights[tonight], pids, n_earlier=len(past), gate=trend).verdict == WORSE
    return Losses(accuracy=bool(lost), trend=falls)


def _entry(report: Report, at: int) -> Entry:
    entry = gates.entry_of(report)
    metrics = {name: Estimate(float(value)) for name, value in report.metrics.items()}
    return replace(entry, input_digest=f"in {at}", metrics=metrics)


def _may_have_lost(sums: Mapping[str, Float64], n_query: int, effect: float, against: str) -> bool:
    """Whether a metric dropped by enough, in points and in standard errors of sums by identity."""
    nights, needed = _AGAINST[against]
    for each in sums.values():
        drops = each[:, nights] - each[:, -1:]
        totals, errors = drops.sum(axis=0), np.linalg.norm(drops, axis=0)
        if np.any((totals >= n_query * effect - 1e-6) & (totals >= needed * errors)):
            return True
    return False


def _may_fall(sums: Mapping[str, Float64], n_query: int, gate: TrendGate) -> bool:
    for each in sums.values():
        last = each[:, -gate.nights :]
        if last.shape[1] < gate.minimum_results:
            return False
        change = last @ night_weights(last.shape[1])
        if change.sum() <= -n_query * gate.minimum_effect + 1e-6 and -change.sum() >= _TREND * np.linalg.norm(change):
            return True
    return False


def tally_nights(
    models: Models,
    n_nights: int,
    *,
    seed: int = 0,
    tonight: Mapping[str, Float64] | None = None,
    others: Callable[[np.random.Generator], bool] = lambda _: False,
) -> dict[str, gates.Tally]:
    """Count the nights, each with its own history, that accuracy, trend, other gates, and any of them find worse.

    There is at least one model per earlier night, and one more for tonight unless `tonight` gives the values of all
    queries, by name of metric.  `others` is whether the gates of speed and memory find the night worse.
    """
    rng = np.random.default_rng((seed, n_nights))
    known = models if tonight is None else models.followed_by(tonight)
    drawn = {"n_nights": N_EARLIER + 1} if tonight is None else {"n_nights": N_EARLIER, "last": models.n_models}
    counts = dict.fromkeys(("accuracy", "trend", "speed or memory", "any gate"), 0)
    for _ in range(n_nights):
        found, other = losses(known.history(rng, **drawn)), others(rng)
        counts["accuracy"] += found.accuracy
        counts["trend"] += found.trend
        counts["speed or memory"] += other
        counts["any gate"] += found.any or other
    return {name: gates.Tally(count, n_nights) for name, count in counts.items()}


def first_losses(slide: Models, n_histories: int, *, seed: int = 0) -> list[int]:
    """Return the first night, from 1, on which each slide is found worse; one more than their number if it never is."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_histories):
        history = slide.in_order(rng)
        seen = (last for last in range(2, slide.n_models + 1) if losses(history.until(last)).any)
        found.append(next(seen, slide.n_models + 1))
    return found


def _by(night: int) -> str:
    return f"night {night}" if night <= N_SLIDE else "no night"


def nights(scale: float, show: Callable[[str], None] = print) -> None:
    """Print rates with their bounds; `scale` is the share of rows and of nights."""

    def times(n: int) -> int:
        return max(1, round(n * scale))

    others = partial(gates.is_slow_or_big, time=gates.Wander(0.1, outliers=True), memory=gates.Wander(0.03))
    pooled = gates.Tally(0, 0)
    for kin in gates.COUNTED:
        kinship = gates.KINSHIPS[kin]
        models = make_models(kinship, N_EARLIER + 1, scale=scale)
        tallies = tally_nights(models, times(N_UNCHANGED), others=others)
        for what, found in tallies.items():
            show(f"{what}, no change: {kin}, {N_EARLIER} nights before: {found} worse, at most {found.at_most:.2%}")
        one = tallies["any gate"]
        pooled = gates.Tally(pooled.n_worse + one.n_worse, pooled.n_nights + one.n_nights)
        worse = gates.make_pairs(kinship, scale=scale, drop=0.01)
        tallies = tally_nights(models, times(100), tonight=worse.candidate)
        for what in ("accuracy", "any gate"):
            show(
                f"{what}, a drop of {100 * worse.drop:.3g} points after {N_EARLIER} nights: {kin}: {tallies[what]} "
                f"worse, at least {100 * tallies[what].at_least:.3g}%"
            )
        slide = make_slide(kinship, scale=scale)
        means = slide.values["mAP"][:, np.concatenate(slide.rows)].mean(axis=1)
        first = np.sort(first_losses(slide, times(30)))
        middle, late = first[len(first) // 2], first[math.ceil(0.95 * len(first)) - 1]
        show(
            f"any gate, {N_SLIDE} nights from {means[0]:.2%} to {means[-1]:.2%} mAP: {kin}: first worse by "
            f"{_by(middle)} in half of {len(first)} histories, by {_by(late)} in 95%, by {_by(first[-1])} in all"
        )
    show(f"any gate, no change, all of these models: {pooled} worse, at most {pooled.at_most:.2%}")
