"""Pairs and thresholds, by sorting all of them.

A pair is accepted when its distance is strictly less than a threshold.  Genuine pairs are the relevant ones, impostors
the kept negatives of every query, valid or not.  Shares are fractions, and a rate x is read as the decimal it is.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Pairs:
    """Distances of genuine and impostor pairs of all queries, ascending."""

    genuine: list[float]
    impostor: list[float]


def pairs_of(distances, relevant, junk):
    """Sort the pairs of all queries into genuine and impostor."""
    genuine, impostor = [], []
    for i, row in enumerate(distances):
        for j, distance in enumerate(row):
            if relevant[i, j]:
                genuine.append(float(distance))
            elif not junk[i, j]:
                impostor.append(float(distance))
    return Pairs(sorted(genuine), sorted(impostor))


def threshold_at(ascending, rate):
    """The (floor(x N) + 1)-th smallest of N distances, infinite when there are not so many."""
    place = math.floor(Fraction(str(rate)) * len(ascending))
    return ascending[place] if place < len(ascending) else math.inf


def share_below(distances, threshold):
    """Share of ascending distances that are strictly less than a threshold."""
    return Fraction(bisect_left(distances, float(threshold)), len(distances))


def tar_at_far(pairs, rate):
    """TAR@FAR=x, the share of genuine pairs accepted."""
    return share_below(pairs.genuine, threshold_at(pairs.impostor, rate))


def roc_points(pairs):
    """(FAR, TAR) from (0, 0) on, one more point for each distinct distance."""
    points = [(Fraction(0), Fraction(0))]
    for last in sorted({*pairs.genuine, *pairs.impostor}):
        points.append(
            tuple(
                Fraction(bisect_right(distances, last), len(distances)) for distances in (pairs.impostor, pairs.genuine)
            )
        )
    return points


def equal_error_rate(pairs):
    """Where the piecewise linear ROC meets FAR = 1 - TAR."""
    points = roc_points(pairs)
    for (far, tar), (next_far, next_tar) in itertools.pairwise(points):
        excess, next_excess = far + tar - 1, next_far + next_tar - 1
        if excess <= 0 <= next_excess:
            share = -excess / (next_excess - excess)
            return far + share * (next_far - far)
    raise AssertionError("the ROC goes from (0, 0) to (1, 1)")


@dataclass(frozen=True)
class Probes:
    """What open-set identification looks at.

    For each valid query its nearest kept distance and whether that item is a mate; for each query without any gallery
    row of its pid its nearest kept distance, infinite when it keeps nothing.  Rows of pid -1 are no mates.
    """

    mated: list[tuple[float, bool]]
    non_mated: list[float]


def probes_of(query, gallery, distances, relevant, junk, order="default"):
    """Sort the queries into mated and non-mated; those with junk mates only are neither.

    Of several items at the nearest distance the first gallery row counts, or a mate, or a non-mate, if there is one,
    according to the order of ties.
    """
    mated, non_mated = [], []
    for i in range(len(query)):
        kept = [(float(distances[i, j]), j) for j in range(len(gallery)) if not junk[i, j]]
        if relevant[i].any():
            nearest, first = min(kept)
            tied = [bool(relevant[i, row]) for distance, row in kept if distance == nearest]
            is_mate = {"default": bool(relevant[i, first]), "optimistic": any(tied), "pessimistic": all(tied)}
            mated.append((nearest, is_mate[order]))
        elif query.pids[i] == -1 or not (gallery.pids == query.pids[i]).any():
            non_mated.append(min(kept)[0] if kept else math.inf)
    return Probes(mated, sorted(non_mated))


def dir_at_far(probes, rate):
    """DIR@FAR=x: share of mated probes whose mate is at rank 1 and strictly under the threshold."""
    threshold = threshold_at(probes.non_mated, rate)
    accepted = sum(is_mate and distance < threshold for distance, is_mate in probes.mated)
    return Fraction(accepted, len(probes.mated))
