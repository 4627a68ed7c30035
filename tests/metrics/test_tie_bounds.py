"""Bounds of rank metrics over all orders of tied items, against all orders."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import rank_metrics

from reid_dist.core.model import RankedQueries
from reid_dist.metrics.metric import parse_metric
from reid_dist.metrics.ties import extreme_ranks

# Of each query its groups from near to far, and of each item of a group whether it is a positive.
GROUPS = st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=4)
QUERIES = st.lists(GROUPS.filter(lambda groups: any(map(any, groups))), min_size=1, max_size=3)


def ranked(queries: list[list[list[bool]]]) -> RankedQueries:
    """The items of a group in the given order."""
    indptr, rank, tied, before, distance = [0], [], [], [], []
    for groups in queries:
        place = 0
        for number, group in enumerate(groups):
            for at, positive in enumerate(group):
                if positive:
                    rank.append(place + at + 1)
                    tied.append(group.count(False))
                    before.append(group[:at].count(False))
                    distance.append(float(number))
            place += len(group)
        indptr.append(len(rank))
    n_kept = np.array([sum(map(len, groups)) for groups in queries])
    none = np.zeros(len(queries), np.int64)
    flat = [np.array(each, np.int64) for each in (rank, tied, before)]
    return RankedQueries(
        np.array(indptr), *flat, np.arange(len(rank)), np.array(distance), n_kept, none, none.astype(np.uint8)
    )


def all_values(groups: list[list[bool]], name: str) -> list[float]:
    """The metric under every order of every group."""
    orders = [sorted(set(permutations(group))) for group in groups]
    lists = ([positive for group in chosen for positive in group] for chosen in product(*orders))
    return [rank_metrics.value(name, [at + 1 for at, positive in enumerate(items) if positive]) for items in lists]


@pytest.mark.parametrize("name", ["mAP", "mINP", "CMC@2", "P@3", "mAP@3", "mAP_found@1", "mAP_found@3", "mAP_found@4"])
@given(queries=QUERIES)
def test_bounds_are_the_extremes_over_all_orders(name: str, queries: list[list[list[bool]]]) -> None:
    metric = parse_metric(name)
    every = [all_values(groups, name) for groups in queries]
    for rule, extreme in (("optimistic", max), ("pessimistic", min)):
        found = metric.values(extreme_ranks(metric, ranked(queries), rule))
        assert found == pytest.approx([extreme(values) for values in every], abs=1e-12)
