"""Blocks of distances that something else computed: the oracle's answer, the features' answer, and what is refused."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.io
from agreement import as_feature_set, assert_agrees, assert_lists_agree, assert_ties_agree
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import evaluation, verification
from oracles.protocols import CMC_FAMILY, PID_PROTOCOLS
from support.peaks import run_and_read
from support.reference import DISTANCES, ItemSet
from support.sampling import examples
from support.strategies import crowded_sets, whole_numbers

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, evaluate, evaluate_distances
from reid_dist.engine.distances import DISTANCES as DEFINITIONS
from reid_dist.errors import DamagedStoreError, InputError, StoreError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.stores import distance_block
from reid_dist.stores.importers import file_rows

METRICS = (
    *("mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec", "CMC@1", "CMC@3", "CMC_allshots@2", "mAP@3", "mAP_found@3"),
    *("P@2", "R@2", "P_clipped@5", "P_min@4", "mAP_min@3", "mAP_R"),
)
EXACT = 1e-12
# Few values, so that ties are the rule; both zeros are one distance; the ends of the range of each type are there.
VALUES = {
    np.float16: (-65504.0, -2.0, -1.0, -0.0, 0.0, 2.0**-24, 0.5, 1.0, 65504.0),
    np.float32: (-3.4e38, -2.0, -1.0, -0.0, 0.0, 1e-45, 0.5, 1.0, 1.0 + 2.0**-23, 3.4e38),
    np.float64: (-1.7e308, -2.0, -1.0, -0.0, 0.0, 5e-324, 0.5, 1.0, 1.0 + 2.0**-52, 1.7e308),
}
DTYPES = tuple(VALUES)


def numbered(pids, camids, item_ids):
    return ItemSet(np.arange(len(pids))[:, None], np.asarray(pids), np.asarray(camids), np.asarray(item_ids))


def labels_of(items, **more):
    return LabelledRows(items.pids, items.camids, items.item_ids, **more)


def evaluate_block(block, query, gallery, protocol="market1501", metrics=METRICS, **options):
    given = block if isinstance(block, DistanceBlock) else DistanceBlock.from_array(block)
    options = {"confidence": None, **options}
    return evaluate_distances(
        given, labels_of(query), labels_of(gallery), protocol=protocol, metrics=list(metrics), **options
    )


def blocks(n_query, n_gallery):
    """Arrays of few values, of every type."""
    return st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, (n_query, n_gallery), elements=st.sampled_from([dtype(value) for value in VALUES[dtype]]),
            fill=st.nothing(),
        )
    )  # fmt: skip


@st.composite
def problems(draw, max_query=6, max_gallery=20):
    n_query, n_gallery = draw(st.integers(1, max_query)), draw(st.integers(1, max_gallery))
    n_pids, n_cameras = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    query = numbered(
        draw(whole_numbers(n_query, -1, n_pids)),
        draw(whole_numbers(n_query, 0, n_cameras - 1)),
        # Some of the queries are gallery rows.
        np.arange(n_query) * 3,
    )
    gallery = numbered(
        draw(whole_numbers(n_gallery, -1, n_pids)),
        draw(whole_numbers(n_gallery, 0, n_cameras - 1)),
        np.arange(n_gallery),
    )
    return draw(blocks(n_query, n_gallery)), query, gallery


@cache
def crowded(dtype=np.float32):
    """40 x 300 distances of ten values around zero, some queries without relevant items."""
    query, gallery = crowded_sets(40, 300, 3, seed=41)
    rng = np.random.default_rng(42)
    strange = np.where(np.arange(40) % 9 == 8, query.pids + 500, query.pids)
    block = rng.integers(-4, 6, (40, 300)).astype(dtype) / dtype(4)
    return block, numbered(strange, query.camids, np.arange(1000, 1040)), numbered(
        gallery.pids, gallery.camids, np.arange(300)
    )  # fmt: skip


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
    chunk, k = data.draw(st.sampled_from([None, 1, 3, 8])), data.draw(st.integers(1, 25))
    if expected is None:
        with pytest.raises(InputError, match="no query has a relevant gallery item"):
            evaluate_block(block, query, gallery, protocol, metrics)
        return
    report = evaluate_block(block, query, gallery, protocol, metrics, ties=True, max_rank=10, chunk_rows=chunk, topk=k)
    assert_agrees(report, expected)
    assert_ties_agree(report, expected)
    assert_lists_agree(report.topk, expected)


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


# ------------------------------------------------------------------------------------------- tiles, files, clusters


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


_PEAK = """
import os, sys, threading
# One thread, so that what one task takes is not multiplied by the cores of the machine.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import h5py, scipy.io
import numpy as np
from reid_dist import DistanceBlock, LabelledRows, evaluate_distances

def own():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

def work(block):
    sides = [LabelledRows(np.random.default_rng(n).integers(1, 5000, n)) for n in block.shape]
    evaluate_distances(block, *sides, protocol="no_cameras", topk=5, confidence=None)

def watch(stop, seen):
    while not stop.wait(0.002):
        seen.append(own())

work(DistanceBlock.from_array(np.random.default_rng(0).random((5000, 20), np.float32)))
stop, seen, before = threading.Event(), [], own()
watcher = threading.Thread(target=watch, args=(stop, seen))
watcher.start()
try:
    block = DistanceBlock.open(sys.argv[1])
    if sys.argv[1].endswith("npy"):
        work(block)
finally:
    stop.set()
    watcher.join()
print(max(seen) - before, block.shape[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure memory")
@pytest.mark.parametrize("name", ["d.npy", "d.mat"])
def test_blocks_of_files_are_not_in_memory(tmp_path, name):
    """A matrix that is mapped and evaluated, and one that is decoded: pages of files are not the process's own."""
    if name == "d.npy":
        block = np.random.default_rng(48).random((2000, 50_000), np.float32)
        np.save(tmp_path / name, block)
    else:
        # Nearly all of it is equal, so that it is written in no time.
        block = np.ones((2000, 32_000), np.float32)
        block[:, ::1000] = np.arange(2000)[:, None]
        _compressed(tmp_path / name, block)
    peak, n_rows = run_and_read(_PEAK, tmp_path / name)
    assert n_rows == 2000
    assert peak < block.nbytes / 2


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
