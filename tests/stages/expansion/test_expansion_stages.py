"""Derived stores: the same bits however they are made, found again, and telling what they are of."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr
from expansion_runs import expanded, labelled
from support.local_workers import started
from support.passes import Count
from support.strategies import crowded_sets, scattered_sets

from reid_dist import FeatureSet, evaluate
from reid_dist.core.model import RowRange
from reid_dist.stages import neighbour_search
from reid_dist.stages.expansion import learned_maps, neighbour_averages, new_features
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.neighbour_search import find_top_lists
from reid_dist.stages.parts import Blocks
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace, check_store
from reid_dist.stores.featureset import MemorySet

SPECS = (
    "aqe(k=4)",
    "alpha_qe(k=3,alpha=1.5)",
    "dba(k=4)+aqe(k=2)",
    "fastreid(k=4,alpha=2,times=2)",
    "gcr(k1=4,rounds=2)",
    "gcr(k1=6,k2=3,rounds=2,symmetric=true)",
    "camera_norm(least_rows=20)",
    "camera_norm(statistics=all)+aqe(k=3)",
    "whiten(dim=4)",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two worker processes."""
    with started(2, tmp_path_factory.mktemp("workers")) as client:
        yield client


def sets():
    """Many exact copies, so that lists hang on the order of rows."""
    return crowded_sets(30, 260, 12, seed=21, n_distinct=90)


def call(spec, **options):
    query, gallery = map(labelled, sets())
    return evaluate(query, gallery, expand=spec, confidence=None, **options)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("spec", SPECS)
def test_tiles_and_blocks_do_not_matter(spec, monkeypatch):
    expected = call(spec)
    for chunk in (7, 64, 1000):
        assert call(spec, chunk_rows=chunk).result_digest == expected.result_digest
    monkeypatch.setattr(new_features, "_MOST_ROWS", 11)
    monkeypatch.setattr(neighbour_search, "_TOP_BLOCK_ROWS", 8)
    monkeypatch.setattr(neighbour_averages, "_LISTS_AT_ONCE", 9)
    monkeypatch.setattr(neighbour_averages, "GATHERED_BYTES", 4 * 12 * 5)
    for together in (1, 2):
        monkeypatch.setattr(learned_maps, "summed_together", lambda *_, n=together: n)
        monkeypatch.setattr(learned_maps, "feature_blocks", lambda n_rows, *_, n=together: Blocks(n_rows, 11 * n))
        assert call(spec).result_digest == expected.result_digest


def test_lists_of_others_are_read_a_few_at_a_time(monkeypatch):
    spec = "gcr(k1=6,k2=3,rounds=2,symmetric=true)"
    expected = call(spec)
    monkeypatch.setattr(neighbour_averages, "_LISTS_AT_ONCE", 9)
    assert call(spec).result_digest == expected.result_digest


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("spec", SPECS)
def test_threads_do_not_matter(spec, tmp_path):
    query, gallery = map(labelled, sets())
    contents = []
    for n_threads in (1, 2, 7):
        where = Session(workspace=Workspace.at(tmp_path / str(n_threads))).resources()
        where = replace(where, n_threads=n_threads)
        sides = neighbour_averages.expand_sets(query, gallery, parse_expand(spec), where)
        contents.append([side.content_digest for side in sides])
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_workers_do_not_matter(client, spec, tmp_path):
    there = call(spec, client=client)
    assert there.result_digest == call(spec).result_digest
    query, gallery = sets()
    stored = [
        labelled(each).save(tmp_path / f"{name}.zarr", chunk_rows=50)
        for name, each in (("query", query), ("gallery", gallery))
    ]
    assert evaluate(*stored, expand=spec, confidence=None, client=client).result_digest == there.result_digest


# ----------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("spec", SPECS)
def test_what_is_there_is_not_done_again(spec, tmp_path):
    query, gallery = map(labelled, sets())
    first, second = Count(), Count()
    made = expanded(query, gallery, spec, tmp_path, progress=first)
    again = expanded(query, gallery, spec, tmp_path, progress=second)
    assert first.done
    assert second.passes == []
    assert [side.content_digest for side in again] == [side.content_digest for side in made]
    assert [side.uri for side in again] == [side.uri for side in made]
    # Averages were put together from parts, which are gone.
    assert list(tmp_path.glob("averages-*")) == []


@pytest.mark.slow
def test_longer_lists_serve_shorter_ones(tmp_path):
    """One sweep for all, and the same bits as from lists of their own length."""
    query, gallery = map(labelled, sets())
    count = Count()
    for k in (9, 4, 1):
        near, _ = expanded(query, gallery, f"aqe(k={k})", tmp_path / "shared", progress=count)
        own, _ = expanded(query, gallery, f"aqe(k={k})", tmp_path / str(k))
        assert near.content_digest == own.content_digest
    assert count.list_sweeps == 1
    count = Count()
    for k in (9, 4, 1):
        for spec in (f"dba(k={k})", f"dba(k={k},alpha=2)"):
            _, far = expanded(query, gallery, spec, tmp_path / "shared", progress=count)
            _, own = expanded(query, gallery, spec, tmp_path / f"dba-{k}")
            assert far.content_digest == own.content_digest
    assert count.neighbour_sweeps == 1


def test_shorter_lists_do_not_serve_longer_ones(tmp_path):
    query, gallery = map(labelled, sets())
    count = Count()
    for k in (2, 5):
        expanded(query, gallery, f"aqe(k={k})", tmp_path, progress=count)
    assert count.list_sweeps == 2


