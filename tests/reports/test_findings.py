"""The wording of every code in one file, findings as documents, and those of parts of a job.

``golden/findings.txt`` holds the sentences of the examples below.  After a sentence was changed on purpose, write the
file anew: ``REID_DIST_WRITE_GOLDEN=1 pytest tests/reports/test_findings.py``.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reid_dist
from reid_dist import Report
from reid_dist.core.finding_words import WORDINGS
from reid_dist.core.findings import (
    CAUTION,
    INFO,
    WARNING,
    Finding,
    caution,
    gravest_first,
    info,
    of_parts,
    warning,
)

GOLDEN = Path(__file__).parent / "golden" / "findings.txt"
MAKERS = {"info", "caution", "warning", "say"}

OWN = {"n": 30, "n_valid": 1200}
CHANCE = {"metric": "mAP", "result": 0.0312, "chance": 0.0298, "low": 0.0271, "high": 0.0325, "in_order": 0.503}
FEW = {"number": 1320, "least": 10, "smallest": "0.00758"}
WORSE = {"n_points": 2, "n_all": 6, "worst": "ecn(k=120)"}
CAMERAS: dict[str, Any] = {"query": ["c1", "c2"], "gallery": ["C1", "C2", "C3"]}
PUBLISHED = {"benchmark": "veri776", "source": "a/b: eval.py"}
SCORES = [("mAP", 0.6788, -0.0062), ("CMC@1", None, None)]
# Of each code, at least one example of its values.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "text": [{"text": "a note of an earlier version"}],
    "input": [{"text": "features were float64 and have been rounded to float32"}],
    "sides_swapped": [
        {"n_junk": 60, "junk_pids": [-1, 0], "n_query": 4000, "n_gallery": 60, "few_rows": True},
        {"n_junk": 1, "junk_pids": [-1], "n_query": 5, "n_gallery": 60, "few_rows": False},
        {"n_junk": 0, "junk_pids": [-1], "n_query": 90, "n_gallery": 30, "few_rows": True},
    ],
    "repeated_items": [
        {"side": "gallery", "n": 5, "n_rows": 36, "by": "item_ids", "row": 31, "first": "7", "source": "/data/g.zarr"},
        {"side": "set", "n": 1, "n_rows": 2, "by": "image_paths", "row": 1, "first": "a.jpg", "source": None},
    ],
    "unknown_cameras": [{"n_query": 12, "of_query": 24, "n_gallery": 1, "of_gallery": 1, "camera": -1}],
    "cameras_numbered_apart": [
        {"query": ["0", "1", "2"], "gallery": ["1", "2", "3"], "apart": False, "starts": [0, 1]},
        {"query": ["1"], "gallery": ["0", *map(str, range(2, 10))], "apart": True, "starts": [1, 0]},
    ],
    "cameras_spelled_apart": [CAMERAS],
    "cameras_apart": [{"query": ["3", "6"], "gallery": ["1", "2", "4", "5"]}],
    "labels_exchanged": [{"side": "query set"}],
    "same_labels": [{**OWN, "remedy": "protocol", "labels": []}],
    "own_rows": [
        {**OWN, "by": "content", "remedy": "protocol", "labels": []},
        {**OWN, "by": "item_ids", "remedy": "item ids", "labels": []},
        {**OWN, "by": "image_paths", "remedy": "paths", "labels": []},
        {**OWN, "by": "item_ids", "remedy": "labels", "labels": ["camid", "clothes"]},
    ],
    "identical_features": [{**OWN, "remedy": remedy} for remedy in ("names", "cameras", "item ids")],
    "chance_level": [
        {**CHANCE, "cause": cause}
        for cause in ("gallery", "query", "between", "query or between", "features", "distances")
    ]
    + [{**CHANCE, "metric": "CMC@10", "in_order": None, "cause": "features"}],
    "tied_pairs": [{"n": 4, "n_pairs": 6}],
    "reversed_order": [{"result": 0.01, "reversed": 0.6512, "given": given} for given in (True, False)]
    + [{"result": 0.01, "reversed": 0.6512, "given": True, "similarity": True}],
    "few_valid_queries": [
        {"n_valid": 1, "n_query": 100, "at_zero": False},
        {"n_valid": 1700, "n_query": 3368, "at_zero": True},
    ],
    "few_identities": [{"n": 1}, {"n": 7}],
    "narrow_intervals": [
        {"n_units": 1, "unit": "identity", "enough": 15},
        {"n_units": 7, "unit": "query", "enough": 15},
        {"n_units": 4, "unit": "identity", "enough": 15, "rates": ["FPIR", "FNIR"]},
    ],
    "few_false_accepts": [
        {"names": ["TAR@FAR=1e-5"], "of": "impostor pair", **FEW},
        {"names": ["DIR@FAR=0.1", "DIR@FAR=0.2"], "of": "non-mated query", "number": 1, "least": 10, "smallest": None},
    ],
    "roc_few_false_accepts": [{"n": 1, "n_points": 31, **FEW}, {"n": 12, "n_points": 31, **FEW}],
    "nearest_alone": [{}],
    "no_bounds_of_ties": [{"metric": "BAKS_votes@3", "why": "the rows at the k-th distance vote only in some orders"}],
    "hit_rate_named_recall": [{"spelled": "recall@5", "metric": "CMC@5", "k": 5}],
    "recall_is_a_share": [{"names": ["R@5", "R@10"], "hit_rates": ["CMC@5", "CMC@10"]}],
    "cut_lists": [{"length": 100, "last_rank": 50}],
    "bounded_metrics": [{"names": ["mAP", "mINP"]}],
    "rows_not_counted": [{"n_query": 1, "n_gallery": 1040}],
    "gnn_entries": [{"lists": 26.0, "rounds": [(301.25, 40.5), (512.0, 61.0)]}],
    "top_of_lists": [{"m": 1000, "n_gallery": 19732}, {"m": 1000, "n_gallery": 100}],
    "reranking_is_worse": [
        {
            "metric": "mAP",
            **WORSE,
            "before": 0.4684,
            "after": 0.2916,
            "low": -0.1932,
            "high": -0.1608,
            "is_share": True,
        },
        {"metric": "EER_T", **WORSE, "before": 0.5, "after": 0.625, "low": 0.1, "high": 0.15, "is_share": False},
    ],
    "other_gallery": [{"benchmark": "veri_wild_small", "n_identities": 8, "expected": 3000}],
    "published_means": [{"benchmark": "regdb", "runs": "ten models"}],
    "other_code": [
        {**PUBLISHED, "shares": "ranking", "metrics": SCORES, "n_valid": None, "n_draws": None},
        {**PUBLISHED, "shares": "distances", "metrics": SCORES, "n_valid": 1, "n_draws": None},
        {**PUBLISHED, "shares": "", "metrics": SCORES, "n_valid": None, "n_draws": 10},
    ],
    "other_code_by_command": [{**PUBLISHED, "ranks": "other galleries"}],
    "groups_with_few_rows": [
        {"n": 1, "n_groups": 1500, "of": "identity", "n_rows": 4, "side": "gallery"},
        {"n": 20, "n_groups": 1, "of": "identity-camera pair", "n_rows": 1, "side": "query"},
    ],
    "groups_without_query": [{"n": 1500, "n_groups": 1600, "of": "identity"}],
    "cameras_not_drawn": [{"n": 1, "side": "gallery"}],
    "junk_not_drawn": [
        {"n": 2793, "pid": -1, "side": "gallery", "where": where} for where in (["gallery", "queries"], ["gallery"])
    ],
    "one_split": [{}],
    "metric_of_some_runs": [{"metric": "EER", "runs": ["run 2"]}, {"metric": "EER", "runs": ["run 1", "run 2"]}],
    "no_mean": [
        {"metric": "EER", "why": why, "runs": ["run 1", "run 3"]} for why in ("no value", "known only between bounds")
    ],
    "same_result": [{"runs": ["run 1", "run 3", "run 4", "run 5", "run 6"]}],
    "models_of_one_set": [{}],
    "several_versions": [
        {"what": "version of reid_dist", "values": [("0.1.0", ["run 1", "run 2"]), ("0.2.0", ["run 3"])]}
    ],
    "queries_resampled": [{}],
    "no_verdict": [{"n_units": 5, "unit": unit, "level": 0.95} for unit in ("identity", "query")],
    "other_valid_queries": [{"baseline": 3, "candidate": 2}],
    "other_invalid_rule": [{}],
    "no_camids": [{"sides": ["query", "gallery"]}, {"sides": ["query"]}],
    "unlike_camids": [{"why": "camids of the query set are texts"}],
    "no_single_shot": [{}],
    "no_same_set": [{"n": 1, "by": "image_paths"}, {"n": 2, "by": "item_ids"}],
    "pid_is_absent": [{"pid": -1}],
    "unfit_distance": [{"distance": "cosine", "why": "3 of 3 gallery rows are zero vectors"}],
    "no_valid_query_under": [{"conventions": ["market1501", "market1501, pid -1 kept"]}],
    "ranks_alike": [{"distance": "euclidean", "other": "cosine"}],
    "euclidean_ranks": [{}],
    "no_lengths": [{"stages": "l2", "distance": "cosine"}],
    "unfit_stages": [{"stages": "gnn(k1=26)", "distance": "euclidean", "why": "gnn is defined by cosine similarities"}],
    "also_left_out": [{}],
}
PARTS = Finding("tied_pairs", WARNING, {"n": 4, "n_pairs": 6}, ("split", 3, 10, 0))


def lines() -> Iterator[str]:
    for code, examples in EXAMPLES.items():
        yield code
        yield from (f"    {info(code, **values)}" for values in examples)
    yield "in parts of a job"
    yield f"    {PARTS}"


def test_every_code_has_its_words_in_the_file() -> None:
    assert list(EXAMPLES) == list(WORDINGS)
    text = "".join(f"{line}\n" for line in lines())
    if os.environ.get("REID_DIST_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


def made_codes() -> dict[str, list[str]]:
    """Modules that make each code, by the calls in the source of the package."""
    found: dict[str, list[str]] = {}
    for path in Path(reid_dist.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.setdefault(first.value, []).append(path.name)
    return found


def test_every_code_is_made_somewhere_and_every_made_one_is_worded() -> None:
    assert set(made_codes()) == set(WORDINGS) - {"text"}


@pytest.mark.parametrize(("code", "values"), [(code, each) for code, some in EXAMPLES.items() for each in some])
def test_documents_give_findings_back(code: str, values: dict[str, Any]) -> None:
    found = caution(code, **values)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    restored = Finding.restored(document)
    assert (restored, hash(restored), str(restored)) == (found, hash(found), document["text"])
    assert {name: document[name] for name in ("code", "severity")} == {"code": code, "severity": CAUTION}
    assert pickle.loads(pickle.dumps(found)) == found


def test_findings_of_parts_are_documents_too() -> None:
    assert Finding.restored(json.loads(json.dumps(PARTS.to_dict()))) == PARTS


def test_values_are_plain_and_never_change() -> None:
    names = ["a"]
    found = info("input", n=np.int64(3), share=np.float32(0.5), missing=np.nan, names=names, rows=np.arange(2))
    names.append("b")
    assert found.values == {"n": 3, "share": 0.5, "missing": None, "names": ("a",), "rows": (0, 1)}
    assert {type(value) for value in found.values.values()} == {int, float, type(None), tuple}
    assert len({found, info("input", **found.values), info("input", n=3)}) == 2


def test_notes_of_other_versions_are_texts(make_report: Any, tmp_path: Path) -> None:
    old = ["warning: query and gallery may be swapped", "one split has no spread"]
    restored = [*map(Finding.restored, old)]
    assert restored == [warning("text", text="query and gallery may be swapped"), info("text", text=old[1])]
    # A code of a later version, and values that this version does not know.
    later = ("new", {"x": 1}), ("few_identities", {"number": 1}), ("identical_features", {**OWN, "remedy": "new"})
    for code, values in later:
        entry = {"code": code, "severity": CAUTION, "values": values, "text": "its sentence"}
        assert Finding.restored(entry) == caution("text", text="its sentence")
    assert Finding.restored({**PARTS.to_dict(), "severity": "later"}) == PARTS
    report = make_report(n_query=40, n_invalid=0, notes=[*restored, PARTS])
    loaded = Report.load(report.save(tmp_path / "run"))
    assert loaded.notes == report.notes
    assert loaded.findings == gravest_first(report.notes)
    assert loaded.result_digest == make_report(n_query=40, n_invalid=0, notes=[]).result_digest


def test_the_gravest_are_first_and_each_is_there_once() -> None:
    notes = [info("one_split"), caution("nearest_alone"), warning("few_identities", n=1), info("one_split")]
    assert [each.severity for each in gravest_first(notes)] == [WARNING, CAUTION, INFO]


def test_findings_of_one_kind_in_several_parts_are_one() -> None:
    same, other = warning("tied_pairs", n=4, n_pairs=6), warning("tied_pairs", n=5, n_pairs=6)
    assert of_parts([[same], [same]], "split") == [same]
    (found,) = of_parts([[], [same], [other]], "split")
    assert found == Finding("tied_pairs", WARNING, same.values, ("split", 2, 3, 1))
    # Texts tell kinds apart: these are about two metrics.
    names = [[info("hit_rate_named_recall", spelled=f"r{k}", metric=f"CMC@{k}", k=k)] for k in (1, 5)]
    assert of_parts(names, "split") == [*names[0], *names[1]]
    mild = [[caution("few_identities", n=n)] for n in (7, 8)]
    assert len(of_parts(mild, "point", warnings_alone=True)) == 2
    assert len(of_parts(mild, "point")) == 1
