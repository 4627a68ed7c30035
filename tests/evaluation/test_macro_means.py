"""Macro means: the mean over identities of the mean over the queries of each, wherever metrics are values."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from agreement import as_feature_set, evaluate_items
from click.testing import CliRunner
from oracles.protocols import assign_relevance
from oracles.rank_metrics import value
from oracles.single_shot import expected_curve
from support.reference import canonical_distances, rank_one_query
from support.strategies import crowded_sets

from reid_dist import Report, compare, compare_runs, conventions, evaluate_lists, evaluate_splits, sweep_parameters
from reid_dist.cli.list_command import command as list_command
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.metrics.metric import parse_metric
from reid_dist.nightly.gating.accuracy import gate_accuracy
from reid_dist.nightly.gating.gate_settings import AccuracyGate, TrendGate
from reid_dist.nightly.gating.trend import gate_trend, night_of
from reid_dist.nightly.history.history_values import Entry, Past

NAMES = ("mAP", "mINP", "CMC@1", "P@3", "mAP_found@3")
MACRO = [f"macro_{name}" for name in NAMES]
CLOSE = 1e-12


def macro(values, pids, zero=False):
    """Mean of means, one query after the other; None marks a query that is invalid."""
    of = defaultdict(list)
    for one, pid in zip(values, pids, strict=True):
        if one is not None or zero:
            of[pid].append(one or 0.0)
    means = [sum(each) / len(each) for each in of.values()]
    return sum(means) / len(means)


def column(report, name):
    return [None if np.isnan(each) else float(each) for each in report.per_query[name]]


@pytest.fixture(scope="module")
def sets():
    """Many tied items, identities of unlike numbers of queries, some queries without relevant items."""
    query, gallery = crowded_sets(40, 120, 6, seed=12, n_distinct=30, n_pids=14)
    # One identity has no valid query, another one some.
    pids = np.where(np.arange(40) % 13 == 5, 900, query.pids)
    camids = np.where(gallery.pids == query.pids[0], query.camids[0], gallery.camids)
    return replace(query, pids=pids), replace(gallery, camids=camids)


@pytest.mark.parametrize("protocol", ["market1501", "market1501_matlab"])
def test_values_and_bounds_of_ties_are_those_of_a_plain_loop(sets, protocol):
    query, gallery = sets
    report = evaluate_items(query, gallery, protocol, metrics=[*MACRO, *NAMES], ties=True, breakdowns=("identity",))
    relevant, junk = assign_relevance(query, gallery, protocol, None)
    distances = canonical_distances(query.features, gallery.features, "cosine")
    ranked = [rank_one_query(*each) for each in zip(distances, relevant & ~junk, junk, strict=True)]
    assert report.counts["n_valid"] < len(ranked)
    orders = {
        "ranks": report.metrics,
        "optimistic": report.ties["optimistic"],
        "pessimistic": report.ties["pessimistic"],
    }
    for order, found in orders.items():
        ranks = [getattr(each, order) for each in ranked]
        for name in NAMES:
            # The order of ties that is best for a metric of the positives found is another one.
            if name == "mAP_found@3" and order != "ranks":
                continue
            wanted = macro([value(name, each) if each else None for each in ranks], query.pids, "matlab" in protocol)
            assert found[f"macro_{name}"] == pytest.approx(wanted, abs=CLOSE), (order, name)
        assert found["macro_mAP"] != found["mAP"]
    means = report.breakdowns["identity"]["mean_of_groups"]
    assert all(means[name] == means[f"macro_{name}"] == report.metrics[f"macro_{name}"] for name in NAMES)
    assert report.metrics["macro_mAP"] <= report.ties["optimistic"]["macro_mAP"]
    assert report.definitions["macro_mAP"].startswith("mean over identities")


def test_single_shot_and_groups(sets):
    query, gallery = sets
    report = evaluate_items(query, gallery, "cuhk03", metrics=["macro_CMC_single_shot@2"])
    relevant, junk = assign_relevance(query, gallery, "cuhk03", None)
    distances = canonical_distances(query.features, gallery.features, "cosine")
    curves = [
        float(expected_curve(near, mask & ~hidden, hidden, gallery.pids, 2, "default")[1])
        if (mask & ~hidden).any()
        else None
        for near, mask, hidden in zip(distances, relevant, junk, strict=True)
    ]
    assert report.metrics["macro_CMC_single_shot@2"] == pytest.approx(macro(curves, query.pids), abs=CLOSE)
    # A definition by name holds for its macro mean: the CMC alone ranks identities.
    report = evaluate_items(query, gallery, metrics=["macro_CMC@2", "macro_MRR"], collapse="CMC:pid")
    first = column(report, "first_group_rank"), column(report, "first_rank")
    hits = [None if each is None else float(each <= 2) for each in first[0]]
    assert report.metrics["macro_CMC@2"] == pytest.approx(macro(hits, query.pids), abs=CLOSE)
    nearest = [None if each is None else 1 / each for each in first[1]]
    assert report.metrics["macro_MRR"] == pytest.approx(macro(nearest, query.pids), abs=CLOSE)


def test_breakdowns_of_macro_means_are_macro_means(sets):
    query, gallery = sets
    names = ("camera", "camera_pair", "gallery_size")
    report = evaluate_items(query, gallery, metrics=["macro_mAP"], breakdowns=names, gallery_sizes=[60, 120])
    ap = np.array(column(report, "AP"), object)
    table = report.breakdowns["camera"]
    for camera, found in zip(table["camid"], table["macro_mAP"], strict=True):
        rows = query.camids == camera
        assert found == pytest.approx(macro(ap[rows], query.pids[rows]), abs=CLOSE)
    assert report.breakdowns["gallery_size"]["macro_mAP"][-1] == report.metrics["macro_mAP"]
    cells = report.breakdowns["camera_pair"]["macro_mAP"]
    # The gallery of one camera is a run of its own.
    rows, far = (
        query.camids == table["camid"][0],
        gallery.camids == report.breakdowns["camera_pair"]["gallery_camid"][1],
    )
    alone = evaluate_items(query.take(np.flatnonzero(rows)), gallery.take(np.flatnonzero(far)), metrics=["macro_mAP"])
    assert cells[0][1] == pytest.approx(alone.metrics["macro_mAP"], abs=CLOSE)


def test_sweeps_splits_and_conventions_have_them(sets):
    query, gallery = map(as_feature_set, sets)
    swept = sweep_parameters(query, gallery, expand="aqe", k="0,2", metrics=["macro_rank-1"])
    assert swept.metric_names == ["macro_CMC@1"]
    plain = evaluate_items(*sets, metrics=["macro_CMC@1"]).metrics["macro_CMC@1"]
    assert swept.values("macro_CMC@1")[0] == plain
    rows = [{"query": list(range(20)), "gallery": list(range(120))}] * 2
    splits = evaluate_splits(query, gallery, rows=rows, metrics=["macro_mAP"], confidence=None)
    first = evaluate_items(sets[0].take(np.arange(20)), sets[1], metrics=["macro_mAP"])
    assert splits.metrics["macro_mAP"] == first.metrics["macro_mAP"]
    table = conventions(query, gallery, metrics=["macro_CMC@1"], distances="cosine")
    assert next(row.value for row in table.rows if row.setting.name == "market1501") == plain


def test_lists_bound_them_and_whole_lists_give_them(sets):
    query, gallery = map(as_feature_set, sets)
    whole = evaluate_items(*sets, metrics=["macro_mAP", "macro_CMC@1"], topk=len(sets[1]))
    index = whole.topk.index
    cut = evaluate_lists(index[:, :12], query, gallery, metrics=["macro_mAP", "macro_CMC@1"])
    low, high = cut.bounds["macro_mAP"]
    assert low < whole.metrics["macro_mAP"] < high
    assert low == pytest.approx(macro(column(cut, "AP_lower"), sets[0].pids), abs=CLOSE)
    assert cut.metrics["macro_CMC@1"] == whole.metrics["macro_CMC@1"]
    assert (
        evaluate_lists(index, query, gallery, metrics=["macro_mAP"]).metrics["macro_mAP"] == whole.metrics["macro_mAP"]
    )
    with pytest.raises(InputError, match="macro_mINP"):
        evaluate_lists(index[:, :12], query, gallery, metrics=["macro_mINP"])


# ---- comparisons and gates -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(sets):
    """A run, and one in which the identity of most queries gained and all others lost."""
    before = evaluate_items(*sets, metrics=["mAP", "CMC@1"])
    largest = np.bincount(sets[0].pids).argmax()
    change = np.where(sets[0].pids == largest, 0.2, -0.05)
    ap = before.per_query["AP"] + change
    metrics = {"mAP": float(np.nanmean(ap)), "CMC@1": before.metrics["CMC@1"]}
    return before, replace(before, metrics=metrics, per_query={**before.per_query, "AP": ap})


def difference(runs):
    old, new = (column(run, "AP") for run in runs)
    return macro([None if a is None else b - a for a, b in zip(old, new, strict=True)], runs[0].per_query["pid"])


def test_comparisons_need_no_run_that_lists_them(runs):
    before, after = runs
    found = compare(before, after, metrics=["macro_mAP", "mAP"], n_resamples=500)
    each = found.metrics[0]
    pids = before.per_query["pid"]
    assert each.baseline == pytest.approx(macro(column(before, "AP"), pids), abs=CLOSE)
    assert each.difference == pytest.approx(difference(runs), abs=CLOSE)
    assert each.interval.low <= each.difference <= each.interval.high
    # Queries are counted, and not identities.
    assert (each.n_gained, each.n_lost) == (found.metrics[1].n_gained, found.metrics[1].n_lost)
    assert compare(before, after, metrics=["macro_mAP"], n_resamples=500).n_paired == before.counts["n_valid"]
    # Signs of identities, every arrangement.
    values = [
        macro([b - a for a, b in pairs], [0] * len(pairs))
        for pid in np.unique(pids)
        if (
            pairs := [
                (a, b)
                for a, b, p in zip(*(column(run, "AP") for run in runs), pids, strict=True)
                if p == pid and a is not None
            ]
        )
    ]
    signs = np.array(list(itertools.product((-1, 1), repeat=len(values))))
    exact = np.mean(np.abs(signs @ values) >= abs(sum(values)) - CLOSE)
    assert each.p_value == pytest.approx(exact, abs=0.08)
    table = compare_runs([before, after], metrics=["macro_mAP"], n_resamples=500)
    cells = [row.cells[0] for row in table.groups[0].rows]
    assert [cell.value for cell in cells] == [each.baseline, each.candidate]
    assert all(cell.interval.low < cell.value < cell.interval.high for cell in cells)


def test_a_report_without_identities_has_none(runs):
    bare = [
        replace(run, per_query={name: each for name, each in run.per_query.items() if name != "pid"}) for run in runs
    ]
    with pytest.raises(UnknownNameError, match="macro_mAP"):
        compare(*bare, metrics=["macro_mAP"], unit="query")


def entry(report: Report, inputs: str) -> Entry:
    return Entry(
        model="m", dataset="d", job="j", input_digest=inputs, job_digest="job", result_digest=report.result_digest,
        conventions={"protocol": report.protocol}, environment={}, machine={},
    )  # fmt: skip


def test_gates_of_accuracy_and_trend_take_them(runs):
    before, after = runs
    gate = AccuracyGate(metrics=("macro_mAP",), false_alarm=0.2, n_resamples=500, minimum_effect=0.001)
    past = Past(7, entry(before, "old"), before)
    change = gate_accuracy(after, entry(after, "new"), last_good=past, same_options=None, gate=gate).changes[0]
    assert (change.name, change.difference) == ("macro_mAP", pytest.approx(difference(runs), abs=CLOSE))
    nights = [night_of(number, run, after, ["macro_mAP"]) for number, run in enumerate(runs)]
    assert np.nanmean(nights[1].values["macro_mAP"]) - np.nanmean(nights[0].values["macro_mAP"]) == pytest.approx(
        difference(runs), abs=CLOSE
    )
    flat = gate_trend(nights[1:], nights[1], after.per_query["pid"], n_earlier=1, gate=TrendGate())
    assert flat.changes[0].baseline == pytest.approx(macro(column(after, "AP"), after.per_query["pid"]), abs=CLOSE)


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["GAP", "EER", "TAR@FAR=1e-3", "DIR@FAR=0.1", "BAKS@T=0.4", "BAKS_votes@5"])
def test_what_has_no_value_per_query_has_no_macro_mean(name):
    with pytest.raises(InputError, match=f"macro_{name}.*no values per query"):
        parse_metric(f"macro_{name}")


@pytest.mark.parametrize("name", ["macro_macro_mAP", "macro_", "macro_mAPP", "Macro_mAP"])
def test_unknown_names(name):
    with pytest.raises(UnknownNameError):
        parse_metric(name)


def test_spellings_and_the_list():
    assert [parse_metric(f"macro_{name}").name for name in ("rank-5", "MAP@R", "mAP@5")] == [
        "macro_CMC@5", "macro_mAP_R", "macro_mAP@5"
    ]  # fmt: skip
    listed = CliRunner().invoke(list_command, ["metrics"], env={"COLUMNS": "200"})
    assert any(line.startswith("macro_METRIC\t") for line in listed.stdout.splitlines())
