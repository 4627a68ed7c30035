"""Blocks of distances that something else computed: the oracle's answer, the features' answer, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.io
from agreement import as_feature_set, assert_agrees, assert_pairs, assert_sizes, assert_ties_agree
from block_runs import DTYPES, EXACT, METRICS, crowded, evaluate_block, labels_of, problems
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import breakdowns, evaluation, verification
from oracles.protocols import CMC_FAMILY, LIST_PROTOCOLS, PID_PROTOCOLS
from support.peaks import run_and_read
from support.reference import DISTANCES
from support.sampling import examples
from support.strategies import crowded_sets

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, evaluate, evaluate_distances
from reid_dist.engine.distances import DISTANCES as DEFINITIONS
from reid_dist.errors import DamagedStoreError, InputError, StoreError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.stores import distance_block
from reid_dist.stores.importers import file_rows


@pytest.fixture(autouse=True)
def _oracle_looks_distances_up(monkeypatch):
    """Features of the oracle's sets are row numbers here, and the "distance" is the block that they point into."""

    def look_up(query_rows, gallery_rows, block):
        return np.asarray(block, np.float64)[np.ix_(query_rows[:, 0], gallery_rows[:, 0])]

    monkeypatch.setattr(evaluation, "canonical_distances", look_up)


# -------------------------------------------------------------------------------------------- against the oracle


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_small_blocks(protocol, data):
    block, query, gallery = data.draw(problems())
    metrics = [*METRICS, f"{CMC_FAMILY.get(protocol, 'CMC')}@4"]
    expected = evaluation.evaluate(query, gallery, protocol, block, metrics, max_rank=10, ties=True)
    chunk = data.draw(st.sampled_from([None, 1, 3, 8]))
    if expected is None:
        with pytest.raises(InputError, match="no query has a relevant gallery item"):
            evaluate_block(block, query, gallery, protocol, metrics)
        return
    report = evaluate_block(block, query, gallery, protocol, metrics, ties=True, max_rank=10, chunk_rows=chunk)
    assert_agrees(report, expected)
    assert_ties_agree(report, expected)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_protocols_by_lists(protocol):
    block, query, gallery = crowded()
    rng = np.random.default_rng(43)
    names = ("good", "ok", "junk") if protocol == "oxford" else ("easy", "hard", "junk")
    place = rng.choice(4, block.shape, p=[0.03, 0.04, 0.13, 0.8])
    truth = [{name: np.flatnonzero(row == i).tolist() for i, name in enumerate(names)} for row in place]
    expected = evaluation.evaluate(query, gallery, protocol, block, METRICS, max_rank=10, ground_truth=truth, ties=True)
    report = evaluate_block(block, query, gallery, protocol, ground_truth=truth, ties=True, max_rank=10)
    assert_agrees(report, expected)
    assert_ties_agree(report, expected)


@settings(max_examples=examples(25))
@given(problem=problems(), chunk=st.sampled_from([None, 3]))
def test_thresholds_over_all_pairs(problem, chunk):
    """Verification compares distances of different queries; minus zero and zero are one threshold there, too."""
    block, query, gallery = problem
    expected = evaluation.evaluate(query, gallery, "market1501", block)
    assume(expected is not None)
    pairs = verification.pairs_of(block.astype(np.float64), expected.relevant, expected.junk)
    assume(pairs.impostor)
    rates = ["0", "0.1", "0.5", "1"]
    names = ["mAP", "EER", *(f"TAR@FAR={rate}" for rate in rates)]
    report = evaluate_block(block, query, gallery, metrics=names, roc=True, chunk_rows=chunk)
    for rate in rates:
        assert report.metrics[f"TAR@FAR={rate}"] == pytest.approx(
            float(verification.tar_at_far(pairs, rate)), abs=EXACT
        )
    assert report.metrics["EER"] == pytest.approx(float(verification.equal_error_rate(pairs)), abs=EXACT)
    assert report.verification["n_genuine"] == len(pairs.genuine)
    assert report.verification["n_impostor"] == len(pairs.impostor)


