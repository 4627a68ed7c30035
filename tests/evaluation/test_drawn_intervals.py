"""Intervals in breakdowns, and of metrics over pairs and probes: against runs of their own and drawn by hand."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest

from reid_dist import FeatureSet, Report, compare, evaluate, operating_points
from reid_dist.errors import InputError
from reid_dist.metrics.confidence import resampled_sums
from reid_dist.reports import print_report
from reid_dist.reports.comparison.comparison_values import Untested
from reid_dist.reports.verdicts import BETTER, SAME, UNDECIDED, WORSE

LEVEL = 0.9


def made_sets(seed=0, n_identities=40, spread=1.1, shift=0.0):
    """Identities under four cameras, of which camera 1 is harder by `shift`; some gallery rows are of pid -1."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_identities + 1, 12))

    def side(n, first):
        pids, camids = rng.integers(first, n_identities, n), rng.integers(0, 4, n)
        noise = (spread + shift * (camids == 1))[:, None] * rng.standard_normal((n, 12))
        features = (centres[pids] + noise).astype(np.float32)
        return FeatureSet.from_arrays(features, pids, camids, columns={"hour": rng.integers(0, 3, n)})

    return side(160, 0), side(420, -1)


# ---- breakdowns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["market1501", "market1501_matlab"])
def test_the_interval_of_a_group_is_that_of_its_queries_alone(protocol):
    query, gallery = made_sets()
    options = {"protocol": protocol, "metrics": "mAP,CMC@1,macro_mAP", "confidence": LEVEL, "seed": 5}
    report = evaluate(query, gallery, breakdowns=["camera", "hour"], **options)
    for name, labels in (("camera", query.camids), ("hour", query.columns["hour"])):
        table = report.breakdowns[name]
        for place, group in enumerate(np.unique(labels)):
            alone = evaluate(query.take(np.flatnonzero(labels == group)), gallery, **options)
            assert table["n_identities"][place] == alone.confidence["n_units"]
            for metric, ends in alone.confidence["intervals"].items():
                assert table["intervals"][metric][place] == ends, (name, group, metric)
                assert ends[0] <= table[metric][place] <= ends[1]


def test_intervals_of_camera_pairs_and_gallery_sizes():
    query, gallery = made_sets(1)
    options = {"metrics": "mAP,CMC@1", "confidence": LEVEL, "protocol": "no_cameras"}
    names = ["camera_pair", "gallery_size", "identity"]
    report = evaluate(query, gallery, breakdowns=names, gallery_sizes=[0.5, 1.0], **options)
    pairs, sizes, identities = (report.breakdowns[name] for name in names)
    assert sizes["intervals"]["mAP"][-1] == report.confidence["intervals"]["mAP"]
    assert sizes["intervals"]["mAP"][0] != sizes["intervals"]["mAP"][1]
    # Every query has relevant rows under every camera of these: the draws are those of the queries alone.
    for near in range(4):
        kept = query.take(np.flatnonzero(query.camids == near))
        for far in range(4):
            cell = evaluate(kept, gallery.take(np.flatnonzero(gallery.camids == far)), **options)
            if cell.counts["n_valid"] == kept.n_rows:
                assert pairs["intervals"]["mAP"][near][far] == cell.confidence["intervals"]["mAP"]
            low, high = pairs["intervals"]["mAP"][near][far]
            assert low <= pairs["mAP"][near][far] == cell.metrics["mAP"] <= high
    # One identity gives no interval.
    assert "intervals" not in identities


