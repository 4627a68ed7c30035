"""Protocols put together from parts: relevance pair by pair, every list sorted, with ties everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.rank_metrics import value
from oracles.single_shot import expected_curve
from oracles.verification import pairs_of, tar_at_far
from support.reference import rank_one_query
from support.sampling import examples
from support.strategies import whole_numbers

from reid_dist import DistanceBlock, LabelledRows, compose_protocol, evaluate_distances
from reid_dist.errors import InputError
from reid_dist.relevance.protocols import PROTOCOLS

EXACT = 1e-12
METRICS = ("mAP", "mAP_trapezoid", "mINP", "CMC@1", "CMC@3", "CMC_allshots@2", "P@2")


# ------------------------------------------------------------------------------------------------------ the oracle


@dataclass(frozen=True)
class Items:
    """Labels of one side, one dict per item."""

    rows: list[dict]

    def labels(self):
        of = {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]}
        return LabelledRows(
            of["pid"], of["camid"], of["item_id"], columns={name: of[name] for name in ("clothes", "view")}
        )

    @property
    def pids(self):
        return np.array([row["pid"] for row in self.rows])


def agrees(query, item, label, merged=()):
    """Whether two items share a label; for one after "!", whether they differ in it.

    Cameras of one group of `merged` are one camera; an unknown one, -1, is none.
    """
    name = label.removeprefix("!")
    same = query[name] == item[name]
    if name == "camid":
        same = same and query[name] != -1
        same = same or any({query[name], item[name]} <= set(group) for group in merged)
    return not same if label.startswith("!") else same


def relation(rules, query, item):
    """What an item is to a query, as the parts read."""
    if item["pid"] in np.atleast_1d(rules.get("junk_pid", -1)):
        return "junk"
    if "gallery_cameras" in rules and item["camid"] not in rules["gallery_cameras"]:
        return "junk"
    merged = rules.get("merged_cameras", ())
    if any(all(agrees(query, item, label, merged) for label in rule) for rule in rules.get("junk", [])):
        return "junk"
    return "relevant" if query["pid"] == item["pid"] else "negative"


def masks(rules, query, gallery):
    """(relevant, junk), each (n_query, n_gallery); nothing is relevant to a query of a camera that does not count."""
    relations = np.array([[relation(rules, one, item) for item in gallery.rows] for one in query.rows])
    counted = np.array([one["camid"] in rules.get("query_cameras", [one["camid"]]) for one in query.rows])
    return (relations == "relevant") & counted[:, None], relations == "junk", counted


def oracle(rules, query, gallery, block, max_rank):
    """Metrics, curve, per-query values; None without a valid query."""
    relevant, junk, counted = masks(rules, query, gallery)
    rankings = [rank_one_query(*rows) for rows in zip(block, relevant, junk, strict=True)]
    valid = [i for i, ranking in enumerate(rankings) if ranking.ranks]
    if not valid:
        return None
    n = len(query.rows) if rules.get("invalid_query") == "counts as 0" else len(valid)

    def mean(values):
        return math.fsum(values) / n

    family = rules.get("cmc_family", "CMC")
    if family == "CMC_single_shot":
        shots = [expected_curve(block[i], relevant[i], junk[i], gallery.pids, max_rank) for i in valid]
        curve = [mean(map(float, values)) for values in zip(*shots, strict=True)]
    else:
        curve = [mean([value(f"{family}@{k}", rankings[i].ranks) for i in valid]) for k in range(1, max_rank + 1)]
    return {
        "metrics": {name: mean([value(name, rankings[i].ranks) for i in valid]) for name in METRICS},
        "optimistic": {name: mean([value(name, rankings[i].optimistic) for i in valid]) for name in METRICS},
        "pessimistic": {name: mean([value(name, rankings[i].pessimistic) for i in valid]) for name in METRICS},
        "curve": (family, curve),
        "AP": [value("mAP", ranking.ranks) if ranking.ranks else math.nan for ranking in rankings],
        "n_relevant": [len(ranking.ranks) for ranking in rankings],
        "n_kept": (~junk).sum(axis=1).tolist(),
        "relevant": relevant,
        "junk": junk,
        "counted": counted,
    }


# ---------------------------------------------------------------------------------------------------- many of them

PID_RULES = (
    *(("pid", "camid"), ("pid", "clothes"), ("pid", "clothes", "view"), ("camid", "pid"), ("item_id",)),
    *(("pid", "!clothes"), ("pid", "view", "!clothes"), ("!view", "pid", "camid"), ("pid", "!camid")),
)


@st.composite
def sets(draw, n_rows, first_item):
    def column(low, high):
        return draw(whole_numbers(n_rows, low, high)).tolist()

    named = {"pid": column(-1, 2), "camid": column(-1, 2), "clothes": column(0, 1), "view": column(0, 1)}
    return Items(
        [{**{name: values[i] for name, values in named.items()}, "item_id": first_item + i} for i in range(n_rows)]
    )


@st.composite
def parts(draw):
    """Parts of a protocol, most of them left out now and then."""
    rules = {"junk": draw(st.lists(st.sampled_from(PID_RULES), max_size=3, unique=True))}
    if draw(st.booleans()):
        rules["junk"].insert(
            draw(st.integers(0, len(rules["junk"]))), draw(st.sampled_from([("camid",), ("clothes",)]))
        )
    some = {
        "junk_pid": st.sampled_from([-1, None, 0, (0, -1)]),
        "gallery_cameras": st.sampled_from([(0,), (0, 2), (1, 2), (5,), (0, 1, 2)]),
        "ap_family": st.sampled_from(["mAP", "mAP_trapezoid"]),
        "cmc_family": st.sampled_from(["CMC", "CMC_allshots", "CMC_single_shot"]),
    }
    for name, values in some.items():
        if draw(st.booleans()):
            rules[name] = draw(values)
    if any("camid" in label for rule in rules["junk"] for label in rule) and draw(st.booleans()):
        rules["merged_cameras"] = draw(st.sampled_from([((0, 1),), ((2, 0),), ((0, 5), (1, 2)), ((1, 0, 2),)]))
    # Queries of other cameras cannot both be left out and count as 0.
    either = draw(st.sampled_from([None, "query_cameras", "invalid_query"]))
    if either == "query_cameras":
        rules["query_cameras"] = draw(st.sampled_from([(0,), (0, 2), (1, 2), (5,)]))
    elif either == "invalid_query":
        rules["invalid_query"] = draw(st.sampled_from(["left out", "counts as 0"]))
    return rules


@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_composition(data):
    n_query, n_gallery = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 16))
    # One item at least is on both sides, as a protocol of own rows alone requires.
    query, gallery = data.draw(sets(n_query, min(4, n_gallery - 1))), data.draw(sets(n_gallery, 0))
    block = data.draw(whole_numbers((n_query, n_gallery), 0, 3)).astype(np.float64)
    rules = data.draw(parts())
    chunk = data.draw(st.sampled_from([None, 3]))
    protocol = compose_protocol("mine", **rules)
    expected = oracle(rules, query, gallery, block, max_rank=6)
    options = {
        "protocol": protocol, "metrics": METRICS, "max_rank": 6, "ties": True, "topk": 5, "confidence": None,
        "chunk_rows": chunk,
    }  # fmt: skip
    given = DistanceBlock.from_array(block), query.labels(), gallery.labels()
    if expected is None:
        with pytest.raises(InputError, match="no query has a relevant gallery item"):
            evaluate_distances(*given, **options)
        return
    report = evaluate_distances(*given, **options)
    assert report.metrics == pytest.approx(expected["metrics"], abs=EXACT)
    for rule in ("optimistic", "pessimistic"):
        assert report.ties[rule] == pytest.approx(expected[rule], abs=EXACT)
    family, curve = expected["curve"]
    assert report.curves[family].tolist() == pytest.approx(curve, abs=EXACT)
    assert {name for name in report.curves if name.startswith("CMC")} == {family}
    np.testing.assert_allclose(report.per_query["AP"], expected["AP"], rtol=0, atol=EXACT)
    assert report.per_query["n_relevant"].tolist() == expected["n_relevant"]
    assert report.per_query["n_kept"].tolist() == expected["n_kept"]
    assert report.counts["n_junk"] == expected["junk"].sum()
    assert report.counts["n_junk_rows"] == sum(
        relation({**rules, "junk": []}, query.rows[0], item) == "junk" for item in gallery.rows
    )
    for i, reason in enumerate(report.per_query["reason"].tolist()):
        assert reason in true_reasons(rules, query.rows[i], gallery.rows, expected, i), i
    for i, row in enumerate(report.topk.index):
        listed = row[row >= 0]
        n = len(listed)
        assert listed.tolist() == sorted(range(n_gallery), key=lambda j, i=i: (block[i, j], j))[:n]
        assert report.topk.relevant[i, :n].tolist() == expected["relevant"][i, listed].tolist()
        if expected["counted"][i]:
            assert report.topk.junk[i, :n].tolist() == expected["junk"][i, listed].tolist()


def true_reasons(rules, query, gallery, expected, i):
    """All true reasons why a query is invalid; {""} for a valid one."""
    if not expected["counted"][i]:
        return {"camera_not_counted"}
    if expected["n_relevant"][i]:
        return {""}
    namesakes = [item for item in gallery if item["pid"] == query["pid"]]
    others = [item for item in namesakes if item["item_id"] != query["item_id"]]
    reasons = set()
    if not others:
        reasons.add("no_positive_in_gallery")
    if namesakes or expected["junk"][i].all():
        reasons.add("all_junk")
    by_camera = any("camid" in rule for rule in rules["junk"])
    if by_camera and any(item["camid"] == query["camid"] for item in namesakes):
        reasons.add("only_same_camera_positives")
    return reasons


# ------------------------------------------------------------------------------------------------------- one by one


@cache
def crowded():
    """30 queries, 150 gallery items, five of them on both sides by item id, distances of eight values."""
    rng = np.random.default_rng(71)

    def items(n, first_item):
        return Items(
            [
                {
                    "pid": int(rng.integers(-1, 6)), "camid": int(rng.integers(-1, 4)),
                    "clothes": int(rng.integers(0, 2)), "view": int(rng.integers(0, 2)), "item_id": first_item + i,
                }
                for i in range(n)
            ]
        )  # fmt: skip

    query = items(30, 145)
    for row in query.rows[::7]:
        row["pid"] += 50
    return query, items(150, 0), rng.integers(0, 8, (30, 150)).astype(np.float64)


def evaluate_crowded(protocol, **options):
    query, gallery, block = crowded()
    options = {"metrics": METRICS, "confidence": None, **options}
    return evaluate_distances(
        DistanceBlock.from_array(block), query.labels(), gallery.labels(), protocol=protocol, **options
    )


def test_parts_are_in_the_report():
    rules = {
        "junk": [["pid", "camid"], ["pid", "clothes"]], "query_cameras": [0, 3], "gallery_cameras": [1, 2],
        "junk_pid": -1, "cmc_family": "CMC_allshots",
    }  # fmt: skip
    described = evaluate_crowded(compose_protocol("mine", **rules)).protocol
    assert described["name"] == "mine"
    assert described["junk"] == "same pid and camid; same pid and clothes; pid -1; cameras other than 1, 2"
    assert described["query_cameras"] == "0, 3"
    assert described["cmc_family"] == "CMC_allshots"
    same_clothes = compose_protocol("mine", junk=[["pid", "camid"], ["pid", "!clothes"]])
    assert same_clothes.junk_in_words == "same pid and camid; same pid and other clothes; pid -1"
    assert same_clothes.relevant == "same pid, other camid, not junk by pid and other clothes"
    assert same_clothes.label_columns == ("clothes",)
    other = evaluate_crowded(compose_protocol("mine", base="market1501", summary="my own", source="a paper")).protocol
    assert (other["summary"], other["source"]) == ("my own", "a paper")


def test_registered_protocols_are_such_compositions():
    """Composed of the parts of a registered protocol, one gives the same bits."""
    for name in ("market1501", "market1501_matlab", "cuhk03_separate_cameras", "no_cameras", "same_set"):
        rules = PROTOCOLS.get(name)
        parts = ("junk", "junk_pid", "invalid_query", "cmc_family", "ap_family")
        mine = compose_protocol("mine", **{part: getattr(rules, part) for part in parts})
        assert evaluate_crowded(mine).result_digest == evaluate_crowded(name).result_digest, name
        assert (
            evaluate_crowded(compose_protocol("mine", base=name)).result_digest == evaluate_crowded(name).result_digest
        )


def test_rules_in_any_order_and_form():
    forms = [
        [("pid", "camid"), ("pid", "clothes")], (["clothes", "pid"], ("camid", "pid")),
        [["pid", "clothes"], ["pid", "camid"], ["pid", "clothes", "view"]],
        np.array([["pid", "camid"], ["pid", "clothes"]]),
    ]  # fmt: skip
    digests = {evaluate_crowded(compose_protocol("mine", junk=junk)).result_digest for junk in forms}
    assert len(digests) == 1
    cameras = [[0, 3], (0, 3), np.array([0, 3]), [np.int64(0), np.int8(3)]]
    assert len({compose_protocol("mine", query_cameras=form) for form in cameras}) == 1


def test_queries_of_other_cameras_are_excluded_from_verification():
    """Neither their pairs nor, among the probes, they themselves."""
    query, gallery, block = crowded()
    rules = {"junk": [("pid", "camid")], "query_cameras": (0, 3)}
    relevant, junk, counted = masks(rules, query, gallery)
    pairs = pairs_of(block[counted], relevant[counted], junk[counted])
    names = ["TAR@FAR=0.1", "TAR@FAR=0.5", "DIR@FAR=0.5"]
    found = evaluate_crowded(compose_protocol("mine", **rules), metrics=names)
    for rate in ("0.1", "0.5"):
        assert found.metrics[f"TAR@FAR={rate}"] == pytest.approx(float(tar_at_far(pairs, rate)), abs=EXACT)
    assert (found.verification["n_genuine"], found.verification["n_impostor"]) == (
        len(pairs.genuine), len(pairs.impostor),
    )  # fmt: skip
    rows = np.flatnonzero(counted)
    alone = evaluate_distances(
        DistanceBlock.from_array(block[rows]), Items([query.rows[i] for i in rows]).labels(), gallery.labels(),
        protocol=compose_protocol("mine", junk=rules["junk"]), metrics=names, confidence=None,
    )  # fmt: skip
    assert found.metrics == alone.metrics
    assert {name: found.verification[name] for name in ("n_mated", "n_non_mated")} == {
        name: alone.verification[name] for name in ("n_mated", "n_non_mated")
    }


def test_protocols_by_lists_can_be_changed():
    """Only the good ones count, those that are ok are hidden: the oracle gets the same as junk."""
    block = crowded()[2]
    place = np.random.default_rng(72).choice(4, block.shape, p=[0.1, 0.1, 0.1, 0.7])
    names = ("good", "ok", "junk")
    truth = [{name: np.flatnonzero(row == i).tolist() for i, name in enumerate(names)} for row in place]
    protocol = compose_protocol("good_only", base="oxford", relevant_lists=["good"], junk_lists=["ok", "junk"])
    report = evaluate_crowded(protocol, ground_truth=truth)
    rankings = [
        rank_one_query(row, kinds == 0, (kinds == 1) | (kinds == 2)) for row, kinds in zip(block, place, strict=True)
    ]
    values = [value("mAP", ranking.ranks) for ranking in rankings if ranking.ranks]
    assert report.metrics["mAP"] == pytest.approx(math.fsum(values) / len(values), abs=EXACT)
    assert report.counts["n_junk"] == ((place == 1) | (place == 2)).sum()


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"junk": [["camid"], ["clothes"]]}, "one rule of a single label can hide whole cameras"),
        ({"junk": [["camid", "clothes"]]}, r"found \('camid', 'clothes'\)"),
        ({"junk": [["pid", "item_id"]]}, "item_id names a single item and must be the only label"),
        ({"junk": [["!pid", "camid"]]}, r"such as \[pid, !clothes\], found \('!pid'"),
        ({"junk": [["pid", "clothes", "!clothes"]]}, "a junk rule names each label once"),
        ({"junk": [["pid", "!"]]}, "a junk rule names each label once, and after ! a camid or a label column"),
        ({"junk": ["pid", "camid"]}, r"a junk rule is a list of labels, such as \[pid, camid\], found 'pid'"),
        ({"junk": [[]]}, "a junk rule is a list of labels"),
        ({"junk": "camid"}, "a junk rule is a list of labels|must be a list of rules"),
        ({"junk": None}, "junk must be a list of rules"),
        ({"junks": []}, "unknown part of a protocol 'junks'; did you mean 'junk'"),
        ({"query_cameras": []}, "query_cameras must list whole numbers"),
        ({"merged_cameras": [2, 3], "junk": [["camid"]]}, "merged_cameras must list groups of whole numbers, such as"),
        ({"merged_cameras": [[2, 3], [3, 4]], "junk": [["camid"]]}, "merged_cameras must name each camera once"),
        ({"merged_cameras": [[2, 3]]}, "merged_cameras must belong to a junk rule that names camid"),
        ({"gallery_cameras": 3}, "gallery_cameras must list whole numbers, found 3"),
        ({"junk_pid": "-1"}, "junk_pid must be a whole number, a list of these, or None"),
        ({"invalid_query": "zero"}, "invalid_query must be one of left out, counts as 0, found 'zero'"),
        ({"query_cameras": [1], "invalid_query": "counts as 0"}, "give a query set of only these cameras"),
        ({"cmc_family": "cmc"}, "cmc_family must be one of CMC, CMC_allshots, CMC_single_shot, found 'cmc'"),
        ({"ap_family": "AP"}, "ap_family must be one of mAP, mAP_trapezoid, found 'AP'"),
        ({"reported": "P@1"}, "reported must be a list of names"),
        ({"summary": None}, "summary must be a text"),
        ({"relevant_lists": ["god"]}, "unknown list of a ground truth 'god'"),
        ({"relevant_lists": ["good"], "junk_lists": ["good"]}, "good cannot be relevant and junk"),
        ({"relevant_lists": ["good"], "junk": [["camid"]]}, "goes by lists, so junk would have no effect"),
        ({"base": "market1501", "relevant_lists": ["good"]}, "goes by lists, so junk, junk_pid would have no effect"),
        ({"junk_lists": ["junk"]}, "name its relevant_lists as well"),
        ({"base": "markt1501"}, "unknown protocol 'markt1501'; did you mean 'market1501'"),
    ],
    ids=lambda parts: str(parts) if isinstance(parts, dict) else "",
)
def test_invalid_parts_are_refused(parts, message):
    with pytest.raises(InputError, match=message) as refused:
        compose_protocol("mine", **parts)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_protocol_has_a_name(name):
    with pytest.raises(InputError, match="a protocol needs a name"):
        compose_protocol(name)


def test_names_of_others_are_taken():
    with pytest.raises(InputError, match="'market1501' is a protocol already, and reports name protocols only"):
        compose_protocol("market1501", junk=[["camid"]])


def test_labels_that_are_not_there():
    query, gallery, block = crowded()
    given = DistanceBlock.from_array(block)
    without_columns, without_cameras = (LabelledRows(query.pids, camids) for camids in (np.zeros(30, int), None))
    far = gallery.labels()
    by_clothes = compose_protocol("mine", base="market1501", junk=[["pid", "cloth"]])
    with pytest.raises(InputError, match="reads the label column 'cloth', and query and gallery have none"):
        evaluate_distances(given, query.labels(), far, protocol=by_clothes)
    by_clothes = compose_protocol("mine", junk=[["pid", "clothes"]])
    with pytest.raises(InputError, match=r"(?s)column 'clothes', and query has none.*columns there: clothes, view"):
        evaluate_distances(given, without_columns, far, protocol=by_clothes)
    for parts in (
        {"query_cameras": [1]},
        {"gallery_cameras": [1]},
        {"junk": [["camid"]]},
        {"junk": [["pid", "camid"]]},
    ):
        with pytest.raises(InputError, match="protocol 'mine' needs camids, and query has none"):
            evaluate_distances(given, without_cameras, far, protocol=compose_protocol("mine", **parts))
    with pytest.raises(InputError, match="needs item_ids or image_paths, and query has no item ids"):
        evaluate_distances(given, without_cameras, far, protocol=compose_protocol("mine", junk=[["item_id"]]))


def test_cameras_that_are_texts_have_no_numbers_of_their_own():
    """Numbered apart, camera 1 of the one set is not camera 1 of the other."""
    block = DistanceBlock.from_array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    query = LabelledRows([1, 2], ["east", "west"])
    protocol = compose_protocol("mine", gallery_cameras=[1])
    with pytest.raises(
        InputError, match="counts cameras by number, and the two sets number the texts of their camids dif"
    ):
        evaluate_distances(block, query, LabelledRows([1, 2, 1], ["north", "west", "east"]), protocol=protocol)
    alike = evaluate_distances(block, query, LabelledRows([1, 2, 1], ["east", "west", "east"]), protocol=protocol)
    assert alike.per_query["n_relevant"].tolist() == [2, 0]