@settings(max_examples=examples(20))
@given(problem=problems(), chunk=st.sampled_from([None, 2, 5]), k=st.integers(1, 25))
def test_lists_of_a_block(problem, chunk, k):
    block, query, gallery = problem
    expected = evaluation.evaluate(query, gallery, "no_cameras", block)
    assume(expected is not None)
    topk = evaluate_block(block, query, gallery, "no_cameras", topk=k, chunk_rows=chunk).topk
    for i, row in enumerate(block.astype(np.float64)):
        order = sorted(range(len(row)), key=lambda j, row=row: (row[j], j))[:k]
        n = len(order)
        assert topk.index[i].tolist() == order + [-1] * (k - n)
        assert topk.distance[i, :n].tolist() == row[order].tolist()
        assert topk.relevant[i, :n].tolist() == expected.relevant[i, order].tolist()
        assert topk.junk[i, :n].tolist() == expected.junk[i, order].tolist()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("protocol", "dtype"), [("market1501", np.float16), ("cuhk03_separate_cameras", np.float64)])
def test_parts_of_a_block(protocol, dtype):
    block, query, gallery = crowded(dtype)
    metrics = ("mAP", "CMC@1")
    report = evaluate_block(
        block, query, gallery, protocol, metrics, breakdowns=["camera_pair", "gallery_size"],
        gallery_sizes=[20, 0.5], chunk_rows=37,
    )  # fmt: skip
    assert_pairs(report.breakdowns["camera_pair"], breakdowns.by_camera_pair(query, gallery, protocol, block))
    sizes = report.breakdowns["gallery_size"]
    assert sizes["n_rows"] == [20, 150, 300]
    assert_sizes(
        sizes, lambda size: breakdowns.at_gallery_size(query, gallery, size, protocol, block, metrics), metrics
    )


def test_a_similarity_is_given_as_its_negative():
    """The greatest similarity is the smallest distance, all of them below zero."""
    similarity = np.array([[0.9, 0.8, 0.3], [0.2, 0.7, 0.9]])
    query, gallery = LabelledRows([1, 2]), LabelledRows([2, 1, 2])
    report = evaluate_distances(DistanceBlock.from_array(-similarity), query, gallery, protocol="no_cameras")
    assert report.per_query["AP"].tolist() == [1 / 2, (1 + 2 / 3) / 2]
    assert report.distance["name"] == "given"
    assert report.inputs["distances"] == {
        "uri": "memory",
        "shape": [2, 3],
        "dtype": "float64",
        "content_digest": DistanceBlock.from_array(-similarity).content_digest,
    }


# -------------------------------------------------------------------------------------------- against the features


def canonical_block(query, gallery, distance):
    """Canonical distances of all pairs, float64."""
    near, far = (read_only(np.ascontiguousarray(items.features, np.float32)) for items in (query, gallery))
    rows = PairRows(DEFINITIONS.get(distance).kind, near, far, squared_norms(near), squared_norms(far))
    pairs = np.divmod(np.arange(len(near) * len(far)), len(far))
    return pair_distances(rows, *pairs).reshape(len(near), len(far))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", ["market1501", "allshots", "cuhk03"])
def test_the_result_of_features(protocol, distance):
    query, gallery = crowded_sets(25, 400, 20, seed=44)
    options = {
        "protocol": protocol, "ties": True, "topk": 12, "breakdowns": ["camera", "camera_pair", "gallery_size"],
        "metrics": [*METRICS, "EER", "TAR@FAR=0.01"], "roc": True,
    }  # fmt: skip
    features = evaluate(as_feature_set(query), as_feature_set(gallery), distance=distance, **options)
    block = DistanceBlock.from_array(canonical_block(query, gallery, distance))
    given = evaluate_distances(block, labels_of(query), labels_of(gallery), **options)
    assert given.result_digest == features.result_digest
    assert given.topk.digest == features.topk.digest
    assert (given.ties, given.breakdowns) == (features.ties, features.breakdowns)
    assert (given.verification, given.counts) == (features.verification, features.counts)
    assert (given.confidence, given.protocol) == (features.confidence, features.protocol)


def test_feature_sets_as_labels():
    query, gallery = (as_feature_set(items) for items in crowded_sets(10, 80, 5, seed=45))
    block = DistanceBlock.from_array(np.random.default_rng(46).random((10, 80)))
    alone = [LabelledRows(each.pids, each.camids, each.item_ids) for each in (query, gallery)]
    found = evaluate_distances(block, query, gallery)
    assert found.result_digest == evaluate_distances(block, *alone).result_digest
    assert found.inputs["query"]["labels_digest"] == alone[0].labels_digest