def test_lists_of_other_sets_are_not_taken(tmp_path):
    query, gallery = map(labelled, sets())
    others = labelled(scattered_sets(30, 260, 12, seed=4)[0])
    count = Count()
    expanded(query, gallery, "aqe(k=5)", tmp_path, progress=count)
    near, _ = expanded(others, gallery, "aqe(k=3)", tmp_path, progress=count)
    assert count.list_sweeps == 2
    assert near.content_digest == expanded(others, gallery, "aqe(k=3)", tmp_path / "own")[0].content_digest


def test_lists_read_across_blocks(tmp_path, monkeypatch):
    query, gallery = map(labelled, sets())
    whole = find_top_lists(query, gallery, 6, Session(workspace=Workspace.at(tmp_path / "a")).resources())
    index, distance = whole.others(RowRange(0, 30))
    monkeypatch.setattr(neighbour_search, "_TOP_BLOCK_ROWS", 7)
    cut = find_top_lists(query, gallery, 6, Session(workspace=Workspace.at(tmp_path / "b")).resources())
    for rows in (RowRange(0, 30), RowRange(6, 8), RowRange(13, 29), RowRange(7, 14), RowRange(29, 30)):
        found = cut.others(rows)
        np.testing.assert_array_equal(found[0], index[rows.start : rows.stop])
        np.testing.assert_array_equal(found[1], distance[rows.start : rows.stop])


def manifest(features):
    """The description of a store."""
    (entry,) = [value for value in zarr.open_group(features.uri, mode="r").attrs.values() if isinstance(value, dict)]
    return entry


def without_identity(features):
    return {name: value for name, value in manifest(features)["source"].items() if name != "identity"}


def test_a_derived_store_tells_what_it_is(tmp_path):
    query, gallery = map(labelled, sets())
    near, far = expanded(query, gallery, "dba(k=4)+alpha_qe(k=3,alpha=1.5)", tmp_path)
    identities = [manifest(each)["source"].pop("identity") for each in (near, far)]
    assert len({each.uri.removesuffix(".zarr")[-20:] for each in (near, far)} & {each[:20] for each in identities}) == 2
    assert without_identity(far) == {
        "recipe": "dba(k=4,alpha=0)",
        "of": gallery.content_digest,
        "inputs": [gallery.content_digest],
    }
    assert without_identity(near) == {
        "recipe": "alpha_qe(k=3,alpha=1.5,include_self=false)",
        "of": query.content_digest,
        "inputs": [query.content_digest, far.content_digest],
    }
    assert near.notes == []
    for each in (near, far):
        assert not check_store(each.uri).damaged
    # Labels are the old ones.
    assert near.labels_digest == query.labels_digest
    assert far.labels_digest == gallery.labels_digest


@pytest.mark.slow
def test_a_derived_store_is_a_set_like_any_other(tmp_path):
    query, gallery = map(labelled, sets())
    near, far = expanded(query, gallery, "dba(k=4)+aqe(k=2)", tmp_path)
    expected = evaluate(query, gallery, expand="dba(k=4)+aqe(k=2)", confidence=None)
    found = evaluate(FeatureSet.open(near.uri), FeatureSet.open(far.uri), confidence=None)
    assert found.metrics == expected.metrics
    assert found.result_digest == expected.result_digest


def test_a_store_that_was_not_finished_is_made_again(tmp_path, monkeypatch):
    """Of the averages that were done, too."""
    query, gallery = map(labelled, sets())
    expected, _ = expanded(query, gallery, "aqe(k=3)", tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(new_features.FeatureWriter, "set_labels", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            expanded(query, gallery, "aqe(k=3)", tmp_path / "halted")
    count = Count()
    again, _ = expanded(query, gallery, "aqe(k=3)", tmp_path / "halted", progress=count)
    assert again.content_digest == expected.content_digest
    assert count.passes == []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("harm", ["swapped", "another model's", "damaged", "cut manifest"])
def test_a_derived_store_that_is_another_or_damaged_is_made_again(tmp_path, harm):
    """Whole stores in each other's place, one of another model, and one with a flipped bit: none of them is used."""
    query, gallery = map(labelled, sets())
    spec, options = "dba(k=4)+aqe(k=2)", {"confidence": None, "workspace": tmp_path / "mine"}
    expected = evaluate(query, gallery, expand=spec, **options)
    stores = sorted((tmp_path / "mine").glob("expanded-*.zarr"))
    assert len(stores) == 2
    if harm == "swapped":
        stores[0].rename(tmp_path / "first")
        stores[1].rename(stores[0])
        (tmp_path / "first").rename(stores[1])
    elif harm == "another model's":
        other = MemorySet(gallery.read(0, gallery.n_rows)[::-1].copy(), gallery.labels)
        evaluate(query, other, expand=spec, confidence=None, workspace=tmp_path / "theirs")
        for store, theirs in zip(stores, sorted((tmp_path / "theirs").glob("expanded-*.zarr")), strict=True):
            shutil.rmtree(store)
            shutil.copytree(theirs, store)
    elif harm == "damaged":
        for store in stores:
            chunk = next(path for path in sorted((store / "features" / "c").rglob("*")) if path.is_file())
            content = bytearray(chunk.read_bytes())
            content[len(content) // 3] ^= 4
            chunk.write_bytes(content)
    else:
        for store in stores:
            (store / "zarr.json").write_text((store / "zarr.json").read_text().replace("aqe(k=", "aqe(k=1"))
    with pytest.warns(UserWarning, match="made again") as caught:
        again = evaluate(query, gallery, expand=spec, **options)
    assert again.result_digest == expected.result_digest
    lines = [str(each.message) for each in caught]
    assert all("\n" not in line and "expanded-" in line for line in lines)
    assert evaluate(query, gallery, expand=spec, **options).result_digest == expected.result_digest
