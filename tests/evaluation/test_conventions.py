"""All conventions from one pass: every row against a run of its own, what sets do not allow, targets."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from support.noted import noted, values_of

from reid_dist import FeatureSet, compose_protocol, conventions, evaluate
from reid_dist.core.findings import info
from reid_dist.engine.graph import run_job
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.evaluation.convention_table import parse_targets
from reid_dist.evaluation.pipelines import ProtocolComponents

DISTANCES = ("cosine", "euclidean")


def made_sets(seed=0, n_query=30, n_gallery=90):
    """Few values, hence ties; pids from -1, three cameras; ten items on both sides, of which some have two pids."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(-2, 3, (11, 4))

    def side(n, first_item):
        pids = rng.integers(-1, 9, n)
        features = centres[pids + 1] + rng.integers(-1, 2, (n, 4)) + [5, 0, 0, 0]
        items = np.arange(first_item, first_item + n)
        return FeatureSet.from_arrays(features.astype(np.float32), pids, rng.integers(0, 3, n), items)

    return side(n_query, 0), side(n_gallery, n_query - 10)


def assert_rows_are_runs(table, query, gallery):
    """Every row has the bits of an evaluation with its protocol, distance and metric."""
    runs = defaultdict(list)
    for row in table.rows:
        runs[row.run].append(row)
    for rows in runs.values():
        first = rows[0]
        names = [row.metric for row in rows]
        stages = {"expand": None, "rerank": None, **first.stages.options}
        report = evaluate(
            query, gallery, protocol=first.protocol, distance=first.distance, metrics=names, confidence=None, **stages
        )
        assert [(row.metric, row.value) for row in rows] == list(report.metrics.items()), first.setting
        assert (first.n_query, first.n_valid) == (report.counts["n_query"], report.counts["n_valid"])


def rows_of(table, metric="mAP", distance="cosine", also=""):
    wanted = (metric, distance, also)
    return {row.setting.name: row for row in table.rows if (row.metric, row.distance, row.stages.name) == wanted}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_row_is_a_run_of_its_own(seed):
    query, gallery = made_sets(seed)
    table = conventions(query, gallery, single_shot=True)
    assert_rows_are_runs(table, query, gallery)
    names = {name for row in table.rows for name in (row.setting.name, *row.same_as)}
    plain = {"market1501", "no_cameras", "same_set", "market1501, own row junk"}
    pids = {f"{base}{rule}" for base in plain for rule in ("", ", pid -1 kept", ", pid -1 and 0 junk")}
    pids |= {"cuhk03", "cuhk03_separate_cameras"}
    assert names == pids | {f"{name}, invalid at 0" for name in pids - {"market1501"}} | {"market1501_matlab"}
    assert {row.distance for row in table.rows} == set(DISTANCES)
    # Single-shot curves are of the settings of CUHK03, which have no other.
    shown = {row.setting.name for row in table.rows if row.metric == "CMC_single_shot@5"}
    left_out = {"cuhk03", "cuhk03_separate_cameras"}
    assert left_out <= shown <= left_out | {f"{name}, invalid at 0" for name in left_out}
    assert not shown & {row.setting.name for row in table.rows if row.metric == "CMC@5"}


def test_one_set_with_itself():
    _, items = made_sets(4)
    plain = FeatureSet.from_arrays(items.read(0, items.n_rows), items.pids, items.camids)
    table = conventions(plain, plain, distances="euclidean")
    assert_rows_are_runs(table, plain, plain)
    rows = rows_of(table, distance="euclidean")
    assert rows["no_cameras"].value > rows["same_set"].value
    # Own rows have the query's camera.
    assert "market1501, own row junk" in rows["market1501"].same_as


def test_labels_that_are_texts():
    sides = []
    for side in made_sets(6):
        pids = [str(pid) if pid == -1 else f"person {pid + side.n_rows % 7}" for pid in side.pids]
        camids = np.array([f"camera {camid}" for camid in side.camids])
        sides.append(FeatureSet.from_arrays(side.read(0, side.n_rows), np.array(pids), camids))
    table = conventions(*sides, metrics="mAP,CMC@1", distances="cosine")
    assert_rows_are_runs(table, *sides)
    assert info("pid_is_absent", pid=0) in table.notes
    numbers = FeatureSet.from_arrays(sides[1].read(0, sides[1].n_rows), np.array(pids), made_sets(6)[1].camids)
    table = conventions(sides[0], numbers, distances="cosine")
    assert set(rows_of(table)) >= {"no_cameras"}
    assert "market1501" not in rows_of(table)
    assert values_of(table, "unlike_camids")["why"].startswith("camids of the query set are texts")


