"""Rates of false alarms and of detected losses of the gates, over many simulated nights.

Accuracy.  Two models are two noises on the features of one synthetic set; each is evaluated once, and
nights consist of pairs of values per query: identities are drawn with replacement, each with its queries.  For a night
without a change either the two models change places identity by identity, at random (``swapped``), or identities are
drawn with slightly unequal chances, such that the models are equal in the mean (``reweighted``, which keeps the skew
that swapping removes).  For a night with a drop
the second model has additional noise that costs one point of mAP.  Models may share much of their noise
(``siblings``: the same queries are hard for both) or nothing but the identities (``unrelated``).

Speed and memory.  Log-normal noise around one value; for time with or without one night in ten that is slow by 30%.

All gates together, with a history: :mod:`tests.benchmarks.nights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.special
from numpy.typing import NDArray

from reid_dist import FeatureSet, Report, evaluate
from reid_dist.nightly.gating.accuracy import gate_accuracy
from reid_dist.nightly.gating.gate_settings import AccuracyGate, RatioGate, SpeedGate
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.history.history_values import Entry, Past
from reid_dist.reports.verdicts import WORSE
from reid_dist.stores.synthetic import MARKET1501, SyntheticSet, SyntheticShape, make_sets

__all__ = [
    "Pairs",
    "Tally",
    "Wander",
    "entry_of",
    "evaluated",
    "gates",
    "is_slow_or_big",
    "is_worse",
    "make_pairs",
    "may_be_worse",
    "report_of",
    "shape_and_noise",
    "tally_drops",
    "tally_memory",
    "tally_speed",
    "tally_unchanged",
    "worse_by",
]

Float64 = NDArray[np.float64]

# Columns of the gated metrics.
COLUMNS = {"mAP": "AP", "CMC@1": "CMC@1"}
# Part of the variance of a model's noise that other models share.
KINSHIPS = {"siblings": 0.95, "cousins": 0.85, "relatives": 0.7, "unrelated": 0.0}
# Alarms without a change are counted at both ends of them and in between.
COUNTED = ("siblings", "relatives", "unrelated")
OUTLIER_SHARE, OUTLIER = 0.1, 1.3

_PLAIN = Entry(model="m", dataset="d", job="j", job_digest="job", machine={"cores": 4})


@dataclass(frozen=True)
class Tally:
    """Nights that were found worse."""

    n_worse: int
    n_nights: int

    @property
    def share(self) -> float:
        return self.n_worse / self.n_nights

    @property
    def at_most(self) -> float:
        """Upper end of the one-sided 95% interval of Clopper and Pearson."""
        if self.share == 1:
            return 1.0
        # Not scipy.stats, whose import takes two seconds.
        return float(scipy.special.betaincinv(self.n_worse + 1, self.n_nights - self.n_worse, 0.95))

    @property
    def at_least(self) -> float:
        """Lower end of that interval."""
        if not self.n_worse:
            return 0.0
        return float(scipy.special.betaincinv(self.n_worse, self.n_nights - self.n_worse + 1, 0.05))

    def __str__(self) -> str:
        # Figures with a decimal point are positive: a rate is given by its bound.
        return f"{self.n_worse} of {self.n_nights} nights"


@dataclass(frozen=True)
class Pairs:
    """Values of the same queries in two models, by metric, and the queries of every identity."""

    # Shape (n_query,) by name of metric.
    baseline: dict[str, Float64]
    candidate: dict[str, Float64]
    # Rows of every identity.
    rows: list[NDArray[np.int64]]

    @property
    def drop(self) -> float:
        """Decrease of the mAP from the first to the second model, as a share."""
        return float(np.mean(self.baseline["mAP"] - self.candidate["mAP"]))

    @property
    def spread(self) -> float:
        """Standard deviation of the difference of AP per query."""
        return float(np.std(self.candidate["mAP"] - self.baseline["mAP"]))

    @cached_property
    def even_chances(self) -> Float64:
        """Chance of every identity to be drawn, shape (n_identities,), such that no metric differs in the mean.

        They are proportional to ``exp(tilt . sums)``, which is as near to equal chances as can be.
        """
        difference = np.stack([self.candidate[name] - each for name, each in self.baseline.items()], axis=1)
        sums = np.stack([difference[rows].sum(axis=0) for rows in self.rows])
        tilt = np.zeros(sums.shape[1])
        for _ in range(50):
            exponent = sums @ tilt
            chances = np.exp(exponent - exponent.max())
            chances /= chances.sum()
            mean = chances @ sums
            # Newton; the ridge bounds the steps for tiny sets, where no chances suffice.
            curvature = (sums * chances[:, None]).T @ sums - np.outer(mean, mean) + 1e-6 * np.eye(len(tilt))
            tilt -= np.linalg.solve(curvature, mean)
        return chances

    def night(
        self, rng: np.random.Generator, n_identities: int, *, swapped: bool = False, reweighted: bool = False
    ) -> tuple[dict[str, Float64], dict[str, Float64], NDArray[np.int64]]:
        """Draw identities: values before and after, and pids; an identity that is drawn twice is two."""
        chances = self.even_chances if reweighted else None
        drawn = [self.rows[at] for at in rng.choice(len(self.rows), n_identities, p=chances)]
        pids = np.repeat(np.arange(n_identities), [len(rows) for rows in drawn])
        rows = np.concatenate(drawn)
        exchanged = (rng.random(n_identities) < 0.5)[pids] & swapped
        near = {
            name: np.where(exchanged, self.candidate[name][rows], each[rows]) for name, each in self.baseline.items()
        }
        far = {
            name: np.where(exchanged, each[rows], self.candidate[name][rows]) for name, each in self.baseline.items()
        }
        return near, far, pids


def make_pairs(kinship: float, *, scale: float = 1.0, drop: float = 0.0, seed: int = 0) -> Pairs:
    """Evaluate two models; the second loses about `drop` in mAP, as a share."""
    shape, own = shape_and_noise(kinship, scale)
    sets = make_sets(shape, seed)
    first = evaluated(sets, shape, own, seed + 1)
    if drop:
        second, _ = worse_by(drop, first, lambda noise: evaluated(sets, shape, noise, seed + 2), own)
    else:
        second = evaluated(sets, shape, own, seed + 2)
    pids = first.per_query["pid"]
    valid = ~np.isnan(first.per_query["AP"])
    rows = [np.flatnonzero((pids == pid) & valid) for pid in np.unique(pids[valid])]
    values = [{name: each.per_query[column] for name, column in COLUMNS.items()} for each in (first, second)]
    return Pairs(values[0], values[1], rows)


def shape_and_noise(kinship: float, scale: float) -> tuple[SyntheticShape, float]:
    """Shape of the sets that all models of a kinship share, and the noise of each single model."""
    size = {name: max(floor, round(getattr(MARKET1501, name) * scale)) for name, floor in (
        ("n_identity", 10), ("n_query", 45), ("n_gallery", 240), ("n_distractor", 30), ("n_junk", 30)
    )}  # fmt: skip
    shape = replace(MARKET1501, **size, noise=MARKET1501.noise * math.sqrt(kinship))
    return shape, MARKET1501.noise * math.sqrt(1 - kinship)


def worse_by(drop: float, first: Report, with_noise: Callable[[float], Report], noise: float) -> tuple[Report, float]:
    """Find by secants the noise at which a second model loses about `drop`."""
    second = with_noise(noise)
    last, missed = noise, first.metrics["mAP"] - second.metrics["mAP"] - drop
    noise += 0.05
    for _ in range(8):
        second = with_noise(noise)
        misses = first.metrics["mAP"] - second.metrics["mAP"] - drop
        if abs(misses) < 0.02 * drop or misses == missed:
            break
        step = -misses * (noise - last) / (misses - missed)
        last, missed, noise = noise, misses, max(0.0, noise + min(step, 0.5))
    return second, noise


def evaluated(sets: Sequence[SyntheticSet], shape: SyntheticShape, own_noise: float, seed: int) -> Report:
    rng = np.random.default_rng(seed)
    length = np.float32(own_noise / math.sqrt(shape.dim))
    sides = [
        FeatureSet.from_arrays(
            each.features + rng.standard_normal(each.features.shape, np.float32) * length, each.pids, each.camids
        )
        for each in sets
    ]
    return evaluate(*sides, confidence=None)


def report_of(values: dict[str, Float64], pids: NDArray[np.int64]) -> Report:
    described = {"content_digest": "content", "labels_digest": "labels"}
    return Report(
        metrics={name: math.fsum(column) / len(column) for name, column in values.items()},
        curves={},
        counts={"n_query": len(pids), "n_valid": len(pids), "n_gallery": 1, "n_junk": 0, "n_invalid_by_reason": {}},
        per_query={"pid": pids, **{COLUMNS[name]: column for name, column in values.items()}},
        protocol={"name": "market1501", "cmc_family": "CMC", "ap_family": "mAP", "invalid_query": "left out"},
        distance={"name": "cosine"},
        inputs={"query": described, "gallery": described},
    )


def entry_of(report: Report) -> Entry:
    return Entry(
        model="m", dataset="d", job="j", input_digest="in", job_digest="job", result_digest=report.result_digest
    )


def is_worse(near: dict[str, Float64], far: dict[str, Float64], pids: NDArray[np.int64], gate: AccuracyGate) -> bool:
    before, after = report_of(near, pids), report_of(far, pids)
    earlier = Past(1, entry_of(before), before)
    facts = replace(entry_of(after), input_digest="other")
    return gate_accuracy(after, facts, last_good=earlier, same_options=None, gate=gate).verdict == WORSE


def may_be_worse(
    near: dict[str, Float64], far: dict[str, Float64], pids: NDArray[np.int64], gate: AccuracyGate
) -> bool:
    """Whether a night can be worse: a filter, as resamples take the time and most nights are clearly not worse.

    A drop must have the smallest size that matters.  It must also be some 2.8 standard errors (of sums by identity) for
    a rate of 0.25%; drops below 2.2 are excluded.
    """
    for name in near:
        lost = near[name] - far[name]
        sums = np.bincount(pids, weights=lost)
        if lost.mean() >= gate.minimum_effect - 1e-9 and sums.sum() >= 2.2 * np.linalg.norm(sums):
            return True
    return False


def tally_unchanged(
    pairs: Pairs, n_nights: int, *, n_identities: int | None = None, swapped: bool, gate: AccuracyGate | None = None
) -> Tally:
    """Tally nights without a change: models change places, or identities have chances that equalise the means."""
    return _tally(pairs, n_nights, n_identities, gate or AccuracyGate(), swapped=swapped, reweighted=not swapped)


def tally_drops(pairs: Pairs, n_nights: int, *, gate: AccuracyGate | None = None) -> Tally:
    """Tally nights on which the second model replaced the first."""
    return _tally(pairs, n_nights, None, gate or AccuracyGate())


def _tally(pairs: Pairs, n_nights: int, n_identities: int | None, gate: AccuracyGate, **null: bool) -> Tally:
    rng = np.random.default_rng(1)
    drawn = (pairs.night(rng, n_identities or len(pairs.rows), **null) for _ in range(n_nights))
    n_worse = sum(may_be_worse(*night, gate) and is_worse(*night, gate) for night in drawn)
    return Tally(n_worse, n_nights)


@dataclass(frozen=True)
class Wander:
    """Variation of a quantity from night to night: log-normal, with `outliers` one night in ten above by 30%."""

    noise: float
    outliers: bool = False

    def values(self, rng: np.random.Generator, n: int) -> list[float]:
        """Values of n nights."""
        odd = (rng.random(n) < OUTLIER_SHARE) & self.outliers
        found: list[float] = np.exp(self.noise * rng.standard_normal(n) + odd * math.log(OUTLIER)).tolist()
        return found

    def __str__(self) -> str:
        return f"noise {self.noise:.0%}{', one night in ten above by 30%' if self.outliers else ''}"


def _is_slow(rng: np.random.Generator, wander: Wander, n_past: int, times: float, gate: SpeedGate) -> bool:
    *past, tonight = wander.values(rng, n_past + 1)
    earlier = [replace(_PLAIN, seconds=60 * each) for each in past]
    return gate_speed(replace(_PLAIN, seconds=60 * tonight * times), earlier, gate).verdict == WORSE


def _is_big(rng: np.random.Generator, wander: Wander, n_past: int, times: float, gate: RatioGate) -> bool:
    *past, tonight = (round(1e9 * each) for each in wander.values(rng, n_past + 1))
    earlier = [replace(_PLAIN, peak_bytes=each) for each in past]
    return gate_memory(replace(_PLAIN, peak_bytes=round(tonight * times)), earlier, gate).verdict == WORSE


def is_slow_or_big(rng: np.random.Generator, time: Wander, memory: Wander, n_past: int = 20) -> bool:
    """Whether the gates of speed or memory find a night without a change worse."""
    return _is_slow(rng, time, n_past, 1, SpeedGate()) or _is_big(rng, memory, n_past, 1, RatioGate())


def tally_speed(wander: Wander, n_nights: int, *, n_past: int, times: float = 1.0) -> Tally:
    """Tally the time of nights, each with its own history; tonight takes `times` as long."""
    rng, gate = np.random.default_rng(round(1000 * wander.noise) + n_past), SpeedGate()
    return Tally(sum(_is_slow(rng, wander, n_past, times, gate) for _ in range(n_nights)), n_nights)


def tally_memory(wander: Wander, n_nights: int, *, n_past: int, times: float = 1.0) -> Tally:
    """Tally the memory of nights, each with its own history; tonight takes `times` as much."""
    rng, gate = np.random.default_rng(round(1000 * wander.noise) + n_past), RatioGate()
    return Tally(sum(_is_big(rng, wander, n_past, times, gate) for _ in range(n_nights)), n_nights)


def gates(scale: float, show: Callable[[str], None] = print) -> None:
    """Print rates with their bounds; `scale` is the share of rows and of nights."""

    def nights(n: int) -> int:
        return max(1, round(n * scale))

    for kin, kinship in KINSHIPS.items():
        pairs = make_pairs(kinship, scale=scale)
        about = f"{kin}, spread of the differences {pairs.spread:.3g}"
        for swapped in (True, False) if kin in COUNTED else ():
            how = "swapped" if swapped else "reweighted"
            found = tally_unchanged(pairs, nights(2000), swapped=swapped)
            show(f"accuracy, no change, {how}: {about}: {found} worse, at most {found.at_most:.2%}")
        if kin == "unrelated":
            for n_identities in (100, 30, 10):
                found = tally_unchanged(pairs, nights(3000), n_identities=n_identities, swapped=False)
                show(f"accuracy, no change, {n_identities} identities: {found} worse, at most {found.at_most:.2%}")
        worse = make_pairs(kinship, scale=scale, drop=0.01)
        found = tally_drops(worse, nights(200))
        show(
            f"accuracy, a drop of {100 * worse.drop:.3g} points: {kin}, spread {worse.spread:.3g}: {found} worse, "
            f"at least {100 * found.at_least:.3g}%"
        )
    for noise in (0.02, 0.05, 0.1, 0.15):
        for n_past in (7, 20):
            for wander in (Wander(noise), Wander(noise, outliers=True)):
                about = f"{wander}, {n_past} runs"
                found = tally_speed(wander, nights(10_000), n_past=n_past)
                show(f"speed, no change: {about}: {found} worse, at most {found.at_most:.2%}")
                for times in (1.6, 2):
                    found = tally_speed(wander, nights(1000), n_past=n_past, times=times)
                    show(f"speed, {times:g} times: {about}: {found} worse, at least {100 * found.at_least:.3g}%")
            about = f"{Wander(noise)}, {n_past} runs"
            found = tally_memory(Wander(noise), nights(10_000), n_past=n_past)
            show(f"memory, no change: {about}: {found} worse, at most {found.at_most:.2%}")
            found = tally_memory(Wander(noise), nights(1000), n_past=n_past, times=1.5)
            show(f"memory, 1.5 times: {about}: {found} worse, at least {100 * found.at_least:.3g}%")