def test_intervals_of_breakdowns_are_kept_and_shown(tmp_path):
    pandas = pytest.importorskip("pandas")
    query, gallery = made_sets(n_identities=12)
    names = ["camera", "camera_pair", "gallery_size"]
    report = evaluate(query, gallery, breakdowns=names, metrics="mAP,CMC@1", confidence=LEVEL)
    report.save(tmp_path / "run")
    assert Report.load(tmp_path / "run").breakdowns == report.breakdowns
    table = report.breakdowns["camera"]
    frame = report.to_pandas("camera")
    assert isinstance(frame, pandas.DataFrame)
    assert frame[["mAP_low", "mAP_high"]].to_numpy().tolist() == table["intervals"]["mAP"]
    assert frame["mAP"].tolist() == table["mAP"]
    assert frame["camid"].tolist() == table["camid"]
    flat = report.to_pandas("camera_pair")
    assert len(flat) == 16
    assert flat["CMC@1_high"][6] == report.breakdowns["camera_pair"]["intervals"]["CMC@1"][1][2][1]
    assert report.to_pandas("gallery_size")["n_rows"].iloc[-1] == gallery.n_rows
    low, high = (f"{100 * end:.2f}" for end in table["intervals"]["mAP"][0])
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"[{low}, {high}]" in page
    # Twelve identities are few.
    assert "with fewer than 15 identities" in page
    written = StringIO()
    print_report(report, written)
    words = " ".join(written.getvalue().split())
    worst = int(np.argmin(table["mAP"]))
    assert f"[{100 * table['intervals']['mAP'][worst][0]:.2f}, " in words.partition("4 groups")[2]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({"mAP": [[0.1, 0.2]]}, "'mAP' must hold 4 values, one for each camid"),
        ({"mAP": [[0.3, 0.2], [None, None], [0, 1], [0, 1]]}, "the lower one first"),
        ({"CMC@7": [[0, 1]] * 4}, "interval of 'CMC@7', which is none of its metrics"),
        (7, "must be a mapping"),
    ],
)
def test_intervals_of_another_shape_are_refused(ends, words):
    report = evaluate(*made_sets(), breakdowns=["camera"], metrics="mAP")
    with pytest.raises(InputError, match=words):
        replace(report, breakdowns={"camera": {**report.breakdowns["camera"], "intervals": ends}})


# ---- pairs and probes ------------------------------------------------------------------------------------------------


def open_sets():
    """As above, with queries of identities that the gallery lacks."""
    query, gallery = made_sets(3)
    return query, gallery.take(np.flatnonzero(gallery.pids < 30))


def test_rates_at_a_threshold_have_the_intervals_of_operating_points():
    query, gallery = open_sets()
    names = "mAP,TAR@FAR=0.01,TAR@FAR=0.1,DIR@FAR=0.1"
    report = evaluate(query, gallery, metrics=names, confidence=LEVEL, seed=7)
    points = operating_points(query, gallery, far=["0.01", "0.1"], fpir=["0.1"], confidence=LEVEL, seed=7)
    place = {point: number for number, point in enumerate(points.table["point"])}
    intervals = report.confidence["intervals"]
    assert list(intervals) == ["mAP", "TAR@FAR=0.01", "TAR@FAR=0.1", "DIR@FAR=0.1"]
    for rate in ("0.01", "0.1"):
        assert intervals[f"TAR@FAR={rate}"] == points.intervals["TAR"][place[f"FAR={rate}"]]
    misses = points.intervals["FNIR"][place["FPIR=0.1"]]
    assert intervals["DIR@FAR=0.1"] == pytest.approx([1 - misses[1], 1 - misses[0]], abs=1e-12)


def drawn_errors(query, gallery, n_resamples):
    """Equal error rates of resamples of identities, each from all of its pairs, sorted."""
    q, g = (each.read(0, each.n_rows).astype(np.float64) for each in (query, gallery))
    q, g = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (q, g))
    distance = 1.0 - q @ g.T
    same = query.pids[:, None] == gallery.pids
    junk = (same & (query.camids[:, None] == gallery.camids)) | (gallery.pids == -1)
    kinds = (same & ~junk, ~same & ~junk)
    units, unit = np.unique(query.pids, return_inverse=True)
    order = np.argsort(distance, axis=None)
    owner = np.repeat(unit, gallery.n_rows)[order]
    masks = [kind.ravel()[order] for kind in kinds]
    found = []
    for weights in np.concatenate(list(resampled_sums(np.eye(len(units)), level=LEVEL, n_resamples=n_resamples))):
        accepted, false = (np.cumsum(weights[owner] * mask) for mask in masks)
        rates = false / false[-1], accepted / accepted[-1]
        at = int(np.argmax(rates[0] + rates[1] >= 1.0))
        before = [rate[at - 1] if at else 0.0 for rate in rates]
        step = (rates[0][at] + rates[1][at]) - sum(before)
        found.append(before[0] + (1.0 - sum(before)) / step * (rates[0][at] - before[0]))
    return np.array(found)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_interval_of_the_equal_error_rate_finds_its_threshold_again(seed):
    query, gallery = made_sets(seed)
    report = evaluate(query, gallery, metrics="EER", confidence=LEVEL)
    drawn = drawn_errors(query, gallery, 1000)
    expected = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    found = report.confidence["intervals"]["EER"]
    # Between the distances that are counted, rates are straight lines.
    assert found == pytest.approx(expected.tolist(), abs=0.03 * (expected[1] - expected[0]))
    assert found[0] < report.metrics["EER"] < found[1]
    assert report.confidence["n_units"] == len(np.unique(query.pids))


