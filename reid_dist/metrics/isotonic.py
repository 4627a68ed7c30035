"""Calibration: the probability of a match at a distance, which never rises with the distance, and its error.

Counts of matches and of others in bins of distances, from near to far, are pooled into *steps* of the least square
error among all that never rise (pool adjacent violators).  Ratios of counts are compared as integers.  The steps are
the edges of the convex hull of the ROC of the bins, which does not depend on how the two kinds are weighted: one fit
serves for every prior.

The errors of a calibration are those of steps and probabilities fitted on other identities: folds of identities, each
with the probabilities fitted on the others.  The expected calibration error is a sum of magnitudes, which noise raises:
`reid_dist.metrics.confidence.interval_of_magnitudes` is its interval.

Sources: Ayer et al., Annals of Mathematical Statistics 1955; Fawcett and Niculescu-Mizil, Machine Learning 2007 (convex
hull); Naeini et al., AAAI 2015 (expected calibration error); Brier, Monthly Weather Review 1950.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.exact_sums import exact_sum
from reid_dist.kernels.splitmix import stream_outputs

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Weights = tuple[float, float]
"""Weight of one match and of one other."""

N_FOLDS: Final = 5
N_LEVELS: Final = 15
"""Folds of identities, and bins of probability of the expected calibration error."""


def pool_adjacent(matches: Int64, others: Int64) -> Int64:
    """Pool bins, (n_bin,) each, into steps: the first bin of each, ascending, shape (n_step,), int64.

    The share of matches falls from step to step; bins without counts belong to the step before.
    """
    # Plain integers: products of counts exceed 64 bits.
    steps: list[tuple[int, int, int]] = []
    for place, (match, other) in enumerate(zip(matches.tolist(), others.tolist(), strict=True)):
        first = place
        while steps and steps[-1][1] * other <= match * steps[-1][2]:
            first, earlier_match, earlier_other = steps.pop()
            match, other = match + earlier_match, other + earlier_other
        steps.append((first, match, other))
    return np.array([first for first, _, _ in steps], np.int64)


def probabilities(matches: Int64, others: Int64, weights: Weights) -> Float64:
    """Share of matches, 0 without counts, by the weights; any shape."""
    weighted, rest = weights[0] * matches, weights[1] * others
    total = weighted + rest
    share: Float64 = np.divide(weighted, total, out=np.zeros(np.shape(total)), where=total > 0)
    return share


def weights_of(prior: float | None, n_matches: int, n_others: int) -> Weights:
    """Weights with which matches are a share `prior` of all; None for the share that the counts have."""
    if prior is None:
        return 1.0, 1.0
    return prior / max(1, n_matches), (1.0 - prior) / max(1, n_others)


def folds_of(pids: Int64, seed: int) -> Int64:
    """Fold of every query, shape (n_query,), int64: an identity is in one, and folds have equally many identities."""
    found, member = np.unique(pids, return_inverse=True)
    order = np.argsort(stream_outputs(seed, np.arange(len(found))), kind="stable")
    fold = np.empty(len(found), np.int64)
    fold[order] = np.arange(len(found)) % N_FOLDS
    return fold[member]


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """Probabilities of every bin for the identities of each fold, (n_fold, n_bin), fitted on all other identities."""

    probability: Float64
    weights: Weights

    @classmethod
    def fit(cls, matches: Int64, others: Int64, prior: float | None) -> CrossFitted:
        """Fit on the counts of every fold, (n_fold, n_bin) each."""
        fitted = np.zeros(matches.shape)
        for fold in range(len(matches)):
            rest = np.delete(matches, fold, axis=0).sum(axis=0), np.delete(others, fold, axis=0).sum(axis=0)
            first = pool_adjacent(*rest)
            match, other = (np.add.reduceat(each, first) for each in rest)
            of_step = probabilities(match, other, weights_of(prior, int(match.sum()), int(other.sum())))
            fitted[fold] = np.repeat(of_step, np.diff(np.append(first, matches.shape[1])))
        return cls(fitted, weights_of(prior, int(matches.sum()), int(others.sum())))

    def squared_errors(self, matches: Int64, others: Int64, fold: Int64) -> Float64:
        """Sums of the squared errors of matches and of others, (n, 2), of counts (n, n_bin) in known folds, (n,)."""
        probability = self.probability[fold]
        errors = matches * (1.0 - probability) ** 2, others * probability**2
        # One order of the additions on every machine.
        return np.stack([np.add.accumulate(each, axis=1)[:, -1] for each in errors], axis=1)

    def level_sums(self, matches: Int64, others: Int64, fold: Int64) -> tuple[Float64, Float64]:
        """Sums of the errors of matches and of others by level of probability, (n, N_LEVELS) each.

        Counts are (n, n_bin), in known folds, (n,).  Errors are what the probabilities of matches lack to 1, and the
        probabilities of others.
        """
        probability = self.probability[fold]
        place = self._levels()[fold] + N_LEVELS * np.arange(len(matches))[:, np.newaxis]
        shape = len(matches), N_LEVELS
        errors = matches * (1.0 - probability), others * probability
        lacking, excess = (np.bincount(place.ravel(), each.ravel(), math.prod(shape)) for each in errors)
        return np.asarray(lacking, np.float64).reshape(shape), np.asarray(excess, np.float64).reshape(shape)

    def _levels(self) -> Int64:
        """Level of every probability, (n_fold, n_bin)."""
        return np.minimum((self.probability * N_LEVELS).astype(np.int64), N_LEVELS - 1)

    def calibration_error(self, matches: Int64, others: Int64) -> float:
        """Expected calibration error of the counts of every fold, (n_fold, n_bin) each."""
        level = self._levels().ravel()
        excess = self.weights[1] * others * self.probability - self.weights[0] * matches * (1.0 - self.probability)
        gaps = [abs(exact_sum(excess.ravel()[level == each])) for each in range(N_LEVELS)]
        total = self.weights[0] * int(matches.sum()) + self.weights[1] * int(others.sum())
        return math.fsum(gaps) / total


def brier_score(prior: float | None, squares: Float64, n_matches: Float64, n_others: Float64) -> Float64:
    """Mean squared error from sums of `CrossFitted.squared_errors`, (…, 2), and of numbers of both, (…, 1): (…, 1)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if prior is None:
            return np.asarray(squares.sum(axis=-1, keepdims=True) / (n_matches + n_others), np.float64)
        return np.asarray(
            prior * squares[..., :1] / n_matches + (1.0 - prior) * squares[..., 1:] / n_others, np.float64
        )
