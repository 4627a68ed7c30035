"""gnn and ecn: distances of whole matrices, in sparse rows; one result for any blocks, tiles and threads."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import graph_reranking as oracle
from support.noted import values_of
from support.reference import order_is_unambiguous
from support.reranking_runs import CLOSE, bare, labelled
from support.sampling import examples
from support.strategies import crowded_sets, reranking_problems, scattered_sets

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    Report,
    compare,
    evaluate,
    evaluate_distances,
    rerank_blocks,
    reranked_distances,
)
from reid_dist.errors import InputError, PlanError
from reid_dist.reports.console import print_report
from reid_dist.stages import search_plan as neighbour_plan
from reid_dist.stages.reranking import gnn
from reid_dist.stages.reranking.ecn import ECN
from reid_dist.stages.reranking.gnn import GNN
from reid_dist.stages.reranking.rerankers import parse_rerank

SPECS = (
    "gnn(k1=8,k2=4)",
    "gnn(k1=8,k2=4,variant=zhang)",
    # Products of up to 60, with little of the cosine.
    "gnn(k1=60,k2=1,lambda_value=0.05)",
    "ecn(k=6,t=2,q=3)",
    "ecn(k=6,t=2,q=3,variant=plain_fallback)",
    "ecn(t=2,q=3,method=origdist)",
)
# New features are rounded to float32.
MEANS_CLOSE = 2e-7
METRICS = ["mAP", "mINP", "CMC@1", "CMC@5", "P@5"]


def duplicated():
    return crowded_sets(25, 160, 12, seed=7, n_distinct=70)


def stamps(folder):
    """When every part was written, to the nanosecond."""
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*.npz")}


def spread():
    return scattered_sets(25, 160, 12, seed=8)


# ------------------------------------------------------------------------------------------------- the formulas


def test_lists_by_hand():
    """Items at 0, 10, 25, 60 and 64 degrees, k1 = 2, one round: sums of few squares of cosines."""
    angles = np.radians([0, 10, 25, 60, 64])
    items = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    c = np.cos(np.subtract.outer(angles, angles)) ** 2
    # N_2 = {0, 1}, {1, 0}, {2, 1}, {3, 4}, {4, 3}; A + A^T:
    both = np.array([[2, 2, 0, 0, 0], [2, 2, 1, 0, 0], [0, 1, 2, 0, 0], [0, 0, 0, 2, 2], [0, 0, 0, 2, 2]])
    rows = [both[0] + c[0, 1] * both[1], both[1] + c[0, 1] * both[0], both[2] + c[1, 2] * both[1]]
    rows = [row / np.linalg.norm(row) for row in rows]
    found = reranked_distances(bare(items[:1]), bare(items[1:]), rerank="gnn(k1=2,k2=2,rounds=1,lambda_value=0)")
    np.testing.assert_allclose(found[0], [1 - rows[0] @ rows[1], 1 - rows[0] @ rows[2], 1, 1], atol=1e-6)
    # Without rounds: the number of common neighbours, whatever the length of the lists.
    for spec in ("gnn(k1=3,k2=1,variant=zhang)", "gnn(k1=3,rounds=0,k2=2,lambda_value=0)"):
        found = reranked_distances(bare(items[:1]), bare(items[1:]), rerank=spec)
        np.testing.assert_array_equal(found[0], [1 - 3, 1 - 3, 1 - 1, 1 - 1])
    found = reranked_distances(bare(items[:1]), bare(items[1:]), rerank="gnn(k1=3,k2=1)")
    cosines = np.cos(angles[1:])
    np.testing.assert_allclose(found[0], 1 - 0.7 * np.array([3, 3, 1, 1]) - 0.3 * cosines, atol=1e-6)
    # k = 2: F is 2 at the item and 1 at its nearest; E(0) = {1, 0}, E(1) = {0, 1}, E(2) = {1, 0}.
    found = reranked_distances(bare(items[:1]), bare(items[1:]), rerank="ecn(k=2,t=1,q=1)")
    np.testing.assert_array_equal(found[0], [-(5 + 4 + 5 + 4) / 4, -(2 + 1 + 4 + 5) / 4, 0, 0])


@settings(max_examples=examples(36))
@given(reranking_problems(), st.integers(0, 3), st.integers(1, 6), st.integers(0, 6), st.sampled_from((None, 1, 3)))
def test_random_sets(problem, rounds, t, q, chunk):
    """Tiny sets, duplicates, lists longer than the set, rows of zeros."""
    query, gallery = problem.query, problem.gallery
    items = np.concatenate([query, gallery])
    if not order_is_unambiguous(items, items, "cosine"):
        return
    k2 = min(problem.k1, problem.k2)
    weight = 0.3 if 0 < problem.lambda_value < 1e-9 else problem.lambda_value
    spec = GNN(k1=problem.k1, k2=k2, lambda_value=weight, rounds=rounds)
    found = reranked_distances(bare(query), bare(gallery), rerank=spec, chunk_rows=chunk)
    whole = oracle.propagated(query, gallery, k1=problem.k1, k2=k2, lambda_value=weight, rounds=rounds)
    np.testing.assert_allclose(found, whole.final, rtol=CLOSE, atol=CLOSE)
    for falls_back, variant in ((False, "sarfraz"), (True, "plain_fallback")):
        found = reranked_distances(
            bare(query), bare(gallery), rerank=ECN(k=problem.k1, t=t, q=q, variant=variant), chunk_rows=chunk
        )
        exact = oracle.cross_neighbourhoods(query, gallery, k=problem.k1, t=t, q=q, falls_back=falls_back)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-15 if falls_back else 0)
    found = reranked_distances(bare(query), bare(gallery), rerank=ECN(t=t, q=q, method="origdist"), chunk_rows=chunk)
    means = oracle.mean_distances(query, gallery, t=t, q=q)
    np.testing.assert_allclose(found, means, rtol=0, atol=MEANS_CLOSE)


@pytest.mark.slow
def test_defaults_and_sizes():
    query, gallery = spread()
    whole = oracle.propagated(query.features, gallery.features)
    near, far = labelled(query), labelled(gallery)
    np.testing.assert_allclose(reranked_distances(near, far, rerank="gnn"), whole.final, atol=CLOSE)
    report = evaluate(near, far, rerank="gnn", metrics=["mAP"], confidence=None)
    found = values_of(report, "gnn_entries")
    shown = [found["lists"], *(n for each in found["rounds"] for n in each)]
    np.testing.assert_allclose(shown, np.array(whole.entries) / 185, atol=1e-9)
    exact = oracle.cross_neighbourhoods(query.features, gallery.features)
    np.testing.assert_array_equal(reranked_distances(near, far, rerank="ecn"), exact)
    means = oracle.mean_distances(query.features, gallery.features)
    found = reranked_distances(near, far, rerank="ecn(method=origdist)")
    np.testing.assert_allclose(found, means, rtol=0, atol=MEANS_CLOSE)
    for spec in ("gnn", "ecn", "ecn(method=origdist)"):
        described = evaluate(near, far, rerank=spec, metrics=["mAP"], confidence=None).rerank
        assert described["name"] == spec[:3]
        assert described["source"]
        assert parse_rerank(str(parse_rerank(spec))) == parse_rerank(spec)


# --------------------------------------------------------------------------------- one result, however computed


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["duplicated", "spread"])
@pytest.mark.parametrize("spec", SPECS)
def test_is_the_evaluation_of_the_block(spec, name):
    """Screened counts are those of the distances, pair by pair."""
    query, gallery = map(labelled, globals()[name]())
    options = {"metrics": METRICS, "topk": 160, "ties": True, "confidence": None, "breakdowns": ["camera"]}
    report = evaluate(query, gallery, rerank=spec, **options)
    block = reranked_distances(query, gallery, rerank=spec)
    other = evaluate_distances(DistanceBlock.from_array(block), query, gallery, **options)
    assert report.result_digest == other.result_digest
    assert report.topk.digest == other.topk.digest
    assert report.ties == other.ties
    assert report.breakdowns == other.breakdowns


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SPECS[0], SPECS[3], SPECS[4]])
def test_one_digest(spec, monkeypatch, tmp_path):
    query, gallery = map(labelled, duplicated())

    def run(**options):
        report = evaluate(query, gallery, rerank=spec, topk=9, metrics=METRICS, confidence=None, **options)
        return report.result_digest, report.topk.digest, tuple(report.notes)

    expected = run()
    for chunk in (7, 64):
        assert run(chunk_rows=chunk) == expected
    for threads in (1, 5):
        monkeypatch.setattr("reid_dist.core.environment.usable_cores", lambda threads=threads: threads)
        assert run() == expected
    for rows, most in ((10, 4), (64, 200), (185, 33)):
        monkeypatch.setattr(neighbour_plan, "_MOST_BLOCK_ROWS", rows)
        monkeypatch.setattr(type(parse_rerank(spec)), "most_block_rows", most)
        assert run(workspace=tmp_path / str(rows)) == expected
        # Finished parts are read, not computed again.
        before = stamps(tmp_path / str(rows))
        assert run(workspace=tmp_path / str(rows)) == expected
        assert stamps(tmp_path / str(rows)) == before
        assert "crossed" not in " ".join(before)


def test_missing_and_interrupted_parts(monkeypatch, tmp_path):
    """A run that broke in the second round goes on from its parts; a part that is gone is computed again."""
    query, gallery = map(labelled, spread())
    monkeypatch.setattr(GNN, "most_block_rows", 40)
    options = {"rerank": "gnn(k1=8,k2=4,rounds=3)", "metrics": METRICS, "confidence": None, "workspace": tmp_path}
    expected = evaluate(query, gallery, **{**options, "workspace": None}).result_digest
    compute, seen = gnn.Lengths.compute, []

    def broken(stage, rows):
        if stage.number == 2 and rows.start == 120:
            raise OSError("broken")
        return noted(stage, rows)

    def noted(stage, rows):
        seen.append((stage.number, rows.start // 40))
        return compute(stage, rows)

    monkeypatch.setattr(gnn.Lengths, "compute", broken)
    monkeypatch.setattr("reid_dist.core.environment.usable_cores", lambda: 1)
    with pytest.raises(OSError, match="broken"):
        evaluate(query, gallery, **options)
    finished = sorted(part.stem for part in tmp_path.glob("gnn-*/*.npz"))
    assert finished == sorted(f"rows-{block:05d}" for _, block in seen)
    assert {(1, block) for block in range(5)} <= set(seen)
    n_seen = len(seen)
    monkeypatch.setattr(gnn.Lengths, "compute", noted)
    assert evaluate(query, gallery, **options).result_digest == expected
    assert sorted(seen[n_seen:]) == sorted({(2, block) for block in range(5)} - set(seen[:n_seen]))
    next(tmp_path.glob("gnn-*/rows-00001.npz")).write_bytes(b"not a part")
    gnn.forget_links()
    with pytest.warns(UserWarning, match="gnn-.*/rows-00001.npz is damaged"):
        assert evaluate(query, gallery, **options).result_digest == expected


# ---------------------------------------------------------------------------------------------------- bad input


def test_rows_of_zeros_share_nothing():
    query, gallery = spread()
    query.features[:3], gallery.features[::20] = 0, 0
    whole = oracle.propagated(query.features, gallery.features, k1=8, k2=4)
    found = reranked_distances(labelled(query), labelled(gallery), rerank=SPECS[0])
    np.testing.assert_allclose(found, whole.final, atol=CLOSE)
    assert (found[:3] == 1).all()


@pytest.mark.parametrize("n_gallery", [1, 2])
def test_the_smallest_sets(n_gallery):
    gallery = FeatureSet.from_arrays(np.eye(3, dtype=np.float32)[:n_gallery], np.arange(n_gallery), np.ones(n_gallery))
    query = FeatureSet.from_arrays(np.ones((1, 3), np.float32), [0], [0])
    for spec in ("gnn", "ecn", "ecn(method=origdist)"):
        assert np.isfinite(reranked_distances(query, gallery, rerank=spec)).all()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gnn(k1=5,k2=6)", "k2 of gnn must not be larger than k1 = 5, found 6"),
        ("gnn(lambda_value=2)", "lambda_value of gnn must be a number from 0 to 1, or None, found 2"),
        ("gnn(variant=zhang,lambda_value=0.3)", "the variant 'zhang' of gnn has lambda_value=0, found 0.3"),
        ("gnn(variant=zhan)", "unknown variant of gnn 'zhan'; did you mean 'zhang'"),
        ("ecn(k=100000)", "sums exceed 2^53"),
        ("ecn(method=rank)", "method of ecn must be rankdist or origdist, found 'rank'"),
        ("ecn(method=origdist,variant=plain_fallback)", "variant=plain_fallback of ecn belongs to method=rankdist"),
        ("gnnn", "unknown re-ranker 'gnnn'; did you mean 'gnn'"),
    ],
)
def test_impossible_parameters(spec, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_rerank(spec)


def test_what_does_not_go_together():
    query, gallery = map(labelled, spread())
    for spec in ("gnn", "ecn", "ecn(method=origdist)"):
        with pytest.raises(
            InputError, match=rf"^{spec[:3]} is defined by cosine similarities, found the distance 'euclid"
        ):
            evaluate(query, gallery, rerank=spec, distance="euclidean")
        with pytest.raises(InputError, match=rf"^rerank_blocks takes only k_reciprocal, found {spec[:3]}"):
            rerank_blocks(np.ones((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), rerank=spec)


def test_pairs_that_do_not_fit_are_refused(monkeypatch):
    """Nothing is cut to size: a plan that exceeds the memory of a task is an error."""
    query, gallery = map(labelled, spread())
    monkeypatch.setattr("reid_dist.stages.reranking.gnn.BYTES_PER_PAIR", 2**40)
    with pytest.raises(PlanError, match="give workers more memory per thread"):
        evaluate(query, gallery, rerank=SPECS[0])


# ------------------------------------------------------------------------------------- what a re-ranking changes


def test_the_change_is_reported_on_request(tmp_path):
    """AP and CMC@1 against the run without re-ranking, as `compare` has them; the digest is that of the run alone."""
    query, gallery = map(labelled, spread())
    plain, alone = (evaluate(query, gallery, rerank=rerank, confidence=None) for rerank in (None, SPECS[0]))
    changed = evaluate(query, gallery, rerank=SPECS[0], confidence=None, against_plain=True)
    assert changed.result_digest == alone.result_digest
    assert (changed.notes, alone.stage_changes) == (alone.notes, None)
    found = changed.stage_changes
    assert (found["level"], found["unit"]) == (0.95, "identity")
    ((stages, metrics),) = ((run["stages"], run["metrics"]) for run in found["without"])
    assert stages == ["rerank"]
    expected = compare(plain, alone, metrics=["mAP", "CMC@1"]).metrics
    for each, change in zip(metrics, expected, strict=True):
        assert (each["metric"], each["verdict"]) == (change.name, change.verdict)
        assert [each[name] for name in ("baseline", "candidate", "difference")] == [
            plain.metrics[change.name], alone.metrics[change.name], change.difference
        ]  # fmt: skip
        assert (each["low"], each["high"]) == (change.interval.low, change.interval.high)
    first = expected[0]
    line = (
        f"mAP {100 * first.baseline:.2f}% \N{RIGHTWARDS ARROW} {100 * first.candidate:.2f}% "
        f"({100 * first.difference:+.2f} points, 95% interval [{100 * first.interval.low:+.2f}, "
        f"{100 * first.interval.high:+.2f}])"
    )
    printed = io.StringIO()
    print_report(changed, printed)
    for text in (repr(changed), printed.getvalue()):
        assert line in " ".join(text.split())
    changed.save(tmp_path / "run")
    assert Report.load(tmp_path / "run").stage_changes == found
    assert f"{100 * first.difference:+.2f} <" in changed.to_html()
    assert "change (points)" in changed.to_html()


def test_changes_of_an_expanded_run_are_against_both_runs():
    query, gallery = map(labelled, spread())
    options = {"rerank": SPECS[0], "confidence": None}
    changed = evaluate(query, gallery, expand="aqe(k=2)", against_plain=True, **options)
    runs = [evaluate(query, gallery, expand=expand, confidence=None) for expand in ("aqe(k=2)", None)]
    found = changed.stage_changes["without"]
    assert [run["stages"] for run in found] == [["rerank"], ["expand", "rerank"]]
    for run, other in zip(found, runs, strict=True):
        assert [each["baseline"] for each in run["metrics"]] == [other.metrics[name] for name in ("mAP", "CMC@1")]
    assert "With and without aqe(k=2,include_self=false) and gnn" in changed.to_html()


def test_changes_need_a_re_ranking():
    query, gallery = map(labelled, spread())
    with pytest.raises(
        InputError, match="against_plain compares a re-ranking with the ranking without it; give rerank"
    ):
        evaluate(query, gallery, against_plain=True)