def test_others_under_one_name_have_the_same_values():
    query, gallery = made_sets(3)
    for row in conventions(query, gallery, metrics="mAP", distances="euclidean").rows:
        for name in row.same_as:
            base, *words = name.split(", ")
            parts = {
                "pid -1 kept": {"junk_pid": None},
                "pid -1 and 0 junk": {"junk_pid": [-1, 0]},
                "own row junk": {"junk": [["pid", "camid"], ["item_id"]]},
                "invalid at 0": {"invalid_query": "counts as 0"},
            }
            changed = {part: value for each in words for part, value in parts[each].items()}
            protocol = compose_protocol("other", base=base, **changed) if changed else base
            again = evaluate(query, gallery, protocol=protocol, distance="euclidean", metrics="mAP")
            assert again.metrics["mAP"] == row.value


# ---- expansions, re-rankings and treatments --------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("seed", "request_"),
    [
        (1, {"distances": "cosine", "also": ["dba(k=3)+k_reciprocal(k1=5,k2=2)", "flip_sign"]}),
        (2, {"also": ["top(k_reciprocal(k1=4,k2=2),m=20)", "gnn(k1=6,k2=2)", "treatments"], "single_shot": True}),
        (3, {"distances": "euclidean", "also": ["l2+aqe(k=2)", "camera_norm(least_rows=5)"]}),
    ],
)
def test_rows_of_what_is_also_tried_are_runs_of_their_own(seed, request_):
    query, gallery = made_sets(seed)
    table = conventions(query, gallery, metrics="mAP,CMC@1", **request_)
    assert_rows_are_runs(table, query, gallery)
    plain = conventions(query, gallery, metrics="mAP,CMC@1", **{**request_, "also": None})
    n_plain = sum(row.stages.name == "" for row in table.rows)
    assert [row.value for row in table.rows[:n_plain]] == [row.value for row in plain.rows]
    assert {row.run[1] for row in table.rows[n_plain:]} >= {"flip_sign"} or seed == 3
    assert not any(row.codes for row in table.rows[n_plain:])
    assert len({row.stages.name for row in table.rows}) > 1


def test_treatments_are_what_numpy_makes_of_features():
    query, gallery = made_sets(7)
    rows = [side.read(0, side.n_rows) * np.float32(1.2345678) for side in (query, gallery)]
    sides = [(side.pids, side.camids, side.item_ids) for side in (query, gallery)]
    given = [FeatureSet.from_arrays(each, *labels) for each, labels in zip(rows, sides, strict=True)]
    expected = {
        "float16": [each.astype(np.float16) for each in rows],
        "flip_sign": [rows[0], -rows[1]],
        "l2": [(each.astype(float) / np.sqrt((each.astype(float) ** 2).sum(1))[:, None]) for each in rows],
    }
    for name, features in expected.items():
        made = [
            FeatureSet.from_arrays(each.astype(np.float32), *labels)
            for each, labels in zip(features, sides, strict=True)
        ]
        options = {"distance": "euclidean", "confidence": None}
        changed, other = evaluate(*given, expand=name, **options), evaluate(*made, **options)
        assert changed.metrics == other.metrics, name
        assert changed.expand["name"] == name
        assert changed.metrics != evaluate(*given, **options).metrics or name == "float16"


