"""Lists without items of the same label: those of sorting what is left, in float32 and in eight bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact_products import use_integers
from support.local_workers import started
from support.reference import DISTANCES, ItemSet, order_is_unambiguous
from support.reranking_runs import bare, labelled, resources
from support.row_blocks import block_of, canonical_matrix, hard_blocks
from support.sampling import examples
from support.strategies import crowded_sets
from test_neighbours import assert_same

from reid_dist import FeatureSet, nearest
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.surroundings import KeepNearest, Surroundings
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import find_neighbours


def sorted_rest(matrix, kept, numbers, k):
    """Lists and largest distances of the kept pairs, by sorting them."""
    index, near = np.full((len(matrix), k), -1, np.int64), np.full((len(matrix), k), np.inf)
    for i, row in enumerate(matrix):
        order = sorted(np.flatnonzero(kept[i]), key=lambda j, row=row: (row[j], j))[:k]
        index[i, : len(order)], near[i, : len(order)] = numbers[order], row[order]
    return Surroundings(index, near, np.where(kept, matrix, 0).max(axis=1, initial=0))


@st.composite
def labelled_blocks(draw, blocks):
    """Two blocks with labels from one to a few; the second has numbers from 100."""
    near, far = (block_of(rows, first) for rows, first in zip(draw(blocks), (0, 100), strict=True))
    label = st.integers(-1, draw(st.integers(-1, 3)))
    return tuple(
        replace(block, label=np.array(draw(st.lists(label, min_size=len(block), max_size=len(block))), np.int64))
        for block in (near, far)
    )


@pytest.mark.parametrize("screen", ["int8", "float32"])
@settings(max_examples=examples(30))
@given(data=st.data(), k=st.integers(1, 30), tile=st.sampled_from([3, 17, 64]))
def test_both_sides(screen, data, k, tile):
    if screen == "int8":
        pytest.importorskip("onnxruntime")
    name = data.draw(st.sampled_from(DISTANCES))
    distance = REGISTERED.get(name)
    near, far = data.draw(labelled_blocks(hard_blocks(name)))
    matrix, kept = canonical_matrix(near, far, distance), near.label[:, None] != far.label
    expected = sorted_rest(matrix, kept, far.numbers, k)
    wanted = KeepNearest(k, farthest=True)
    with pytest.MonkeyPatch.context() as patch:
        use_integers(patch)
        found = run_symmetric_tiles(near, far, distance, tile, k, policy=Policy(screen))
        (alone,) = run_symmetric_tiles(near, None, distance, tile, k, policy=Policy(screen))
        (listed,) = run_tiles(near, far, distance, TileShape(tile, tile), [wanted], policy=Policy(screen))
    assert_same(found[0], sorted_rest(matrix, kept, far.numbers, k))
    assert_same(found[1], sorted_rest(matrix.T, kept.T, near.numbers, k))
    within, kept = canonical_matrix(near, near, distance), near.label[:, None] != near.label
    assert_same(alone, sorted_rest(within, kept, near.numbers, k))
    assert_same(listed, expected)


def brute_force(query, gallery, kept, k, distance, *, same):
    """Lists of whole sets; an item of the same set is first in its own."""
    near, far = block_of(query), block_of(gallery)
    found = sorted_rest(canonical_matrix(near, far, REGISTERED.get(distance)), kept, far.numbers, k)
    if same:
        return np.column_stack([far.numbers, found.index[:, : k - 1]])
    return found.index


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("label", ["pid", "camid", "clothes"])
def test_whole_sets(distance, label):
    """Dozens of equal rows, and one label of most items, of which fewer than k others are left."""
    query, gallery = crowded_sets(20, 150, 9, seed=3, n_distinct=25)
    assert order_is_unambiguous(gallery.features, gallery.features, distance)
    rng = np.random.default_rng(4)
    sides = [
        FeatureSet.from_arrays(
            each.features,
            each.pids,
            camids=each.camids,
            columns={"clothes": np.where(rng.random(len(each)) < 0.97, 5, 6)},
        )
        for each in (query, gallery)
    ]
    own = [{"pid": each.pids, "camid": each.camids, **each.columns}[label] for each in sides]
    for k, chunk in ((9, None), (9, 13), (160, 40)):
        options = {"k": k, "distance": distance, "exclude": label, "chunk_rows": chunk}
        expected = brute_force(query.features, gallery.features, own[0][:, None] != own[1], k, distance, same=False)
        np.testing.assert_array_equal(nearest(*sides, **options).index, expected)
        kept = own[1][:, None] != own[1]
        expected = brute_force(gallery.features, gallery.features, kept, k, distance, same=True)
        found = nearest(sides[1], sides[1], **options)
        np.testing.assert_array_equal(found.index, expected)
        assert np.array_equal(np.isinf(found.distance), expected < 0)


def test_cameras_by_name_are_joined():
    """``b`` is camera 2 of one set and camera 1 of the other."""
    rows = np.eye(3, dtype=np.float32)
    query = FeatureSet.from_arrays(rows[:2], [1, 2], camids=["a", "b"])
    gallery = FeatureSet.from_arrays(rows, [1, 2, 3], camids=["b", "b", "c"])
    assert nearest(query, gallery, k=2, exclude="camid").index.tolist() == [[0, 1], [2, -1]]


def test_lists_of_a_workspace_are_told_apart(tmp_path):
    """Lists with and without the label are kept side by side; each is found again."""
    _, gallery = crowded_sets(1, 90, 6, seed=5)
    features, cosine, where = labelled(gallery), REGISTERED.get("cosine"), resources(tmp_path, 20)
    first = {label: find_neighbours(Items((features,), label), cosine, 5, where) for label in (None, "camid", "pid")}
    assert len({lists.parts.stage.path for lists in first.values()}) == 3
    for label, lists in first.items():
        again = find_neighbours(Items((features,), label), cosine, 4, where)
        assert (again.parts.stage.path, again.k) == (lists.parts.stage.path, 5)


def test_labels_that_are_not_there():
    rows = np.eye(4, dtype=np.float32)
    query, gallery = bare(rows), labelled(ItemSet(rows, np.arange(4), np.arange(4), np.arange(4)))
    with pytest.raises(InputError, match=r"items of the same camid are left out, and query has no camids"):
        nearest(query, gallery, exclude="camid")
    with pytest.raises((InputError, UnknownNameError), match=r"label.*'camids'.*camid"):
        nearest(query, gallery, exclude="camids")
    named = FeatureSet.from_arrays(rows, ["a", "b", "c", "d"])
    with pytest.raises(InputError, match=r"pids of the query set are texts and of the gallery set whole numbers"):
        nearest(named, gallery, exclude="pid")


@pytest.mark.slow
def test_workers_and_a_resumed_search_do_not_matter(tmp_path):
    """Two processes, and lists of which half the blocks of an earlier run are left."""
    query, gallery = map(labelled, crowded_sets(20, 300, 8, seed=7, n_distinct=90))
    options = {"k": 6, "exclude": "camid", "chunk_rows": 29}
    expected = [nearest(side, gallery, **options) for side in (query, gallery)]
    with started(2, tmp_path / "workers") as client:
        found = [nearest(side, gallery, **options, client=client) for side in (query, gallery)]
    nearest(gallery, gallery, **options, workspace=tmp_path / "kept")
    blocks = sorted((tmp_path / "kept").rglob("rows-*.npz"))
    for block in blocks[::2]:
        block.unlink()
    assert blocks
    found.append(nearest(gallery, gallery, **options, workspace=tmp_path / "kept"))
    for one, other in zip(found, [*expected, expected[1]], strict=True):
        assert one.index.tobytes() == other.index.tobytes()
        assert one.distance.tobytes() == other.distance.tobytes()
