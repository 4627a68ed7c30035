"""Excerpts of the pages run with what another program has in their place, and give that program's numbers.

Blocks of a page in ``py`` and ``sh`` are excerpts.  Those of a section run in their order, in the setting that has its
heading; a section without a setting, and a block that its setting leaves, are errors.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reid_dist import Report, evaluate
from reid_dist.compat import eval_func
from reid_dist.torch import ReIDMetric
from tests.documentation.pages import EXCERPT, EXCERPT_COMMANDS, PAGES, Block, blocks

N_QUERY, N = 12, 60

SECTIONS = {
    key: list(found)
    for key, found in groupby(
        (each for each in blocks(*PAGES) if each.language in (EXCERPT, EXCERPT_COMMANDS)),
        key=lambda each: (each.page, each.section),
    )
}


class Tensor(np.ndarray):
    """As much of a tensor as the excerpts use."""

    def numpy(self) -> np.ndarray:
        return np.asarray(self)


def tensor(values: Any) -> Tensor:
    return np.asarray(values).view(Tensor)


class Items:
    """Features and labels; the first rows are the queries."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.pids, self.camids = np.resize(np.arange(1, 9), N), rng.integers(1, 5, N)
        features = rng.standard_normal((9, 16))[self.pids] + 1.2 * rng.standard_normal((N, 16))
        self.features = features.astype(np.float32)
        self.sides = {"query": slice(N_QUERY), "gallery": slice(N_QUERY, N)}


class Excerpts:
    """The blocks of a section, run one after the other."""

    def __init__(self, found: list[Block], reid_dist: Any) -> None:
        self.left, self._reid_dist = [*found], reid_dist

    def run_code(self, names: dict[str, Any]) -> dict[str, Any]:
        """Run the next block with names, and return all that there are then."""
        block = self.left.pop(0)
        assert block.language == EXCERPT
        exec(compile(block.text, f"{block.page}, line {block.line}", "exec"), names)
        return names

    def run_commands(self) -> dict[str, float]:
        """Run the next block; return the metrics of its last command."""
        block = self.left.pop(0)
        assert block.language == EXCERPT_COMMANDS
        for command in block.commands:
            program, *words = shlex.split(command)
            assert program == "reid-dist"
            done = self._reid_dist(*words, "--cluster", "threads.yaml", "--json")
            assert done.code == 0, done.err
        found: dict[str, float] = json.loads(done.out)["metrics"]
        return found


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


def assert_equal(found: dict[str, float], expected: dict[str, float]) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)


SETTINGS: dict[str, Callable[[Excerpts, Items], None]] = {}


def setting(name: str) -> Callable[[Callable[[Excerpts, Items], None]], Callable[[Excerpts, Items], None]]:
    def add(function: Callable[[Excerpts, Items], None]) -> Callable[[Excerpts, Items], None]:
        SETTINGS[name] = function
        return function

    return add


