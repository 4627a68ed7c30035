"""Fusion of models: weighted means of cosines by brute force, the same bits in every way of running, and mistakes."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from oracles.evaluation import evaluate as expected_report
from support.noted import texts_of_inputs
from support.reference import ItemSet

from reid_dist import FeatureSet, evaluate, fuse, nearest, sweep_parameters
from reid_dist.errors import InputError
from reid_dist.evaluation.sides import Sides, parse_model

METRICS = ["mAP", "mINP", "CMC@1", "CMC@5"]
DIMS = (6, 17, 40)


@cache
def models(side: str, n: int) -> tuple[FeatureSet, ...]:
    """Features of three models of the same items; the last two rows repeat the first two under every model."""
    rng = np.random.default_rng(len(side))
    pids, camids = rng.integers(1, 9, n), rng.integers(0, 3, n)
    made = []
    for place, dim in enumerate(DIMS):
        centres = np.random.default_rng(50 + place).standard_normal((9, dim))
        features = 10.0**place * (centres[pids] + 1.5 * rng.standard_normal((n, dim)))
        features[-2:] = features[:2]
        made.append(FeatureSet.from_arrays(features.astype("f4" if place else "f2"), pids, camids))
    return tuple(made)


QUERY, GALLERY = models("query", 31), models("gallery", 150)


def fused(weights: tuple[float, ...], sides: tuple = (QUERY, GALLERY)) -> tuple[FeatureSet, FeatureSet]:
    """Both sides with the further models of these weights."""
    query, gallery = (fuse(own, list(zip(others, weights, strict=False))) for own, *others in sides)
    return query, gallery


def mean_cosines(weights: tuple[float, ...]) -> np.ndarray:
    """Weighted means of the cosines of all pairs, float64; the first weight is that of the first model."""
    total = np.zeros((QUERY[0].n_rows, GALLERY[0].n_rows))
    for near, far, weight in zip(QUERY, GALLERY, weights, strict=False):
        units = [
            rows / np.linalg.norm(rows, axis=1, keepdims=True)
            for rows in (each.read(0, each.n_rows).astype(np.float64) for each in (near, far))
        ]
        total += weight * (units[0] @ units[1].T)
    return total


@pytest.mark.parametrize("weights", [(0.4,), (0.3, 0.5), (0.2, 0.8)])
def test_ranks_are_those_of_the_weighted_mean_of_cosines(weights: tuple[float, ...]) -> None:
    own = 1 - sum(weights)
    distances = 1 - mean_cosines((own, *weights))
    # Rows of equal features have equal distances, which sums of floats need not.
    distances[:, -2:] = distances[:, :2]
    sides = [
        ItemSet(each[0].read(0, each[0].n_rows), each[0].pids, each[0].camids, np.arange(each[0].n_rows))
        for each in (QUERY, GALLERY)
    ]
    expected = expected_report(*sides, metrics=METRICS, distances=distances)
    query, gallery = fused(weights)
    report = evaluate(query, gallery, metrics=METRICS, ties=True)
    assert query.dim == sum(DIMS[place] for place, weight in enumerate((round(own, 9), *weights)) if weight)
    for name in METRICS:
        assert report.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-12), name
    np.testing.assert_array_equal(report.per_query["first_rank"], expected.per_query["first_rank"])
    lists = nearest(query, gallery, k=gallery.n_rows)
    np.testing.assert_allclose(np.sort(distances, axis=1), lists.distance, atol=2e-7)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of both sides for every model, in chunks that do not fit each other."""
    folder = tmp_path_factory.mktemp("models")
    for side, sets in (("query", QUERY), ("gallery", GALLERY)):
        for place, (features, rows) in enumerate(zip(sets, (64, 37, 11), strict=True)):
            (folder / str(place)).mkdir(exist_ok=True)
            features.save(folder / str(place) / f"{side}.zarr", chunk_rows=rows)
    return folder


@pytest.mark.slow
def test_every_way_of_running_gives_the_same_bits(stored: Path, two_workers, tmp_path: Path) -> None:
    options = {"metrics": METRICS, "ties": True}
    expected = evaluate(*fused((0.3, 0.5)), **options)
    opened = Sides(str(stored / "0"), str(stored / "0"), [f"{stored / '1'}:0.3", f"{stored / '2'}:0.5"]).open()
    written = [each.save(tmp_path / f"{place}.zarr", chunk_rows=29) for place, each in enumerate(opened)]
    for sides, more in (
        (opened, {"chunk_rows": 7}),
        (written, {}),
        (opened, {"client": two_workers}),
        (fused((0.3, 0.5)), {"client": two_workers, "workspace": tmp_path / "workspace"}),
    ):
        assert evaluate(*sides, **options, **more).result_digest == expected.result_digest


