"""Metrics from top-k lists: every ranking that begins with a list lies between the bounds, and both are reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import rank_metrics

import reid_dist.metrics.listed
from reid_dist.core.model import GalleryMask, Hidden, Relevance
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.metrics.listed import metric_bounds, rank_lists, split_metrics
from reid_dist.metrics.metric import METRICS, Metric, parse_metric

NEGATIVE, RELEVANT, JUNK = 0, 1, 2


def bounded_metrics():
    """Every registered metric that lists can bound, with small and large parameters."""
    return [
        Metric(family, parameter)
        for family in METRICS
        if family.needs == "ranks" and family.name != "mAP_found@k"
        for parameter in ((1, 2, 3, 5, 20) if "@" in family.name else (0,))
    ]


def found_metric(k):
    return parse_metric(f"mAP_found@{k}")


@dataclass(frozen=True)
class Case:
    """Whole rankings of a small gallery, what each item is to each query, and how long the lists are."""

    rankings: list
    verdicts: np.ndarray  # (n_query, n_gallery), all junk included
    junk_row: np.ndarray
    k: int
    labels: tuple | None = None  # of the queries and of the gallery; equal ones hide

    @property
    def n_gallery(self):
        return len(self.junk_row)

    @property
    def mask(self):
        return GalleryMask(self.junk_row, None if self.labels is None else self.labels[1])

    @property
    def relevance(self):
        """With junk of all queries, and junk by label, left out of the lists of rows."""
        verdicts = np.where(self.junk_row, NEGATIVE, self.verdicts)
        if self.labels is not None:
            verdicts = np.where(self.labels[0][:, None] == self.labels[1], NEGATIVE, verdicts)
        relevant = [np.flatnonzero(row == RELEVANT) for row in verdicts]
        hidden = [np.flatnonzero(row != NEGATIVE) for row in verdicts]
        n_junk = (self.verdicts == JUNK).sum(axis=1)
        return Relevance(
            relevant_indptr=np.cumsum([0, *map(len, relevant)]),
            relevant_row=np.concatenate(relevant),
            hidden=Hidden(
                indptr=np.cumsum([0, *map(len, hidden)]),
                row=np.concatenate(hidden),
                label=None if self.labels is None else self.labels[0],
                crosses=True,
            ),
            n_kept=self.n_gallery - n_junk,
            n_junk=n_junk,
            mated=np.ones(len(self.verdicts), bool),
            reason=np.array([0 if len(rows) else 1 for rows in relevant], np.uint8),
        )

    def lists(self, k):
        lists = np.full((len(self.rankings), k), -1)
        for row, ranking in enumerate(self.rankings):
            lists[row, : len(ranking)] = ranking[:k]
        return lists

    def rank(self, k=None, **options):
        return rank_lists(self.relevance, self.mask, self.lists(k or self.k), **options)

    def positives(self, query, first=None):
        """Ranks of the positives among the first rows of a ranking, and how many rows there are kept."""
        kept = [row for row in self.rankings[query][:first] if self.verdicts[query, row] != JUNK]
        return [rank for rank, row in enumerate(kept, 1) if self.verdicts[query, row] == RELEVANT], len(kept)

    def completions(self, query):
        """The ranks of the positives in every whole ranking that begins with the list."""
        found, length = self.positives(query, self.k)
        ranks, n_kept = self.positives(query)
        return [found + list(rest) for rest in combinations(range(length + 1, n_kept + 1), len(ranks) - len(found))]


@st.composite
def cases(draw):
    n_gallery, n_query = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    verdicts = np.array(
        [
            draw(st.lists(st.sampled_from([RELEVANT, NEGATIVE, JUNK]), min_size=n_gallery, max_size=n_gallery))
            for _ in range(n_query)
        ]
    )
    junk_row = np.array(draw(st.lists(st.sampled_from([False, False, True]), min_size=n_gallery, max_size=n_gallery)))
    verdicts[:, junk_row] = JUNK
    labels = None
    if draw(st.booleans()):
        labels = tuple(
            np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))) for n in (n_query, n_gallery)
        )
        verdicts[labels[0][:, None] == labels[1]] = JUNK
    rankings = [draw(st.permutations(range(n_gallery))) for _ in range(n_query)]
    return Case(rankings, verdicts, junk_row, draw(st.integers(1, n_gallery + 2)), labels)


# ---------------------------------------------------------------------------------------------------------- ranks


@given(cases())
def test_best_and_worst_ranks_are_those_of_some_ranking(case):
    listed = case.rank()
    for query in range(len(case.rankings)):
        cut = slice(*listed.best.indptr[query : query + 2])
        possible = np.array(case.completions(query))
        assert listed.best.rank[cut].tolist() == possible.min(axis=0).tolist()
        assert listed.worst.rank[cut].tolist() == possible.max(axis=0).tolist()
        found, length = case.positives(query, case.k)
        assert (listed.n_found[query], listed.n_listed[query]) == (len(found), length)
        assert listed.known[query] == (len(possible) == 1)
        relevant = [row for row in case.rankings[query] if case.verdicts[query, row] == RELEVANT]
        assert listed.best.row[cut].tolist() == relevant[: len(found)] + sorted(relevant[len(found) :])


@given(cases())
def test_what_is_known_of_the_queries_is_kept(case):
    listed = case.rank()
    relevance = case.relevance
    for ranked in (listed.best, listed.worst):
        assert ranked.n_relevant.tolist() == np.diff(relevance.relevant_indptr).tolist()
        assert ranked.n_kept.tolist() == relevance.n_kept.tolist()
        assert ranked.n_junk.tolist() == relevance.n_junk.tolist()
        assert ranked.reason.tolist() == relevance.reason.tolist()
        assert not ranked.tied.any()
        assert not ranked.tied_before.any()
        assert np.isnan(ranked.distance).all()


@given(cases())
def test_distances_stand_beside_the_positives_that_were_found(case):
    index = case.lists(case.k)
    distance = np.where(index >= 0, np.arange(case.k) // 2, [np.nan, -9][case.k % 2]).astype(np.float32)
    best = case.rank(distance=distance).best
    for query in range(len(case.rankings)):
        cut = slice(*best.indptr[query : query + 2])
        expected = {row: at // 2 for at, row in enumerate(index[query].tolist())}
        assert [expected.get(row) for row in best.row[cut].tolist()] == [
            None if np.isnan(value) else value for value in best.distance[cut].tolist()
        ]


@given(cases(), st.integers(1, 30))
def test_blocks_of_queries_have_no_effect(case, entries):
    whole = case.rank()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reid_dist.metrics.listed, "_ENTRIES_AT_ONCE", entries)
        cut = case.rank()
    for field in ("indptr", "rank", "row", "n_kept", "n_junk", "reason"):
        for one, other in ((whole.best, cut.best), (whole.worst, cut.worst)):
            assert np.array_equal(getattr(one, field), getattr(other, field))
    assert np.array_equal(whole.n_listed, cut.n_listed)
    assert np.array_equal(whole.n_found, cut.n_found)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint8, np.uint64])
def test_lists_of_any_whole_numbers(dtype):
    case = Case([[2, 0, 3, 1], [1, 3, 0, 2]], np.array([[1, 1, 0, 2], [0, 1, 2, 1]]), np.zeros(4, bool), 3)
    lists = case.lists(3).astype(dtype)
    assert rank_lists(case.relevance, case.mask, lists).best.rank.tolist() == case.rank().best.rank.tolist()


def test_no_queries():
    none = Case([[0]], np.array([[1]]), np.zeros(1, bool), 1).relevance
    empty, indptr = np.empty(0, np.int64), np.zeros(1, np.int64)
    relevance = replace(
        none,
        relevant_indptr=indptr,
        relevant_row=empty,
        hidden=Hidden(indptr, empty, None, False),
        n_kept=empty,
        n_junk=empty,
        mated=empty.astype(bool),
        reason=empty.astype(np.uint8),
    )
    listed = rank_lists(relevance, GalleryMask(np.zeros(1, bool), None), np.empty((0, 1), np.int64))
    assert len(listed.best.rank) == len(listed.n_found) == len(listed.known) == 0


# --------------------------------------------------------------------------------------------------------- bounds


@given(cases())
def test_bounds_hold_and_are_reached(case):
    listed, whole = case.rank(), case.rank(case.n_gallery)
    for metric in bounded_metrics():
        bounds, truth = metric_bounds(metric, listed), metric.values(whole.best)
        for query in range(len(case.rankings)):
            lower, upper, true = bounds.lower[query], bounds.upper[query], truth[query]
            possible = case.completions(query)
            if not possible[0]:
                assert np.isnan([lower, upper, true]).all()
                continue
            values = [rank_metrics.value(metric.name, ranks, case.positives(query)[1]) for ranks in possible]
            assert lower <= true <= upper  # to the last bit
            assert lower == pytest.approx(min(values), abs=1e-13)
            assert upper == pytest.approx(max(values), abs=1e-13)
            assert (lower == upper) == (max(values) - min(values) < 1e-12)


@given(cases())
def test_bounds_of_ap_and_inp_in_closed_form(case):
    listed = case.rank()
    ap, inp = metric_bounds("mAP", listed), metric_bounds("mINP", listed)
    for query in range(len(case.rankings)):
        found, length = case.positives(query, case.k)
        ranks, m = case.positives(query)
        h, n = len(found), len(ranks)
        if n == 0:
            continue
        a = sum(Fraction(j, r) for j, r in enumerate(found, 1)) / n
        low = a + sum(Fraction(j, m - n + j) for j in range(h + 1, n + 1)) / n
        high = a + sum(Fraction(j, length + j - h) for j in range(h + 1, n + 1)) / n
        assert ap.lower[query] == pytest.approx(float(low), abs=1e-13)
        assert ap.upper[query] == pytest.approx(float(high), abs=1e-13)
        if h < n:
            assert inp.upper[query] == pytest.approx(n / (length + n - h), abs=1e-13)


@given(cases())
def test_lists_of_the_whole_gallery_are_exact(case):
    whole = replace(case, k=case.n_gallery + 1).rank()
    assert whole.known.all()
    metrics = [*bounded_metrics(), *(found_metric(k) for k in (1, 4, 20))]
    split = split_metrics(metrics, whole)
    assert split.bounded == {}
    assert list(split.exact) == [metric.name for metric in metrics]
    for metric in metrics:
        for query, value in enumerate(split.exact[metric.name]):
            ranks, n_kept = case.positives(query)
            if ranks:
                assert value == pytest.approx(rank_metrics.value(metric.name, ranks, n_kept), abs=1e-13)
            else:
                assert np.isnan(value)


@given(cases(), st.integers(1, 6))
def test_precision_of_the_found_is_exact_or_refused(case, k):
    listed = case.rank()
    metric = found_metric(k)
    reaches = [
        not case.positives(query)[0] or case.positives(query, case.k)[1] >= k or len(case.completions(query)) == 1
        for query in range(len(case.rankings))
    ]
    if not all(reaches):
        with pytest.raises(
            InputError, match=rf"(?s)metric 'mAP_found@{k}' .* the list of query {reaches.index(False)} "
        ):
            metric_bounds(metric, listed)
        return
    bounds = metric_bounds(metric, listed)
    assert bounds.exact
    for query in range(len(case.rankings)):
        for ranks in case.completions(query):
            if ranks:
                assert bounds.lower[query] == pytest.approx(
                    rank_metrics.average_precision_found_at(ranks, k), abs=1e-13
                )


def test_precision_of_the_found_has_no_bounds_at_best_and_worst():
    # The second positive is below a list of 1: at rank 2 of 4 it gives 1, at rank 3 it gives 5/6, unseen it gives 1.
    case = Case([[0, 1, 2, 3]], np.array([[1, 0, 1, 0]]), np.zeros(4, bool), 1)
    listed = case.rank()
    true = found_metric(3).values(case.rank(4).best)[0]
    best, worst = found_metric(3).values(listed.best)[0], found_metric(3).values(listed.worst)[0]
    assert true < min(best, worst)
    with pytest.raises(InputError, match=r"keep longer ones, or use mAP_found@1 or mAP@3"):
        split_metrics(["mAP", found_metric(3)], listed)
    assert metric_bounds(found_metric(1), listed).exact


def test_a_positive_outside_the_list_may_be_near_among_the_negatives():
    # The second positive, at rank 2 or 3, has rank 1 or 2 among the negatives: a list of 1 does not decide either.
    bounds = metric_bounds("CMC_allshots@1", Case([[0, 1, 2]], np.array([[1, 0, 1]]), np.zeros(3, bool), 1).rank())
    assert (bounds.lower.tolist(), bounds.upper.tolist()) == ([0.5], [1.0])


def test_exact_and_bounded_metrics_are_separated():
    # Query 0 has one of two positives in its list, query 1 all, query 2 none at all.
    verdicts = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 2, 0]])
    case = Case([[0, 1, 3, 2, 4], [3, 1, 0, 2, 4], [0, 1, 2, 3, 4]], verdicts, np.zeros(5, bool), 3)
    split = split_metrics(["mAP", "CMC@1", parse_metric("P@3"), "R@04", "MRR", "mINP", "mAP@3"], case.rank())
    assert list(split.exact) == ["CMC@1", "P@3", "MRR", "mAP@3"]
    assert list(split.bounded) == ["mAP", "R@4", "mINP"]
    np.testing.assert_array_equal(split.exact["CMC@1"], [1.0, 0.0, np.nan])
    np.testing.assert_array_equal(split.bounded["R@4"].lower, [0.5, 1.0, np.nan])
    np.testing.assert_array_equal(split.bounded["R@4"].upper, [1.0, 1.0, np.nan])


def test_a_metric_that_may_rise_is_refused():
    listed = Case([[0]], np.array([[1]]), np.zeros(1, bool), 1).rank()
    family = replace(METRICS.get("mAP"), name="mNew", never_rises=False)
    with pytest.raises(InputError, match="metric 'mNew' is not available for top-k lists: it may rise"):
        metric_bounds(Metric(family), listed)
    with pytest.raises(UnknownNameError, match="did you mean 'mAP'"):
        metric_bounds("mAPP", listed)


# ------------------------------------------------------------------------------------------------------- refusals

WHOLE = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]
MESSAGES = {
    "gap": ([[0, 1, 2], [4, -1, 3]], None, "the list of query 1 holds -1 at place 2 before row 3"),
    "early gap": ([[-1, 1, 2], [4, 2, 3]], None, "the list of query 0 holds -1 at place 1 before row 1"),
    "short": (
        [[0, 1, 2], [4, 3, -1]],
        None,
        "query 1 ends after 2 of 5 gallery rows; .* cut all lists to the shortest",
    ),
    "empty": ([[-1, -1, -1], [4, 3, 1]], None, "query 0 ends after 0 of 5 gallery rows; -1 means"),
    "too high": ([[0, 1, 2], [4, 5, 3]], None, "the list of query 1 holds 5 at place 2; gallery rows run from 0 to 4"),
    "too low": ([[0, 1, -2], [4, 1, 3]], None, "the list of query 0 holds -2 at place 3"),
    "twice": ([[0, 1, 2], [4, 1, 4]], None, "the list of query 1 holds gallery row 4 more than once"),
    "twice whole": ([[0, 1, 2, 3, 0, -1], [4, 3, 2, 1, 0, -1]], None, "query 0 holds gallery row 0 more than once"),
    "longer": ([[0, 1, 2, 3, 4, 0], [4, 3, 2, 1, 0, 3]], None, "query 0 holds gallery row 0 more than once"),
    "nan": (WHOLE, [[0, 1, 2, 3, 4], [0, 1, np.nan, 3, 4]], "the list of query 1 has the distance NaN at place 3"),
    "falls": (WHOLE, [[0, 1, 1, 1, 4], [0, 1, 3, 2, 4]], r"query 1 has the distance 2.0 after 3.0; .* nearest first"),
    "shape": (
        WHOLE,
        [[0, 1, 2, 3], [0, 1, 2, 3]],
        r"numbers of shape \(2, 5\) as the lists, found .* \(2, 4\)",
    ),
    "text": (WHOLE, [list("abcde")] * 2, "must be numbers of shape"),
    "queries": ([[0, 1]], None, "there are 1 top-k lists for 2 queries; give one list per query row"),
    "flat": ([0, 1], None, r"must be whole numbers of shape \(n_query, k\)"),
    "fractions": ([[0.0, 1.0], [1.0, 0.0]], None, "must be whole numbers .* found float64"),
    "k": (np.empty((2, 0), np.int64), None, r"k of at least 1, found int64 \(2, 0\)"),
}


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("entries", [1, 1 << 21])
def test_wrong_lists_are_refused(monkeypatch, name, entries):
    monkeypatch.setattr(reid_dist.metrics.listed, "_ENTRIES_AT_ONCE", entries)
    index, distance, part = MESSAGES[name]
    case = Case(WHOLE, np.array([[1, 0, 0, 0, 0], [0, 1, 0, 2, 0]]), np.array([False] * 4 + [True]), 5)
    with pytest.raises(InputError, match=part) as caught:
        rank_lists(case.relevance, case.mask, np.array(index), None if distance is None else np.array(distance))
    assert "\n" not in str(caught.value)


def test_a_gallery_without_rows_is_refused():
    case = Case([[0]], np.array([[1]]), np.zeros(1, bool), 1)
    with pytest.raises(InputError, match="a gallery without rows"):
        rank_lists(case.relevance, GalleryMask(np.empty(0, bool), None), np.array([[-1]]))


def test_the_order_of_a_list_decides_between_equal_distances():
    verdicts = np.array([[0, 1, 0]])
    for ranking, expected in (([1, 0, 2], 1), ([0, 1, 2], 2), ([2, 0, 1], 3)):
        case = Case([ranking], verdicts, np.zeros(3, bool), 3)
        assert case.rank(distance=np.ones((1, 3))).best.rank.tolist() == [expected]
