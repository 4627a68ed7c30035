"""Repeated splits against plain loops, and the same bits whatever the chunks and wherever the drawn rows lie."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.draws import WORD, drawn_by_loops, nth
from support.noted import codes, values_of
from support.passes import Count
from support.strategies import whole_numbers

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import InputError, StoreError, StoreExistsError, UnknownNameError
from reid_dist.evaluation import splits
from reid_dist.evaluation.draws import Draw, draw_rows, row_numbers
from reid_dist.evaluation.splits import SplitReport, evaluate_splits


def test_the_generator_is_splitmix64() -> None:
    """First outputs for the state 1234567, as published with other implementations of it."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [nth(1234567, n) for n in range(4)] == published
    start = nth(99, 3)
    rows = np.array([0, 1, 2, 1000])
    assert row_numbers(rows, 99, 3).tolist() == [nth(start, row) for row in rows.tolist()]
    assert row_numbers(np.arange(3), WORD - 1, 0).tolist() == [nth(nth(WORD - 1, 0), row) for row in range(3)]


@given(
    pids=st.integers(1, 30).flatmap(lambda n: whole_numbers(n, -1, 4)),
    n_cameras=st.integers(1, 3),
    draw=st.builds(Draw, per_identity=st.integers(1, 5), per_camera=st.booleans(), seed=st.integers(0, WORD - 1)),
    split=st.integers(0, 5),
)
def test_draws_agree_with_plain_loops(pids, n_cameras, draw, split) -> None:
    camids, known = np.arange(len(pids)) % n_cameras, np.flatnonzero(pids != -1)
    labels = [pids[known], camids[known]] if draw.per_camera else [pids[known]]
    found = draw_rows(labels, draw, split, known)
    assert found.tolist() == drawn_by_loops(pids.tolist(), camids.tolist(), draw, split)


def test_every_row_is_drawn_equally_often() -> None:
    """2,000 draws of 2 of 5: 800 each, with a standard deviation of 22."""
    pids = np.array([3, 3, 8, 3, 3, 3])
    draw = Draw(per_identity=2)
    counts = np.zeros(6, int)
    together = 0
    for split in range(2000):
        rows = draw_rows([pids], draw, split, np.arange(6))
        counts[rows] += 1
        together += {0, 1} <= set(rows.tolist())
    assert counts[2] == 2000
    assert np.abs(counts[[0, 1, 3, 4, 5]] - 800).max() < 110
    assert abs(together - 200) < 65  # One pair of ten, with a standard deviation of 13.


def sets(n_query=40, n_gallery=260, dim=6, seed=0, junk=True):
    """Query and gallery arrays with ties: few values, 14 identities of uneven sizes, 3 cameras."""
    rng = np.random.default_rng(seed)

    def side(n):
        pids = np.minimum(rng.geometric(0.15, n) - (1 if junk else 0), 14) - (1 if junk else 0)
        features = rng.integers(-2, 3, (n, dim)) + 2 * (pids[:, None] == np.arange(dim))
        features[:, 0] += ~features.any(axis=1)
        return features.astype(np.float32), pids, rng.integers(0, 3, n)

    return side(n_query), side(n_gallery)


def average_precisions(query, gallery):
    """AP and first rank of every query by sorting whole rows: cosine, every item of another identity a negative."""
    found = []
    for x, pid in zip(query[0].astype(float), query[1], strict=True):
        similar = [1 - float(x @ y) / math.sqrt(float(x @ x) * float(y @ y)) for y in gallery[0].astype(float)]
        order = sorted(range(len(similar)), key=lambda row: (similar[row], row))
        ranks = [place for place, row in enumerate(order, 1) if gallery[1][row] == pid != -1]
        if ranks:
            found.append((sum(j / rank for j, rank in enumerate(ranks, 1)) / len(ranks), ranks[0]))
    return found


OPTIONS = {"protocol": "no_cameras", "metrics": ["mAP", "CMC@1"]}


