"""The lines of the guide for training loops, run with arrays in place of what a framework has."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reid_dist import evaluate
from reid_dist.compat import evaluate_rank

GUIDE = Path(__file__).parents[2] / "pipelines" / "README.md"
N = 40


@pytest.fixture(scope="module")
def blocks():
    """Python lines of the section, block by block."""
    section = re.search(r"^## In a training loop\n(.*?)^## ", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^```py\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)


def test_the_lines_log_what_evaluate_gives(blocks):
    loop, loggers, matrix = blocks
    rng = np.random.default_rng(6)
    features, pids = rng.standard_normal((N, 4)).astype(np.float32), rng.integers(0, 6, N)
    camids, is_query = rng.integers(0, 2, N), np.arange(N) < 12
    sides = [(features[side], pids[side], camids[side]) for side in (is_query, ~is_query)]
    expected = evaluate(*sides, metrics=["mAP", "CMC@1"], distance="euclidean")
    logged = []
    loader = [(features[rows], pids[rows], camids[rows], rows, is_query[rows]) for rows in np.split(np.arange(N), 5)]

    def note(*values, **_):
        logged.append(next(each for each in values if isinstance(each, dict)))

    names = {
        "loader": loader,
        "model": lambda images: images,
        "epoch": 3,
        "logger": SimpleNamespace(log_metrics=note),
        "writer": SimpleNamespace(add_scalars=note),
        "wandb": SimpleNamespace(log=note),
        "mlflow": SimpleNamespace(log_metrics=note),
    }
    exec(loop, names)
    assert names["values"] == {f"val/{name}": names["metric"].report.metrics[name] for name in ("mAP", "CMC@1")}
    exec(loggers, {**names, "report": expected})
    assert logged == [names["values"], *[{"mAP": expected.metrics["mAP"], "CMC_1": expected.metrics["CMC@1"]}] * 3]

    distances = np.sqrt(((features[is_query][:, None] - features[~is_query][None]) ** 2).sum(axis=2))
    labels = (pids[is_query], pids[~is_query], camids[is_query], camids[~is_query])
    given = {
        "distmat": distances,
        **dict(zip(("q_pids", "g_pids", "q_camids", "g_camids"), labels, strict=True)),
    }
    exec(matrix, given)
    assert given["mAP"] == pytest.approx(expected.metrics["mAP"], abs=1e-12)
    assert given["cmc"].tolist() == evaluate_rank(distances, *labels)[0].tolist()