def test_texts_are_compared_as_texts():
    block = DistanceBlock.from_array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    query = LabelledRows(["zoe", "bob"], ["west", "east"])
    gallery = LabelledRows(["bob", "zoe", "-1"], ["west", "east", "east"])
    report = evaluate_distances(block, query, gallery)
    assert report.per_query["AP"].tolist() == [1 / 2, 1 / 2]


# ------------------------------------------------------------------------------------------- tiles, files, clusters


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_tiles(dtype, tmp_path):
    block, query, gallery = crowded(dtype)
    stored = DistanceBlock.from_array(block).save(tmp_path / "block.npy")
    digests = {
        (chunk, kind): evaluate_block(each, query, gallery, chunk_rows=chunk, topk=7).result_digest
        for chunk in (None, 3, 64, 1000)
        for kind, each in (("memory", block), ("file", stored))
    }
    assert len(set(digests.values())) == 1


@pytest.mark.slow
def test_a_mapped_file_larger_than_the_tile(tmp_path):
    """700 x 9000: several tiles of the usual size both ways, and several tasks."""
    rng = np.random.default_rng(47)
    values = (rng.integers(0, 200, (700, 9000)) / np.float32(64)).astype(np.float32)
    pids = rng.integers(0, 60, 700), rng.integers(-1, 60, 9000)
    np.save(tmp_path / "block.npy", values)
    report = evaluate_distances(
        DistanceBlock.open(tmp_path / "block.npy"), *map(LabelledRows, pids), protocol="no_cameras", confidence=None
    )
    order = np.argsort(values, axis=1, kind="stable")
    for i in range(0, 700, 33):
        ranked = pids[1][order[i]]
        hits = np.flatnonzero(ranked[ranked != -1] == pids[0][i]) + 1
        precision = np.arange(1, len(hits) + 1) / hits
        assert report.per_query["AP"][i] == pytest.approx(precision.mean(), abs=EXACT)
        assert report.per_query["INP"][i] == len(hits) / hits[-1]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">f4", "<f2", ">f8"])
def test_files_of_any_order(order, dtype, tmp_path):
    block, query, gallery = crowded()
    np.save(tmp_path / "block.npy", np.asarray(block, dtype=dtype, order=order))
    stored = DistanceBlock.open(tmp_path / "block.npy")
    assert evaluate_block(stored, query, gallery).result_digest == evaluate_block(block, query, gallery).result_digest
    assert stored.content_digest == DistanceBlock.from_array(np.asarray(block, dtype=dtype)).content_digest


def test_digests_of_different_blocks_differ(tmp_path):
    block = crowded()[0]
    first = DistanceBlock.from_array(block)
    assert DistanceBlock.from_array(block.copy()).content_digest == first.content_digest
    assert first.save(tmp_path / "block.npy").content_digest == first.content_digest
    assert DistanceBlock.open(tmp_path / "block.npy").content_digest == first.content_digest
    for row, column in ((0, 0), (17, 130), (39, 299)):
        changed = block.copy()
        changed[row, column] += 1
        assert DistanceBlock.from_array(changed).content_digest != first.content_digest
    assert DistanceBlock.from_array(block.reshape(20, 600)).content_digest != first.content_digest


@pytest.mark.slow
def test_workers_give_the_same_result(two_workers, tmp_path):
    block, query, gallery = crowded()
    options = {"ties": True, "topk": 9, "breakdowns": ["camera_pair", "gallery_size"], "roc": True}
    here = evaluate_block(block, query, gallery, **options)
    stored = DistanceBlock.from_array(block).save(tmp_path / "block.npy")
    for chunk in (None, 50):
        there = evaluate_block(stored, query, gallery, client=two_workers, chunk_rows=chunk, **options)
        assert there.result_digest == here.result_digest
        assert there.topk.digest == here.topk.digest
        assert (there.breakdowns, there.ties) == (here.breakdowns, here.ties)


def test_an_array_is_put_where_workers_see_it(two_workers, tmp_path):
    """Once, in the workspace that was named, which need not exist; without one nothing stays behind."""
    block, query, gallery = crowded()
    here = evaluate_block(block, query, gallery).result_digest
    workspace = tmp_path / "made" / "by" / "need"
    for _ in range(2):
        there = evaluate_block(block, query, gallery, client=two_workers, workspace=workspace)
        assert there.result_digest == here
        assert there.inputs["distances"]["uri"] == "memory"
        assert [path.suffix for path in workspace.iterdir()] == [".npy"]
    assert evaluate_block(block, query, gallery, client=two_workers).result_digest == here


