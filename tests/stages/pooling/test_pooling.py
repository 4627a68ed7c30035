"""Pooling against plain loops, bit for bit whatever the chunks and the blocks, and what it refuses."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.passes import Count
from support.sampling import examples
from support.strategies import features as drawn_features
from support.strategies import whole_numbers

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import DamagedStoreError, InputError, RunFailedError, StoreExistsError, UnknownNameError
from reid_dist.evaluation.pooling import pool
from reid_dist.stages import row_groups
from reid_dist.stages.pooling_job import POOLINGS, Pooled
from reid_dist.stages.row_groups import group_rows
from reid_dist.stores.featureset import read_kept


def groups_of(keys):
    """Rows by key, keys in the order in which they appear: a plain loop."""
    found = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return found


def pooled_by_loops(features, keys, method, normalise=True, normalise_rows=False):
    """One Python float at a time; the oracle for values, not for last bits."""
    pooled = []
    for rows in groups_of(keys).values():
        taken = [[float(value) for value in features[row]] for row in rows]
        if normalise_rows:
            taken = [[value / math.hypot(*row) for value in row] if any(row) else row for row in taken]
        columns = list(zip(*taken, strict=True))
        row = [max(column) if method == "max" else math.fsum(column) / len(column) for column in columns]
        length = math.hypot(*row)
        pooled.append([value / length for value in row] if normalise and length else row)
    return np.array(pooled)


def raw(store):
    return read_kept(store, 0, store.n_rows)


@st.composite
def labelled_sets(draw):
    """Features with ties, a column of few scattered tracklets, pids and camids that are functions of it."""
    n_rows = draw(st.integers(1, 40))
    features = draw(drawn_features(n_rows, draw(st.sampled_from([1, 2, 3, 7, 16, 33])), "few_valued"))
    tracklets = draw(whole_numbers(n_rows, -2, 8))
    return features, tracklets


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("method", POOLINGS.names())
@settings(max_examples=examples(25))
@given(case=labelled_sets(), normalise=st.booleans(), normalise_rows=st.booleans(), chunk=st.integers(1, 50))
def test_pooling_equals_plain_loops(tmp_path_factory, method, case, normalise, normalise_rows, chunk) -> None:
    features, tracklets = case
    folder = tmp_path_factory.mktemp("pool")
    given_set = FeatureSet.from_arrays(
        features, 100 + tracklets % 3, tracklets % 2, columns={"tracklet": tracklets}, allow_zero=True
    )
    stored = given_set.save(folder / "in.zarr", chunk_rows=chunk)
    pooled = pool(
        stored, folder / "out.zarr", method=method, normalise=normalise, normalise_rows=normalise_rows, allow_zero=True
    )
    keys = list(groups_of(tracklets.tolist()))
    expected = pooled_by_loops(features, tracklets.tolist(), method, normalise, normalise_rows)
    # Unit rows that cancel but for rounding have no direction that two ways of summing would agree on.
    before = pooled_by_loops(features, tracklets.tolist(), method, False, normalise_rows)
    clear = (np.linalg.norm(before, axis=1) > 1e-9) | (not normalise_rows)
    np.testing.assert_allclose(raw(pooled)[clear], expected[clear], rtol=1e-6, atol=1e-7)
    assert pooled.columns["tracklet"].tolist() == keys
    assert pooled.item_ids.tolist() == keys
    assert pooled.pids.tolist() == [100 + key % 3 for key in keys]
    assert pooled.camids.tolist() == [key % 2 for key in keys]


@pytest.fixture
def scattered():
    """Tracklets of uneven sizes whose rows lie all over the set, of values in which the order of a sum shows."""
    rng = np.random.default_rng(5)
    n_rows, dim = 700, 19
    tracklets = np.minimum(rng.geometric(0.05, n_rows), 60)
    features = (rng.standard_normal((n_rows, dim)) * 10.0 ** rng.integers(-4, 5, (n_rows, 1))).astype(np.float32)
    return FeatureSet.from_arrays(features, tracklets // 2, tracklets % 5, columns={"tracklet": tracklets})


@pytest.mark.slow
@pytest.mark.parametrize("method", POOLINGS.names())
def test_the_bytes_do_not_depend_on_chunks_or_blocks(scattered, tmp_path, monkeypatch, method) -> None:
    expected = pool(scattered, tmp_path / "memory.zarr", method=method)
    digests = set()
    for chunk_rows in (1, 7, 64, 700):
        stored = scattered.save(tmp_path / f"in-{chunk_rows}.zarr", chunk_rows=chunk_rows)
        for accumulator_bytes in (1, 8 * 19 * 7, 1 << 20):
            # Work is cut into a few rows, too, as it is in a set of millions.
            monkeypatch.setattr("reid_dist.stages.pooling_job._WORK_BYTES", 8 * 19 * (chunk_rows % 13 + 1))
            monkeypatch.setattr("reid_dist.stores.featureset._READ_BYTES", 4 * 19 * 30)
            target = tmp_path / f"out-{chunk_rows}-{accumulator_bytes}.zarr"
            pooled = pool(stored, target, method=method, accumulator_bytes=accumulator_bytes, chunk_rows=3)
            assert raw(pooled).tobytes() == raw(expected).tobytes()
            digests.add(pooled.content_digest)
    assert digests == {expected.content_digest}


def test_a_mean_is_the_sum_in_row_order(scattered, tmp_path) -> None:
    """Exactly: one float64 addition per row, one division, one rounding to float32."""
    pooled = pool(scattered, tmp_path / "out.zarr", normalise=False)
    features = scattered.read(0, scattered.n_rows)
    for row, rows in enumerate(groups_of(scattered.columns["tracklet"].tolist()).values()):
        for column in range(scattered.dim):
            total = 0.0
            for member in rows:
                total += float(features[member, column])
            assert np.float32(total / len(rows)) == raw(pooled)[row, column]


def test_a_long_row_does_not_outweigh_the_others_when_rows_are_normalised(tmp_path) -> None:
    features = np.array([[1, 0], [0, 1000]], np.float32)
    pair = FeatureSet.from_arrays(features, [1, 1], columns={"tracklet": [4, 4]})
    assert raw(pool(pair, tmp_path / "alike", normalise_rows=True)).tolist() == [[np.float32(0.5**0.5)] * 2]
    assert raw(pool(pair, tmp_path / "stored"))[0, 0] < 0.01


def test_multi_query_is_one_row_per_identity_and_camera(tmp_path) -> None:
    rng = np.random.default_rng(0)
    pids, camids = rng.integers(0, 9, 120), rng.integers(1, 7, 120)
    features = rng.standard_normal((120, 8)).astype(np.float32)
    paths = [f"{row:03d}.jpg" for row in range(120)]
    images = FeatureSet.from_arrays(
        features, pids, camids, image_paths=paths, columns={"clothes": pids % 2, "time": range(120)}
    )
    pooled = pool(images, tmp_path / "out.zarr", by="pid_camid", method="max", normalise=False)
    groups = groups_of(zip(pids.tolist(), camids.tolist(), strict=True))
    assert list(zip(pooled.pids.tolist(), pooled.camids.tolist(), strict=True)) == list(groups)
    assert pooled.item_ids.tolist() == [f"{pid}_{camid}" for pid, camid in groups]
    assert pooled.image_paths.tolist() == [paths[rows[0]] for rows in groups.values()]
    np.testing.assert_array_equal(raw(pooled), [features[rows].max(axis=0) for rows in groups.values()])
    assert set(pooled.columns) == {"clothes"}
    assert pooled.columns["clothes"].tolist() == [pid % 2 for pid, _ in groups]
    assert [note for note in pooled.notes if "'time'" in note and "several values" in note]
    assert [note for note in pooled.notes if "pid 0" in note]
    # The pooled set is a query set like any other.
    gallery = FeatureSet.from_arrays(features[::-1].copy(), pids[::-1].copy(), camids[::-1].copy())
    assert evaluate(pooled, gallery).counts["n_query"] == len(groups)


def test_extreme_labels_are_kept_apart(tmp_path) -> None:
    low, high = -(2**63), 2**63 - 1
    extreme = FeatureSet.from_arrays(np.eye(4, dtype=np.float32), [low, high, low, high], [high, low, high, high])
    pooled = pool(extreme, tmp_path / "out.zarr", by="pid_camid")
    assert pooled.pids.tolist() == [low, high, high]
    assert pooled.camids.tolist() == [high, low, high]


def test_item_ids_of_text_and_names_of_identities_survive(tmp_path) -> None:
    named = FeatureSet.from_arrays(
        np.arange(1, 13, dtype=np.float32).reshape(4, 3),
        pids=["ann", "bob", "ann", "bob"],
        camids=["east", "west", "east", "west"],
        item_ids=["a2", "b", "a2", "c"],
    )
    pooled = pool(named, tmp_path / "out.zarr", by="item_id")
    assert pooled.item_ids.tolist() == ["a2", "b", "c"]
    assert [pooled.pid_names[pid - 1] for pid in pooled.pids] == ["ann", "bob", "bob"]
    assert [pooled.camid_names[camid - 1] for camid in pooled.camids] == ["east", "west", "west"]


def test_half_precision_is_widened_unless_asked_for(tmp_path) -> None:
    features = np.array([[1, 2], [1, 2.001], [3, 4]], np.float16)
    half = FeatureSet.from_arrays(features, [1, 1, 2], columns={"tracklet": [1, 1, 2]})
    wide = pool(half, tmp_path / "wide", normalise=False)
    assert wide.dtype == np.float32
    assert raw(wide)[0, 1] == np.float32((float(features[0, 1]) + float(features[1, 1])) / 2)
    kept = pool(half, tmp_path / "kept", normalise=False, dtype="float16")
    assert kept.dtype == np.float16
    np.testing.assert_array_equal(raw(kept), raw(wide).astype(np.float16))


def test_negative_zero_never_shows(tmp_path) -> None:
    zeros = FeatureSet.from_arrays(
        np.array([[-0.0, 1], [0.0, 1], [0.0, 2], [-0.0, 2]], np.float32),
        [1, 1, 2, 2],
        columns={"tracklet": [1, 1, 2, 2]},
    )
    for method in POOLINGS.names():
        assert not np.signbit(raw(pool(zeros, tmp_path / method, method=method))).any()


def test_the_recipe_is_kept(scattered, tmp_path) -> None:
    pool(scattered, tmp_path / "out.zarr", normalise_rows=True)
    source = json.loads((tmp_path / "out.zarr" / "zarr.json").read_text())["attributes"]["reid_dist"]["source"]
    assert source["content_digest"] == scattered.content_digest
    assert source["pooling"] == {
        "by": "tracklet", "media": None, "method": "mean", "normalise": True, "normalise_rows": True, "camids": "keep",
    }  # fmt: skip
    n_groups = len(group_rows(scattered, "tracklet"))
    assert (
        f"mean of 700 rows of length 1 into {n_groups}, scaled to length 1"
        in FeatureSet.open(tmp_path / "out.zarr").notes[0]
    )


def test_progress_counts_to_the_end(scattered, tmp_path) -> None:
    stored = scattered.save(tmp_path / "in.zarr", chunk_rows=50)
    seen = []
    pool(stored, tmp_path / "out.zarr", accumulator_bytes=8 * 19 * 20, progress=lambda *shown: seen.append(shown))
    done = [rows for rows, _, _ in seen]
    assert done == sorted(done)
    assert {total for _, total, _ in seen} == {done[-1]}
    assert done[-1] > 700  # Scattered groups in several blocks: rows are read more than once.


# ---- what is refused -------------------------------------------------------------------------------------------------


def small(pids=(1, 1, 2), camids=(0, 0, 1), tracklets=(5, 5, 6), features=((1, 0), (0, 1), (1, 1)), **options):
    return FeatureSet.from_arrays(
        np.array(features, np.float32), pids, camids, columns={"tracklet": tracklets}, **options
    )


REFUSALS = {
    "unknown label": (small(), {"by": "trackelt"}, UnknownNameError, "did you mean 'tracklet'"),
    "unknown method": (small(), {"method": "median"}, UnknownNameError, "known: max, mean"),
    "unknown rule": (small(), {"camids": "some"}, InputError, "camids must be keep or drop, found 'some'"),
    "unknown option": (small(), {"camid": "drop"}, InputError, "did you mean 'camids'"),
    "no flag": (small(), {"normalise": "yes"}, InputError, "normalise must be true or false, found 'yes'"),
    "mixed pids": (small(pids=(1, 3, 2)), {}, InputError, "tracklet 5 holds several identities: pid 1 in row 0 and"),
    "mixed camids": (small(camids=(0, 4, 1)), {}, InputError, "camid 0 in row 0 and camid 4 in row 1"),
    "zero mean": (small(features=((1, 0), (-1, 0), (1, 1))), {}, InputError, "the first is tracklet 5 (rows 0, 1)"),
    "zero mean, as it is": (
        small(features=((1, 0), (-1, 0), (1, 1))), {"normalise": False}, InputError, "1 of 2 groups"
    ),
    "zero rows": (small(features=((1, 0), (0, 0), (1, 1))), {"normalise_rows": True}, InputError, "1 row (row 1)"),
    "no item ids": (small(), {"by": "item_id"}, InputError, "no item ids"),
    "no camids": (small(camids=None), {"by": "pid_camid"}, InputError, "no camids"),
    "junk": (small(pids=(-1, -1, 2)), {"by": "pid_camid"}, InputError, "2 rows (first: 0, 1)"),
    "no memory": (small(), {"accumulator_bytes": 0}, InputError, "accumulator_bytes"),
    "odd dtype": (small(), {"dtype": "int8"}, InputError, "float32 or float16"),
    "overflow": (
        small(features=((1e5, 0), (1e5, 1), (1, 1))), {"dtype": "float16", "normalise": False}, InputError, "float16"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_pooled_is_refused_in_one_line(tmp_path, name) -> None:
    features, options, error, words = REFUSALS[name]
    with pytest.raises(error) as refused:
        pool(features, tmp_path / "out.zarr", **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_allowed_on_request(tmp_path) -> None:
    """The refusals above name their remedies; here they work."""
    zero = small(features=((1, 0), (-1, 0), (1, 1)))
    kept = pool(zero, tmp_path / "zero", allow_zero=True)
    assert raw(kept)[0].tolist() == [0, 0]
    assert kept.allow_zero
    assert kept.n_zero_rows == 1
    without = pool(small(camids=(0, 4, 1)), tmp_path / "camids", camids="drop")
    assert without.camids is None
    assert [note for note in without.notes if "camids" in note]
    junk = pool(small(pids=(-1, -1, 2)), tmp_path / "junk")
    assert junk.pids.tolist() == [-1, 2]


def test_a_store_is_replaced_only_on_request_and_only_when_all_is_well(tmp_path) -> None:
    stored = small().save(tmp_path / "set.zarr")
    with pytest.raises(StoreExistsError):
        pool(stored, tmp_path / "set.zarr")
    with pytest.raises(InputError):
        pool(small(features=((1, 0), (-1, 0), (1, 1))), tmp_path / "set.zarr", overwrite=True)
    assert FeatureSet.open(tmp_path / "set.zarr").content_digest == stored.content_digest
    pooled = pool(stored, tmp_path / "set.zarr", overwrite=True)
    assert FeatureSet.open(tmp_path / "set.zarr").content_digest == pooled.content_digest
    assert pooled.n_rows == 2


def test_damage_ends_it_without_a_store(scattered, tmp_path) -> None:
    stored = scattered.save(tmp_path / "in.zarr", chunk_rows=100)
    chunk = tmp_path / "in.zarr" / "features" / "c" / "3" / "0"
    content = bytearray(chunk.read_bytes())
    content[11] ^= 4
    chunk.write_bytes(content)
    with pytest.raises(DamagedStoreError, match="features chunk 3"):
        pool(stored, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


# ---- on workers, and after an interruption ---------------------------------------------------------------------------


@pytest.fixture
def short_blocks(monkeypatch) -> None:
    """Blocks of some 60 rows where groups are contiguous."""
    monkeypatch.setattr(row_groups, "_LEAST_BYTES", 4 * 19 * 60)
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 4 * 19 * 60)
    monkeypatch.setattr("reid_dist.stores.featureset._READ_BYTES", 4 * 19 * 10)


def contiguous(n_rows: int = 700) -> FeatureSet:
    rng = np.random.default_rng(8)
    tracklets = np.sort(rng.integers(0, 60, n_rows))
    features = rng.standard_normal((n_rows, 19)).astype(np.float32)
    return FeatureSet.from_arrays(features, tracklets // 2, tracklets % 5, columns={"tracklet": tracklets})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["contiguous", "scattered"])
def test_workers_write_the_same_bytes(two_workers, scattered, short_blocks, tmp_path, kind) -> None:
    features = contiguous() if kind == "contiguous" else scattered
    expected = pool(features, tmp_path / "expected.zarr").content_digest
    for source in (features, features.save(tmp_path / "in.zarr", chunk_rows=10)):
        seen: list[tuple[int, int, str]] = []
        pooled = pool(
            source,
            tmp_path / "out.zarr",
            client=two_workers,
            overwrite=True,
            accumulator_bytes=8 * 19 * 9,
            progress=lambda *shown, seen=seen: seen.append(shown),
        )
        assert pooled.content_digest == expected
        counts = [done for done, _, _ in seen]
        assert len(counts) > 4
        assert counts == sorted(counts)
        assert counts[-1] == seen[0][1]
    # Nothing of a temporary workspace stays.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected.zarr", "in.zarr", "out.zarr"]


def test_errors_of_workers_are_those_of_threads(two_workers, tmp_path) -> None:
    large = small(features=((1e5, 0), (1e5, 1), (1, 1)))
    cancelling = small(features=((1, 0), (-1, 0), (1, 1)))
    for features, options in ((large, {"dtype": "float16", "normalise": False}), (cancelling, {})):
        messages = []
        for client in (None, two_workers):
            with pytest.raises(InputError) as refused:
                pool(features, tmp_path / "out.zarr", client=client, **options)
            messages.append(str(refused.value))
        assert messages[0] == messages[1]
    assert list(tmp_path.iterdir()) == []


def breaking_after(monkeypatch, n_tasks: int) -> list[int]:
    """Have all tasks after some fail; return the list of blocks that are begun."""
    begun: list[int] = []

    def compute(stage, rows, real=Pooled.compute):
        begun.append(stage.blocks.holding(np.array([rows.start])).item())
        if len(begun) > n_tasks:
            raise RunFailedError("broken")
        return real(stage, rows)

    monkeypatch.setattr(Pooled, "compute", compute)
    return begun


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("other_cut", [False, True])
def test_finished_blocks_are_not_pooled_again(short_blocks, tmp_path, monkeypatch, other_cut) -> None:
    stored = contiguous().save(tmp_path / "in.zarr", chunk_rows=10)
    expected = pool(stored, tmp_path / "expected.zarr").content_digest
    work = tmp_path / "work"
    with monkeypatch.context() as patched:
        breaking_after(patched, 3)
        with pytest.raises(RunFailedError, match="broken"):
            pool(stored, tmp_path / "out.zarr", workspace=work)
    assert not (tmp_path / "out.zarr").exists()
    kept = sorted(path.name for path in work.glob("pooled-*/rows-*.npz"))
    assert len(kept) == 3
    begun = breaking_after(monkeypatch, 1000)
    # Parts keep their cut, and serve for any layout.
    options = {"accumulator_bytes": 8 * 19, "chunk_rows": 7} if other_cut else {}
    shown = Count()
    pooled = pool(stored, tmp_path / "out.zarr", workspace=work, progress=shown, **options)
    assert pooled.content_digest == expected
    assert shown.passes == [{"pooling": len(begun)}]
    assert shown.done["pooling"] == len(begun) > 3
    assert not {f"rows-{block:05d}.npz" for block in begun} & {*kept}
    assert list(work.iterdir()) == []


@pytest.mark.slow
def test_damaged_and_foreign_parts_are_made_again(short_blocks, tmp_path, monkeypatch) -> None:
    stored = contiguous().save(tmp_path / "in.zarr", chunk_rows=10)
    expected = pool(stored, tmp_path / "expected.zarr").content_digest
    work = tmp_path / "work"
    with monkeypatch.context() as patched:
        breaking_after(patched, 4)
        with pytest.raises(RunFailedError):
            pool(stored, tmp_path / "out.zarr", workspace=work)
    first, second, *_ = sorted(work.glob("pooled-*/rows-*.npz"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    second.write_bytes(sorted(work.glob("pooled-*/rows-*.npz"))[-1].read_bytes())
    with pytest.warns(UserWarning, match="made again"):
        found = pool(stored, tmp_path / "out.zarr", workspace=work)
    assert found.content_digest == expected


@pytest.mark.slow
def test_parts_of_another_pooling_are_not_used(short_blocks, tmp_path, monkeypatch) -> None:
    stored = contiguous().save(tmp_path / "in.zarr", chunk_rows=10)
    work = tmp_path / "work"
    others = ({"method": "max"}, {"normalise": False}, {"normalise_rows": True}, {"dtype": "float16"})
    expected = [pool(stored, tmp_path / "expected.zarr", overwrite=True, **each).content_digest for each in others]
    with monkeypatch.context() as patched:
        breaking_after(patched, 4)
        with pytest.raises(RunFailedError):
            pool(stored, tmp_path / "out.zarr", workspace=work)
    found = [pool(stored, tmp_path / "out.zarr", workspace=work, overwrite=True, **each) for each in others]
    assert [each.content_digest for each in found] == expected


def test_what_is_refused_leaves_nothing_in_the_workspace(tmp_path) -> None:
    for features, options in (
        (small(features=((1, 0), (-1, 0), (1, 1))), {}),
        (small(features=((1e5, 0), (1e5, 1), (1, 1))), {"dtype": "float16", "normalise": False}),
    ):
        with pytest.raises(InputError):
            pool(features, tmp_path / "out.zarr", workspace=tmp_path / "work", **options)
        assert list(tmp_path.rglob("*")) in ([], [tmp_path / "work"])


# ---- media -----------------------------------------------------------------------------------------------------------


def with_media(n_rows=60, seed=0):
    """Scattered templates of several media each; media of one number occur in several templates."""
    rng = np.random.default_rng(seed)
    template, media = rng.integers(0, 6, n_rows), rng.integers(0, 5, n_rows) ** 2
    features = rng.standard_normal((n_rows, 7)).astype(np.float32)
    columns = {"template": template, "media": media}
    return FeatureSet.from_arrays(features, template + 1, columns=columns)


@pytest.mark.parametrize("normalise", [True, False])
def test_media_have_equal_weights(tmp_path, normalise) -> None:
    items = with_media()
    features, template, media = items.read(0, 60).astype(np.float64), items.columns["template"], items.columns["media"]
    expected = []
    for each in dict.fromkeys(template.tolist()):
        own = template == each
        means = [features[own & (media == medium)].mean(axis=0) for medium in np.unique(media[own])]
        row = np.mean(means, axis=0)
        expected.append(row / np.linalg.norm(row) if normalise else row)
    stored = items.save(tmp_path / "in.zarr", chunk_rows=11)
    pooled = pool(stored, tmp_path / "out.zarr", by="template", media="media", normalise=normalise)
    np.testing.assert_allclose(raw(pooled), expected, rtol=1e-6, atol=1e-7)
    assert "template" in pooled.columns
    assert any("mean of the means by media of 60 rows into 6" in note for note in pooled.notes)
    # A group at a time, from memory: the same bytes.
    again = pool(items, tmp_path / "small.zarr", by="template", media="media", normalise=normalise, accumulator_bytes=1)
    assert np.array_equal(raw(again), raw(pooled))


def test_media_of_one_row_each_change_nothing(tmp_path) -> None:
    items = with_media()
    rows = FeatureSet.from_arrays(
        items.read(0, 60), items.pids, columns={"template": items.columns["template"], "media": np.arange(60)}
    )
    plain, weighted = (pool(rows, tmp_path / str(media), by="template", media=media) for media in (None, "media"))
    assert np.array_equal(raw(plain), raw(weighted))


def test_media_that_cannot_be_used(tmp_path) -> None:
    with pytest.raises(UnknownNameError, match="label column of media 'medium'; did you mean 'media'"):
        pool(with_media(), tmp_path / "x", by="template", media="medium")
    with pytest.raises(InputError, match="leave media out"):
        pool(with_media(), tmp_path / "x", by="template", media="media", method="max")
    assert not (tmp_path / "x").exists()