def test_passes_are_few_and_counted(monkeypatch):
    passes = []

    def counted(job, *rest):
        passes.append(job.distance.name)
        return run_job(job, *rest)

    class Counts(Progress):
        def __init__(self):
            self.stages, self.done = {}, 0

        def start(self, totals):
            self.stages.update(totals)

        def advance(self, stage):
            self.done += 1

    shown = Counts()
    monkeypatch.setattr("reid_dist.evaluation.convention_passes.run_job", counted)
    table = conventions(*made_sets(), metrics="mAP", also=["gnn(k1=6,k2=2)", "l2", "l2"], progress=shown)
    # gnn is defined by cosine, and under cosine lengths make no difference.
    assert passes[:4] == ["cosine", "euclidean", "cosine", "euclidean"]
    assert (shown.stages, shown.done) == ({"passes": 4}, 4)
    unfit = [note.values for note in table.notes if note.code == "unfit_stages"]
    assert [(each["stages"].partition("(")[0], each["distance"]) for each in unfit] == [("gnn", "euclidean")]
    assert info("no_lengths", stages="l2", distance="cosine") in table.notes
    alone = conventions(*made_sets(), metrics="mAP", distances="cosine", also="l2")
    assert info("no_lengths", stages="l2", distance="cosine") in alone.notes
    assert info("also_left_out") not in table.notes
    assert info("also_left_out") in conventions(*made_sets(), metrics="mAP", distances="cosine").notes
    n_passes = len(passes)
    with pytest.raises(InputError, match="passes"):
        conventions(*made_sets(), also=[f"aqe(k={k})" for k in range(1, 32)])
    assert len(passes) == n_passes


def test_a_target_finds_a_re_ranking():
    query, gallery = made_sets()
    report = evaluate(query, gallery, rerank="k_reciprocal(k1=5,k2=2)", metrics="mAP,CMC@1")
    target = f"mAP={100 * report.metrics['mAP']:.4f}"
    table = conventions(query, gallery, targets=target, also=["flip_sign", "k_reciprocal(k1=5,k2=2)"])
    (best,) = {table.rows[place].stages for place in table.candidates[0].rows}
    assert best.options == {"rerank": best.name}
    assert best.name.startswith("k_reciprocal(k1=5,k2=2,")
    described = json.loads(table.to_json())["rows"]
    assert {row.get("rerank") for row in described} == {None, best.name}
    assert {row.get("expand") for row in described} == {None, "flip_sign"}
    # Rows have it as it was asked for; one note has every parameter.
    (shown,) = table.tables()
    assert all(best.name not in str(cell) for row in shown.rows for cell in row)
    assert f"--rerank '{best.name}'" in " ".join(note.text for note in shown.notes)


def test_protocols_can_be_pasted_into_a_pipeline():
    table = conventions(*made_sets())
    described = {json.dumps(row.setting.describe()): row for row in table.rows}
    assert sum(bool(row.setting.parts) for row in described.values()) >= 10
    for text, row in described.items():
        if row.setting.parts:
            assert ProtocolComponents(**json.loads(text)).compose() == row.protocol
        else:
            assert row.setting.name == row.protocol.name


# ---- what sets do not allow ------------------------------------------------------------------------------------------


def small(pids, camids=None, items=None, paths=None, scale=1.0):
    rng = np.random.default_rng(len(pids))
    features = scale * rng.standard_normal((len(pids), 4)).astype(np.float32)
    return FeatureSet.from_arrays(features, np.array(pids), camids, items, image_paths=paths)


def test_sets_without_cameras():
    table = conventions(small([1, 2]), small([1, 2, 2], [0, 1, 1]))
    assert set(rows_of(table)) == {"no_cameras"}
    assert values_of(table, "no_camids") == {"sides": ("query",)}
    assert noted(table, "pid_is_absent") == [info("pid_is_absent", pid=-1), info("pid_is_absent", pid=0)]


def test_own_rows_that_only_paths_identify():
    paths = ["a", "b"]
    table = conventions(small([1, 2], paths=paths), small([1, 2, 2], paths=[*paths, "c"]))
    assert {"no_cameras", "same_set"} <= set(rows_of(table))
    # Item ids go first where both sides have them.
    named = [small(pids, items=ids, paths=of) for pids, ids, of in (([1, 2], [7, 8], paths), ([1, 2], [5, 6], paths))]
    table = conventions(*named)
    assert set(rows_of(table)) == {"no_cameras"}
    assert values_of(table, "no_same_set") == {"n": 2, "by": "image_paths"}


def test_settings_without_a_valid_query_are_left_out():
    table = conventions(small([1, 2], [0, 0]), small([1, 2, 2], [0, 0, 0]))
    assert set(rows_of(table)) == {"no_cameras"}
    assert values_of(table, "no_valid_query_under")["conventions"] == ("market1501",)
    with pytest.raises(InputError, match="no query has a relevant gallery item"):
        conventions(small([1, 2]), small([3, 4, 5]))