def test_rows_are_equal_however_they_are_read(stored: Path) -> None:
    gallery = Sides(str(stored / "0"), str(stored / "0"), [f"{stored / '1'}:0.3", f"{stored / '2'}:0.5"]).open()[1]
    again = pickle.loads(pickle.dumps(gallery))
    assert again.content_digest == gallery.content_digest
    whole = fused((0.3, 0.5))[1].read(0, GALLERY[0].n_rows)
    np.testing.assert_allclose(np.linalg.norm(whole.astype(np.float64), axis=1), 1, atol=1e-6)
    for start, stop in ((0, 150), (36, 38), (11, 100), (149, 150), (5, 5)):
        np.testing.assert_array_equal(again.read(start, stop), whole[start:stop])
    rows = np.array([0, 3, 37, 38, 149])
    np.testing.assert_array_equal(gallery.read_rows(rows), whole[rows])


def test_weights_of_0_and_1_give_the_results_of_the_models_themselves() -> None:
    plain = [evaluate(QUERY[place], GALLERY[place]).result_digest for place in range(2)]
    assert evaluate(*fused((0.0,))).result_digest == plain[0]
    assert evaluate(*fused((1.0,))).result_digest == plain[1]
    assert evaluate(*fused((1.0, 0.0))).result_digest == plain[1]
    # In binary numbers, 0.1, 0.2 and 0.7 leave something of 1.
    assert fuse(QUERY[0], [(QUERY[1], 0.1), (QUERY[1], 0.2), (QUERY[2], 0.7)]).dim == 2 * DIMS[1] + DIMS[2]


def test_report_and_comparison_name_the_models() -> None:
    report = evaluate(*fused((0.4,)))
    assert texts_of_inputs(report) == ["fused: cosine = 0.6 memory + 0.4 memory"]
    assert report.inputs["query"]["shape"] == [31, 23]
    assert report.inputs["query"]["labels_digest"] == QUERY[0].labels_digest
    other = evaluate(*fused((0.4 + 2**-53,)))
    assert report.inputs["query"]["content_digest"] != other.inputs["query"]["content_digest"]
    assert texts_of_inputs(other) == ["fused: cosine = 0.5999999999999999 memory + 0.40000000000000013 memory"]


@pytest.mark.slow
def test_a_sweep_over_weights_gives_the_digest_of_every_weight() -> None:
    swept = [(QUERY[1], GALLERY[1], 0.2), (QUERY[2], GALLERY[2], None)]
    report = sweep_parameters(QUERY[0], GALLERY[0], fuse=swept, weight="0:0.8:0.4", expand="aqe(k=2)", metrics="mAP")
    assert [row["parameters"]["weight"] for row in report.rows] == [0.0, 0.4, 0.8]
    for row in report.rows:
        alone = evaluate(*fused((0.2, row["parameters"]["weight"])), expand="aqe(k=2)", metrics=["mAP"])
        assert row["digest"] == alone.result_digest
    assert report.method["fixed"] == {"expand": "aqe(k=2,include_self=false)"}
    assert QUERY[2].content_digest[:16] in report.method["models"][1]
    assert texts_of_inputs(report) == []


def test_weights_that_differ_in_the_last_bit_are_two_points() -> None:
    weights = [0.4, float(np.nextafter(0.4, 1.0)), 0.4000001]
    swept = [(QUERY[1], GALLERY[1], None)]
    report = sweep_parameters(QUERY[0], GALLERY[0], fuse=swept, weight=weights, metrics="CMC@1")
    assert [row["name"] for row in report.rows] == [f"fuse(weight={weight!r})" for weight in weights]


