"""The policy of a job: made where the job is defined, sent with its tasks, recorded in its report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from distributed import Client
from support.exact_products import free_integers
from test_outputs import job_of

from reid_dist import FeatureSet, evaluate
from reid_dist.clusters.settings import forcing
from reid_dist.core.environment import has_integers
from reid_dist.engine.distances.integers import exact_product
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.errors import InputError
from reid_dist.evaluation.precompile import warm_up
from reid_dist.kernels.warmup import INTEGERS
from reid_dist.reports import Report

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No products are forced, and kernels of integers are on disk, here and for workers."""
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    warm_up(INTEGERS)


Sides = tuple[FeatureSet, FeatureSet]


def heaps(n_query: int, n_gallery: int) -> Sides:
    """Tight heaps: integers decide most of the pairs."""
    rng = np.random.default_rng(0)
    centres, made = rng.normal(size=(200, 16)), []
    for n in (n_query, n_gallery):
        pids = rng.integers(0, 200, n)
        rows = centres[pids] + 0.05 * rng.normal(size=(n, 16))
        made.append(FeatureSet.from_arrays(rows.astype(np.float32), pids, rng.integers(0, 4, n)))
    return made[0], made[1]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """Sets in stores with chunks that are large enough for integers, several for each worker."""
    folder = tmp_path_factory.mktemp("sides")
    for name, each in zip(("query", "gallery"), heaps(256, 32_768), strict=True):
        each.save(folder / f"{name}.zarr", chunk_rows=4096)
    return FeatureSet.open(folder / "query.zarr"), FeatureSet.open(folder / "gallery.zarr")


def evaluated(sides: Sides, client: Client | None = None, screen: str | None = None) -> Report:
    with forcing(screen):
        return evaluate(*sides, client=client, metrics=["mAP"])


def _hide_integers() -> None:
    sys.modules["onnxruntime"] = None  # type: ignore[assignment]
    has_integers.cache_clear()
    exact_product.cache_clear()


def _show_integers() -> None:
    del sys.modules["onnxruntime"]
    has_integers.cache_clear()
    exact_product.cache_clear()


@contextlib.contextmanager
def without_integers(client: Client) -> Iterator[None]:
    """One of the workers lacks the package that multiplies integers."""
    first = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    client.run(_hide_integers, workers=[first])
    try:
        yield
    finally:
        client.run(_show_integers, workers=[first])


def test_workers_with_integers_and_without(two_workers: Client, sides: Sides) -> None:
    """Each reads the products that it has; results are the same, and so are those of products that are forced."""
    alone = evaluated(sides)
    assert alone.environment["products"] == "int8"
    with without_integers(two_workers):
        mixed = evaluated(sides, two_workers)
        words = mixed.environment["products"]
        assert words.startswith("int8 for ")
        assert "float32" in words
        plain = evaluated(sides, two_workers, "float32")
        assert plain.environment["products"] == "float32"
        with pytest.raises(InputError, match="onnxruntime is not installed"):
            evaluated(sides, two_workers, "int8")
    again = evaluated(sides, two_workers, "int8")
    assert again.environment["products"] == "int8"
    assert {each.result_digest for each in (alone, mixed, plain, again)} == {alone.result_digest}
    forced = [each.environment["policy"] for each in (alone, mixed, plain, again)]
    common = {"integers": "onnxruntime", "device": "cuda", "on_workers": False, "device_integers": None}
    assert forced == [{"forced": which, **common} for which in (None, None, "float32", "int8")]


def test_a_job_takes_the_same_path_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs by kind of product, after jobs that took another one."""
    free_integers(monkeypatch)
    sides = heaps(60, 900)
    options = {"expand": "aqe(k=2)", "rerank": "k_reciprocal(k1=6,k2=2)", "topk": 3, "metrics": ["mAP"]}
    first = evaluate(*sides, **options).environment["products"]
    # Those of the re-ranking are neighbours; those of the expansion are lists, as are those of the report.
    words = dict(each.split(": ") for each in first.split("; "))
    assert words["neighbours"] == "int8"
    assert words["lists"].startswith("int8 for ")
    for screen in ("float32", "int8"):
        with forcing(screen):
            evaluate(*sides, **options)
        assert evaluate(*sides, **options).environment["products"] == first


def test_the_policy_is_no_part_of_an_identity(tmp_path) -> None:
    """Partial results of one policy are those of another."""
    rng = np.random.default_rng(1)
    rows = FeatureSet.from_arrays(rng.normal(size=(40, 6)).astype(np.float32), np.arange(40) % 9, np.arange(40) % 3)
    rows.save(tmp_path / "rows.zarr")
    opened = FeatureSet.open(tmp_path / "rows.zarr")
    job = job_of((opened, opened))
    assert job.policy == UNFORCED
    for policy in (Policy("float32"), Policy("int8"), Policy(None, "torch")):
        other = replace(job, policy=policy)
        assert (other.identity, other.token) == (job.identity, job.token)
