"""The oracle of k-reciprocal re-ranking against examples worked by hand, and against a second reading of the formulas.

Nothing here looks at the package.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.reference import DISTANCES, canonical_distances
from support.sampling import examples
from support.strategies import reranking_problems

from oracles import reranking as oracle

exp = math.exp
variants = pytest.mark.parametrize("variant", oracle.VARIANTS)


def on_a_line(*positions):
    """Features of one dimension."""
    return np.array(positions, dtype=np.float64)[:, None]


def at_degrees(*angles, lengths=1.0):
    """Features of two dimensions."""
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1) * np.reshape(lengths, (-1, 1))


# ----------------------------------------------------------------------------------------------------- by hand


def test_two_groups_and_a_non_mated_query():
    """Items at 0 | 1, 3, 7, 8, 20: lists of 3, half lists of 2."""
    steps = oracle.steps(on_a_line(0), on_a_line(1, 3, 7, 8, 20), distance="sqeuclidean", k1=2, k2=2, lambda_value=0.25)
    assert steps.neighbours == [[0, 1, 2], [1, 0, 2], [2, 1, 0], [3, 4, 2], [4, 3, 2], [5, 4, 3]]
    assert steps.half_neighbours == [[0, 1], [1, 0], [2, 1], [3, 4], [4, 3], [5, 4]]
    assert steps.reciprocal == [{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {3, 4}, {3, 4}, {5}]
    assert steps.half_reciprocal == [{0, 1}, {0, 1}, {2}, {3, 4}, {3, 4}, {5}]
    assert steps.grown == steps.reciprocal

    sums = [
        1 + exp(-1 / 400) + exp(-9 / 400),
        exp(-1 / 361) + 1 + exp(-4 / 361),
        exp(-9 / 289) + exp(-4 / 289) + 1,
    ]
    first = np.array([1, exp(-1 / 400), exp(-9 / 400), 0, 0, 0]) / sums[0]
    second = np.array([exp(-1 / 361), 1, exp(-4 / 361), 0, 0, 0]) / sums[1]
    third = np.array([exp(-9 / 289), exp(-4 / 289), 1, 0, 0, 0]) / sums[2]
    fourth = np.array([0, 0, 0, 1, exp(-1 / 169), 0]) / (1 + exp(-1 / 169))
    fifth = np.array([0, 0, 0, exp(-1 / 144), 1, 0]) / (1 + exp(-1 / 144))
    weights = [first, second, third, fourth, fifth, np.eye(6)[5]]
    np.testing.assert_allclose(steps.weights, weights, rtol=1e-14)
    means = [first + second, first + second, third + second, fourth + fifth, fourth + fifth, weights[5] + fifth]
    np.testing.assert_allclose(steps.mean_weights, np.array(means) / 2, rtol=1e-14)

    # 0 and 1 have one mean.  Those of 0 and 2 share the half that is V_1, and of the other half what the smaller has.
    shared = (1 + (exp(-9 / 289) + exp(-4 / 289)) / sums[2] + exp(-9 / 400) / sums[0]) / 2
    np.testing.assert_allclose(steps.jaccard, [[0, 1 - shared / (2 - shared), 1, 1, 1]], atol=1e-15)
    assert (steps.jaccard[0, 2:] == 1).all()
    final = 0.75 * steps.jaccard + 0.25 * np.array([[1, 9, 49, 64, 400]]) / 400
    np.testing.assert_allclose(steps.final, final, rtol=1e-15)


def test_the_square_of_a_squared_distance():
    """The same lists; 0 is 49 ** 2 / 400 ** 2 from 7."""
    options = {"distance": "euclidean", "k1": 2, "k2": 2, "lambda_value": 1}
    query, gallery = on_a_line(0), on_a_line(1, 3, 7, 8, 20)
    once = oracle.steps(query, gallery, variant="zhong", **options)
    twice = oracle.steps(query, gallery, variant="zhong_d4", **options)
    assert once.final[0].tolist() == [1 / 400, 9 / 400, 49 / 400, 64 / 400, 1]
    assert twice.final[0].tolist() == [1 / 160_000, 81 / 160_000, 2401 / 160_000, 4096 / 160_000, 1]
    assert once.neighbours == twice.neighbours
    assert once.grown == twice.grown
    assert twice.weights[1, 0] == pytest.approx(
        exp(-1 / 361**2) / (exp(-1 / 361**2) + 1 + exp(-16 / 361**2)), rel=1e-14
    )


def test_two_thirds_are_not_more_than_two_thirds():
    """Items at 2.5 | 4, 5, 6, 7, 8: lists of 5, half lists of 3."""
    query, gallery = on_a_line(2.5), on_a_line(4, 5, 6, 7, 8)
    options = {"distance": "sqeuclidean", "k1": 4, "k2": 1}
    steps = oracle.steps(query, gallery, **options)
    assert steps.neighbours == [
        [0, 1, 2, 3, 4],
        [1, 2, 0, 3, 4],
        [2, 1, 3, 4, 0],
        [3, 2, 4, 1, 5],
        [4, 3, 5, 2, 1],
        [5, 4, 3, 2, 1],
    ]
    reciprocal = [{0, 1, 2}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {3, 4, 5}]
    assert steps.reciprocal == reciprocal
    assert steps.half_neighbours == [[0, 1, 2], [1, 2, 0], [2, 1, 3], [3, 2, 4], [4, 3, 5], [5, 4, 3]]
    assert steps.half_reciprocal == [{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5}]
    assert steps.grown == reciprocal, "no half set has more than two thirds of it in an R that it is not part of"

    # Two of the three in {1, 2, 3} are in R(0); two of {3, 4, 5} in R(1) and R(2); of {0, 1, 2} in R(3) and R(4); and
    # of {2, 3, 4} in R(5).  One pass: item 3, new to R*(0), brings no set of its own.
    inclusive = oracle.steps(query, gallery, inclusive=True, **options)
    assert inclusive.reciprocal == reciprocal
    everything = {0, 1, 2, 3, 4, 5}
    assert inclusive.grown == [{0, 1, 2, 3}, *([everything] * 4), {2, 3, 4, 5}]


def test_a_candidate_brings_its_half_set():
    """Items at 2 | 4, 6, 10, 16, 19, 20, 22: a list has all but the farthest item, a half list four."""
    steps = oracle.steps(on_a_line(2), on_a_line(4, 6, 10, 16, 19, 20, 22), distance="euclidean", k1=6, k2=1)
    missing = [set(range(8)) - set(members) for members in steps.neighbours]
    assert missing == [{7}, {7}, {7}, {7}, {0}, {0}, {0}, {0}]
    assert steps.reciprocal[0] == {0, 1, 2, 3}
    # Items 3 and 7 are 6 from item 4; the first of them is in its half list.
    assert steps.half_neighbours[:5] == [[0, 1, 2, 3], [1, 0, 2, 3], [2, 1, 0, 3], [3, 2, 1, 4], [4, 5, 6, 3]]
    assert steps.half_reciprocal[0] == {0, 1, 2}
    assert steps.half_reciprocal[3] == {1, 2, 3, 4}
    assert steps.grown[0] == {0, 1, 2, 3, 4}
    np.testing.assert_allclose(
        steps.weights[0] * steps.weights[0].sum() / steps.weights[0, 0],
        [1, exp(-4 / 400), exp(-16 / 400), exp(-64 / 400), exp(-196 / 400), 0, 0, 0],
    )


@pytest.mark.parametrize(
    ("k1", "halves"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (7, 4), (9, 4), (11, 6), (20, 10)]
)
def test_halves_are_rounded_to_even(k1, halves):
    assert oracle.half_of(k1) == halves
    steps = oracle.steps(on_a_line(0), on_a_line(*range(1, 30)), distance="sqeuclidean", k1=k1, k2=1)
    assert {len(members) for members in steps.half_neighbours} == {halves + 1}
    assert {len(members) for members in steps.neighbours} == {k1 + 1}


def test_exactly_k1_neighbours():
    """``faiss_k1`` on angles 0 | 60, 90, 180: lists and half lists of 2, whatever the lengths of the rows."""
    query, gallery = at_degrees(0, lengths=2), at_degrees(60, 90, 180, lengths=[1, 5, 3])
    steps = oracle.steps(query, gallery, distance="sqeuclidean", variant="faiss_k1", k1=2, k2=2, lambda_value=0.3)
    assert steps.neighbours == steps.half_neighbours == [[0, 1], [1, 2], [2, 1], [3, 2]]
    assert steps.reciprocal == steps.grown == [{0}, {1, 2}, {1, 2}, {3}]
    nearer = 1 / (1 + exp(-(2 - math.sqrt(3))))  # 30 degrees are 2 - sqrt(3) in squared distance
    farther = 1 - nearer
    weights = [[1, 0, 0, 0], [0, nearer, farther, 0], [0, farther, nearer, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(steps.weights, weights, rtol=1e-14)
    means = [[1, nearer, farther, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, farther, nearer, 1]]
    np.testing.assert_allclose(steps.mean_weights, np.array(means) / 2, rtol=1e-14)
    expected = [2 / 3, 2 / 3, 1 - farther / (2 - farther)]
    np.testing.assert_allclose(steps.jaccard, [expected], rtol=1e-14)
    squared = [(2 - 0.5) ** 2 + 3 / 4, 4 + 25, 25]
    np.testing.assert_allclose(steps.final, [0.7 * np.array(expected) + 0.3 * np.array(squared)], rtol=1e-14)
    by_cosine = oracle.reranked(query, gallery, variant="faiss_k1", k1=2, k2=2, lambda_value=0.3)
    np.testing.assert_allclose(by_cosine, [0.7 * np.array(expected) + 0.3 * np.array([0.5, 1, 2])], rtol=1e-14)


def test_sets_as_the_paper_counts_them():
    """Items at 2.5 | 4, 5, 6, 7, 8 again: lists of 4, half lists of 2, weights of 1."""
    query, gallery = on_a_line(2.5), on_a_line(4, 5, 6, 7, 8)
    options = {"distance": "euclidean", "variant": "paper", "weights": "binary", "k1": 4, "lambda_value": 0.5}
    steps = oracle.steps(query, gallery, k2=1, **options)
    assert steps.neighbours == [[0, 1, 2, 3], [1, 2, 0, 3], [2, 1, 3, 4], [3, 2, 4, 1], [4, 3, 5, 2], [5, 4, 3, 2]]
    assert steps.half_neighbours == [[0, 1], [1, 2], [2, 1], [3, 2], [4, 3], [5, 4]]
    assert steps.half_reciprocal == [{0}, {1, 2}, {1, 2}, {3}, {4}, {5}]
    sets = [{0, 1}, {0, 1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4}, {2, 3, 4, 5}, {4, 5}]
    assert steps.reciprocal == steps.grown == sets
    assert steps.weights.tolist() == [[float(j in members) for j in range(6)] for members in sets]
    # With k2 = 1 the distance is that of the sets themselves.
    by_sets = [1 - Fraction(len(sets[0] & other), len(sets[0] | other)) for other in sets[1:]]
    assert by_sets == [Fraction(1, 2), Fraction(4, 5), Fraction(4, 5), 1, 1]
    np.testing.assert_allclose(steps.jaccard, [[float(value) for value in by_sets]], rtol=1e-15)

    steps = oracle.steps(query, gallery, k2=2, **options)
    half = 0.5
    assert steps.mean_weights.tolist() == [
        [1, 1, half, half, 0, 0],
        [half, 1, 1, 1, half, 0],
        [half, 1, 1, 1, half, 0],
        [0, 1, 1, 1, 1, 0],
        [0, half, 1, 1, 1, half],
        [0, 0, half, half, 1, 1],
    ]
    expected = np.array([1 - 2.5 / 4.5, 1 - 2.5 / 4.5, 1 - 2 / 5, 1 - 1.5 / 5.5, 1 - 1 / 5])
    np.testing.assert_allclose(steps.jaccard, [expected], rtol=1e-14)
    squared = np.array([1.5, 2.5, 3.5, 4.5, 5.5]) ** 2
    np.testing.assert_allclose(steps.final, [(expected + squared) / 2], rtol=1e-14)


def test_two_thirds_are_enough_for_the_paper():
    """Items at 0 | 1, 2, ..., 7: lists of 6, half lists of 3, and two of the three in R(3, h) are in R(0)."""
    query, gallery = on_a_line(0), on_a_line(1, 2, 3, 4, 5, 6, 7)
    steps = oracle.steps(query, gallery, distance="sqeuclidean", variant="paper", k1=6, k2=1)
    assert steps.neighbours[0] == [0, 1, 2, 3, 4, 5]
    assert steps.neighbours[3] == [3, 2, 4, 1, 5, 0], "items 0 and 6 are 3 from item 3"
    assert steps.neighbours[4] == [4, 3, 5, 2, 6, 1]
    assert steps.reciprocal[0] == {0, 1, 2, 3}
    assert steps.half_reciprocal[3] == {2, 3, 4}
    assert steps.grown[0] == {0, 1, 2, 3, 4}
    # Gaussian weights are neither divided by a row maximum nor by their sum.
    np.testing.assert_allclose(steps.weights[0], [1, exp(-1), exp(-4), exp(-9), exp(-16), 0, 0, 0], rtol=1e-14)


def test_a_query_by_itself():
    """2 beside a gallery at 0, 1, 3, 7: lists of 3, half lists of 2, weights of 1; the query is row 4."""
    options = {"distance": "sqeuclidean", "variant": "paper", "weights": "binary", "k1": 3, "lambda_value": 0.5}
    gallery = on_a_line(0, 1, 3, 7)
    frozen = oracle.steps(gallery[:0], gallery, k2=2, **options)
    assert frozen.neighbours == [[0, 1, 2], [1, 0, 2], [2, 1, 0], [3, 2, 1]]
    assert frozen.reciprocal == frozen.grown == [{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {3}]
    assert frozen.half_reciprocal == [{0, 1}, {0, 1}, {2}, {3}]

    (steps,) = oracle.inductive_steps(on_a_line(2), gallery, k2=2, **options)
    assert steps.neighbours == [4, 1, 2]
    assert steps.reciprocal == {4, 1, 2}, "1 has kept 3, at 2 from it, and 3 has kept 0: the query is nearer to both"
    assert steps.grown == {4, 1, 2}, "half of R(1, h) is no two thirds"
    assert steps.weights.tolist() == [0, 1, 1, 0, 1]
    assert steps.mean_weights.tolist() == [0.5, 1, 1, 0, 0.5]
    expected = [1 - 2.5 / 3.5] * 3 + [1 - 1.5 / 3.5]
    np.testing.assert_allclose(steps.jaccard, expected, rtol=1e-14)
    squared = np.array([4, 1, 1, 25])
    np.testing.assert_allclose(steps.final, (np.array(expected) + squared) / 2, rtol=1e-14)


def test_a_query_at_the_last_kept_distance_is_not_in_the_list():
    options = {"distance": "sqeuclidean", "variant": "paper", "weights": "binary", "k1": 3, "k2": 1}
    gallery = on_a_line(0, 1, 3, 7)
    (steps,) = oracle.inductive_steps(on_a_line(-1), gallery, **options)
    assert steps.neighbours == [4, 0, 1]
    assert steps.reciprocal == {4, 0}, "item 1 has kept item 2 at distance 2, where the query is"
    (steps,) = oracle.inductive_steps(on_a_line(-0.999), gallery, **options)
    assert steps.reciprocal == {4, 0, 1}


@variants
def test_a_list_with_a_place_left_takes_the_query(variant):
    gallery = on_a_line(0, 1, 3)
    (steps,) = oracle.inductive_steps(on_a_line(100), gallery, distance="sqeuclidean", variant=variant, k1=4)
    assert steps.reciprocal == {0, 1, 2, 3}
    # Three places, and all three are taken by the gallery.
    full = {"zhong": 2, "zhong_d4": 2, "faiss_k1": 3, "paper": 3}[variant]
    (steps,) = oracle.inductive_steps(
        at_degrees(90), at_degrees(0, 1, 3), distance="sqeuclidean", variant=variant, k1=full
    )
    assert steps.reciprocal == {3}


# --------------------------------------------------------------------------------------------- what must hold


@pytest.mark.quick_cases(3)
@given(problem=reranking_problems())
@pytest.mark.parametrize(
    ("variant", "distance"),
    [(variant, "cosine") for variant in oracle.VARIANTS]
    + [(variant, "sqeuclidean") for variant in oracle.VARIANTS if variant != "faiss_k1"],
)
def test_given_distances(variant, distance, problem):
    """Blocks of distances give what features give; squares of roots are left out, which need not be what they were."""
    query, gallery = problem.query, problem.gallery
    pairs = [(query, query), (query, gallery), (gallery, gallery)]
    blocks = [canonical_distances(*pair, distance) for pair in pairs]
    options = {**problem.options, "distance": distance, "variant": variant}
    np.testing.assert_array_equal(oracle.ranklist(*blocks, **options), oracle.reranked(query, gallery, **options))


def test_given_euclidean_distances():
    blocks = [np.zeros((1, 1)), np.array([[1, 3, 7]]), np.array([[0, 2, 6], [2, 0, 4], [6, 4, 0]])]
    options = {"distance": "euclidean", "k1": 2, "k2": 1}
    expected = oracle.reranked(on_a_line(0), on_a_line(1, 3, 7), **options)
    np.testing.assert_array_equal(oracle.ranklist(*blocks, **options), expected)


# ------------------------------------------------------------------------------- the formulas read once more


class SecondReading:
    """The published algorithm with dictionaries: items are names, V is a dictionary for each, nothing is a matrix."""

    def __init__(self, features, distance, k1, k2, inclusive):
        self.rows = {name: [float(value) for value in row] for name, row in features.items()}
        self.names = list(features)
        self.place = {name: place for place, name in enumerate(self.names)}
        self.distance = distance
        self.k1, self.k2, self.inclusive = k1, k2, inclusive
        self.lists = {name: self.list_of(name) for name in self.names}
        self.farthest = {name: max(self.squared(name, other) for other in self.names) for name in self.names}
        self.weights = {name: self.row_of(name, self.mutual(name, k1), self.mutual) for name in self.names}

    def squared(self, a, b):
        x, y = self.rows[a], self.rows[b]
        if self.distance != "cosine":
            return math.fsum((p - q) ** 2 for p, q in zip(x, y, strict=True))
        xx, yy, xy = (math.fsum(p * q for p, q in zip(*pair, strict=True)) for pair in ((x, x), (y, y), (x, y)))
        return 2.0 if xx == 0 or yy == 0 else 2 * (1 - xy / math.sqrt(xx * yy))

    def list_of(self, name):
        others = [other for other in self.names if other != name]
        return [name, *sorted(others, key=lambda other: (self.squared(name, other), self.place[other]))]

    def is_near(self, a, b, k):
        """Whether b is one of the k nearest of a, or a itself."""
        return b in self.lists[a][: k + 1]

    def mutual(self, name, k):
        return {other for other in self.names if self.is_near(name, other, k) and self.is_near(other, name, k)}

    def row_of(self, name, mutual, mutual_of_candidate):
        support = set(mutual)
        for candidate in mutual:
            found = Counter(other in mutual for other in mutual_of_candidate(candidate, round(self.k1 / 2)))
            excess = Fraction(found[True], found.total()) - Fraction(2, 3)
            if excess > 0 or (self.inclusive and excess == 0):
                support.update(mutual_of_candidate(candidate, round(self.k1 / 2)))
        raw = {other: math.exp(-self.share(name, other)) for other in support}
        total = math.fsum(raw.values())
        return {other: value / total for other, value in raw.items()}

    def share(self, name, other):
        return self.squared(name, other) / self.farthest[name] if self.farthest[name] else 0.0

    def mean_row(self, name):
        averaged = self.lists[name][: min(self.k2, self.k1 + 1)]
        mean = defaultdict(float)
        for other in averaged:
            for column, value in self.weights[other].items():
                mean[column] += value / len(averaged)
        return mean

    def final(self, query, gallery, lambda_value):
        means = {name: self.mean_row(name) for name in {*query, *gallery}}
        holders = defaultdict(list)
        for name in gallery:
            for column in means[name]:
                holders[column].append(name)
        result = []
        for name in query:
            smaller = defaultdict(float)
            for column, value in means[name].items():
                for other in holders[column]:
                    smaller[other] += min(value, means[other][column])
            larger = {
                other: math.fsum(
                    max(means[name].get(c, 0), means[other].get(c, 0)) for c in {*means[name], *means[other]}
                )
                for other in gallery
            }
            result.append(
                [
                    (1 - lambda_value) * (1 - smaller[other] / larger[other]) + lambda_value * self.share(name, other)
                    for other in gallery
                ]
            )
        return result


class SecondInductiveReading(SecondReading):
    """A gallery, and one item beside it."""

    def call(self, row, lambda_value):
        gallery = list(self.names)
        self.rows["?"] = [float(value) for value in row]
        self.place["?"] = -1
        known = sorted(gallery, key=lambda name: (self.squared("?", name), self.place[name]))
        self.lists["?"] = ["?", *known]
        self.farthest["?"] = max(self.squared("?", name) for name in [*gallery, "?"])
        taken = {"?"}
        for name in known[: self.k1]:
            kept = self.lists[name][: self.k1 + 1]
            if len(kept) <= self.k1 or self.squared("?", name) < self.squared(name, kept[-1]):
                taken.add(name)
        self.weights["?"] = self.row_of("?", taken, lambda name, k: {"?"} if name == "?" else self.mutual(name, k))
        (result,) = self.final(["?"], gallery, lambda_value)
        for table in (self.rows, self.place, self.lists, self.farthest, self.weights):
            del table["?"]
        return result


@pytest.mark.slow
@given(problem=reranking_problems(), distance=st.sampled_from(DISTANCES), inclusive=st.booleans())
def test_second_reading(problem, distance, inclusive):
    query, gallery = problem.query, problem.gallery
    assume(oracle.order_is_unambiguous(query, gallery, distance, "zhong"))
    rows = {f"item {i}": row for i, row in enumerate([*query, *gallery])}
    second = SecondReading(rows, distance, problem.k1, problem.k2, inclusive)
    names = list(rows)
    expected = second.final(names[: len(query)], names[len(query) :], problem.lambda_value)
    final = oracle.reranked(query, gallery, distance=distance, inclusive=inclusive, **problem.options)
    np.testing.assert_allclose(final, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@given(problem=reranking_problems(), distance=st.sampled_from(DISTANCES), inclusive=st.booleans())
@settings(max_examples=examples(40))
def test_second_reading_of_a_query_by_itself(problem, distance, inclusive):
    query, gallery = problem.query, problem.gallery
    assume(oracle.order_is_unambiguous(query, gallery, distance, "zhong"))
    second = SecondInductiveReading(dict(enumerate(gallery)), distance, problem.k1, problem.k2, inclusive)
    expected = [second.call(row, problem.lambda_value) for row in query]
    final = oracle.inductive(query, gallery, distance=distance, inclusive=inclusive, **problem.options)
    np.testing.assert_allclose(final, expected, rtol=1e-12, atol=1e-14)
