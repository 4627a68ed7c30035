"""The neighbour graph of one set: against whole matrices, saved and opened, damaged, and however it was cut."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import reranking as oracle
from support.local_workers import started
from support.reference import DISTANCES
from support.reranking_runs import CLOSE, bare
from support.sampling import examples
from support.strategies import crowded_sets, reranking_problems

from reid_dist import FeatureSet, NeighbourGraph, jaccard_distances, k_reciprocal_graph, nearest, reranked_distances
from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    InputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from reid_dist.stages.reranking import neighbour_graph as graph_module
from reid_dist.stores import sparse as sparse_module

SPEC = "k_reciprocal(k1=6,k2=3)"


def items(n=70, seed=3):
    return crowded_sets(1, n, 8, seed)[1].features


def arrays_of(graph):
    return graph.indptr, graph.indices, graph.weights, graph.lists.index, graph.lists.distance


def assert_same(one, other):
    for mine, theirs in zip(arrays_of(one), arrays_of(other), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    assert (one.rerank, one.distance, one.inputs) == (other.rerank, other.distance, other.inputs)


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of nine rows: a set of tens has several."""
    for module in (sparse_module, graph_module):
        monkeypatch.setattr(module, "PIECE_ROWS", 9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("variant", oracle.VARIANTS)
def test_random_sets(variant, distance, tmp_path_factory):
    seen, n_examples = [], examples(10)

    @settings(max_examples=n_examples)
    @given(reranking_problems(), st.sampled_from([None, 1, 5]))
    def check(problem, chunk):
        rows = np.concatenate([problem.query, problem.gallery])
        if not oracle.order_is_unambiguous(rows[:0], rows, distance, variant):
            return
        rerank = f"k_reciprocal(k1={problem.k1},k2={problem.k2},variant={variant})"
        graph = k_reciprocal_graph(bare(rows), rerank=rerank, distance=distance, chunk_rows=chunk)
        expected = oracle.steps(rows[:0], rows, distance=distance, variant=variant, k1=problem.k1, k2=problem.k2)
        found = graph.to_scipy().toarray()
        np.testing.assert_allclose(found, expected.mean_weights, rtol=CLOSE, atol=CLOSE)
        jaccard = oracle.jaccard(expected.mean_weights, expected.mean_weights, variant)
        every = np.arange(len(rows))
        np.testing.assert_allclose(jaccard_distances(graph, every), jaccard, rtol=CLOSE, atol=CLOSE)
        some = every[::-2]
        np.testing.assert_allclose(jaccard_distances(graph, some, every[::-1]), jaccard[some][:, ::-1], atol=CLOSE)
        width = max(map(len, expected.neighbours))
        for listed, row in zip(graph.lists.index, expected.neighbours, strict=True):
            assert listed[:width].tolist()[: len(row)] == row
        path = tmp_path_factory.mktemp("saved") / "graph.zarr"
        assert_same(graph.save(path), graph)
        seen.append(problem)

    check()
    assert len(seen) >= 0.6 * n_examples


def test_parts_agree_with_other_functions():
    features = bare(items())
    graph = k_reciprocal_graph(features, rerank=SPEC)
    near = nearest(features, features, k=graph.k)
    np.testing.assert_array_equal(graph.lists.index, near.index)
    np.testing.assert_array_equal(graph.lists.distance, near.distance)
    assert graph.indptr.dtype == graph.lists.index.dtype == np.int64
    assert graph.indices.dtype == np.int32
    assert graph.n_entries == graph.indptr[-1] == len(graph.weights)
    # Half of a set beside the other half, in one graph, and nothing mixed with d_J.
    rows = items()
    block = reranked_distances(bare(rows[:30]), bare(rows[30:]), rerank="k_reciprocal(k1=6,k2=3,lambda_value=0)")
    np.testing.assert_array_equal(jaccard_distances(graph, range(30), range(30, len(rows))), block)


@pytest.mark.slow
def test_no_bit_depends_on_chunks_or_on_what_the_workspace_had(tmp_path):
    features = bare(items())
    graph = k_reciprocal_graph(features, rerank=SPEC)
    for chunk in (1, 7, 64):
        assert_same(k_reciprocal_graph(features, rerank=SPEC, chunk_rows=chunk), graph)
    nearest(features, features, k=25, workspace=tmp_path)
    longer = k_reciprocal_graph(features, rerank=SPEC, workspace=tmp_path, chunk_rows=8)
    assert longer.k == graph.k == 7
    assert_same(longer, graph)
    digests = set()
    for place, each in enumerate((graph, longer)):
        each.save(tmp_path / f"{place}.zarr")
        manifest = json.loads((tmp_path / f"{place}.zarr" / "zarr.json").read_text())["attributes"]["reid_dist"]
        digests.add(manifest["content_digest"])
    assert len(digests) == 1


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits(tmp_path):
    features = bare(items())
    with started(1, tmp_path) as client:
        there = k_reciprocal_graph(features, rerank=SPEC, client=client)
        kept = k_reciprocal_graph(features, rerank=SPEC, client=client, workspace=tmp_path / "kept")
    # Rows are read after the workers have gone.
    for graph in (there, kept):
        for mine, theirs in zip(arrays_of(graph), arrays_of(k_reciprocal_graph(features, rerank=SPEC)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
def test_pieces(tmp_path):
    features = bare(items())
    graph = k_reciprocal_graph(features, rerank=SPEC, chunk_rows=8)
    stored = graph.save(tmp_path / "graph.zarr")
    assert_same(stored, graph)
    for start, stop in ((0, 0), (0, 1), (5, 31), (9, 18), (60, 70), (0, 70), (70, 70)):
        here, there = graph.read(start, stop), stored.read(start, stop)
        for mine, theirs in zip(here, there, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert len(here.indptr) == stop - start + 1
        np.testing.assert_array_equal(here.neighbours, graph.lists.index[start:stop])
    rows = [69, 3, 3, 40, 0]
    np.testing.assert_array_equal(jaccard_distances(stored, rows), jaccard_distances(graph, range(70))[rows])
    assert jaccard_distances(graph, [], [1]).shape == (0, 1)


@pytest.mark.usefixtures("small_pieces")
def test_saving_reads_one_piece_after_the_other(tmp_path, monkeypatch):
    graph = k_reciprocal_graph(bare(items()), rerank=SPEC)
    requested = []
    real = graph_module.KeptRows.read
    monkeypatch.setattr(
        graph_module.KeptRows, "read", lambda self, rows: (requested.append(len(rows)), real(self, rows))[1]
    )
    graph.save(tmp_path / "graph.zarr")
    assert max(requested) == 9
    assert sum(requested) == 70


def test_description_of_a_saved_graph(tmp_path):
    graph = k_reciprocal_graph(bare(items()), rerank="k_reciprocal(k1=6,k2=3,variant=faiss_k1)", distance="euclidean")
    stored = graph.save(tmp_path / "graph.zarr")
    assert stored.rerank["name"] == "k_reciprocal"
    assert {"k1": 6, "k2": 3, "variant": "faiss_k1", "inclusive": False, "weights": "gaussian"}.items() <= (
        stored.rerank.items()
    )
    assert "lambda_value" not in stored.rerank
    assert stored.distance["name"] == "euclidean"
    assert stored.inputs["features"]["content_digest"] == bare(items()).content_digest
    assert "70 items" in repr(stored)
    assert jaccard_distances(stored, range(70)).min() >= 0


@pytest.mark.slow
def test_a_temporary_graph_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    graph = k_reciprocal_graph(bare(items()), rerank=SPEC)
    assert list(tmp_path.iterdir())
    del graph
    gc.collect()
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("reid_dist.evaluation.search.make_weights", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        k_reciprocal_graph(bare(items()), rerank=SPEC)
    assert not list(tmp_path.iterdir())


def test_places_that_are_taken(tmp_path):
    graph = k_reciprocal_graph(bare(items(30)), rerank=SPEC)
    path = tmp_path / "graph.zarr"
    graph.save(path)
    with pytest.raises(StoreExistsError, match="already a complete store"):
        graph.save(path)
    other = k_reciprocal_graph(bare(items(40)), rerank=SPEC)
    assert other.save(path, overwrite=True).n_items == 40
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.zarr"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(StoreExistsError):
        graph.save(tmp_path / "mine", overwrite=True)
    with pytest.raises(StoreNotFoundError, match="no such neighbour graph"):
        NeighbourGraph.open(tmp_path / "nowhere.zarr")
    features = bare(items(30)).save(tmp_path / "features.zarr")
    with pytest.raises(StoreError, match="is no neighbour graph"):
        NeighbourGraph.open(features.uri)
    with pytest.raises(StoreError, match=r"NeighbourGraph\.open reads it"):
        FeatureSet.open(path)


@pytest.mark.usefixtures("small_pieces")
def test_a_save_that_breaks_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "graph.zarr"
    graph = k_reciprocal_graph(bare(items(30)), rerank=SPEC)
    graph.save(path)
    real = graph_module.KeptRows.read

    def breaks(self, rows):
        if rows.start > 9:
            raise KeyboardInterrupt
        return real(self, rows)

    monkeypatch.setattr(graph_module.KeptRows, "read", breaks)
    for place in (path, tmp_path / "new.zarr"):
        with pytest.raises(KeyboardInterrupt):
            graph.save(place, overwrite=True)
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.zarr"]
    assert NeighbourGraph.open(path).n_items == 30


@pytest.mark.quick_cases(2)
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", ["indptr", "indices", "weights", "neighbours/index", "neighbours/distance"])
def test_damage_is_found(name, tmp_path):
    graph = k_reciprocal_graph(bare(items(30)), rerank=SPEC)
    for place, harm in enumerate((flip, remove, cut_short)):
        path = tmp_path / f"{place}.zarr"
        stored = graph.save(path)
        harm(next(file for file in (path / name / "c").rglob("*") if file.is_file()))
        with pytest.raises(DamagedStoreError, match="is damaged: rows") as caught:
            stored.read(0, 30)
        assert "\n" not in str(caught.value)


def flip(file: Path):
    content = bytearray(file.read_bytes())
    content[9] ^= 4
    file.write_bytes(content)


def remove(file: Path):
    file.unlink()


def cut_short(file: Path):
    file.write_bytes(file.read_bytes()[:-5])


def test_manifests_are_guarded(tmp_path):
    path = tmp_path / "graph.zarr"
    k_reciprocal_graph(bare(items(30)), rerank=SPEC).save(path)
    whole = json.loads((path / "zarr.json").read_text())

    def changed(**values):
        entry = json.loads(json.dumps(whole))
        entry["attributes"]["reid_dist"].update(values)
        (path / "zarr.json").write_text(json.dumps(entry))

    changed(k=8)
    with pytest.raises(DamagedStoreError, match="does not match its own digest"):
        NeighbourGraph.open(path)
    changed(format_version=9)
    with pytest.raises(StoreError, match="format version 9"):
        NeighbourGraph.open(path)
    changed(state="writing")
    with pytest.raises(IncompleteStoreError, match="no commit mark"):
        NeighbourGraph.open(path)


def refusal(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_refused(monkeypatch):
    features = bare(items(30))
    graph = k_reciprocal_graph(features, rerank=SPEC)
    assert "features must be a FeatureSet, a path or a tuple (features, pids, camids), found ndarray" in refusal(
        k_reciprocal_graph, items()
    )
    assert "leave out mode=inductive" in refusal(k_reciprocal_graph, features, rerank="k_reciprocal(mode=inductive)")
    assert "chunk_rows must be at least 1" in refusal(k_reciprocal_graph, features, chunk_rows=0)
    zero = FeatureSet.from_arrays(np.append(items(30), np.zeros((1, 8), np.float32), axis=0), np.zeros(31, int))
    on_the_sphere = {"rerank": "k_reciprocal(variant=faiss_k1)", "distance": "euclidean"}
    assert "1 of 31 query rows is all zeros" in refusal(k_reciprocal_graph, zero, **on_the_sphere)
    assert k_reciprocal_graph(zero, distance="euclidean").n_items == 31
    assert "rows must be from 0 to 29, found 30" in refusal(jaccard_distances, graph, [30])
    assert "columns must be from 0 to 29, found -1" in refusal(jaccard_distances, graph, [0], [-1])
    assert "rows must be a sequence of items" in refusal(jaccard_distances, graph, [0.5])
    assert "graph must be a NeighbourGraph, found int" in refusal(jaccard_distances, 3, [0])
    assert "rows 5:31 are not within" in refusal(graph.read, 5, 31)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    assert "pip install 'reid-dist[mat]'" in refusal(graph.to_scipy)
