"""Relevant and junk items by labels, against the verdict on every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.protocols import PID_PROTOCOLS
from oracles.protocols import assign_relevance as masks
from support.reference import ItemSet

from reid_dist.core.model import Labels
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance
from reid_dist.relevance.protocols import PROTOCOLS, REASONS, compose_protocol

ITEMS = st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2), st.integers(0, 9)), min_size=1, max_size=9)


def labels(items: list[tuple[int, int, int]]) -> Labels:
    """Of items with a pid, a camera and an item id each."""
    return Labels(*np.array(items, np.int64).reshape(-1, 3).T.copy())


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@given(query=ITEMS, gallery=ITEMS)
def test_it_is_the_verdict_on_every_pair(
    protocol: str, query: list[tuple[int, int, int]], gallery: list[tuple[int, int, int]]
) -> None:
    query = [(max(pid, 0), camid, item) for pid, camid, item in query]
    # An item occurs once in a gallery.
    gallery = [(pid, camid, place) for place, (pid, camid, _) in enumerate(gallery)]
    near, far = labels(query), labels(gallery)
    sides = [ItemSet(np.zeros((len(each.pids), 1)), each.pids, each.camids, each.item_ids) for each in (near, far)]
    relevant, junk = masks(*sides, protocol)
    rules = PROTOCOLS.get(protocol)
    found = assign_relevance(rules, near, GalleryIndex(far, rules))
    for i in range(len(query)):
        own = slice(found.relevant_indptr[i], found.relevant_indptr[i + 1])
        assert found.relevant_row[own].tolist() == np.flatnonzero(relevant[i]).tolist()
        assert found.n_junk[i] == junk[i].sum()
        assert found.n_kept[i] == (~junk[i]).sum()
        assert (found.reason[i] == 0) == relevant[i].any()


@pytest.mark.parametrize(
    ("protocol", "gallery", "reason"),
    [
        ("market1501", [(2, 0, 0)], "no_positive_in_gallery"),
        ("market1501", [(1, 0, 0), (2, 0, 1)], "only_same_camera_positives"),
        ("same_set", [(1, 0, 5), (2, 0, 1)], "no_positive_in_gallery"),
        ("no_cameras", [(-1, 0, 0)], "all_junk"),
    ],
)
def test_reasons_of_a_query_without_positives(protocol: str, gallery: list[tuple[int, int, int]], reason: str) -> None:
    rules = PROTOCOLS.get(protocol)
    found = assign_relevance(rules, labels([(1, 0, 5)]), GalleryIndex(labels(gallery), rules))
    assert [REASONS[place] for place in found.reason] == [reason]


def test_cameras_are_not_needed_where_no_rule_names_them() -> None:
    rules, bare = PROTOCOLS.get("no_cameras"), Labels(np.array([1]), None, None)
    assert assign_relevance(rules, bare, GalleryIndex(bare, rules)).relevant_row.tolist() == [0]


@pytest.mark.parametrize("protocol", ["market1501", "cuhk03"])
def test_cameras_are_needed_where_rules_name_them(protocol: str) -> None:
    rules, bare = PROTOCOLS.get(protocol), Labels(np.array([1]), None, None)
    with pytest.raises(InputError, match=f"protocol '{protocol}' needs camids in query and gallery"):
        assign_relevance(rules, bare, GalleryIndex(labels([(1, 0, 0)]), None))


def test_lists_of_a_ground_truth_have_known_names() -> None:
    with pytest.raises(UnknownNameError, match="list of a ground truth 'godo'"):
        compose_protocol("mine", base="oxford", relevant_lists=("godo",))