def test_zero_vectors_leave_cosine_out():
    query, gallery = small([1, 2]), small([1, 2, 2], scale=0.0)
    table = conventions(query, gallery)
    assert {row.distance for row in table.rows} == {"euclidean"}
    unfit = values_of(table, "unfit_distance")
    assert unfit["distance"] == "cosine"
    assert "gallery rows are all zeros" in unfit["why"]
    with pytest.raises(InputError, match="all zeros"):
        conventions(query, gallery, distances=["cosine"])


def test_distances_that_rank_alike_share_their_rows():
    query, gallery = made_sets(5)
    sets = []
    for side in (query, gallery):
        rows = side.read(0, side.n_rows)
        sets.append(FeatureSet.from_arrays(np.sign(rows) + (rows == 0), side.pids, side.camids))
    table = conventions(*sets)
    # Rows of one length rank alike.
    assert {row.distance for row in table.rows} == {"cosine"}
    assert info("ranks_alike", distance="euclidean", other="cosine") in table.notes
    assert "open-reid" in {code.name for code in rows_of(table)["market1501"].codes}
    assert_rows_are_runs(table, *sets)


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_a_target_finds_its_convention():
    query, gallery = made_sets()
    report = evaluate(query, gallery, protocol="market1501_matlab", metrics=["mAP_trapezoid", "CMC@1"])
    texts = [f"mAP={100 * report.metrics['mAP_trapezoid']:.3f}", f"rank-1={report.metrics['CMC@1']:.4f}"]
    table = conventions(query, gallery, targets=texts)
    best = table.candidates[0]
    assert best.matches
    found = [table.rows[place] for place in best.rows]
    assert [(row.setting.name, row.metric, row.distance) for row in found] == [
        ("market1501_matlab", "mAP_trapezoid", "cosine"),
        ("market1501_matlab", "CMC@1", "cosine"),
    ]
    assert max(map(abs, best.differences)) < 1e-4
    spans = [max(map(abs, each.differences)) for each in table.candidates]
    n = len(table.matches)
    assert spans[:n] == sorted(spans[:n])
    assert spans[n:] == sorted(spans[n:])
    for each in table.candidates:
        rows = [table.rows[place] for place in each.rows]
        assert len({(row.setting.name, row.distance) for row in rows}) == 1
        values = (100 * rows[0].value, rows[1].value)
        inside = [abs(values[0] - float(texts[0][4:])) <= 5e-4, abs(values[1] - float(texts[1][7:])) <= 5e-5]
        assert each.matches == all(inside)


def test_cmc_at_several_ranks_is_of_one_kind():
    table = conventions(*made_sets(), targets=["CMC@1=50", "CMC@5=60", "mINP=0.5"], single_shot=True)
    for each in table.candidates:
        assert len({table.rows[place].metric.partition("@")[0] for place in each.rows[:2]}) == 1
    assert {table.rows[each.rows[0]].metric for each in table.candidates} == {
        *("CMC@1", "CMC_allshots@1", "CMC_single_shot@1"),
    }


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        ("mAP=74.7", 0.747, 0.0005),
        ("mAP = 74.70%", 0.747, 0.00005),
        ("mAP=0.747", 0.747, 0.0005),
        ("mAP=0.9%", 0.009, 0.0005),
        ("CMC@1=88", 0.88, 0.005),
        ("top-5=1", 1.0, 0.5),
        ("mAP_found@7=.25", 0.25, 0.005),
    ],
)
def test_digits_as_printed(text, value, half):
    table = conventions(*made_sets(), targets=text, metrics="mINP", distances="cosine")
    (target,) = table.targets
    assert (float(target.value), float(target.half)) == (value, half)
    inside = [each for each in table.candidates if abs(each.differences[0]) <= half]
    assert list(table.matches) == inside


def test_a_value_matches_up_to_half_a_unit_of_the_last_digit():
    (target,) = parse_targets("mAP=75.0")
    found = [target.matches(value) for value in (0.74949, 0.7496, 0.75, 0.75049, 0.75051, 0.7506)]
    assert found == [False, True, True, True, False, False]


