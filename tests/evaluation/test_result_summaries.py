"""Every result of a public function is short in a console and a table in a notebook."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import reid_dist
from reid_dist import FeatureSet, LabelledRows

# What is no result: arrays, and a protocol, which is an option of an evaluation.
PLAIN = {"NDArray[np.float64]", "Float64", "Protocol"}
DISTANCES = np.arange(12, dtype=np.float64).reshape(3, 4)


def side(n: int) -> FeatureSet:
    rng = np.random.default_rng(n)
    pids = np.arange(n) % 8
    features = rng.standard_normal((8, 12))[pids] + rng.standard_normal((n, 12))
    return FeatureSet.from_arrays(features.astype(np.float32), pids, np.arange(n) % 3)


@pytest.fixture(scope="module")
def results() -> dict[str, object]:
    """One result of every kind by the name of its class, and of tables those of one group and of two."""
    query, gallery = side(24), side(160)
    one, other = reid_dist.evaluate(query, gallery, topk=4), reid_dist.evaluate(query, gallery, distance="euclidean")
    elsewhere = reid_dist.evaluate(query, gallery, protocol="no_cameras")
    found = [
        *(one, one.topk, query, LabelledRows([1, 2], uri="labels.csv")),
        *(reid_dist.compare(one, other), reid_dist.average_runs([one, other], allow_different=True)),
        *(reid_dist.conventions(query, gallery, targets="mAP=20"), reid_dist.nearest(query, gallery, k=3)),
        *(reid_dist.operating_points(query, gallery), reid_dist.k_reciprocal_graph(gallery)),
        reid_dist.evaluate_pairs(query, gallery, [[0, 0], [1, 2], [3, 3]], [1, 0, 1]),
        reid_dist.evaluate_splits(query, gallery, repeats=2, metrics="mAP"),
        reid_dist.sweep_parameters(query, gallery, expand="aqe", k="0:2", metrics="mAP"),
        reid_dist.DistanceBlock.from_array(DISTANCES),
        reid_dist.compare_runs([one, other]),
    ]
    named = {type(each).__name__: each for each in found}
    return {**named, "two groups": reid_dist.compare_runs([one, other, elsewhere])}


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    for name in reid_dist.__all__:
        value = getattr(reid_dist, name)
        if inspect.isfunction(value):
            yield name, value


def is_written(method: Callable[..., object]) -> bool:
    """Whether a method is one of the package, and not made by a decorator or inherited from object."""
    return method.__module__.startswith("reid_dist.") and "<string>" not in method.__code__.co_filename


def test_every_public_function_returns_what_has_a_short_form() -> None:
    kinds = {}
    for name, function in functions():
        returned = function.__annotations__["return"]
        if returned not in PLAIN:
            module = importlib.import_module(function.__module__)
            kinds[name] = getattr(module, re.sub(r"^(?:list|tuple)\[(\w+).*", r"\1", returned))
    assert len(kinds) > 12
    # That of a data class would print every value.
    assert [name for name, kind in kinds.items() if "__repr__" in dir(kind) and not is_written(kind.__repr__)] == []


def test_results_are_short_in_a_console(results: dict[str, object]) -> None:
    for name, result in results.items():
        text = repr(result)
        assert len(text.splitlines()) <= 30, name
        assert max(map(len, text.splitlines())) < 230, name
        if name != "two groups":
            kind = "FeatureSet" if isinstance(result, FeatureSet) else name
            assert re.match(rf"{kind}(: .+)?(\n|$)", text), text
        assert "array(" not in text
        assert "(name=" not in text


def test_values_of_tables_are_those_of_the_results(results: dict[str, object]) -> None:
    table, average, comparison = results["RunTable"], results["RunAverage"], results["Comparison"]
    report = results["Report"]
    value = report.metrics["mAP"]
    assert value in [cell.value for cell in table.summary().column("mAP")]
    assert comparison.summary().column("baseline")[0].value == value
    assert [cell.text for cell in average.summary().column("metric")] == list(report.metrics)


def test_places_of_sets_are_shown(tmp_path: Path) -> None:
    stored = side(5).save(tmp_path / "five.zarr")
    assert repr(stored) == f"FeatureSet: 5 x 12 float32 at {stored.uri}"
