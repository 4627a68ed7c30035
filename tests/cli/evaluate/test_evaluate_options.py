"""Every option of ``reid-dist evaluate``: the result of Python, or one line with what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from evaluate_sets import open_labels, open_sets

from reid_dist import DistanceBlock, evaluate, evaluate_distances, evaluate_lists

# -------------------------------------------------------------------------------------------- the answer of Python

OPTIONS = {
    "ties": (["--ties"], {"ties": True}),
    "tables": (
        ["--breakdown", "camera", "--breakdown", "camera_pair", "--breakdown", "clothes", "--breakdown", "identity"],
        {"breakdowns": ["camera", "camera_pair", "clothes", "identity"]},
    ),
    "sizes": (
        ["--breakdown", "gallery_size", "--gallery-size", "10", "--gallery-size", "0.5", "--gallery-size", "1.0"],
        {"breakdowns": ["gallery_size"], "gallery_sizes": [10, 0.5, 1.0]},
    ),
    "one_row": (
        ["--breakdown", "gallery_size", "--gallery-size", "1"],
        {"breakdowns": ["gallery_size"], "gallery_sizes": [1]},
    ),
    "order": (
        ["--breakdown", "gallery_size", "--gallery-order", "random", "--seed", "3"],
        {"breakdowns": ["gallery_size"], "gallery_order": "random", "seed": 3},
    ),
    "verification": (
        ["--roc", "--metric", "TAR@FAR=0.01", "--metric", "EER", "--metric", "DIR@FAR=0.1", "--metric", "mAP"],
        {"roc": True, "metrics": ["TAR@FAR=0.01", "EER", "DIR@FAR=0.1", "mAP"]},
    ),
    "single_shot": (["--protocol", "cuhk03"], {"protocol": "cuhk03"}),
    "draws": (
        ["--protocol", "cuhk03", "--single-shot-draws", "10", "--seed", "5"],
        {"protocol": "cuhk03", "single_shot_draws": 10, "seed": 5},
    ),
    "curves": (["--max-rank", "7", "--topk", "5", "--chunk-rows", "11"], {"max_rank": 7, "topk": 5}),
    "intervals": (["--confidence", "0.8", "--seed", "4"], {"confidence": 0.8, "seed": 4}),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("words", "options"), OPTIONS.values(), ids=OPTIONS)
def test_options_of_python(answer, data, words, options):
    found = answer(*words)
    expected = json.loads(evaluate(*open_sets(data), **options).to_json())
    for part in ("result_digest", "ties", "breakdowns", "verification", "confidence", "curves", "protocol", "topk"):
        assert found[part] == expected[part], part
    assert {**found["options"], "metrics": None} == {**expected["options"], "metrics": None}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["truth.json", "truth"])
def test_ground_truth(answer, data, form):
    """Lists in JSON and a directory of text files are one ground truth."""
    found = answer("--protocol", "oxford", "--ground-truth", data / form)
    truth = json.loads((data / "truth.json").read_text())
    expected = evaluate(*open_sets(data), protocol="oxford", ground_truth=truth)
    assert found["result_digest"] == expected.result_digest
    assert found["protocol"]["ground_truth"]["content_digest"] == expected.protocol["ground_truth"]["content_digest"]


def test_distances(answer, data):
    found = answer("--distances", data / "block.npy", "--ties", "--topk", "3")
    block = DistanceBlock.open(data / "block.npy")
    expected = evaluate_distances(block, *open_labels(data), ties=True, topk=3)
    assert found["result_digest"] == expected.result_digest
    assert found["topk"]["digest"] == expected.topk.digest
    assert found["distance"]["name"] == "given"
    assert found["inputs"]["distances"]["content_digest"] == block.content_digest
    # Stores give their labels, and their features are not read.
    stores = answer("--distances", data / "block.npy", sides=["query.zarr", "gallery.zarr"])
    assert stores["result_digest"] == answer("--distances", data / "block.npy")["result_digest"]


def test_lists_of_an_earlier_run(answer, run, data, tmp_path):
    earlier = answer("--topk", "10", "--output", tmp_path / "earlier")
    lists = tmp_path / "earlier" / "topk.npz"
    found = answer("--lists", lists)
    with np.load(lists) as arrays:
        expected = evaluate_lists(arrays["index"], *open_labels(data))
    assert found["result_digest"] == expected.result_digest
    assert {"mAP", "mINP"} <= set(found["bounds"])
    for name, (low, high) in found["bounds"].items():
        assert low <= earlier["metrics"][name] <= high
    for name, value in found["metrics"].items():
        assert value == earlier["metrics"][name]
    printed = run("--lists", lists).out
    assert "between" in printed
    assert "lists of length 10" in printed


def test_sides_in_files_of_their_own(answer, data, tmp_path):
    """Labels by their plain names, one file for each side, and an index without distances."""
    with np.load(data / "labels.npz") as arrays:
        for role in ("query", "gallery"):
            np.savez(tmp_path / f"{role}.npz", pids=arrays[f"{role}_pids"], camids=arrays[f"{role}_camids"])
    sides = [tmp_path / "query.npz", tmp_path / "gallery.npz"]
    found = answer("--distances", data / "block.npy", sides=sides)
    assert found["result_digest"] == answer("--distances", data / "block.npy")["result_digest"]
    index = np.argsort(np.load(data / "block.npy"), axis=1, kind="stable")
    np.savez(tmp_path / "lists.npz", index=index)
    assert answer("--lists", tmp_path / "lists.npz", sides=sides)["metrics"] == found["metrics"]


def test_what_is_printed(run):
    done = run("--ties", "--breakdown", "camera", "--breakdown", "gallery_size", "--metric", "mAP", "--metric", "EER")
    text = " ".join(done.out.split())
    for part in ("mAP", "EER", "genuine pairs", "camera", "gallery_size", "optimistic", "intervals"):
        assert part in text, part