@pytest.mark.parametrize("section", SECTIONS, ids=" ".join)
def test_excerpts_give_the_numbers_of_their_program(
    section: tuple[str, str], reid_dist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("threads.yaml").write_text("kind: threads\n")
    excerpts = Excerpts(SECTIONS[section], reid_dist)
    SETTINGS[section[1]](excerpts, Items())
    assert excerpts.left == []


def test_every_setting_has_a_section() -> None:
    assert {section for _, section in SECTIONS} == set(SETTINGS)


@setting("torchreid")
def run_in_torchreid(excerpts: Excerpts, items: Items) -> None:
    excerpts.run_code(in_an_engine(items))
    assert_equal(excerpts.run_commands(), published(euclidean(items.features), items.pids, items.camids))


@setting("TransReID")
def run_in_transreid(excerpts: Excerpts, items: Items) -> None:
    excerpts.run_code(in_an_engine(items))
    assert_equal(excerpts.run_commands(), published(cosine(items.features), items.pids, items.camids))


def in_an_engine(items: Items) -> dict[str, Any]:
    """Names in the function that evaluates."""
    held: dict[str, Any] = {"np": np}
    for side, rows in items.sides.items():
        letter = side[0]
        held |= {f"{letter}f": tensor(items.features[rows]), f"{letter}_pids": items.pids[rows]}
        held[f"{letter}_camids"] = items.camids[rows]
    return held


@setting("fast-reid")
def run_in_fastreid(excerpts: Excerpts, items: Items) -> None:
    held: dict[str, Any] = {}
    for side, rows in items.sides.items():
        held |= {f"{side}_features": tensor(items.features[rows]), f"{side}_pids": list(items.pids[rows])}
        held[f"{side}_camids"] = list(items.camids[rows])
    excerpts.run_code(held)
    assert_equal(excerpts.run_commands(), published(cosine(items.features), items.pids, items.camids))


@setting("Person_reID_baseline_pytorch")
def run_after_layumi(excerpts: Excerpts, items: Items) -> None:
    held = {}
    for side, rows in items.sides.items():
        held |= {f"{side}_f": items.features[rows], f"{side}_label": items.pids[rows]}
        held[f"{side}_cam"] = items.camids[rows]
    from scipy.io import savemat

    savemat("pytorch_result.mat", held)
    found = excerpts.run_commands()
    expected = published(cosine(items.features), items.pids, items.camids)
    assert found["CMC@1"] == pytest.approx(expected["CMC@1"], abs=1e-12)
    assert "mAP_trapezoid" in found


@setting("open-reid")
def run_in_open_reid(excerpts: Excerpts, items: Items) -> None:
    names = [f"{items.pids[row]:04d}_{row}.jpg" for row in range(N)]
    listed = [(names[row], int(items.pids[row]), int(items.camids[row])) for row in range(N)]
    held = {"features": {names[row]: tensor(items.features[row]) for row in range(N)}}
    excerpts.run_code({**held, "query": listed[:N_QUERY], "gallery": listed[N_QUERY:]})
    found = excerpts.run_commands()
    expected = published(euclidean(items.features), items.pids, items.camids)
    assert found["mAP"] == pytest.approx(expected["mAP"], abs=1e-12)
    assert found["CMC_allshots@1"] > 0


@setting("OML")
def run_after_oml(excerpts: Excerpts, items: Items) -> None:
    dataset = SimpleNamespace(
        get_query_ids=lambda: tensor(np.arange(N_QUERY)),
        get_gallery_ids=lambda: tensor(np.arange(N)),
        get_labels=lambda: items.pids,
    )
    excerpts.run_code({"embeddings": tensor(items.features), "dataset": dataset})
    wide = items.features.astype(np.float64)
    distances = np.linalg.norm(wide[:N_QUERY, None] - wide[None], axis=2)
    found = excerpts.run_commands()
    assert_equal(found, published(distances, items.pids, None, own=True))
    # Its precision@10: hits by as many items as can be hits.
    precision = []
    for i, row in enumerate(distances):
        same = (items.pids == items.pids[i]) & (np.arange(N) != i)
        others = np.argsort(row)[np.argsort(row) != i]
        precision.append(same[others[:10]].sum() / min(10, same.sum()))
    assert found["P_min@10"] == pytest.approx(np.mean(precision), abs=1e-12)


def report_of(items: Items) -> Report:
    sides = [(items.features[rows], items.pids[rows], items.camids[rows]) for rows in items.sides.values()]
    return evaluate(*sides, metrics=["mAP", "CMC@1"], distance="euclidean")


def batches(items: Items) -> list[tuple[np.ndarray, ...]]:
    is_query = np.arange(N) < N_QUERY
    return [
        (items.features[rows], items.pids[rows], items.camids[rows], rows, is_query[rows])
        for rows in np.split(np.arange(N), 5)
    ]


@setting("Lightning")
def run_in_a_module(excerpts: Excerpts, items: Items) -> None:
    class Module:
        """As much of a module as the excerpt uses; the tests of processes of training run the framework."""

        logged: dict[str, float]

        def __call__(self, images: np.ndarray) -> np.ndarray:
            return images

        def log_dict(self, values: dict[str, float]) -> None:
            self.logged = values

    names = excerpts.run_code({"LightningModule": Module, "Trainer": SimpleNamespace, "ReIDMetric": ReIDMetric})
    model = names["Model"]()
    for number, batch in enumerate(batches(items)):
        model.validation_step(batch, number)
    model.on_validation_epoch_end()
    expected = published(cosine(items.features), items.pids, items.camids)
    assert_equal(model.logged, {f"val/{name}": value for name, value in expected.items()})


@setting("Evaluate in a training loop")
def run_in_a_loop(excerpts: Excerpts, items: Items) -> None:
    logged = []
    names = excerpts.run_code(
        {
            "loader": batches(items),
            "model": lambda images: images,
            "epoch": 3,
            "logger": SimpleNamespace(log_metrics=lambda values, step: logged.append((values, step))),
        }
    )
    expected = published(cosine(items.features), items.pids, items.camids)
    assert_equal(names["values"], {f"val/{name}": value for name, value in expected.items()})
    assert logged == [(names["values"], 3)]


@setting("Log a report")
def run_with_loggers(excerpts: Excerpts, items: Items) -> None:
    logged: list[dict[str, float]] = []

    def note(*values: Any, **_: Any) -> None:
        logged.append(next(each for each in values if isinstance(each, dict)))

    loggers = {"writer": "add_scalars", "wandb": "log", "mlflow": "log_metrics"}
    held = {name: SimpleNamespace(**{method: note}) for name, method in loggers.items()}
    excerpts.run_code({**held, "report": report_of(items), "epoch": 3})
    expected = published(euclidean(items.features), items.pids, items.camids)
    assert len(logged) == 3
    for values in logged:
        assert values == pytest.approx({"mAP": expected["mAP"], "CMC_1": expected["CMC@1"]}, abs=1e-12)


@setting("Replace your evaluation function")
def run_with_a_matrix(excerpts: Excerpts, items: Items) -> None:
    distances = euclidean(items.features)
    labels = {
        f"{side[0]}_{name}": values[rows]
        for name, values in (("pids", items.pids), ("camids", items.camids))
        for side, rows in items.sides.items()
    }
    names = excerpts.run_code({"distmat": distances, **labels})
    expected = published(distances, items.pids, items.camids)
    assert names["mAP"] == pytest.approx(expected["mAP"], abs=1e-12)
    assert names["cmc"][0] == pytest.approx(expected["CMC@1"], abs=1e-12)
    cmc, mean = eval_func(distances, *labels.values())
    assert (cmc.tolist(), mean) == (names["cmc"].tolist(), names["mAP"])
