"""Verification over listed pairs: thresholds and shares of all pairs at once, accuracy, and lists in files."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import verification
from support.reference import canonical_distances
from support.sampling import examples

import reid_dist.evaluation.pairs as evaluation
from reid_dist import FeatureSet, evaluate, evaluate_pairs
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.stores.importers.row_lists import read_pair_list

RATES = ("0", "0.1", "0.25", "0.5", "1")
METRICS = ("EER", *(f"TAR@FAR={rate}" for rate in RATES))


@st.composite
def listed_pairs(draw):
    """Two small sets of few-valued rows, so that many pairs are at one distance, and pairs of both kinds."""
    seed, n_left, n_right, n = (draw(st.integers(low, high)) for low, high in ((0, 99), (1, 9), (1, 9), (2, 40)))
    generator = np.random.default_rng(seed)
    left, right = (generator.integers(1, 4, (rows, 3)).astype(np.float32) for rows in (n_left, n_right))
    rows = np.column_stack([generator.integers(0, n_left, n), generator.integers(0, n_right, n)])
    same = generator.integers(0, 2, n).astype(bool)
    same[:2] = [True, False]
    return left, right, rows, same


def features(array, **labels) -> FeatureSet:
    return FeatureSet.from_arrays(array, labels.pop("pids", np.arange(len(array))), **labels)


def best_threshold(distances, same):
    """By trying every distance and infinity, the smallest first."""
    tried = [*sorted(set(distances)), np.inf]
    right = [int(((distances < threshold) == same).sum()) for threshold in tried]
    return tried[int(np.argmax(right))], max(right) / len(distances)


@pytest.mark.hypothesis
@settings(max_examples=examples(30))
@given(problem=listed_pairs(), distance=st.sampled_from(["cosine", "euclidean"]), folds=st.integers(2, 4))
def test_the_oracle(problem, distance: str, folds: int) -> None:
    left, right, rows, same = problem
    folds = min(folds, len(rows))
    found = evaluate_pairs(
        features(left), features(right), rows, same, distance=distance, metrics=METRICS, roc=True, folds=folds
    )
    expected = canonical_distances(left, right, distance)[rows[:, 0], rows[:, 1]]
    np.testing.assert_array_equal(found.distances, expected)
    pairs = verification.Pairs(sorted(expected[same].tolist()), sorted(expected[~same].tolist()))
    for rate in RATES:
        assert found.metrics[f"TAR@FAR={rate}"] == float(verification.tar_at_far(pairs, rate))
        assert found.thresholds[f"TAR@FAR={rate}"] == verification.threshold_at(pairs.impostor, rate)
    assert Fraction(found.metrics["EER"]) == pytest.approx(verification.equal_error_rate(pairs), abs=1e-15)
    for far, tar in zip(found.curves["ROC_FAR"], found.curves["ROC_TAR"], strict=True):
        assert tar == float(verification.tar_at_far(pairs, far))
    assert (found.accuracy.threshold, found.accuracy.best) == best_threshold(expected, same)
    values = []
    for test in np.array_split(np.arange(len(rows)), folds):
        train = np.setdiff1d(np.arange(len(rows)), test)
        threshold, _ = best_threshold(expected[train], same[train])
        values.append(((expected[test] < threshold) == same[test]).mean())
    assert found.accuracy.folds == tuple(values)
    assert found.accuracy.mean == pytest.approx(np.mean(values), abs=1e-15)
    assert found.accuracy.spread == pytest.approx(np.std(values, ddof=1), abs=1e-15)


@pytest.mark.parametrize("held", [1, 200, 1 << 28])
def test_the_result_does_not_depend_on_storage(tmp_path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    generator = np.random.default_rng(3)
    sides = [features(generator.standard_normal((n, 5)).astype(np.float16)) for n in (50, 70)]
    rows, same = np.column_stack([generator.integers(0, n, 400) for n in (50, 70)]), generator.integers(0, 2, 400)
    expected = evaluate_pairs(*sides, rows, same, roc=True, folds=10)
    monkeypatch.setattr(evaluation, "_HELD_BYTES", held)
    stored = [side.save(tmp_path / f"{number}.zarr", chunk_rows=16) for number, side in enumerate(sides)]
    calls = []
    found = evaluate_pairs(*stored, rows, same, roc=True, folds=10, progress=lambda *counts: calls.append(counts))
    assert found.result_digest == expected.result_digest
    assert calls[-1] == (400, 400)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    # Another order gives the same values; folds are pairs in their order.
    turned = evaluate_pairs(*stored, rows[::-1], same[::-1], roc=True)
    assert (turned.metrics, turned.thresholds) == (found.metrics, found.thresholds)
    np.testing.assert_array_equal(turned.distances, found.distances[::-1])


def test_all_pairs_are_those_of_evaluate() -> None:
    generator = np.random.default_rng(4)
    query, gallery = (
        features(generator.standard_normal((n, 6)).astype(np.float32), pids=generator.integers(1, 8, n))
        for n in (20, 60)
    )
    rows = np.stack(np.meshgrid(np.arange(20), np.arange(60), indexing="ij"), -1).reshape(-1, 2)
    found = evaluate_pairs(query, gallery, rows, metrics=METRICS)
    report = evaluate(query, gallery, protocol="no_cameras", metrics=METRICS)
    assert found.metrics == {name: report.metrics[name] for name in METRICS}
    assert found.counts == {name: report.verification[name] for name in ("n_genuine", "n_impostor")}


def test_a_set_with_itself() -> None:
    one = features(np.eye(4, dtype=np.float32), pids=[1, 1, 2, 2])
    found = evaluate_pairs(one, None, [[0, 0], [0, 2]], [1, 0])
    assert found.distances.tolist() == [0.0, 1.0]
    assert found.to_dict()["distance"]["name"] == "cosine"
    assert found.to_dict()["accuracy"]["mean"] is None
    # Without labels pids decide.
    assert evaluate_pairs(one, None, [[0, 1], [0, 2]]).counts == {"n_genuine": 1, "n_impostor": 1}


def test_pids_that_are_texts_are_compared_as_texts() -> None:
    """Each set numbers its texts for itself: "b" is 2 on the left and 1 on the right."""
    left = features(np.eye(3, dtype=np.float32), pids=["a", "b", "c"])
    right = features(np.eye(3, dtype=np.float32), pids=["b", "c", "d"])
    assert evaluate_pairs(left, right, [[1, 0], [0, 0], [1, 1]]).counts == {"n_genuine": 1, "n_impostor": 2}


def test_unknown_identities_need_labels() -> None:
    one = features(np.eye(3, dtype=np.float32), pids=[1, -1, -1])
    with pytest.raises(InputError, match=r"pair 1 has a row of pid -1, whose identity is unknown \(1 such pair\)"):
        evaluate_pairs(one, None, [[0, 0], [1, 2]])
    assert evaluate_pairs(one, None, [[0, 0], [1, 2]], [1, 0]).counts["n_genuine"] == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pairs": [[0, 4], [0, 1]]}, r"pair 0 has right row 4, and memory has rows 0 to 3 \(1 such pair\)"),
        ({"pairs": [[0, 1], [-1, 1]]}, "pair 1 has left row -1"),
        ({"pairs": [[0.5, 1.0]]}, "whole row numbers of shape"),
        ({"pairs": np.zeros((0, 2), int)}, "n at least 1"),
        ({"pairs": [0, 1]}, "found int64 of shape"),
        ({"same": [1, 2]}, "same must be 2 values 0 or 1"),
        ({"same": [1, 0, 1]}, r"same must be 2 values 0 or 1, one for each pair, found int64 of shape \(3,\)"),
        ({"same": [1, 1]}, "all 2 pairs are genuine pairs; add impostor pairs"),
        ({"same": [0, 0]}, "all 2 pairs are impostor pairs; add genuine pairs"),
        ({"folds": 3}, "folds must be a whole number from 2 to the 2 pairs, found 3"),
        ({"folds": 1}, "found 1"),
        ({"metrics": ["mAP", "EER"]}, "mAP: not over listed pairs; use EER"),
    ],
)
def test_mistakes(changed, message: str) -> None:
    one = features(np.eye(4, dtype=np.float32))
    given = {"pairs": [[0, 1], [2, 3]], "same": [1, 0], **changed}
    with pytest.raises(InputError, match=message):
        evaluate_pairs(one, None, **given)


def test_names_that_do_not_exist() -> None:
    one = features(np.eye(4, dtype=np.float32))
    with pytest.raises(UnknownNameError, match="manhattan"):
        evaluate_pairs(one, None, [[0, 1], [2, 3]], [1, 0], distance="manhattan")


# ---- lists in files --------------------------------------------------------------------------------------------------

ROWS, SAME = np.array([[0, 2], [1, 1], [3, 0]]), np.array([1, 0, 0])


def _named_set() -> FeatureSet:
    return features(
        np.eye(4, dtype=np.float32),
        item_ids=["d", "c", "b", "a"],
        image_paths=["x/1.jpg", "x/2.jpg", "y/1.jpg", "y/1.jpg"],
    )


def _write(path, form: str) -> None:
    lines = [[*map(str, pair), str(label)] for pair, label in zip(ROWS.tolist(), SAME.tolist(), strict=True)]
    match form:
        case "numbers":
            path.write_text("# left right same\n" + "".join(f"{' '.join(line)}\n" for line in lines))
        case "words":
            words = {"1": "same", "0": "different"}
            path.write_text("".join(f"{one}\t{other}\t{words[label]}\n" for one, other, label in lines))
        case "table":
            path.write_text("Label,T1,T2\n" + "".join(f"{label},{one},{other}\n" for one, other, label in lines))
        case "columns":
            np.savez(path, left=ROWS[:, 0], right=ROWS[:, 1], issame=SAME.astype(bool))
        case "pairs":
            np.savez(path, pairs=ROWS, label=SAME.astype(np.float32))
        case "array":
            np.save(path, np.column_stack([ROWS, SAME]).astype(np.float64))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.txt", "numbers"),
        ("a.txt", "words"),
        ("a.csv", "table"),
        ("a.npz", "columns"),
        ("a.npz", "pairs"),
        ("a.npy", "array"),
    ],
)
def test_lists_of_rows(tmp_path, name: str, form: str) -> None:
    _write(tmp_path / name, form)
    found = read_pair_list(tmp_path / name, _named_set(), _named_set())
    np.testing.assert_array_equal(found.rows, ROWS)
    np.testing.assert_array_equal(found.same, SAME.astype(bool))


def test_a_list_of_item_ids_without_labels(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("d b\nc c\na d\n")
    found = read_pair_list(tmp_path / "a.txt", _named_set(), _named_set(), by="item_ids")
    np.testing.assert_array_equal(found.rows, ROWS)
    assert found.same is None


@pytest.mark.parametrize(
    ("content", "by", "message"),
    [
        ("0 1 1\n0 1\n", "rows", "pair 1 has 3, and pair 2 has 2"),
        ("0 1 1 1\n", "rows", "found 4 values a line"),
        ("", "rows", "found 0 values a line"),
        ("0 1 2\n0 1 0\n", "rows", "labels pairs 2; a label is 1"),
        ("d b 1\n", "rows", "for item ids or image paths, give --by item_ids"),
        ("d z 1\n", "item_ids", "1 entry of .* has item_ids that .* lacks: 'z'"),
        ("x/1.jpg y/1.jpg 1\n", "image_paths", "several rows of image_paths 'y/1.jpg'"),
    ],
)
def test_lists_with_mistakes(tmp_path, content: str, by: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(InputError, match=message):
        read_pair_list(tmp_path / "a.txt", _named_set(), _named_set(), by=by)


def test_a_file_without_such_columns(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", one=ROWS[:, 0], two=ROWS[:, 1])
    with pytest.raises(InputError, match=r"is no list of pairs: .* holds: one \(3,\) int64, two"):
        read_pair_list(tmp_path / "a.npz", _named_set(), _named_set())
    np.savez(tmp_path / "c.npz", left=[0.0, np.nan], right=[1.0, 2.0])
    with pytest.raises(InputError, match=r"holds no row numbers \(.*row 1 holds nan\)"):
        read_pair_list(tmp_path / "c.npz", _named_set(), _named_set())
    np.savez(tmp_path / "d.npz", pairs=np.array([[0, 1], [2**24 + 2, 1]], np.float32))
    with pytest.raises(InputError, match=r"row 1 holds 16777218 as float32"):
        read_pair_list(tmp_path / "d.npz", _named_set(), _named_set())
    np.savez(tmp_path / "b.npz", left=ROWS[:, 0], right=ROWS[:2, 1])
    with pytest.raises(InputError, match="differ in length"):
        read_pair_list(tmp_path / "b.npz", _named_set(), _named_set())


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(reid_dist, tmp_path) -> None:
    generator = np.random.default_rng(5)
    pids = np.arange(40) % 10
    made = generator.standard_normal((10, 8))[pids] + generator.standard_normal((40, 8))
    store = features(made.astype(np.float32), pids=pids).save(tmp_path / "faces.zarr")
    rows = generator.integers(0, 40, (300, 2))
    same = pids[rows[:, 0]] == pids[rows[:, 1]]
    np.savetxt(tmp_path / "pairs.txt", np.column_stack([rows, same]), "%d")
    words = ("pairs", store.uri, "--pairs", tmp_path / "pairs.txt", "--folds", "10")
    shown = reid_dist(*words, "--output", tmp_path / "out.json")
    expected = evaluate_pairs(store, None, rows, same, folds=10)
    assert shown.code == 0
    assert f"{100 * expected.accuracy.mean:.2f}% ± {100 * expected.accuracy.spread:.2f}" in shown.out
    assert f"{100 * expected.metrics['EER']:.2f}%" in shown.out
    assert f"{same.sum()} genuine, {(~same).sum()} impostor" in shown.out
    assert (tmp_path / "out.json").read_text() == expected.to_json() == reid_dist(*words, "--json").out
    reid_dist(*words, "--output", tmp_path / "out.json").assert_refused("out.json is there already")
    reid_dist(*words, "--roc").assert_refused("--roc writes the curve into the JSON; add --output FILE.json or --json")
    reid_dist("pairs", store.uri, "--pairs", tmp_path / "none.txt").assert_refused("no file with labels at")