@pytest.mark.parametrize("text", ["mAP=68.2", "mAP=68.3", "mAP=0.682", "mAP=0.683%"])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_tie_is_rounded_either_way(text, shift):
    # 0.6825 and 0.006825 are no doubles, and a mean may be the double on either side of them.
    (target,) = parse_targets(text)
    value = 0.00683 - 5e-6 if text.endswith("%") else 0.6825
    assert target.matches(value + shift * np.spacing(value))
    assert not target.matches(value + 1e-9 * np.sign(value - float(target.value)))


def test_no_match():
    table = conventions(*made_sets(), targets="mAP=3.14159")
    assert table.matches == ()
    assert table.candidates
    assert table.records()[0].column("distance")[0].text == table.rows[table.candidates[0].rows[0]].distance
    assert "rows  the first 20 of " in repr(table)


def test_the_nearest_say_how_many_are_not_shown():
    table = conventions(*made_sets(), targets="mAP=3.14159")
    (shown,) = table.tables()
    (more,) = [note for note in shown.notes if note.name == "rows"]
    # Metrics of equal values share a line.
    sizes = Counter((table.rows[each.rows[0]].run, each.differences) for each in table.candidates)
    n_shown = sum(list(sizes.values())[: len(shown.rows)])
    assert str(more.text).startswith(f"{len(table.candidates) - n_shown} ")
    # The form that the note names has them all.
    assert len(table.records()[0].rows) >= len(table.candidates)
    (few,) = replace(table, candidates=table.candidates[:2]).tables()
    assert "rows" not in {note.name for note in few.notes}


def test_composed_settings_say_where_they_are_written():
    (*_, last) = conventions(*made_sets(), distances="cosine").tables()
    words = [str(note.text) for note in last.notes if note.name == "setting"]
    assert any("protocol: {" in each for each in words)
    assert "reid-dist run" in words[-1]
    (nearest,) = conventions(*made_sets(), targets="mAP=3").tables()
    assert any("reid-dist run" in str(note.text) for note in nearest.notes)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"targets": "mAPP=3"}, UnknownNameError, "did you mean 'mAP'"),
        ({"targets": "mAP"}, InputError, "METRIC=NUMBER"),
        ({"targets": "mAP=high"}, InputError, "METRIC=NUMBER"),
        ({"targets": "mAP=-3"}, InputError, "METRIC=NUMBER"),
        ({"targets": "mAP=747"}, InputError, "at most 100"),
        ({"targets": ["mAP=3", "mAP=4"]}, InputError, "two targets for mAP"),
        ({"targets": "TAR@FAR=0.1=3"}, InputError, "no function of the ranks"),
        ({"targets": [3]}, InputError, "a text such as"),
        ({"metrics": "EER"}, InputError, "no function of the ranks"),
        ({"metrics": "CMC_single_shot@1"}, InputError, "single_shot=True"),
        ({"distances": "manhattan"}, UnknownNameError, "distance 'manhattan'"),
        ({"also": "k_reciprocl"}, UnknownNameError, "did you mean 'k_reciprocal'"),
        ({"also": ["k_reciprocal+aqe(k=3)"]}, InputError, "comes last and alone"),
        ({"also": "aqe"}, InputError, "number of neighbours"),
        ({"also": ""}, InputError, "a name or a call"),
        ({"also": "gnn", "distances": "euclidean"}, InputError, "defined by cosine"),
    ],
)
def test_mistakes(options, error, words):
    with pytest.raises(error, match=words):
        conventions(*made_sets(), **options)


def test_a_treatment_that_features_do_not_allow_is_left_out_and_the_table_stays():
    query, gallery = made_sets()
    large = FeatureSet.from_arrays(1e6 * query.read(0, query.n_rows), query.pids, query.camids)
    table = conventions(large, gallery, metrics="mAP", distances="cosine", also="treatments")
    assert {row.stages.name for row in table.rows} == {"", "flip_sign"}
    (left_out,) = [note for note in table.notes if note.code == "unfit_stages"]
    assert (left_out.values["stages"], left_out.values["distance"]) == ("float16", "cosine")
    plain = conventions(large, gallery, metrics="mAP", distances="cosine")
    assert [row.value for row in table.rows if not row.stages.name] == [row.value for row in plain.rows]