def test_each_split_is_an_evaluation_of_the_drawn_rows() -> None:
    query, gallery = sets()
    report = evaluate_splits(
        FeatureSet.from_arrays(*query), FeatureSet.from_arrays(*gallery), repeats=4, per_identity=3, seed=7, **OPTIONS
    )
    assert report.n_splits == 4
    for split in range(4):
        rows = drawn_by_loops(gallery[1].tolist(), None, Draw(per_identity=3, seed=7), split)
        drawn = [part[rows] for part in gallery]
        plain = evaluate(FeatureSet.from_arrays(*query), FeatureSet.from_arrays(*drawn), **OPTIONS)
        assert report.digests["result"][split] == plain.result_digest
        assert report.digests["gallery"][split] == FeatureSet.from_arrays(*drawn).content_digest
        assert report.per_split["mAP"][split] == plain.metrics["mAP"]
        oracle = average_precisions(query, drawn)
        assert report.counts["n_valid"][split] == len(oracle)
        assert report.counts["n_gallery"][split] == len(rows)
        assert math.isclose(report.per_split["mAP"][split], sum(ap for ap, _ in oracle) / len(oracle), abs_tol=1e-12)
        assert math.isclose(
            report.per_split["CMC@1"][split], sum(first == 1 for _, first in oracle) / len(oracle), abs_tol=1e-12
        )


def test_the_rest_are_the_queries() -> None:
    """VehicleID: one image of each identity is the gallery, the others are the queries."""
    whole = FeatureSet.from_arrays(*sets()[1])
    report = evaluate_splits(whole, whole, repeats=3, rest_as_queries=True, **OPTIONS)
    arrays = sets()[1]
    for split in range(3):
        rows = drawn_by_loops(arrays[1].tolist(), None, Draw(), split)
        rest = [row for row in range(260) if row not in rows and arrays[1][row] != -1]
        plain = evaluate(
            FeatureSet.from_arrays(*(part[rest] for part in arrays)),
            FeatureSet.from_arrays(*(part[rows] for part in arrays)),
            **OPTIONS,
        )
        assert report.digests["result"][split] == plain.result_digest
        assert report.counts["n_query"][split] == report.counts["n_valid"][split] == len(rest)
    n_junk = int((arrays[1] == -1).sum())
    assert n_junk == report.counts["n_junk_rows"] > 0
    assert values_of(report, "junk_not_drawn")["n"] == n_junk


def test_a_draw_of_every_camera() -> None:
    query, gallery = sets(junk=False)
    report = evaluate_splits(
        FeatureSet.from_arrays(*query), FeatureSet.from_arrays(*gallery), repeats=2, per_camera=True, metrics=["mAP"]
    )
    pairs = {*zip(gallery[1].tolist(), gallery[2].tolist(), strict=True)}
    assert report.counts["n_gallery"] == [len(pairs)] * 2
    assert report.counts["n_groups"] == len(pairs) > report.counts["n_identity"] == len(set(gallery[1].tolist()))
    assert report.protocol["name"] == "market1501"


@pytest.mark.slow
@pytest.mark.parametrize("rest_as_queries", [False, True])
def test_results_do_not_depend_on_chunks_and_places(tmp_path, rest_as_queries) -> None:
    query, gallery = (FeatureSet.from_arrays(*side) for side in sets())
    if rest_as_queries:
        query = gallery
    options = {"repeats": 3, "per_identity": 2, "rest_as_queries": rest_as_queries, **OPTIONS}
    expected = evaluate_splits(query, gallery, **options)
    for stored_chunk, tile in ((1, 5), (7, None), (300, 64)):
        far = gallery.save(tmp_path / f"{stored_chunk}.zarr", chunk_rows=stored_chunk)
        near = far if rest_as_queries else query
        workspace = tmp_path / f"workspace-{stored_chunk}"
        found = evaluate_splits(near, far, chunk_rows=tile, workspace=workspace, **options)
        assert found.result_digest == expected.result_digest
        assert found.digests == expected.digests
        assert list(workspace.iterdir()) == []


def test_a_seed_determines_the_draw() -> None:
    query, gallery = (FeatureSet.from_arrays(*side) for side in sets())
    first, again, other = (evaluate_splits(query, gallery, repeats=2, seed=seed, **OPTIONS) for seed in (3, 3, 4))
    assert first.result_digest == again.result_digest
    assert first.digests["gallery"] != other.digests["gallery"]
    # More splits begin with the same ones.
    longer = evaluate_splits(query, gallery, repeats=3, seed=3, **OPTIONS)
    assert longer.digests["result"][:2] == first.digests["result"]