def test_equal_error_rates_without_an_error_and_of_one_identity():
    query, gallery = made_sets(spread=0.0)
    assert evaluate(query, gallery, metrics="EER").confidence["intervals"]["EER"] == pytest.approx([0.0, 0.0])
    one = query.take(np.flatnonzero(query.pids == query.pids[0]))
    assert evaluate(one, gallery, metrics="EER,TAR@FAR=0.1").confidence["intervals"] == {
        "EER": [None, None], "TAR@FAR=0.1": [None, None],
    }  # fmt: skip
    assert evaluate(query, gallery, metrics="EER", confidence=None).confidence is None


# ---- comparison ------------------------------------------------------------------------------------------------------


def test_a_lower_equal_error_rate_is_better():
    query, gallery = made_sets(5, spread=0.7)
    worse = [
        FeatureSet.from_arrays(
            each.read(0, each.n_rows) + np.random.default_rng(9).normal(0, 2.0, (each.n_rows, 12)).astype(np.float32),
            each.pids,
            each.camids,
            columns=each.columns,
        )
        for each in (query, gallery)
    ]
    names = "mAP,EER,TAR@FAR=0.1"
    good, bad = evaluate(query, gallery, metrics=names), evaluate(*worse, metrics=names)
    assert bad.metrics["EER"] > good.metrics["EER"] + 0.1
    found = {each.name: each for each in compare(good, bad).metrics}
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(found, WORSE)
    assert found["EER"].difference > 0 > found["TAR@FAR=0.1"].difference
    back = {each.name: each for each in compare(bad, good).metrics}
    assert {each.verdict for each in back.values()} == {BETTER}
    for name in ("EER", "TAR@FAR=0.1"):
        assert found[name].p_value is None
        # The widths of both intervals add up.
        ends = [run.confidence["intervals"][name] for run in (good, bad)]
        width = sum(high - low for low, high in ends)
        assert found[name].interval.high - found[name].interval.low == pytest.approx(width)
        assert (back[name].interval.low, back[name].interval.high) == pytest.approx(
            (-found[name].interval.high, -found[name].interval.low)
        )
    assert set(compare(good, bad).worse) == set(found)


def test_rates_that_rest_on_few_false_accepts_are_undecided():
    query, gallery = made_sets(5, spread=0.7)
    noisy = [
        FeatureSet.from_arrays(
            each.read(0, each.n_rows) + np.random.default_rng(9).normal(0, 4.0, (each.n_rows, 12)).astype(np.float32),
            each.pids,
            each.camids,
            columns=each.columns,
        )
        for each in (query, gallery)
    ]
    names = "TAR@FAR=0.1,TAR@FAR=1e-4"
    good, bad = evaluate(query, gallery, metrics=names), evaluate(*noisy, metrics=names)
    # A tenth of the impostors is many, a ten-thousandth fewer than ten.
    assert good.verification["n_impostor"] < 1e5 < 1e3 * good.verification["n_impostor"]
    found = compare(good, bad)
    often, seldom = found.metrics
    assert often.verdict == WORSE
    assert (seldom.verdict, seldom.interval.high < 0) == (UNDECIDED, True)
    assert [each.code for each in found.notes] == ["few_false_accepts"]
    assert [each.code for each in compare(good, bad, metrics="TAR@FAR=0.1").notes] == []
    assert compare(good, good).metrics[1].verdict == SAME
    text = " ".join(found.to_text(notes="short").split())
    assert "without pairing queries" in text
    # No query was paired, and nothing drawn.
    assert "of 0 identities" not in text


def test_intervals_of_another_level_are_the_reason_that_there_is_no_verdict():
    query, gallery = made_sets(5)
    half = [evaluate(query, gallery, metrics="EER", confidence=0.5) for _ in range(2)]
    none = [evaluate(query, gallery, metrics="EER", confidence=None) for _ in range(2)]
    reasons = [compare(*runs).metrics[0].untested for runs in (half, none)]
    assert reasons == [Untested.OTHER_LEVEL, Untested.NO_QUERY_VALUES]