def test_workers_read_the_file_that_was_opened(two_workers, tmp_path, caplog):
    """A file that was replaced meanwhile is not evaluated as if it were the first; opened again, it is itself."""
    block, query, gallery = crowded()
    path = tmp_path / "block.npy"
    opened = DistanceBlock.from_array(block).save(path)
    there = evaluate_block(opened, query, gallery, client=two_workers)
    assert there.result_digest == evaluate_block(block, query, gallery).result_digest
    other = np.asarray(block[::-1] + np.float32(1))
    replaced = DistanceBlock.from_array(other).save(path)
    expected = evaluate_block(other, query, gallery).result_digest
    assert evaluate_block(replaced, query, gallery, client=two_workers).result_digest == expected != there.result_digest
    with pytest.raises(DamagedStoreError, match=r"block\.npy was changed since it was opened"):
        evaluate_block(opened, query, gallery, client=two_workers)
    # Whoever mapped the first one still has it.
    assert evaluate_block(opened, query, gallery).result_digest == there.result_digest


# -------------------------------------------------------------------------------------------------------- memory

_MEASURE = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from reid_dist import DistanceBlock, LabelledRows, evaluate_distances

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

def labels(n):
    return LabelledRows(np.random.default_rng(n).integers(1, 5000, n))

def work(block, n_query, n_gallery):
    evaluate_distances(block, labels(n_query), labels(n_gallery), protocol="no_cameras", topk=5, confidence=None)

def watch(stop, seen):
    while not stop.wait(0.002):
        seen.append(anonymous())

work(DistanceBlock.from_array(np.random.default_rng(0).random((5000, 20), np.float32)), 5000, 20)
stop, seen, before = threading.Event(), [], anonymous()
watcher = threading.Thread(target=watch, args=(stop, seen))
watcher.start()
try:
    block = DistanceBlock.open(sys.argv[1])
    work(block, *block.shape)
finally:
    stop.set()
    watcher.join()
print(max(seen) - before, len(seen))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure memory")
def test_a_mapped_block_is_never_in_memory(tmp_path):
    """400 MB of distances: what the process has of its own (pages of the map are the file's) stays far below."""
    path = tmp_path / "block.npy"
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(2000, 50_000))
    rng = np.random.default_rng(48)
    for start in range(0, 2000, 200):
        mapped[start : start + 200] = rng.random((200, 50_000), np.float32)
    mapped.flush()
    del mapped
    # One thread, so that what one task takes is not multiplied by the cores of the machine.
    words = [sys.executable, "-c", _MEASURE, str(path)]
    if hasattr(os, "sched_getaffinity"):
        words = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *words]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    peak, n_seen = map(int, done.stdout.split())
    assert n_seen > 50
    assert peak < path.stat().st_size / 2


def test_an_array_travels_whole():
    block = crowded()[0]
    here = DistanceBlock.from_array(block)
    assert not here.is_stored
    again = pickle.loads(pickle.dumps(here))
    assert again.read(0, 40, 0, 300).tobytes() == block.astype(np.float64).tobytes()


def test_a_handle_on_a_file_is_small(tmp_path):
    """What goes to a worker is where the file lies."""
    stored = DistanceBlock.from_array(np.random.default_rng(49).random((200, 500))).save(tmp_path / "block.npy")
    text = pickle.dumps(stored)
    assert len(text) < 2000
    again = pickle.loads(text)
    assert again.shape == (200, 500)
    assert again.describe() == stored.describe()
    assert np.array_equal(again.read(3, 9, 20, 30), stored.read(3, 9, 20, 30))
    places = np.array([3, 5]), np.array([20, 499])
    assert again.read_values(*places).tolist() == stored.read_values(*places).tolist()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pieces_and_single_values_of_a_file_are_the_values(tmp_path, monkeypatch, dtype, order):
    monkeypatch.setattr(distance_block, "_BAND_BYTES", 50_000)
    monkeypatch.setattr(distance_block, "_VALUES_AT_ONCE", 7)
    rng = np.random.default_rng(50)
    values = rng.random((30, 2600)).astype(dtype, order=order)
    np.save(tmp_path / "block.npy", values)
    block = DistanceBlock.open(tmp_path / "block.npy")
    for reader in (block, pickle.loads(pickle.dumps(block))):
        for piece in ((0, 30, 0, 2600), (3, 17, 1000, 1030), (29, 30, 2599, 2600), (5, 6, 1024, 2048)):
            found = reader.read(*piece)
            np.testing.assert_array_equal(found, values[piece[0] : piece[1], piece[2] : piece[3]])
            assert found.dtype == np.float64
            assert found.flags.writeable
        rows, columns = rng.integers(0, 30, 200), rng.integers(0, 2600, 200)
        np.testing.assert_array_equal(reader.read_values(rows, columns), values[rows, columns])
        assert reader.read_values(rows[:0], columns[:0]).shape == (0,)


