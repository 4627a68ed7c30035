"""Label columns of archives of labels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from evaluate_sets import N_GALLERY, N_QUERY, open_labels

from reid_dist import DistanceBlock, LabelledRows, evaluate_distances


@pytest.mark.slow
def test_label_columns_of_labels_alone(answer, data, tmp_path):
    """Columns of one's own in a file of labels break a block down, and are looked at by a protocol of lists."""
    with np.load(data / "labels.npz") as arrays:
        labels = dict(arrays)
    rng = np.random.default_rng(82)
    weather = {"query": rng.integers(0, 3, N_QUERY), "gallery": rng.integers(0, 3, N_GALLERY)}
    labels |= {f"{role}_columns/weather": values for role, values in weather.items()}
    np.savez(tmp_path / "weather.npz", **labels)
    sides = [tmp_path / "weather.npz"] * 2
    report = answer("--distances", data / "block.npy", "--breakdown", "weather", sides=sides)
    rows = [
        LabelledRows(labels[f"{role}_pids"], labels[f"{role}_camids"], columns={"weather": weather[role]})
        for role in ("query", "gallery")
    ]
    block = DistanceBlock.open(data / "block.npy")
    expected = evaluate_distances(block, *rows, breakdowns=["weather"])
    table = report["breakdowns"]["weather"]
    assert table == expected.breakdowns["weather"]
    assert table["value"] == [0, 1, 2]
    assert table["n_query"] == np.bincount(weather["query"]).tolist()
    # The mean of a group, from the values of its queries, which do not depend on columns.
    values = evaluate_distances(block, *open_labels(data)).per_query["AP"]
    for number, mean in enumerate(table["mAP"]):
        assert mean == pytest.approx(np.nanmean(values[weather["query"] == number]), abs=1e-12)


def test_a_protocol_that_looks_at_columns_of_labels_alone(reid_dist, data, threads, tmp_path):
    """Rows of the query's identity and weather are junk, in blocks and in lists."""
    with np.load(data / "labels.npz") as arrays:
        labels = dict(arrays)
    rng = np.random.default_rng(83)
    labels |= {
        "query_columns/weather": rng.integers(0, 2, N_QUERY),
        "gallery_columns/weather": rng.integers(0, 2, N_GALLERY),
    }
    np.savez(tmp_path / "weather.npz", **labels)
    block = np.load(data / "block.npy")
    np.savez(tmp_path / "lists.npz", index=np.argsort(block, axis=1, kind="stable"))
    same_pid = labels["query_pids"][:, None] == labels["gallery_pids"]
    same_weather = labels["query_columns/weather"][:, None] == labels["gallery_columns/weather"]
    expected = (same_pid & same_weather).sum()
    for ranking in (f"distances: {data}/block.npy", f"lists: {tmp_path}/lists.npz"):
        (tmp_path / "job.yaml").write_text(
            f"query: {tmp_path}/weather.npz\ngallery: {tmp_path}/weather.npz\n{ranking}\nmetrics: [mAP, CMC@1]\n"
            "protocol: {name: other_weather, junk: [[pid, weather]]}\n"
        )
        done = reid_dist("run", tmp_path / "job.yaml", "--cluster", threads, "--json")
        assert done.code == 0, done.err
        report = json.loads(done.out)
        assert report["counts"]["n_junk"] == expected > 0
        assert report["counts"]["n_relevant"] == (same_pid & ~same_weather).sum() > 0