def with_labels(features: FeatureSet, pids: np.ndarray, camids: np.ndarray) -> FeatureSet:
    return FeatureSet.from_arrays(features.read(0, features.n_rows), pids, camids)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([(GALLERY[1], 0.5)], "have 31 and 150 rows"),
        ([(with_labels(QUERY[1], QUERY[1].pids[::-1], QUERY[1].camids), 0.5)], "have other pids, row 0"),
        ([(with_labels(QUERY[1], QUERY[1].pids, QUERY[1].camids + 1), 0.5)], "have other camids, row 0"),
        ([(QUERY[1], 1.5)], "from 0 to 1, found 1.5"),
        ([(QUERY[1], True)], "from 0 to 1, found True"),
        ([(QUERY[1], 0.6), (QUERY[2], 0.5)], "add up to 1.1"),
    ],
)
def test_sets_that_do_not_belong_together_are_refused(others: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fuse(QUERY[0], others)


def test_rows_of_zeros_are_refused() -> None:
    features = QUERY[1].read(0, 31).copy()
    features[4] = 0
    zero = FeatureSet.from_arrays(features, QUERY[1].pids, QUERY[1].camids, allow_zero=True)
    with pytest.raises(InputError, match=r"1 of 31 rows .* zero vectors \(rows 4\)"):
        fuse(QUERY[0], [(zero, 0.5)])


def test_labels_that_denote_the_same_texts_agree() -> None:
    features = np.random.default_rng(0).standard_normal((3, 4))
    one = FeatureSet.from_arrays(features, ["b", "a", "-1"], ["x", "y", "x"], item_ids=["007", "8", "9"])
    other = FeatureSet.from_arrays(features, ["b", "a", "-1"], item_ids=[7, 8, 9])
    assert fuse(one, [(other, 0.5)]).camid_names == ("x", "y")
    wrong = FeatureSet.from_arrays(features, ["b", "a", "-1"], item_ids=[7, 9, 8])
    with pytest.raises(InputError, match="other item ids, row 1"):
        fuse(one, [(wrong, 0.5)])


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("models/b:0.4", ("models/b", "models/b", 0.4)),
        ("s3://bucket/b:.25", ("s3://bucket/b", "s3://bucket/b", 0.25)),
        ("s3://bucket/b", ("s3://bucket/b", "s3://bucket/b", None)),
        ("q.zarr,g.zarr:1", ("q.zarr", "g.zarr", 1.0)),
    ],
)
def test_texts_of_models(text: str, model: tuple) -> None:
    assert parse_model(text) == model


@pytest.mark.parametrize("text", ["", ":0.5", "a,:0.5", ",b:0.5", "a,b,c:0.5"])
def test_texts_that_name_no_model_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="STORE:WEIGHT or QUERY,GALLERY:WEIGHT"):
        parse_model(text)


def test_commands_and_pipelines_fuse(reid_dist, stored: Path, tmp_path: Path) -> None:
    alone = evaluate(*fused((0.4,))).result_digest
    own, other = stored / "0", stored / "1"
    pair = f"{other / 'query.zarr'},{other / 'gallery.zarr'}:0.4"
    threads, job = tmp_path / "threads.yaml", tmp_path / "job.yaml"
    threads.write_text("kind: threads\n")
    job.write_text(f"query: {own}\ngallery: {own}\nfuse: ['{other}:0.4']\n")
    runs = [("evaluate", own, own, "--fuse", pair), ("run", job)]
    for run in runs:
        done = reid_dist(*run, "--cluster", threads, "--output", tmp_path / run[0])
        assert done.code == 0, done.err
        assert alone[:16] in done.out
        assert f"0.4 {other}" in "".join(done.out.split()).replace("0.4/", "0.4 /")
    refused = reid_dist(
        "evaluate", own, own, "--fuse", f"{other}:0.5", "--cluster", threads, "--output", tmp_path / "run", "--resume"
    )
    assert refused.code == 2
    assert "different query, gallery" in refused.err
    swept = ("sweep", own, own, "--fuse", other, "--weight", "0,0.4", "--cluster", threads, "--output", tmp_path / "s")
    done = reid_dist(*swept)
    assert done.code == 0, done.err
    assert reid_dist(*swept, "--resume").out == done.out
    changed = reid_dist(*swept[:4], stored / "2", *swept[5:], "--resume")
    assert "different method" in changed.err
    planned = reid_dist("plan", job, "--gflops", "50", "--set", "query=" + str(own / "query.zarr"), "--set",
                        "gallery=" + str(own / "gallery.zarr"))  # fmt: skip
    assert f"31 x {DIMS[0] + DIMS[1]}" in planned.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evaluate", "--fuse", "{}"), "has no weight"),
        (("evaluate", "--fuse", "{}:0.5", "--lists", "lists.npz"), "fuse is of features, and lists take their place"),
        (("evaluate", "--fuse", "{0}/query.zarr,{1}/gallery.zarr:0.5"), "both must come from one model"),
        (("sweep", "--expand", "aqe", "--k", "0:2", "--fuse", "{}"), "found 1 and no values of weight"),
        (("sweep", "--weight", "0:1:0.5"), "found 0"),
        (("sweep", "--weight", "0:1:0.5", "--k", "3", "--fuse", "{}"), "weight is swept alone"),
        (("sweep", "--weight", "2", "--fuse", "{}"), "it must be a number from 0 to 1, found '2'"),
    ],
)
def test_mistakes_of_commands(reid_dist, stored: Path, words: tuple[str, ...], message: str) -> None:
    name, *rest = (word.format(stored / "1", stored / "2") for word in words)
    done = reid_dist(name, stored / "0", stored / "0", *rest, "--workers", 1)
    assert done.code == 2
    assert message in " ".join(done.err.split())