@pytest.mark.parametrize("is_verified", [False, True])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_changed_value_of_a_file_is_never_returned(tmp_path, monkeypatch, is_verified, is_mapped):
    monkeypatch.setattr(distance_block, "_BAND_BYTES", 50_000)
    values = np.random.default_rng(51).random((30, 2600))
    block = DistanceBlock.from_array(values).save(tmp_path / "block.npy")
    if is_mapped:
        block = DistanceBlock.from_array(np.load(tmp_path / "block.npy", mmap_mode="r"))
    reads = [lambda: block.read(12, 14, 1500, 1501), lambda: block.read_values(np.array([13]), np.array([1500]))]
    if is_verified:
        for read in reads:
            read()
    mapped = np.lib.format.open_memmap(tmp_path / "block.npy", mode="r+")
    mapped[13, 1500] = np.nextafter(mapped[13, 1500], 2)
    mapped.flush()
    for read in reads:
        with pytest.raises(DamagedStoreError, match=r"(block\.npy|memory) was changed since it was opened"):
            read()
    np.testing.assert_array_equal(block.read(20, 30, 1500, 1501), values[20:30, 1500:1501])
    mapped[13, 1500] = values[13, 1500]
    np.testing.assert_array_equal(block.read(13, 14, 1500, 1501), values[13:14, 1500:1501])


def test_feature_sets_of_another_dimension_do_not_matter():
    """Their features are not read: the two sides need not even come from one model."""
    near = FeatureSet.from_arrays(np.ones((2, 3), np.float32), [1, 2])
    far = FeatureSet.from_arrays(np.ones((3, 7), np.float32), [1, 2, 1])
    block = DistanceBlock.from_array([[0.1, 0.2, 0.3], [0.3, 0.1, 0.2]])
    assert evaluate_distances(block, near, far, protocol="no_cameras").metrics["CMC@1"] == 1


# -------------------------------------------------------------------------------------- similarities, and other files


def _problem():
    rng = np.random.default_rng(8)
    # Zeros of either sign, and ties.
    block = rng.integers(-3, 4, (9, 40)).astype(np.float32) * rng.choice([1, -1], (9, 40)).astype(np.float32)
    return (
        block,
        LabelledRows(rng.integers(0, 5, 9), rng.integers(0, 2, 9)),
        LabelledRows(rng.integers(0, 5, 40), rng.integers(0, 2, 40)),
    )


@pytest.mark.parametrize("chunk_rows", [None, 4])
def test_similarities_are_distances_with_the_sign_turned(tmp_path, chunk_rows):
    block, query, gallery = _problem()
    np.save(tmp_path / "similarities.npy", block)
    options = {"topk": 5, "ties": True, "chunk_rows": chunk_rows}
    expected = evaluate_distances(0.0 - block.astype(np.float64), query, gallery, **options)
    for source in (block, tmp_path / "similarities.npy", DistanceBlock.from_array(block, similarity=True)):
        report = evaluate_distances(source, query, gallery, similarity=True, **options)
        assert report.result_digest == expected.result_digest
        assert report.inputs["distances"]["similarity"] is True
    other = evaluate_distances(block, query, gallery, **options)
    assert other.result_digest != expected.result_digest
    assert other.inputs["distances"]["content_digest"] != report.inputs["distances"]["content_digest"]


def test_a_saved_block_of_similarities_stays_one(tmp_path):
    block, _, _ = _problem()
    saved = DistanceBlock.from_array(block, similarity=True).save(tmp_path / "block.npy")
    assert saved.similarity
    assert np.array_equal(np.load(tmp_path / "block.npy"), block)
    copied = pickle.loads(pickle.dumps(saved))
    rows, columns = np.divmod(np.arange(block.size), block.shape[1])
    for each in (saved, copied):
        assert np.array_equal(each.read(0, 9, 0, 40), -block.astype(np.float64))
        assert np.array_equal(each.read_values(rows, columns), -block.ravel().astype(np.float64))
        assert not np.signbit(each.read(0, 9, 0, 40)[block == 0]).any()


