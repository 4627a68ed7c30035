"""top: the nearest items of each query re-ranked alone, as the dense oracles re-rank these; the rest in plain order."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import graph_reranking, reranking
from support import reference
from support.noted import values_of
from support.reranking_runs import CLOSE, bare, labelled
from support.strategies import crowded_sets, scattered_sets

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    evaluate,
    evaluate_distances,
    nearest,
    reranked_distances,
    sweep_parameters,
)
from reid_dist.errors import InputError, PlanError
from reid_dist.reports.words import call
from reid_dist.stages import search_plan as neighbour_plan
from reid_dist.stages.reranking import top
from reid_dist.stages.reranking.rerankers import parse_rerank

# Re-rankings of the head, with what the oracles make of one query and its gallery rows.
WITHIN = {
    "k_reciprocal(k1=6,k2=3)": lambda near, far: reranking.reranked(near, far, k1=6, k2=3),
    "k_reciprocal(k1=6,k2=1,variant=paper,weights=binary,lambda_value=0)": lambda near, far: reranking.reranked(
        near, far, k1=6, k2=1, variant="paper", weights="binary", lambda_value=0
    ),
    "gnn(k1=8,k2=4)": lambda near, far: graph_reranking.propagated(near, far, k1=8, k2=4).final,
    "gnn(k1=8,rounds=0)": lambda near, far: graph_reranking.propagated(near, far, k1=8, rounds=0).final,
    "ecn(k=6,t=2,q=3)": lambda near, far: graph_reranking.cross_neighbourhoods(near, far, k=6, t=2, q=3),
}
SPECS = ["top(k_reciprocal(k1=6,k2=3),m=40)", "top(gnn(k1=8,k2=4),m=40)", "top(ecn(k=6,t=2,q=3),m=40)"]
METRICS = ["mAP", "mINP", "CMC@1", "CMC@5", "P@5"]


def duplicated():
    return crowded_sets(6, 100, 12, seed=7, n_distinct=45)


def spread():
    return scattered_sets(6, 100, 12, seed=8)


def brute_force(query, gallery, m, within, distance="cosine"):
    """Heads, as gallery rows and what the oracle makes of them, and the gallery rows behind them, of every query."""
    plain = reference.canonical_distances(query.features, gallery.features, distance)
    for i, row in enumerate(plain):
        order = np.lexsort((np.arange(len(row)), row))
        head = np.sort(order[:m])
        yield head, within(query.features[i : i + 1], gallery.features[head])[0], order[m:], row


# ------------------------------------------------------------------------------------------------ the distances


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("m", [1, 40, 1000])
@pytest.mark.parametrize("spec", WITHIN)
def test_each_head_is_a_set_of_its_own(spec, m):
    """With ties at the m-th place among duplicates; m above the gallery takes all of it."""
    for query, gallery in (duplicated(), spread()):
        found = reranked_distances(labelled(query), labelled(gallery), rerank=f"top({spec},m={m})")
        for row, (head, values, rest, plain) in zip(found, brute_force(query, gallery, m, WITHIN[spec]), strict=True):
            np.testing.assert_allclose(row[head], values - values.max() - 1, rtol=0, atol=CLOSE)
            np.testing.assert_allclose(row[rest], plain[rest], rtol=0, atol=CLOSE)
            assert row[head].max() <= -1 + CLOSE
            assert (row[rest] >= 0).all()


def test_another_distance():
    query, gallery = spread()
    within = partial(reranking.reranked, distance="euclidean", variant="faiss_k1", k1=6, k2=3)
    spec = "top(k_reciprocal(k1=6,k2=3,variant=faiss_k1),m=30)"
    found = reranked_distances(labelled(query), labelled(gallery), rerank=spec, distance="euclidean")
    for row, (head, values, rest, plain) in zip(
        found, brute_force(query, gallery, 30, within, "euclidean"), strict=True
    ):
        np.testing.assert_allclose(row[head], values - values.max() - 1, rtol=0, atol=1e-6)
        np.testing.assert_allclose(row[rest], plain[rest], rtol=0, atol=CLOSE)
    report = evaluate(labelled(query), labelled(gallery), rerank=spec, distance="euclidean", confidence=None)
    block = DistanceBlock.from_array(found)
    assert report.result_digest == evaluate_distances(block, *map(labelled, spread()), confidence=None).result_digest


def test_the_whole_gallery_is_the_re_ranking_of_one_query():
    """A set of one query: top of everything and the re-ranking itself have the same ranks."""
    query, gallery = map(labelled, duplicated())
    one = FeatureSet.from_arrays(query.read(3, 4), query.pids[3:4], query.camids[3:4])
    for spec in WITHIN:
        whole = evaluate(one, gallery, rerank=spec, topk=100, confidence=None)
        local = evaluate(one, gallery, rerank=f"top({spec},m=100)", topk=100, confidence=None)
        np.testing.assert_array_equal(local.topk.index, whole.topk.index)
        assert local.metrics == whole.metrics


@given(st.lists(st.floats(-6000, 6000) | st.sampled_from([0.1, 0.1 + 2**-56, 0.5, 0.5 - 2**-54, -0.0]), min_size=1))
def test_lowered_values_keep_order_and_ties(values):
    given_values = np.array(values)
    found = top.lowered(given_values)
    np.testing.assert_array_equal(
        np.unique(found, return_inverse=True)[1], np.unique(given_values, return_inverse=True)[1]
    )
    np.testing.assert_allclose(found, given_values - given_values.max() - 1, rtol=1e-12)
    assert (found < -0.999).all()


# --------------------------------------------------------------------------------- one result, however computed


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("spec", SPECS)
def test_ranks_are_those_of_the_distances(spec):
    """Heads by their distances and everything else behind them by the plain ones, in the counts as in the lists."""
    for query, gallery in (duplicated(), spread()):
        near, far = labelled(query), labelled(gallery)
        options = {"metrics": METRICS, "topk": 100, "ties": True, "confidence": None, "breakdowns": ["camera"]}
        report = evaluate(near, far, rerank=spec, **options)
        block = reranked_distances(near, far, rerank=spec)
        other = evaluate_distances(DistanceBlock.from_array(block), near, far, **options)
        assert report.result_digest == other.result_digest
        assert report.topk.digest == other.topk.digest
        assert report.ties == other.ties
        assert report.breakdowns == other.breakdowns
        plain = nearest(near, far, k=100)
        np.testing.assert_array_equal(np.sort(report.topk.index[:, :40]), np.sort(plain.index[:, :40]))
        np.testing.assert_array_equal(report.topk.index[:, 40:], plain.index[:, 40:])
        np.testing.assert_array_equal(report.topk.distance[:, 40:], plain.distance[:, 40:])


@pytest.mark.slow
def test_one_digest(monkeypatch, tmp_path):
    """Any tiles, threads and parts; finished parts are read, and missing ones computed."""
    near, far = map(labelled, duplicated())

    def run(**options):
        report = evaluate(near, far, rerank=SPECS[0], topk=60, metrics=METRICS, confidence=None, **options)
        return report.result_digest, report.topk.digest, tuple(report.notes)

    expected = run()
    assert ("top_of_lists", {"m": 40, "n_gallery": 100}) in [(note.code, note.values) for note in expected[2]]
    for chunk in (7, 64):
        assert run(chunk_rows=chunk) == expected
    for threads in (1, 5):
        monkeypatch.setattr("reid_dist.core.environment.usable_cores", lambda threads=threads: threads)
        monkeypatch.setattr(neighbour_plan, "_MOST_BLOCK_ROWS", 10 * threads)
        monkeypatch.setattr(top, "GATHERED_BYTES", 4096 * threads)
        kept = tmp_path / str(threads)
        assert run(workspace=kept) == expected
        # Parts of another number of threads are adopted.
        monkeypatch.setattr("reid_dist.core.environment.usable_cores", lambda threads=threads: 6 - threads)
        parts = {part: part.stat().st_mtime_ns for part in kept.rglob("*.npz")}
        assert run(workspace=kept) == expected
        assert {part: part.stat().st_mtime_ns for part in kept.rglob("*.npz")} == parts
        lost = sorted(kept.glob("heads-*/rows-*.npz"))[1]
        lost.unlink()
        assert run(workspace=kept) == expected
        assert {part for part in parts if part.stat().st_mtime_ns != parts[part]} == {lost}


@pytest.mark.slow
def test_metrics_are_swept_over_both_calls():
    near, far = map(labelled, spread())
    swept = sweep_parameters(near, far, rerank="top(gnn(k2=4))", m="20,40", k1=[6, 8], metrics=METRICS)
    assert [row["parameters"] for row in swept.rows] == [{"m": m, "k1": k1} for m in (20, 40) for k1 in (6, 8)]
    for row in swept.rows[::3]:
        alone = evaluate(near, far, rerank=row["name"], metrics=METRICS, confidence=None)
        assert row["digest"] == alone.result_digest
    for words, given_values in (("fixes it", {"k1": "4,5"}), ("no parameter of top, which has m, k1", {"t": "1,2"})):
        with pytest.raises(InputError, match=words):
            sweep_parameters(near, far, rerank="top(gnn(k1=6),m=20)", **given_values)


def test_reports_name_both_calls():
    near, far = map(labelled, spread())
    report = evaluate(near, far, rerank=SPECS[1], metrics=["mAP"], confidence=None)
    assert call(report.rerank) == "top(gnn(k1=8, k2=4, lambda_value=0.3, rounds=2, variant=zhang_mixed), m=40)"
    assert report.heading.title == "market1501 \N{MIDDLE DOT} cosine \N{MIDDLE DOT} top(gnn)"
    assert str(parse_rerank(str(parse_rerank(SPECS[1])))) == str(parse_rerank(SPECS[1]))
    assert "the 40 nearest gallery items of each query" in " ".join(report.to_html().split())
    found = evaluate(near, far, rerank="top(ecn)", confidence=None)
    assert values_of(found, "top_of_lists") == {"m": 1000, "n_gallery": 100}


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("top", "top takes a re-ranking first, such as top(k_reciprocal); found none"),
        ("top(m=5)", "top takes a re-ranking first"),
        ("top(gnn,m=0)", "m of top must be a whole number from 1, found 0"),
        ("top(gnn,k1=5)", "unknown parameter of top 'k1'"),
        ("top(gnn(k=5))", "unknown parameter of gnn 'k'"),
        ("top(gn)", "unknown re-ranker 'gn'; did you mean 'gnn'"),
        ("top(top(gnn,m=5),m=3)", "top takes a re-ranking such as k_reciprocal or gnn(k1=26), found top("),
        ("top(k_reciprocal(mode=inductive))", "mode=inductive has no meaning in it"),
        ("gnn(ecn,k1=5)", "gnn takes no re-ranking within it, found 'ecn'"),
        ("top(gnn+ecn,m=5)", "one re-ranking at a time within top, found 'gnn+ecn'"),
        ("top(m=5,gnn)", "cannot read 'gnn' in re-ranking 'top(m=5,gnn)'"),
    ],
)
def test_impossible_specs(spec, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_rerank(spec)


def test_what_does_not_go_together():
    near, far = map(labelled, spread())
    with pytest.raises(InputError, match=r"^gnn is defined by cosine similarities, found the distance 'euclidean'"):
        evaluate(near, far, rerank="top(gnn)", distance="euclidean")
    for metric in ("EER", "DIR@FAR=0.1"):
        with pytest.raises(InputError, match="nearest items are re-ranked among themselves, and all others"):
            evaluate(near, far, rerank="top(gnn)", metrics=[metric])


def test_graphs_that_do_not_fit_are_refused(monkeypatch):
    near, far = map(labelled, spread())
    monkeypatch.setattr(top, "BYTES_PER_ENTRY", 2**30)
    with pytest.raises(PlanError, match=r"top: the graph of the 40 nearest items of one query needs .* a smaller m"):
        evaluate(near, far, rerank=SPECS[1])


def test_hundreds_of_duplicates_and_rows_of_zeros():
    rng = np.random.default_rng(9)
    items = np.concatenate([np.repeat(rng.normal(size=(1, 8)), 300, axis=0), np.zeros((5, 8)), rng.normal(size=(9, 8))])
    items = rng.permutation(items).astype(np.float32)
    for spec in WITHIN:
        found = reranked_distances(bare(items[:4]), bare(items[4:]), rerank=f"top({spec},m=50)")
        assert np.isfinite(found).all()
        assert ((found < -0.99).sum(axis=1) == 50).all()
