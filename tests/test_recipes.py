"""The recipes of pipelines/README.md: what other frameworks hold is saved by these lines and gives their numbers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECTION = re.search(
    r"^## From other frameworks\n(.*?)^## ",
    (Path(__file__).parents[1] / "pipelines" / "README.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
N_QUERY, N = 12, 60


class Tensor(np.ndarray):
    """As much of a tensor as the recipes use."""

    def numpy(self) -> np.ndarray:
        return np.asarray(self)


def tensor(values: Any) -> Tensor:
    return np.asarray(values).view(Tensor)


@pytest.fixture(scope="module")
def items() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    pids, camids = np.resize(np.arange(1, 9), N), rng.integers(1, 5, N)
    features = rng.standard_normal((9, 16))[pids] + 1.2 * rng.standard_normal((N, 16))
    return features.astype(np.float32), pids, camids


def recipe(name: str) -> tuple[str, list[str]]:
    """Python lines (empty for none) and commands of a framework."""
    assert SECTION is not None
    (part,) = re.findall(rf"^### {re.escape(name)}\n(.*?)(?=^### |\Z)", SECTION[1], re.MULTILINE | re.DOTALL)
    code = re.findall(r"^```py\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    return "".join(code), commands.splitlines()


def run(reid_dist, commands: list[str]) -> dict[str, float]:
    """Metrics of the last command."""
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "reid-dist"
        more = ("--cluster", "threads.yaml", "--json") if words[0] == "evaluate" else ()
        done = reid_dist(*words, *more)
        assert done.code == 0, done.err
    return json.loads(done.out)["metrics"]


def published(
    distances: np.ndarray, pids: np.ndarray, camids: np.ndarray | None, own: bool = False
) -> dict[str, float]:
    """MAP and rank-1 of sorted rows: items of the query's identity and camera, or the query itself, left out."""
    average, first = [], []
    for i in range(N_QUERY):
        columns = np.arange(distances.shape[1])
        rows = columns if own else columns + N_QUERY
        same = pids[rows] == pids[i]
        left_out = (
            rows == i if own else same & (camids[rows] == camids[i]) if camids is not None else np.zeros_like(same)
        )
        order = np.argsort(distances[i], kind="stable")
        matches = same[order][~left_out[order]]
        if matches.any():
            precision = np.cumsum(matches) / np.arange(1, len(matches) + 1)
            average.append(precision[matches].mean())
            first.append(matches[0])
    return {"mAP": float(np.mean(average)), "CMC@1": float(np.mean(first))}


def euclidean(features: np.ndarray) -> np.ndarray:
    wide = features.astype(np.float64)
    return np.linalg.norm(wide[:N_QUERY, None] - wide[None, N_QUERY:], axis=2)


def cosine(features: np.ndarray) -> np.ndarray:
    unit = features.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return 1 - unit[:N_QUERY] @ unit[N_QUERY:].T


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    return tmp_path


def assert_equal(found: dict[str, float], expected: dict[str, float]) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "distances"), [("torchreid", euclidean), ("TransReID", cosine)])
def test_torchreid_and_transreid(reid_dist, here: Path, items, name: str, distances) -> None:
    features, pids, camids = items
    code, commands = recipe(name)
    q, g = slice(N_QUERY), slice(N_QUERY, N)
    held = {"qf": tensor(features[q]), "gf": tensor(features[g]), "q_pids": pids[q], "g_pids": pids[g]}
    exec(code, {"np": np, **held, "q_camids": camids[q], "g_camids": camids[g]})
    assert_equal(run(reid_dist, commands), published(distances(features), pids, camids))


def test_fastreid(reid_dist, here: Path, items) -> None:
    features, pids, camids = items
    code, commands = recipe("fast-reid")
    held: dict[str, Any] = {}
    for side, rows in (("query", slice(N_QUERY)), ("gallery", slice(N_QUERY, N))):
        held |= {f"{side}_features": tensor(features[rows]), f"{side}_pids": list(pids[rows])}
        held[f"{side}_camids"] = list(camids[rows])
    exec(code, held)
    assert_equal(run(reid_dist, commands), published(cosine(features), pids, camids))


def test_layumi(reid_dist, here: Path, items) -> None:
    features, pids, camids = items
    code, commands = recipe("Person_reID_baseline_pytorch")
    assert code == ""
    q, g = slice(N_QUERY), slice(N_QUERY, N)
    held = {"query_f": features[q], "query_label": pids[q], "query_cam": camids[q]}
    held |= {"gallery_f": features[g], "gallery_label": pids[g], "gallery_cam": camids[g]}
    from scipy.io import savemat

    savemat("pytorch_result.mat", held)
    found = run(reid_dist, commands)
    assert found["CMC@1"] == pytest.approx(published(cosine(features), pids, camids)["CMC@1"], abs=1e-12)
    assert "mAP_trapezoid" in found


def test_open_reid(reid_dist, here: Path, items) -> None:
    features, pids, camids = items
    code, commands = recipe("open-reid")
    names = [f"{pids[row]:04d}_{row}.jpg" for row in range(N)]
    listed = [(names[row], int(pids[row]), int(camids[row])) for row in range(N)]
    held = {"features": {names[row]: tensor(features[row]) for row in range(N)}}
    exec(code, {**held, "query": listed[:N_QUERY], "gallery": listed[N_QUERY:]})
    found = run(reid_dist, commands)
    expected = published(euclidean(features), pids, camids)
    assert found["mAP"] == pytest.approx(expected["mAP"], abs=1e-12)
    assert found["CMC_allshots@1"] > 0


def test_oml(reid_dist, here: Path, items) -> None:
    features, pids, _ = items

    class Dataset:
        def get_query_ids(self) -> Tensor:
            return tensor(np.arange(N_QUERY))

        def get_gallery_ids(self) -> Tensor:
            return tensor(np.arange(N))

        def get_labels(self) -> np.ndarray:
            return pids

    code, commands = recipe("OML")
    exec(code, {"embeddings": tensor(features), "dataset": Dataset()})
    wide = features.astype(np.float64)
    distances = np.linalg.norm(wide[:N_QUERY, None] - wide[None], axis=2)
    found = run(reid_dist, commands)
    assert_equal(found, published(distances, pids, None, own=True))
    # Its precision@10: hits by as many items as can be hits.
    precision = []
    for i, row in enumerate(distances):
        same = (pids == pids[i]) & (np.arange(N) != i)
        others = np.argsort(row)[np.argsort(row) != i]
        precision.append(same[others[:10]].sum() / min(10, same.sum()))
    assert found["P_min@10"] == pytest.approx(np.mean(precision), abs=1e-12)
