"""Calibration: the probability of a match at a distance, which never rises with the distance, and its error.

Counts of matches and of others in bins of distances, from near to far, are pooled into *steps* of the least square
error among all that never rise (pool adjacent violators).  Ratios of counts are compared as integers.  The steps are
the edges of the convex hull of the ROC of the bins, which does not depend on how the two kinds are weighted: one fit
serves for every prior.

The error of a calibration is that of steps and probabilities fitted on other identities: folds of identities, each with
the probabilities fitted on the others.

Sources: Ayer et al., Annals of Mathematical Statistics 1955; Fawcett and Niculescu-Mizil, Machine Learning 2007 (convex
hull); Naeini et al., AAAI 2015 (expected calibration error); Brier, Monthly Weather Review 1950.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.splitmix import stream_outputs

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

    def terms(self, matches: Int64, others: Int64, fold: Int64) -> Float64:
        """Sums of rows of counts, (n, n_bin) each, of known folds, (n,), that `errors` is a function of: (n, n_term).

        Of every level of probability the sums of probabilities over matches and over others and the matches; then the
        squared errors of matches and of others; then the numbers of both.
        """
        probability = self.probability[fold]
        level = np.minimum((probability * N_LEVELS).astype(np.int64), N_LEVELS - 1)
        place = (np.arange(len(fold))[:, None] * N_LEVELS + level).ravel()

        def by_level(values: NDArray[Any]) -> Float64:
            sums = np.bincount(place, values.ravel(), minlength=len(fold) * N_LEVELS)
            return sums.reshape(len(fold), N_LEVELS).astype(np.float64)

        squares = matches * (1.0 - probability) ** 2, others * probability**2
        singles = [each.sum(axis=1)[:, None].astype(np.float64) for each in (*squares, matches, others)]
        return np.hstack([by_level(matches * probability), by_level(others * probability), by_level(matches), *singles])

    def errors(self, terms: Float64, prior: float | None) -> Float64:
        """Expected calibration error and Brier score of sums of terms, (…, n_term): shape (…, 2)."""
        n_matches, n_others = terms[..., -2], terms[..., -1]
        if prior is None:
            near = far = 1.0 / (n_matches + n_others)
        else:
            with np.errstate(divide="ignore"):
                near, far = prior / n_matches, (1.0 - prior) / n_others
        own, other, count = (terms[..., start : start + N_LEVELS] for start in range(0, 3 * N_LEVELS, N_LEVELS))
        gaps = np.abs(near[..., None] * (own - count) + far[..., None] * other)
        expected = np.array([math.fsum(row) for row in gaps.reshape(-1, N_LEVELS).tolist()]).reshape(gaps.shape[:-1])
        squared = near * terms[..., 3 * N_LEVELS] + far * terms[..., 3 * N_LEVELS + 1]
        return np.stack([expected, squared], axis=-1)