def test_a_block_of_distances_is_not_taken_for_similarities():
    block, query, gallery = _problem()
    with pytest.raises(InputError, match="make it with similarity=True"):
        evaluate_distances(DistanceBlock.from_array(block), query, gallery, similarity=True)


@pytest.mark.parametrize("suffix", ["mat", "v73.mat", "npz"])
def test_a_matrix_of_another_file(tmp_path, suffix):
    block, query, gallery = _problem()
    path, arrays = tmp_path / f"result.{suffix}", {"distmat": block, "labels": np.zeros((3, 4))}
    if suffix == "npz":
        np.savez(path, **arrays)
    elif suffix == "mat":
        scipy.io.savemat(path, arrays)
    else:
        with h5py.File(path, "w") as file:
            # As MATLAB stores them, columns first.
            for name, values in arrays.items():
                file[name] = values.T
                file[name].attrs["MATLAB_class"] = np.bytes_("single" if values.dtype == np.float32 else "double")
    report = evaluate_distances(path, query, gallery)
    assert report.result_digest == evaluate_distances(block, query, gallery).result_digest
    assert report.inputs["distances"]["uri"] == str(path)


def _compressed(path, block):
    """The block in a file whose arrays cannot be mapped where they are."""
    if path.suffix == ".npz":
        np.savez_compressed(path, distmat=block)
    elif path.name.endswith("v73.mat"):
        with h5py.File(path, "w") as file:
            file.create_dataset("distmat", data=block.T, chunks=(8, 8), compression="gzip")
            file["distmat"].attrs["MATLAB_class"] = np.bytes_("single")
    else:
        scipy.io.savemat(path, {"distmat": block}, do_compression=True)
    return path


@pytest.mark.parametrize("name", ["d.mat", "d.v73.mat", "d.npz"])
def test_a_compressed_matrix_is_decoded_into_a_temporary_file(tmp_path, monkeypatch, name):
    block, query, gallery = _problem()
    path = _compressed(tmp_path / name, block)
    monkeypatch.setattr(file_rows, "_SPOOLED_BYTES", 1000)
    report = evaluate_distances(path, query, gallery)
    assert report.result_digest == evaluate_distances(block, query, gallery).result_digest
    # Pickled by value: another process has no such file.
    opened = DistanceBlock.open(path)
    again = pickle.loads(pickle.dumps(opened))
    for each in (opened, again):
        assert each.read(0, 3, 0, block.shape[1]).tobytes() == block[:3].astype(np.float64).tobytes()
    monkeypatch.setattr(file_rows.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(StoreError, match=r"is decoded into a temporary file .* 10 B are free there; make room, or set"):
        DistanceBlock.open(path)


_GROWTH = """
import sys
from reid_dist import DistanceBlock
import scipy.io, h5py
def own():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
before = own()
block = DistanceBlock.open(sys.argv[1])
print(own() - before, block.shape[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure memory")
def test_a_compressed_matrix_is_not_in_memory(tmp_path):
    """128 MB of distances, nearly all of them equal."""
    block = np.ones((2000, 16_000), np.float32)
    block[:, ::1000] = np.arange(2000)[:, None]
    path = _compressed(tmp_path / "d.mat", block)
    growth, n_rows = run_and_read(_GROWTH, path)
    assert n_rows == 2000
    assert growth < block.nbytes / 2


def test_a_file_of_several_matrices_is_refused(tmp_path):
    np.savez(tmp_path / "two.npz", first=np.zeros((2, 3)), second=np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"must hold one matrix, .* and holds the matrices first, second"):
        DistanceBlock.open(tmp_path / "two.npz")


def test_the_command_takes_similarities(reid_dist, tmp_path):
    block, query, gallery = _problem()
    np.save(tmp_path / "block.npy", block)
    labels = {"query_pids": query.pids, "query_camids": query.camids}
    np.savez(tmp_path / "labels.npz", gallery_pids=gallery.pids, gallery_camids=gallery.camids, **labels)
    words = (tmp_path / "labels.npz", tmp_path / "labels.npz", "--distances", tmp_path / "block.npy")
    done = reid_dist("evaluate", *words, "--similarity", "--json")
    expected = evaluate_distances(block, query, gallery, similarity=True, topk=None)
    assert json.loads(done.out)["metrics"] == expected.metrics
    reid_dist("evaluate", *words[:2], "--similarity").assert_refused("similarity is of given distances")
