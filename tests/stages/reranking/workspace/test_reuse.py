"""What a later run takes from a workspace."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.reranking_runs import labelled
from support.strategies import crowded_sets
from workspace_runs import RERANK, STAGES, kinds, run, stamps

from reid_dist import evaluate, nearest
from reid_dist.stages.reranking.k_reciprocal import KReciprocal
from reid_dist.stores import Workspace


def written_by(sets, workspace, **changes):
    """Which parts a run writes, by kind; none of those that were there is written again."""
    before = stamps(workspace)
    digest = run(sets, workspace, **changes).result_digest
    after = stamps(workspace)
    assert {name: after.get(name) for name in before} == before
    assert digest == run(sets, None, **changes).result_digest
    return kinds(name for name in after if name not in before)


@pytest.mark.slow
def test_only_what_depends_on_it_is_redone(sets, tmp_path):
    written = written_by(sets, tmp_path)
    n_blocks = written["neighbours"]
    assert written == dict.fromkeys(STAGES, n_blocks)
    assert n_blocks > 1
    everything, means = {"weights": n_blocks, "means": n_blocks}, {"means": n_blocks}
    for changes, wanted in [
        ({}, {}),
        ({"lambda_value": 0.7}, {}),
        ({"lambda_value": 0.0}, {}),
        ({"k2": 5}, means),
        ({"k2": 1}, {}),
        ({"inclusive": True}, everything),
        ({"variant": "zhong_d4"}, everything),
        ({"variant": "faiss_k1"}, everything),
        ({"variant": "paper", "k2": 1}, {"weights": n_blocks}),
        ({"variant": "paper", "k2": 2}, means),
        ({"variant": "paper", "weights": "binary"}, everything),
        # Lists that are long enough are there already.
        ({"k1": 3}, everything),
        ({"k1": 5, "variant": "zhong_d4"}, everything),
        ({"k1": 3, "lambda_value": 0.1}, {}),
        # And now they are not.
        ({"k1": 9}, {"neighbours": n_blocks, **everything}),
        ({"k1": 8}, everything),
    ]:
        assert written_by(sets, tmp_path, **changes) == wanted, changes


@pytest.mark.slow
def test_the_cut_of_a_run_does_not_matter_to_the_next(sets, tmp_path):
    n_blocks = written_by(sets, tmp_path, chunk_rows=16)["neighbours"]
    assert written_by(sets, tmp_path, chunk_rows=50, lambda_value=0.6) == {}
    assert written_by(sets, tmp_path, k2=4) == {"means": n_blocks}


def test_other_distances_and_sets_are_something_else(sets, tmp_path):
    run(sets, tmp_path)
    query, gallery = sets
    before = stamps(tmp_path)
    report = evaluate(query, gallery, rerank=KReciprocal(**RERANK), distance="sqeuclidean", workspace=tmp_path)
    lists = {name for name in set(stamps(tmp_path)) - set(before) if name.startswith("neighbours")}
    assert lists
    # The graph of `euclidean` is that of `sqeuclidean`.
    before = stamps(tmp_path)
    other = evaluate(query, gallery, rerank=KReciprocal(**RERANK), distance="euclidean", workspace=tmp_path)
    assert stamps(tmp_path) == before
    assert other.metrics == report.metrics
    evaluate(gallery, query, rerank=KReciprocal(**RERANK), workspace=tmp_path)
    assert set(stamps(tmp_path)) > set(before)


def test_nearest_takes_up_longer_lists(tmp_path):
    items = labelled(crowded_sets(1, 150, 7, seed=22)[1])
    longer = nearest(items, items, k=20, workspace=tmp_path)
    before = stamps(tmp_path)
    shorter = nearest(items, items, k=7, workspace=tmp_path)
    assert stamps(tmp_path) == before
    np.testing.assert_array_equal(shorter.index, longer.index[:, :7])
    np.testing.assert_array_equal(shorter.index, nearest(items, items, k=7).index)


def test_tiles_are_removed_once_they_are_merged(sets, tmp_path):
    run(sets, tmp_path)
    assert not list(tmp_path.rglob("tile-*"))
    assert json.loads(next(iter(tmp_path.glob("neighbours-*/stage.json"))).read_text())["kind"] == "neighbours"


def test_stages_of_another_version_are_not_found(sets, tmp_path, monkeypatch, expected):
    """They may have other descriptions, and stay as they are."""
    with monkeypatch.context() as patched:
        patched.setattr("reid_dist.stores.workspace.FORMAT", 4)
        old = Workspace(str(tmp_path)).stage("neighbours", ["items", 21], {"of": "items", "k": 21, "block_rows": 3})
        old.write("lists-00000", {"index": np.arange(3)})
    before = stamps(tmp_path)
    assert run(sets, tmp_path).result_digest == expected
    after = stamps(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
