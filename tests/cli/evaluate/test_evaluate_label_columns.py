"""Label columns of archives of labels."""

from __future__ import annotations

import json

import numpy as np
from evaluate_sets import N_GALLERY, N_QUERY


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
