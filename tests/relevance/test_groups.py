"""Groups of gallery items: their definition in words, and who is in a relevant group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples

from reid_dist.core.model import Labels
from reid_dist.errors import InputError
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance
from reid_dist.relevance.groups import Collapse, GroupIndex
from reid_dist.relevance.protocols import PROTOCOLS, compose_protocol


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pid", Collapse("pid")),
        ("CMC:pid", Collapse("pid", ("CMC",))),
        (" CMC , MRR: track ", Collapse("track", ("CMC", "MRR"))),
        ("CMC,CMC:pid", Collapse("pid", ("CMC",))),
    ],
)
def test_a_collapse_is_a_label_or_metrics_and_a_label(text, expected):
    assert Collapse.parse(text) == expected


@pytest.mark.parametrize("text", ["", ":", "CMC:", ":pid", ",:pid", "CMC,:pid", None, 3, ["pid"]])
def test_other_values_are_refused(text):
    with pytest.raises(InputError, match="collapse must be"):
        Collapse.parse(text)


def test_which_metrics_rank_groups():
    assert Collapse("pid").covers("mAP")
    assert Collapse("pid", ("CMC",)).covers("CMC")
    assert not Collapse("pid", ("CMC",)).covers("mAP")


def test_a_protocol_names_its_groups():
    described = compose_protocol("by_track", base="market1501", collapse="track").describe()
    assert described["collapse"] == "track"
    assert described["ranked"].startswith("groups of gallery items with one track, each at its nearest kept item")
    assert "collapse" not in PROTOCOLS.get("market1501").describe()


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    protocol=st.sampled_from(["market1501", "cuhk03_separate_cameras", "same_set"]),
    label=st.sampled_from(["pid", "camid", "track"]),
    n_groups=st.integers(1, 20),
)
def test_members_are_the_kept_items_of_groups_with_a_relevant_one(seed, protocol, label, n_groups):
    rng = np.random.default_rng(seed)
    near, far = (Labels(rng.integers(-1, 4, n), rng.integers(0, 3, n), rng.integers(0, 60, n)) for n in (6, 30))
    far = Labels(far.pids, far.camids, far.item_ids, {"track": rng.integers(0, n_groups, 30)})
    index = GalleryIndex(far, PROTOCOLS.get(protocol))
    found = GroupIndex(far, label, index.mask).with_members(
        assign_relevance(PROTOCOLS.get(protocol), near, index), listed=False
    )
    members = found.members
    assert members is not None
    groups = far.get(label)
    for q in range(6):
        same, camera = near.pids[q] == far.pids, near.camids[q] == far.camids
        own = near.item_ids[q] == far.item_ids
        junk = {"market1501": same & camera, "cuhk03_separate_cameras": camera, "same_set": own}[protocol]
        kept = ~junk & (far.pids != -1)
        relevant = kept & same
        expected = np.flatnonzero(kept & np.isin(groups, groups[relevant]))
        here = slice(members.indptr[q], members.indptr[q + 1])
        assert members.row[here].tolist() == expected.tolist()
        assert members.relevant[here].tolist() == relevant[expected].tolist()
        assert members.n_kept[q] == len(np.unique(groups[kept]))
        hidden = members.hidden.row[members.hidden.indptr[q] : members.hidden.indptr[q + 1]]
        assert set(expected) <= set(hidden.tolist())
        assert not np.isin(hidden, np.flatnonzero(kept & ~np.isin(groups, groups[relevant]))).any()
