"""What cannot be evaluated is refused with the reason, before anything is computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from agreement import as_feature_set, evaluate_items
from oracles import evaluation
from oracles.protocols import CAMERA_PROTOCOLS
from support.reference import ItemSet
from support.strategies import scattered_sets

from reid_dist import DistanceBlock, FeatureSet, evaluate, evaluate_distances, evaluate_lists, nearest
from reid_dist.errors import InputError


@pytest.fixture(scope="module")
def pair():
    """A query and a gallery that can be evaluated."""
    return scattered_sets(10, 60, 8, seed=1)


def one_line(caught):
    """The message, which is not empty."""
    message = str(caught.value)
    assert message.strip()
    return message


def test_dimensions_differ(pair):
    query, gallery = pair
    narrow = query.with_features(query.features[:, :5])
    with pytest.raises(InputError) as caught:
        evaluate_items(narrow, gallery)
    assert "5" in one_line(caught)
    assert "8" in one_line(caught)
    with pytest.raises(InputError):
        nearest(as_feature_set(narrow), as_feature_set(gallery))


@pytest.mark.parametrize("without", ["query", "gallery", "both"])
def test_cameras_missing(pair, without):
    query, gallery = pair
    if without != "gallery":
        query = ItemSet(query.features, query.pids)
    if without != "query":
        gallery = ItemSet(gallery.features, gallery.pids)
    for protocol in CAMERA_PROTOCOLS:
        with pytest.raises(InputError, match="no_cameras"):
            evaluate_items(query, gallery, protocol)
    assert evaluate_items(query, gallery, "no_cameras").counts["n_valid"] > 0


@pytest.mark.parametrize("place", ["query", "gallery"])
def test_empty_sets(pair, place):
    query, gallery = (
        items.take([]) if place == name else items for name, items in zip(("query", "gallery"), pair, strict=True)
    )
    with pytest.raises(InputError):
        evaluate_items(query, gallery)
    with pytest.raises(InputError):
        nearest(as_feature_set(query), as_feature_set(gallery))


@pytest.mark.parametrize("place", ["query", "gallery"])
def test_zero_rows_under_cosine(pair, place):
    query, gallery = pair
    damaged = (query if place == "query" else gallery).features.copy()
    damaged[4] = 0
    if place == "query":
        query = query.with_features(damaged)
    else:
        gallery = gallery.with_features(damaged)

    def call():
        sets = [FeatureSet.from_arrays(items.features, items.pids, camids=items.camids) for items in (query, gallery)]
        return evaluate(*sets, protocol="market1501", distance="cosine")

    with pytest.raises(InputError, match=r"(?i)zero"):
        call()
    report = evaluate_items(query, gallery)
    assert np.array_equal(
        report.per_query["first_rank"], evaluation.evaluate(query, gallery).per_query["first_rank"], equal_nan=True
    )


def test_one_set_needs_no_names(pair):
    """The same set twice is matched by symmetry."""
    gallery = ItemSet(pair[1].features, pair[1].pids)
    named = ItemSet(gallery.features, gallery.pids, None, np.arange(len(gallery)))
    unnamed = as_feature_set(gallery)
    report = evaluate(unnamed, unnamed, protocol="same_set")
    assert report.result_digest == evaluate_items(named, named, "same_set", metrics=None).result_digest


# Options are validated alike for features, distances and lists.
def by_features(query, gallery, **options):
    sets = map(as_feature_set, (query, gallery))
    return evaluate(*sets, **{"metrics": ["mAP"], "confidence": None, **options})


def by_distances(query, gallery, **options):
    block = DistanceBlock.from_array(np.ones((len(query), len(gallery)), np.float32))
    return evaluate_distances(block, *map(as_feature_set, (query, gallery)), **{"metrics": ["mAP"], **options})


def by_lists(query, gallery, **options):
    whole = np.tile(np.arange(len(gallery)), (len(query), 1))
    return evaluate_lists(whole, *map(as_feature_set, (query, gallery)), **{"metrics": ["mAP"], **options})


EVALUATIONS = pytest.mark.parametrize("evaluation", [by_features, by_distances, by_lists])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1, np.uint64(2**64 - 1), np.int32(7)])
def test_every_seed_that_starts_one(pair, seed):
    """All that is drawn can be drawn from the largest seed too: orders, resamples and single shots."""
    options = {"protocol": "cuhk03", "breakdowns": ["gallery_size"], "gallery_order": "random", "single_shot_draws": 3,
               "confidence": 0.95}  # fmt: skip
    first, second = (evaluate_items(*pair, metrics=None, seed=each, **options) for each in (seed, int(seed)))
    assert first.breakdowns["gallery_size"]["seed"] == int(seed)
    assert first.confidence["seed"] == int(seed)
    assert first.result_digest == second.result_digest
    assert first.breakdowns == second.breakdowns


def test_seeds_beyond_the_largest_word_are_no_other_names(pair):
    """The largest seed draws another order than 0, which it would be with one more."""
    options = {"metrics": ["mAP", "mINP"], "breakdowns": ["gallery_size"], "gallery_order": "random"}
    zero, last = (evaluate_items(*pair, seed=seed, **options).breakdowns["gallery_size"] for seed in (0, 2**64 - 1))
    assert zero["mAP"] != last["mAP"]


COUNTS = ("max_rank", "topk", "chunk_rows", "single_shot_draws")
REFUSED = [
    *((name, value, "{name} must be") for name in COUNTS for value in (2**31, 2**64, True, 2.0, "3")),
    *(("max_rank", value, "max_rank must be") for value in (0, -3)),
    *((name, 0, "{name} must be") for name in ("topk", "chunk_rows")),
    *(("breakdowns", value, "breakdowns must be a list of names") for value in (True, 0, 1.5, object())),
    *((name, value, "{name} must be true or false") for name in ("ties", "roc") for value in (None, 1, "yes", b"")),
    *(
        ("confidence", value, "confidence must be a number between 0 and 1")
        for value in (0, 1, True, -0.5, "0.95", math.nan)
    ),
    *(("metrics", value, "metrics must be") for value in (7, ["mAP", 7], b"mAP", {"mAP"}, "mAP,,CMC@1", "")),
]


@pytest.mark.quick_cases(39)
@pytest.mark.parametrize("evaluation", [by_features, by_distances])
@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
def test_values_of_options(pair, evaluation, name, value, words):
    with pytest.raises(InputError) as caught:
        evaluation(*pair, protocol="cuhk03", **{name: value})
    assert words.format(name=name) in one_line(caught)
    assert f"found {value!r}" in one_line(caught) or name == "metrics"


@EVALUATIONS
@pytest.mark.parametrize("seed", [2**64, 2**200, -1, True, 1.0, "1", None, math.nan])
def test_seeds_that_start_no_stream(pair, evaluation, seed):
    with pytest.raises(InputError) as caught:
        evaluation(*pair, seed=seed)
    assert one_line(caught) == f"seed must be a whole number from 0 to 2**64 - 1, found {seed!r}"


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_a_number_of_neighbours_that_cannot_be(pair, k):
    with pytest.raises(InputError, match=f"k must be .*{k}"):
        nearest(*map(as_feature_set, pair), k=k)


def test_arrays_are_no_flags_and_flags_of_numpy_are(pair):
    for flag in ("ties", "roc"):
        with pytest.raises(InputError, match=f"{flag} must be true or false"):
            evaluate_items(*pair, **{flag: np.array([1, 2])})
        assert evaluate_items(*pair, metrics=["mAP"], **{flag: np.False_}).metrics["mAP"] > 0


@EVALUATIONS
def test_no_breakdowns_in_every_form(pair, evaluation):
    plain = evaluation(*pair)
    for nothing in (None, (), []):
        report = evaluation(*pair, breakdowns=nothing)
        assert report.breakdowns == {}
        assert report.result_digest == plain.result_digest
        assert list(report.options["breakdowns"]) == []


@pytest.mark.parametrize("evaluation", [by_features, by_distances])
@pytest.mark.parametrize("client", ["127.0.0.1:8786", 2, False])
def test_an_invalid_client(pair, evaluation, client):
    with pytest.raises(InputError, match=r"client must be a distributed\.Client") as caught:
        evaluation(*pair, client=client)
    assert type(client).__name__ in one_line(caught)
    with pytest.raises(InputError, match="client must be"):
        nearest(*map(as_feature_set, pair), client=client)


def test_the_largest_rank_of_a_metric(pair):
    """A list that is shorter holds its last value."""
    names = ["CMC@2147483647", "R@2147483647", "P_clipped@2147483647", "CMC@0010"]
    report = evaluate_items(*pair, metrics=names)
    assert report.metrics["CMC@2147483647"] == report.metrics["R@2147483647"] == 1
    assert "CMC@10" in report.metrics
