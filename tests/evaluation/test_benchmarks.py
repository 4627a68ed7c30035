"""Every benchmark against the rules of its published code, on sets full of ties; contradictions and missing labels."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from oracles.benchmarks import CODES, balanced_accuracies, global_average_precision, published
from oracles.draws import drawn_by_loops
from support.noted import codes, noted, values_of

from reid_dist import FeatureSet, Report, compose_protocol, evaluate, evaluate_splits
from reid_dist.core.findings import info, warning
from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks import BENCHMARKS, variants
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runs import open_job
from reid_dist.evaluation.splits import SplitReport
from reid_dist.metrics.metric import default_metrics
from reid_dist.reports.console import print_report
from reid_dist.stages.session import Session
from reid_dist.stores.importers.name_layouts import LAYOUTS

EXACT = 1e-12
N_QUERY, N_GALLERY = 24, 90


def recipe(name):
    """What a benchmark computes, without its words."""
    benchmark = BENCHMARKS.get(name)
    protocol = replace(benchmark.protocol, name="", summary="", source="")
    return protocol, benchmark.metrics, benchmark.thresholded, benchmark.draw, benchmark.cameras


DISTINCT = list({recipe(name): name for name in BENCHMARKS.names()}.values())


@cache
def items(side: str, cameras: tuple[int, ...], same: bool = False):
    """Labels of one side, and its features: few different rows, so that positives tie with negatives everywhere."""
    rng = np.random.default_rng([N_QUERY, same, side == "query"])
    n = N_QUERY if side == "query" and not same else N_GALLERY
    labels = {
        # Identity 9 is in one camera alone, 10 in one of the two sets alone.
        "pid": rng.choice([-1, 1, 2, 3, 4, 5, 6, 7, 9] if side == "gallery" or same else [1, 2, 3, 5, 7, 9, 10], n),
        "camid": rng.choice(cameras, n),
        "clothes": rng.integers(1, 3, n),
        "item_id": np.arange(n) + (0 if same or side == "gallery" else 60),
    }
    labels["camid"][labels["pid"] == 9] = cameras[-1]
    labels["tracklet"] = 10 * labels["pid"] + labels["camid"]
    features = rng.integers(-1, 2, (n, 3)).astype(np.float32)
    return features, labels


def make_set(features, labels) -> FeatureSet:
    columns = {name: labels[name] for name in ("clothes", "tracklet")}
    return FeatureSet.from_arrays(
        features, labels["pid"], labels["camid"], labels["item_id"], columns=columns, allow_zero=True
    )


def rows_of(labels, rows=None):
    chosen = range(len(labels["pid"])) if rows is None else rows
    return [SimpleNamespace(row=at, **{name: int(values[row]) for name, values in labels.items()})
            for at, row in enumerate(chosen)]  # fmt: skip


def evaluate_by(query: FeatureSet, gallery: FeatureSet, benchmark: str, **options):
    """The report of the function that a benchmark is for."""
    function = evaluate if BENCHMARKS.get(benchmark).draw is None else evaluate_splits
    return function(query, gallery, benchmark=benchmark, **options)


def test_drawn_galleries_are_no_single_report() -> None:
    with pytest.raises(InputError, match=r"evaluate_splits\(query, gallery, benchmark='llcm'\)"):
        evaluate(*sets(), benchmark="llcm")


def ground_truth():
    rng = np.random.default_rng(5)
    lists = []
    for _ in range(N_QUERY):
        rows = rng.permutation(N_GALLERY).tolist()
        lists.append({"good": rows[:3], "ok": rows[3:9], "easy": rows[9:11], "hard": rows[11:18], "junk": rows[18:24]})
    lists[3] |= {name: [] for name in ("good", "ok", "easy", "hard")}
    return lists


def squared(query, gallery):
    return ((query[:, None].astype(np.float64) - gallery[None]) ** 2).sum(axis=2)


def test_every_benchmark_has_an_oracle_a_source_and_a_known_layout() -> None:
    assert set(CODES) == set(BENCHMARKS.names())
    for name in BENCHMARKS.names():
        benchmark = BENCHMARKS.get(name)
        assert benchmark.summary
        assert benchmark.source
        assert not benchmark.layout or benchmark.layout in LAYOUTS
        # Variants with one recipe follow the same code.
        twins = [other for other in BENCHMARKS.names() if recipe(other) == recipe(name)]
        assert {CODES[other] for other in twins if CODES[other].galleries is None} <= {CODES[name]}


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize("name", DISTINCT)
def test_it_agrees_with_the_published_rules(name: str) -> None:
    benchmark, code = BENCHMARKS.get(name), CODES[name]
    cameras = benchmark.cameras or (1, 2, 3)
    rest = code.draw is not None and code.draw.kind == "rest"
    same = rest or name in ("sop", "cub200", "ukbench")
    sides = {side: items("gallery" if rest else side, cameras, same and not rest) for side in ("query", "gallery")}
    (query, query_labels), (gallery, gallery_labels) = sides["query"], sides["gallery"]
    if same and not rest:
        query, query_labels = gallery, gallery_labels
    queries, found = rows_of(query_labels), rows_of(gallery_labels)
    options = {"distance": "sqeuclidean"}
    if benchmark.thresholded:
        options["metrics"] = [f"{family}@T=1" for family in benchmark.thresholded]
    if benchmark.protocol.is_listed:
        lists = ground_truth()
        wanted = {*benchmark.protocol.relevant_lists, *benchmark.protocol.junk_lists} | (
            {"good", "ok", "junk"} if "ok" in benchmark.protocol.relevant_lists else set()
        )
        options["ground_truth"] = [{key: rows for key, rows in each.items() if key in wanted} for each in lists]
        for each, entry in zip(queries, lists, strict=True):
            each.lists = entry
    report = evaluate_by(make_set(query, query_labels), make_set(gallery, gallery_labels), benchmark=name, **options)
    assert report.benchmark["name"] == name
    rules = benchmark.protocol
    usual = tuple(default_metrics(rules.cmc_family, rules.ap_family, rules.reported))
    metrics = tuple(options.get("metrics", benchmark.metrics or usual))
    assert tuple(report.metrics) == metrics
    ranked = [metric for metric in metrics if metric != "GAP" and "@T=" not in metric]
    if code.draw is None:
        assert isinstance(report, Report)
        expected = published(code, queries, found, squared(query, gallery), ranked)
        if "GAP" in metrics:
            expected["GAP"] = global_average_precision(queries, found, squared(query, gallery))
        if benchmark.thresholded:
            expected |= zip(metrics, balanced_accuracies(queries, found, squared(query, gallery), 1.0), strict=True)
    else:
        assert isinstance(report, SplitReport)
        expected = dict.fromkeys(metrics, 0.0)
        counts = None if code.galleries is None else np.isin(gallery_labels["camid"], code.galleries)
        assert report.n_splits == code.draw.repeats
        for split in range(code.draw.repeats):
            labels = query_labels if code.draw.kind == "queries" else gallery_labels
            drawn = drawn_by_loops(labels["pid"].tolist(), labels["camid"].tolist(), code.draw, split, counts)
            if code.draw.kind == "queries":
                block = squared(query[drawn], gallery)
                for metric, value in published(code, rows_of(query_labels, drawn), found, block, metrics).items():
                    expected[metric] += value / code.draw.repeats
                continue
            near = [row for row in range(len(queries)) if queries[row].pid != -1 and row not in drawn] if rest else None
            asked = rows_of(query_labels, near)
            block = squared(query if near is None else query[near], gallery[drawn])
            for metric, value in published(code, asked, rows_of(gallery_labels, drawn), block, metrics).items():
                expected[metric] += value / code.draw.repeats
    assert report.metrics == pytest.approx(expected, abs=EXACT)
    assert len({round(value, 6) for value in report.metrics.values()} - {0.0, 1.0}) > 0


# Values that the published codes themselves gave on the sets of `scattered`; some add single-precision numbers.
PUBLISHED = {
    "sysu_mm01_all_single": {"mAP": 0.420048494, "CMC@1": 0.432499996, "CMC@5": 0.882500005},
    "llcm": {"mAP": 0.387998917, "CMC@1": 0.322499999, "CMC@5": 0.787499994},
    "llcm_vis_to_ir": {"mAP": 0.256093770, "CMC@1": 0.300000004, "CMC@5": 0.950000000},
    "ltcc_changed": {"mAP": 0.220005755, "CMC@1": 0.275000000, "CMC@5": 0.700000000},
    "ltcc_same": {"mAP": 0.134137838, "CMC@1": 0.100000000, "CMC@5": 0.450000000},
    "prcc_changed_single_shot": {"mAP": 0.514779762, "CMC@1": 0.310000000, "CMC@5": 0.835000000},
    "vehicleid_800": {"mAP": 0.467229909, "CMC@1": 0.245549740, "CMC@5": 0.807329851},
    "gldv2": {"mAP_min@100": 0.27309360988426273},
}
CAMERAS = {"sysu_mm01_all_single": ([3, 6], [1, 2, 4, 5]), "prcc_changed_single_shot": ([3], [1])}


def scattered(n: int, cameras: list[int], seed: int):
    """Features without ties, around a centre for each identity."""
    rng = np.random.default_rng([7, seed])
    pid = rng.integers(0, 9, n)
    features = np.random.default_rng(7).standard_normal((9, 8))[pid] + 1.5 * rng.standard_normal((n, 8))
    columns = {"camid": rng.choice(cameras, n), "clothes": rng.integers(1, 4, n)}
    return features.astype(np.float32), {"pid": pid, **columns, "item_id": np.arange(n), "tracklet": pid}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", PUBLISHED)
def test_it_gives_the_numbers_of_the_published_code(name: str) -> None:
    near, far = CAMERAS.get(name, ([1, 2, 3], [1, 2, 3]))
    query, gallery = scattered(40, near, 0), scattered(400 if name == "gldv2" else 200, far, 1)
    options = {"metrics": [*PUBLISHED[name]], "distance": "sqeuclidean", "max_rank": 5}
    if name == "vehicleid_800":
        query = gallery = scattered(200, [1], 1)
    if name == "gldv2":
        pairs = zip(query[1]["pid"], query[1]["clothes"], strict=True)
        options["ground_truth"] = [
            {"ok": np.flatnonzero((gallery[1]["pid"] == pid) | (gallery[1]["clothes"] == worn)).tolist(),
             "junk": []}
            for pid, worn in pairs
        ]  # fmt: skip
    report = evaluate_by(make_set(*query), make_set(*gallery), benchmark=name, **options)
    assert report.metrics == pytest.approx(PUBLISHED[name], abs=2e-8)


def sets(cameras=(1, 2, 3)):
    return tuple(make_set(*items(side, cameras)) for side in ("query", "gallery"))


def test_reports_say_whose_rules_they_follow(tmp_path) -> None:
    report = evaluate(*sets(), benchmark="veri776_matlab", distance="sqeuclidean")
    plain = evaluate(*sets(), protocol="market1501_matlab", distance="sqeuclidean")
    assert plain.benchmark is None
    assert report.result_digest == plain.result_digest
    console = io.StringIO()
    print_report(report, console)
    words = "veri776_matlab, as published by JDAI-CV/VeRidataset baseline_evaluation_FACT_776.m, compute_AP.m"
    for text in (console.getvalue(), report.to_html(), repr(report)):
        assert words in " ".join(text.split())
    report.save(tmp_path / "out")
    assert Report.load(tmp_path / "out").benchmark == report.benchmark
    splits = evaluate_splits(*sets(), benchmark="llcm", distance="sqeuclidean")
    words = "llcm, as published by ZYK100/LLCM DEEN/eval_metrics.py"
    assert words in " ".join(repr(splits).split())
    assert "ZYK100/LLCM DEEN/eval_metrics.py" in splits.to_html()
    assert (
        json.loads(splits.to_json())["benchmark"]["gallery"] == "10 draws of 1 row of each identity under each camera"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "no_cameras"}, "'market1501' prescribes protocol 'market1501', and 'no_cameras' was given"),
        ({"protocol": compose_protocol("own", base="market1501")}, "prescribes protocol 'market1501', and 'own'"),
        ({"collapse": "pid"}, "prescribes collapse None, and 'pid' was given; leave out collapse"),
    ],
)
def test_what_contradicts_a_benchmark_is_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(*sets(), benchmark="market1501", **options)


def test_what_a_model_decides_stays_free() -> None:
    given = {
        "metrics": ["mAP", "CMC@3"],
        "expand": "dba(k=2)+aqe(k=2)",
        "distance": "euclidean",
        "protocol": "market1501",
    }
    report = evaluate(*sets(), benchmark="market1501", **given)
    assert list(report.metrics) == ["mAP", "CMC@3"]
    assert report.expand is not None
    assert report.distance["name"] == "euclidean"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 3}, "prescribes repeats 10, and 3 was given"),
        ({"per_identity": 0}, "prescribes per_identity 1, and 0 was given"),
        ({"rest_as_queries": True}, "prescribes rest_as_queries False, and True was given"),
        ({"benchmark": "market1501"}, "'market1501' evaluates the whole gallery once: evaluate"),
        ({"benchmark": "market1501", "repeats": 2}, "evaluates the whole gallery, and repeats has no effect"),
    ],
)
def test_draws_are_those_of_the_benchmark(options, message) -> None:
    with pytest.raises(InputError, match=message):
        evaluate_splits(*sets(), **{"benchmark": "llcm", **options})


def test_rows_of_other_cameras_are_in_no_split() -> None:
    report = evaluate_splits(*sets(), benchmark="prcc_same_single_shot", distance="sqeuclidean")
    _, labels = items("gallery", (1, 2, 3))
    others = (labels["camid"] != 1) & (labels["pid"] != -1)
    assert info("cameras_not_drawn", n=others.sum(), side="gallery") in report.notes
    assert report.counts["n_identity"] == len(np.unique(labels["pid"][(labels["camid"] == 1) & (labels["pid"] != -1)]))
    query, gallery = (make_set(*items(side, (2, 3))) for side in ("query", "gallery"))
    with pytest.raises(InputError, match="or a camera that the protocol does not count, so there is nothing to draw"):
        evaluate_splits(query, gallery, benchmark="prcc_same_single_shot")


def test_missing_labels_are_reported_with_what_brings_them() -> None:
    query, gallery = sets()
    bare = FeatureSet.from_arrays(gallery.read(0, N_GALLERY), gallery.pids, gallery.camids, allow_zero=True)
    layout = "`reid-dist ingest FEATURES --names NAMES.txt --layout {} --output DIR`"
    for name, label, used in (("ltcc_same", "clothes", "ltcc"), ("veri776_image_to_track", "tracklet", "veri776")):
        with pytest.raises(InputError, match=f"needs the label '{label}', and gallery has none") as raised:
            evaluate(query, bare, benchmark=name)
        assert layout.format(used) in str(raised.value)
    without = FeatureSet.from_arrays(gallery.read(0, N_GALLERY), gallery.pids, allow_zero=True)
    with pytest.raises(InputError, match="needs the label 'camid', and query and gallery have none"):
        evaluate(without, without, benchmark="market1501")


def test_cameras_of_another_numbering_are_refused() -> None:
    from_zero = tuple(make_set(*items(side, (0, 1, 2))) for side in ("query", "gallery"))
    with pytest.raises(InputError, match=r"tells the cameras 1, 2, 3 apart, and the query set has 0; .*--layout prcc"):
        evaluate(*from_zero, benchmark="prcc_changed")
    query, gallery = from_zero
    named = [FeatureSet.from_arrays(each.read(0, each.n_rows), each.pids, [f"cam{c}" for c in each.camids],
                                    allow_zero=True) for each in (query, gallery)]  # fmt: skip
    with pytest.raises(InputError, match="the query set has the texts 'cam0', 'cam1', 'cam2'"):
        evaluate_splits(*named, benchmark="sysu_mm01_all_single")


def test_another_set_than_the_published_one_is_noted() -> None:
    report = evaluate(*sets(), benchmark="veri_wild_small", distance="sqeuclidean")
    assert report.notes[0] == warning("other_gallery", benchmark="veri_wild_small", n_identities=8, expected=3000)
    assert report.notes[0] in report.findings
    regdb = evaluate(*sets(), benchmark="regdb", distance="sqeuclidean")
    runs = "ten models, one per split into training and test"
    assert regdb.notes[0] == info("published_means", benchmark="regdb", runs=runs)


@pytest.mark.parametrize(("name", "other"), [("veri776", "veri776_matlab"), ("mars_matlab", "mars")])
def test_the_other_code_in_use_is_beside_it(name: str, other: str) -> None:
    report = evaluate(*sets(), benchmark=name, distance="sqeuclidean")
    variant = evaluate(*sets(), benchmark=other, distance="sqeuclidean")
    found = values_of(report, "other_code")
    assert (found["benchmark"], found["source"]) == (other, BENCHMARKS.get(other).source)
    assert (found["shares"], found["n_valid"], found["n_draws"]) == ("ranking", None, None)
    families = (variant.protocol["ap_family"], report.protocol["ap_family"]), ("CMC@1", "CMC@1")
    for shown, (family, before) in zip(found["metrics"], families, strict=True):
        value, difference = variant.metrics[family], variant.metrics[family] - report.metrics[before]
        assert shown == (family, pytest.approx(value), pytest.approx(difference))
    assert variant.counts["n_valid"] < variant.counts["n_query"]
    for without in ("last", "ltcc_changed"):
        assert "other_code" not in codes(evaluate(*sets(), benchmark=without, distance="sqeuclidean"))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "other"), [("small", "small_cross_camera"), ("large_cross_camera", "large")])
@pytest.mark.parametrize("more", [{}, {"rerank": "k_reciprocal(k1=4,k2=2)", "topk": 3, "ties": True}])
def test_another_code_with_other_rules_is_ranked_in_the_same_pass(name: str, other: str, more) -> None:
    name, other = f"veri_wild_{name}", f"veri_wild_{other}"
    options = {"distance": "sqeuclidean", **more}
    report = evaluate(*sets(), benchmark=name, **options)
    metrics = BENCHMARKS.get(name).metrics
    alone = evaluate(*sets(), protocol=BENCHMARKS.get(name).protocol, metrics=metrics, **options)
    assert report.result_digest == alone.result_digest
    variant = evaluate(*sets(), protocol=BENCHMARKS.get(other).protocol, **options)
    (note,) = noted(report, "other_code")
    found = note.values
    assert variant.counts["n_valid"] != report.counts["n_valid"]
    assert (found["benchmark"], found["source"]) == (other, BENCHMARKS.get(other).source)
    assert (found["shares"], found["n_valid"]) == ("distances", variant.counts["n_valid"])
    for (metric, value, change), expected in zip(found["metrics"], ("mAP", "CMC@1"), strict=True):
        before, after = report.metrics[metric], variant.metrics[metric]
        assert (metric, value, change) == (expected, pytest.approx(after), pytest.approx(after - before))
    assert note.to_dict() in json.loads(report.to_json())["notes"]
    assert str(note).split("(as")[0] in " ".join(report.to_html().split())


def oracle_scores(name: str, seed: int = 0) -> dict[str, float]:
    """Average precision and CMC@1 under a published code, by loops over its draws."""
    code, names = CODES[name], ["mAP", "CMC@1"]
    (query, near), (gallery, far) = (items(side, (1, 2, 3)) for side in ("query", "gallery"))
    if code.draw is None:
        return published(code, rows_of(near), rows_of(far), squared(query, gallery), names)
    counts = np.isin(far["camid"], code.galleries)
    draw, found = code.draw._replace(seed=seed), dict.fromkeys(names, 0.0)
    for split in range(draw.repeats):
        drawn = drawn_by_loops(far["pid"].tolist(), far["camid"].tolist(), draw, split, counts)
        values = published(code, rows_of(near), rows_of(far, drawn), squared(query, gallery[drawn]), names)
        found = {each: found[each] + values[each] / draw.repeats for each in names}
    return found


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("name", "other", "options"),
    [
        ("prcc_changed", "prcc_changed_single_shot", {"seed": 3}),
        ("prcc_same_single_shot", "prcc_same", {"seed": 3}),
        ("veri776", "veri776_image_to_track", {}),
        ("veri776_image_to_track", "veri776", {"topk": 3}),
        ("veri_wild_small", "veri_wild_small_cross_camera", {"breakdowns": ["gallery_size"]}),
    ],
)
def test_another_code_that_cannot_share_the_pass_has_a_run_of_its_own(name: str, other: str, options) -> None:
    report = evaluate_by(*sets(), benchmark=name, other_codes=True, distance="sqeuclidean", **options)
    before, after = oracle_scores(name, 3), oracle_scores(other, 3)
    (note,) = (note for note in noted(report, "other_code") if note.values["benchmark"] == other)
    for (metric, value, change), expected in zip(note.values["metrics"], ("mAP", "CMC@1"), strict=True):
        assert (metric, value) == (expected, pytest.approx(after[metric]))
        assert change == pytest.approx(after[metric] - before[metric])
    assert note.values["shares"] == ""
    assert note.values["n_draws"] == (None if BENCHMARKS.get(other).draw is None else 10)
    assert note.to_dict() in json.loads(report.to_json())["notes"]
    assert str(note).split("(as")[0] in " ".join(report.to_html().split())
    if isinstance(report, Report):
        assert report.timing["other_codes"] > 0
    alone = evaluate_by(*sets(), benchmark=name, distance="sqeuclidean", **options)
    assert alone.result_digest == report.result_digest
    (note,) = (note for note in noted(alone, "other_code_by_command") if note.values["benchmark"] == other)
    assert alone.benchmark == report.benchmark
    assert {name for name in report.spec if alone.spec[name] != report.spec[name]} == {"other_codes"}


def test_scores_of_other_codes_are_kept_until_all_are_there(tmp_path, monkeypatch) -> None:
    """A run that was cut short between two codes computes the second alone, and leaves nothing in the end."""
    options = {"benchmark": "veri776_image_to_track", "other_codes": True, "distance": "sqeuclidean"}
    expected = evaluate(*sets(), **options).notes
    plain, scored = variants.scores_of, []

    def scores_of(report, rules=None):
        if rules is not None and len(scored) == n_allowed:
            raise KeyboardInterrupt
        scored.extend([] if rules is None else [rules.name])
        return plain(report, rules)

    monkeypatch.setattr(variants, "scores_of", scores_of)
    n_allowed = 1
    with pytest.raises(KeyboardInterrupt):
        evaluate(*sets(), workspace=tmp_path, **options)
    assert [path.name for path in tmp_path.glob("codes-*/*.npz")] == ["veri776.npz"]
    n_allowed = 2
    assert evaluate(*sets(), workspace=tmp_path, **options).notes == expected
    assert scored == ["market1501", "market1501_matlab"]
    assert list(tmp_path.iterdir()) == []


def test_runs_of_other_codes_have_the_model_of_the_first() -> None:
    model = {"distance": "euclidean", "expand": "dba(k=2)+aqe(k=2)"}
    report = evaluate(*sets(), benchmark="veri776_image_to_track", other_codes=True, topk=2, **model)
    notes = [note.values for note in noted(report, "other_code") if not note.values["shares"]]
    for note, other in zip(notes, ("veri776", "veri776_matlab"), strict=True):
        run = evaluate(*sets(), benchmark=other, **model)
        names = run.protocol["ap_family"], "CMC@1"
        assert note["benchmark"] == other
        assert [each[:2] for each in note["metrics"]] == [(name, pytest.approx(run.metrics[name])) for name in names]


def test_given_distances_and_jobs(tmp_path) -> None:
    """A job notes what the function notes; galleries are not drawn from given distances."""
    query, gallery = sets()
    paths = {side: str(each.save(tmp_path / side).uri) for side, each in (("query", query), ("gallery", gallery))}
    np.save(tmp_path / "block.npy", squared(items("query", (1, 2, 3))[0], items("gallery", (1, 2, 3))[0]))
    expected = evaluate(query, gallery, benchmark="veri776", other_codes=True, distance="sqeuclidean").notes
    for given in ({"distances": str(tmp_path / "block.npy")}, {"distance": "sqeuclidean"}):
        job = open_job(PipelineJob(**paths, benchmark="veri776", other_codes=True, **given))
        assert job.evaluate(Session()).notes[:2] == expected[:2]
        alone = open_job(PipelineJob(**paths, benchmark="veri776", **given))
        assert alone.evaluate(Session()).notes[1].code == "other_code_by_command"
        assert alone.spec != job.spec
    drawn = open_job(
        PipelineJob(**paths, benchmark="prcc_same", other_codes=True, distances=str(tmp_path / "block.npy"))
    )
    found = noted(drawn.evaluate(Session()), "other_code_by_command")
    assert "prcc_same_single_shot" in [note.values["benchmark"] for note in found]


def test_sets_that_another_code_does_not_fit_have_its_command() -> None:
    bare = [
        FeatureSet.from_arrays(features, labels["pid"], labels["camid"], labels["item_id"], allow_zero=True)
        for features, labels in (items(side, (1, 2, 3)) for side in ("query", "gallery"))
    ]
    found = values_of(
        evaluate(*bare, benchmark="veri776", other_codes=True, distance="sqeuclidean"), "other_code_by_command"
    )
    assert (found["benchmark"], found["ranks"]) == ("veri776_image_to_track", "groups")
    for refused in (evaluate, evaluate_splits):
        with pytest.raises(InputError, match="other_codes runs other implementations of a benchmark; give benchmark"):
            refused(*bare, other_codes=True)


def test_a_threshold_is_the_choice_of_the_user() -> None:
    with pytest.raises(InputError, match=r"'wildlife_open' reports BAKS@T=x and BAUS@T=x: .* name them with a number"):
        evaluate(*sets(), benchmark="wildlife_open")
