"""Re-ranking by worker processes is that of this process, bit for bit, and survives the death of a worker."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from support.local_workers import started
from support.reranking_runs import bare, labelled
from support.strategies import crowded_sets

from reid_dist import evaluate, nearest, reranked_distances
from reid_dist.stages import search_plan as plan

OPTIONS = {"topk": 9, "ties": True, "breakdowns": ["camera_pair", "gallery_size"], "confidence": None}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two workers with two threads each, closed in the order that leaves no warning."""
    with started(2, tmp_path_factory.mktemp("workers"), threads_per_worker=2) as client:
        yield client


@pytest.fixture(scope="module")
def sets():
    """Duplicates, without item ids."""
    query, gallery = crowded_sets(40, 300, 12, seed=41, n_distinct=120)
    return labelled(query), labelled(gallery)


@pytest.fixture
def small_blocks(monkeypatch):
    """Ten blocks of items, hence fifty-five pairs of them."""
    monkeypatch.setattr(plan, "_MOST_BLOCK_ROWS", 34)
    monkeypatch.setattr(plan, "TILE_ROWS", 17)


def assert_same(report, other):
    assert report.result_digest == other.result_digest
    assert report.topk.digest == other.topk.digest
    assert report.ties == other.ties
    assert report.breakdowns == other.breakdowns


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("rerank", ["k_reciprocal", "k_reciprocal(k1=6,k2=3,lambda_value=0)",
                                    "k_reciprocal(k1=5,k2=1,variant=faiss_k1)"])  # fmt: skip
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_digest(two_workers, sets, rerank, distance, small_blocks):
    here = evaluate(*sets, rerank=rerank, distance=distance, **OPTIONS)
    assert_same(evaluate(*sets, rerank=rerank, distance=distance, client=two_workers, **OPTIONS), here)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rerank",
    ["gnn(k1=6,k2=3)", "ecn(k=6,t=2,q=3)", "ecn(t=2,q=3,method=origdist)", "top(k_reciprocal(k1=6,k2=3),m=50)"],
)
def test_other_re_rankings(client, sets, rerank, small_blocks):
    here = evaluate(*sets, rerank=rerank, **OPTIONS)
    there = evaluate(*sets, rerank=rerank, client=client, against_plain=True, **OPTIONS)
    assert_same(there, here)
    assert [run["stages"] for run in there.stage_changes["without"]] == [["rerank"]]


@pytest.mark.slow
def test_changes_by_expansion_and_re_ranking(client, sets, tmp_path):
    """The sets are read as they are, and expanded; with a workspace and without."""
    options = {"expand": "aqe(k=2)", "rerank": "gnn(k1=6,k2=3)", "against_plain": True, **OPTIONS}
    here = evaluate(*sets, **options)
    for workspace in (None, tmp_path / "w"):
        there = evaluate(*sets, client=client, workspace=workspace, **options)
        assert_same(there, here)
        assert there.stage_changes == here.stage_changes
        assert [run["stages"] for run in there.stage_changes["without"]] == [["rerank"], ["expand", "rerank"]]


@pytest.mark.slow
def test_sets_on_disk(client, sets, tmp_path):
    here = evaluate(*sets, rerank="k_reciprocal(k1=6,k2=3)", **OPTIONS)
    near = sets[0].save(tmp_path / "query.zarr", chunk_rows=9)
    far = sets[1].save(tmp_path / "gallery.zarr", chunk_rows=50)
    for pair in ((near, far), (sets[0], far), (near, sets[1])):
        there = evaluate(*pair, rerank="k_reciprocal(k1=6,k2=3)", client=client, workspace=tmp_path / "w", **OPTIONS)
        assert_same(there, here)


@pytest.mark.slow
def test_distances_and_neighbours(client, sets, small_blocks):
    here, there = (reranked_distances(*sets, rows=[5, 0, 39], client=each) for each in (None, client))
    assert here.tobytes() == there.tobytes()
    items = bare(crowded_sets(1, 200, 9, seed=42)[1].features)
    here, there = (nearest(items, items, k=15, client=each) for each in (None, client))
    np.testing.assert_array_equal(here.index, there.index)
    assert here.distance.tobytes() == there.distance.tobytes()


@pytest.mark.slow
def test_stages_made_here_are_found_there(client, sets, tmp_path, small_blocks):
    here = evaluate(*sets, rerank="k_reciprocal(k1=6)", workspace=tmp_path, **OPTIONS)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/*.npz")}
    assert before
    there = evaluate(*sets, rerank="k_reciprocal(k1=6)", workspace=tmp_path, client=client, **OPTIONS)
    assert_same(there, here)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/*.npz")} == before


@pytest.mark.slow
@pytest.mark.parametrize("source", ["means-*/rows-00000.npz", "weights-*/rows-00001.npz"])
def test_a_part_in_the_place_of_another_is_found_by_workers(client, sets, tmp_path, small_blocks, source):
    rerank = "k_reciprocal(k1=6,k2=3)"
    expected = evaluate(*sets, rerank=rerank, workspace=tmp_path, **OPTIONS)
    (wrong,), (part,) = tmp_path.glob(source), tmp_path.glob("means-*/rows-00001.npz")
    whole = part.read_bytes()
    part.write_bytes(wrong.read_bytes())
    with pytest.warns(UserWarning, match=r"means-.*/rows-00001\.npz is another part .*: made again"):
        found = evaluate(*sets, rerank=rerank, workspace=tmp_path, client=client, **OPTIONS)
    assert_same(found, expected)
    assert part.read_bytes() == whole


def slow_down():
    """Let every part take its time, in a worker."""
    from reid_dist.stores import Stage

    write = Stage.write

    def slowly(self, part, arrays):
        time.sleep(0.05)
        return write(self, part, arrays)

    Stage.write = slowly
    return os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["neighbours-*/tile-*.npz", "weights-*/rows-*.npz"])
def test_a_worker_that_dies(client, sets, tmp_path, small_blocks, part):
    """In the middle of a stage; another takes over, and the digest is what it was."""
    rerank = "k_reciprocal(k1=6,k2=3)"
    here = evaluate(*sets, rerank=rerank, **OPTIONS)
    client.wait_for_workers(2, timeout=60)
    workers = client.run(slow_down)
    killed = []

    def kill():
        victim = next(iter(workers.values()))
        for _ in range(3000):
            if len(list(tmp_path.glob(part))) >= 2:
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    there = evaluate(*sets, rerank=rerank, workspace=tmp_path, client=client, **OPTIONS)
    thread.join()
    assert killed
    assert_same(there, here)
