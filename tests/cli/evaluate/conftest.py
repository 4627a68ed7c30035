"""Stores, labels, distances and ground truth; `reid-dist evaluate` on them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from evaluate_sets import N_GALLERY, N_QUERY

from reid_dist import FeatureSet


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Stores with item ids and clothes, labels alone, distances, and ground truth in both forms."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(81)
    centres = rng.integers(-2, 3, (8, 5))
    labels = {}
    for role, n in (("query", N_QUERY), ("gallery", N_GALLERY)):
        pids = rng.integers(1, 9, n)
        # Whole numbers, hence ties; and queries whose identity the gallery lacks.
        features = (centres[pids - 1] + rng.integers(-1, 2, (n, 5))).astype(np.float32)
        pids = np.where(np.arange(n) % 6 == 5, pids + 100, pids) if role == "query" else pids
        labels |= {f"{role}_pids": pids, f"{role}_camids": rng.integers(0, 3, n)}
        FeatureSet.from_arrays(
            features, pids, labels[f"{role}_camids"], [f"{role}_{i:03}" for i in range(n)],
            columns={"clothes": rng.integers(0, 2, n)}, allow_zero=True,
        ).save(folder / f"{role}.zarr")  # fmt: skip
    np.savez(folder / "labels.npz", **labels)
    np.save(folder / "block.npy", rng.integers(0, 9, (N_QUERY, N_GALLERY)).astype(np.float16))
    names = ("good", "ok", "junk")
    place = rng.choice(4, (N_QUERY, N_GALLERY), p=[0.1, 0.1, 0.1, 0.7])
    truth = [{name: np.flatnonzero(row == i).tolist() for i, name in enumerate(names)} for row in place]
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "other.json").write_text(json.dumps([{**entry, "ok": []} for entry in truth]))
    (folder / "truth").mkdir()
    for i, entry in enumerate(truth):
        (folder / "truth" / f"set_{i:03}_query.txt").write_text(f"query_{i:03} 0 0 10 10\n")
        for name, rows in entry.items():
            text = "".join(f"gallery_{row:03}\n" for row in rows)
            (folder / "truth" / f"set_{i:03}_{name}.txt").write_text(text)
    return folder


@pytest.fixture
def run(reid_dist, data, threads):
    """Call ``reid-dist evaluate`` on the stores, or on labels alone where something takes the features' place."""

    def call(*words, sides=None):
        if sides is None:
            alone = {"--distances", "--lists"} & set(map(str, words))
            sides = ["labels.npz"] * 2 if alone else ["query.zarr", "gallery.zarr"]
        return reid_dist("evaluate", *(data / side for side in sides), "--cluster", threads, *words)

    return call


@pytest.fixture
def answer(run):
    """The report of a call as a dict."""

    def call(*words, **options):
        done = run(*words, "--json", **options)
        assert done.code == 0, done.err
        return json.loads(done.out)

    return call


@pytest.fixture
def refused(run):
    """Call, and return the error line of the refusal."""

    def call(*words, **options):
        return run(*words, **options).assert_refused()

    return call