def test_identities_with_too_few_rows_are_kept_whole_and_named() -> None:
    query, gallery = sets()
    sizes = np.unique(gallery[1][gallery[1] != -1], return_counts=True)[1]
    report = evaluate_splits(
        FeatureSet.from_arrays(*query), FeatureSet.from_arrays(*gallery), repeats=2, per_identity=9, **OPTIONS
    )
    short = int((sizes < 9).sum())
    assert 0 < short < len(sizes)
    assert report.counts["n_short"] == short
    assert report.counts["n_gallery"] == [int(np.minimum(sizes, 9).sum())] * 2
    found = values_of(report, "groups_with_few_rows")
    assert (found["n"], found["n_groups"], found["n_rows"]) == (short, len(sizes), 9)


def test_one_split_has_no_spread() -> None:
    query, gallery = (FeatureSet.from_arrays(*side) for side in sets())
    report = evaluate_splits(query, gallery, repeats=1, **OPTIONS)
    assert all(math.isnan(value) for value in report.spread.values())
    document = json.loads(report.to_json())
    assert document["spread"] == {"mAP": None, "CMC@1": None}
    assert document["metrics"]["mAP"] == report.per_split["mAP"][0] == report.metrics["mAP"]
    assert "one_split" in codes(report)


def test_the_file_is_the_report(tmp_path) -> None:
    query, gallery = (FeatureSet.from_arrays(*side) for side in sets())
    report = evaluate_splits(query, gallery, repeats=3, per_identity=2, seed=5, **OPTIONS)
    assert report.save(tmp_path / "new" / "out") == tmp_path / "new" / "out"
    assert sorted(path.name for path in (tmp_path / "new" / "out").iterdir()) == ["splits.html", "splits.json"]
    document = json.loads((tmp_path / "new" / "out" / "splits.json").read_text())
    assert document == report.to_dict() == json.loads(report.to_json())
    assert document["per_split"] == {name: values.tolist() for name, values in report.per_split.items()}
    draw = {key: document["draw"][key] for key in ("repeats", "per_identity", "per_camera", "seed", "rest_as_queries")}
    assert draw == {"repeats": 3, "per_identity": 2, "per_camera": False, "seed": 5, "rest_as_queries": False}
    assert document["inputs"]["gallery"]["content_digest"] == gallery.content_digest
    assert document["result_digest"] == report.result_digest
    with pytest.raises(StoreExistsError, match="not empty"):
        report.save(tmp_path / "new" / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        report.save(tmp_path / "file" / "out")


def test_a_report_is_consistent_and_read_only() -> None:
    parts = {"counts": {}, "digests": {"result": ["x"]}, "draw": {}, "protocol": {}, "distance": {}, "inputs": {}}
    with pytest.raises(InputError, match="same metrics"):
        SplitReport(metrics={"mAP": 1.0}, spread={}, per_split={"mAP": np.ones(1)}, **parts)
    with pytest.raises(InputError, match="one value per split"):
        SplitReport(
            metrics={"a": 1.0, "b": 1.0}, spread={"a": 0.0, "b": 0.0},
            per_split={"a": np.ones(1), "b": np.ones(2)}, **parts,
        )  # fmt: skip
    whole = SplitReport(metrics={"a": 1.0}, spread={"a": 0.0}, per_split={"a": np.ones(1)}, **parts)
    with pytest.raises(ValueError, match="read-only"):
        whole.per_split["a"][0] = 2


def test_the_file_is_read_back(tmp_path) -> None:
    query, gallery = (FeatureSet.from_arrays(*side) for side in sets())
    for repeats in (1, 3):
        report = evaluate_splits(query, gallery, repeats=repeats, max_rank=9, **OPTIONS)
        where = report.save(tmp_path / str(repeats))
        found = SplitReport.load(where)
        assert found.to_json() == report.to_json()
        assert found.options == {"max_rank": 9}


def test_a_split_in_the_place_of_another_is_evaluated_again(tmp_path, monkeypatch) -> None:
    """Finished splits that changed places, and one with a flipped bit."""
    query, gallery = (FeatureSet.from_arrays(*side) for side in sets())
    request = {"repeats": 4, "per_identity": 4, **OPTIONS}
    expected = evaluate_splits(query, gallery, **request)
    real, done = splits.evaluate_once, []

    def stopping(*arguments, **options):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(splits, "evaluate_once", stopping)
    with pytest.raises(KeyboardInterrupt):
        evaluate_splits(query, gallery, workspace=tmp_path, **request)
    monkeypatch.undo()
    first, second, third = sorted(tmp_path.glob("sweep-*/splits-*/split-*.npz"))
    swapped = first.read_bytes(), second.read_bytes()
    first.write_bytes(swapped[1])
    second.write_bytes(swapped[0])
    third.write_bytes(bytes([*third.read_bytes()[:200], 0, *third.read_bytes()[201:]]))
    with pytest.warns(UserWarning, match="made again") as caught:
        found = evaluate_splits(query, gallery, workspace=tmp_path, **request)
    assert len(caught) == 3
    assert found.result_digest == expected.result_digest
    assert found.digests == expected.digests


QUERY, GALLERY = (FeatureSet.from_arrays(*side) for side in sets(n_query=5, n_gallery=30))
NO_CAMERAS = FeatureSet.from_arrays(*sets(n_query=5, n_gallery=30)[1][:2])
ALL_JUNK = FeatureSet.from_arrays(np.ones((3, 6), np.float32), [-1, -1, -1], [0, 1, 2])
UNMATCHED = FeatureSet.from_arrays(np.ones((3, 6), np.float32), [90, 91, 92], [0, 1, 2])
REFUSALS = {
    "repeats": (QUERY, GALLERY, {"repeats": 0}, InputError, "repeats must be a whole number from 1"),
    "repeats, no number": (QUERY, GALLERY, {"repeats": 1.5}, InputError, "repeats must be a whole number from 1"),
    "per_identity": (QUERY, GALLERY, {"per_identity": 0}, InputError, "per_identity must be a whole number from 1"),
    "seed": (QUERY, GALLERY, {"seed": -1}, InputError, "seed must be a whole number from 0 to 2**64 - 1"),
    "large seed": (QUERY, GALLERY, {"seed": 2**64}, InputError, "found 18446744073709551616"),
    "two sets": (QUERY, GALLERY, {"rest_as_queries": True}, InputError, "give the same one twice"),
    "no rest": (GALLERY, GALLERY, {"rest_as_queries": True, "per_identity": 30}, InputError, "no row is left"),
    "no camids": (QUERY, NO_CAMERAS, {"per_camera": True}, InputError, "needs camids"),
    "no identities": (QUERY, ALL_JUNK, {}, InputError, "nothing to draw from"),
    "no valid query": (QUERY, UNMATCHED, {"repeats": 2}, InputError, "split 0 of 2 (from 0): no query has a relevant"),
    "protocol": (QUERY, GALLERY, {"protocol": "no_camera"}, UnknownNameError, "did you mean 'no_cameras'"),
    "distance": (QUERY, GALLERY, {"distance": "cosin"}, UnknownNameError, "did you mean 'cosine'"),
    "metric": (QUERY, GALLERY, {"metrics": ["mAPP"]}, UnknownNameError, "did you mean 'mAP'"),
    "lists": (QUERY, GALLERY, {"protocol": "oxford"}, InputError, "goes by lists"),
    "metrics as text": (QUERY, GALLERY, {"metrics": "mAP,"}, InputError, "is empty"),
    "intervals": (QUERY, GALLERY, {"confidence": 0.9}, InputError, "confidence is about one gallery"),
    "one gallery": (QUERY, GALLERY, {"topk": 5}, InputError, "topk is about one gallery"),
    "chunk_rows": (QUERY, GALLERY, {"chunk_rows": 0}, InputError, "chunk_rows"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_split_is_refused_in_one_line(name) -> None:
    query, gallery, options, error, words = REFUSALS[name]
    with pytest.raises(error) as refused:
        evaluate_splits(query, gallery, **({"protocol": "no_cameras"} | options))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_progress_counts_splits() -> None:
    counted = Count()
    evaluate_splits(QUERY, GALLERY, repeats=3, progress=counted, **OPTIONS)
    assert (counted.passes, counted.done) == ([{"splits": 3}], {"splits": 3})
