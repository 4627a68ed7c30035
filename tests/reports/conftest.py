"""A report as an evaluation would make it, with values drawn at random: 2,000 queries of the shape of Market-1501."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from full_report import every_field

from reid_dist.core.findings import info
from reid_dist.reports import Report, TopK

REASONS = ("no_positive_in_gallery", "only_same_camera_positives")


def _per_query(n_query: int, n_gallery: int, n_invalid: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    average, first = rng.random(n_query), rng.geometric(0.6, n_query).astype(np.float64)
    columns: dict[str, Any] = {
        "AP": average,
        "AP_trapezoid": 0.99 * average,
        "INP": average * rng.random(n_query),
        "first_rank": first,
        "last_rank": first + rng.integers(0, n_gallery // 2, n_query),
        "n_relevant": rng.integers(1, 20, n_query),
        "reason": np.full(n_query, "", dtype="<U60"),
        "pid": rng.integers(1, 751, n_query),
        "camid": rng.integers(1, 7, n_query),
    }
    invalid = rng.choice(n_query, n_invalid, replace=False)
    columns["reason"][invalid] = rng.choice(REASONS, n_invalid, p=(0.7, 0.3))
    for name in ("AP", "AP_trapezoid", "INP", "first_rank", "last_rank"):
        columns[name][invalid] = np.nan
    columns["n_relevant"][invalid] = 0
    return columns


def build_report(
    *,
    n_query: int = 2000,
    n_gallery: int = 15_913,
    n_invalid: int = 50,
    max_rank: int = 50,
    k: int | None = 10,
    seed: int = 0,
    **changes: Any,
) -> Report:
    columns = _per_query(n_query, n_gallery, n_invalid, seed)
    valid = columns["reason"] == ""
    first = columns["first_rank"][valid]
    cmc = np.array([np.mean(first <= rank) for rank in range(1, max_rank + 1)])
    mean_ap = float(np.mean(columns["AP"][valid]))
    rng = np.random.default_rng(seed)
    recall = np.linspace(0, 1, 101)
    fields: dict[str, Any] = {
        "metrics": {
            "mAP": mean_ap,
            "mINP": float(np.mean(columns["INP"][valid])),
            **{f"CMC@{rank}": float(cmc[rank - 1]) for rank in (1, 5, 10) if rank <= max_rank},
            "mAP_trapezoid": float(np.mean(columns["AP_trapezoid"][valid])),
            "MRR": float(np.mean(1 / first)),
        },
        "curves": {"CMC": cmc, "precision_recall": np.clip(1.0 - (1.6 * (1 - mean_ap)) * recall**2.2, 0, 1)},
        "counts": {
            "n_query": n_query,
            "n_valid": int(valid.sum()),
            "n_gallery": n_gallery,
            "n_junk": 78_123,
            "n_junk_rows": 2_793,
            "n_relevant": int(columns["n_relevant"].sum()),
            "n_invalid_by_reason": {
                reason: count for reason in REASONS if (count := int(np.sum(columns["reason"] == reason)))
            },
        },
        "per_query": columns,
        "protocol": {
            "name": "market1501",
            "summary": "another camera must see the person again",
            "source": "Zheng et al., ICCV 2015",
            "relevant": "same pid, other camid",
            "junk": "same pid and camid; pid -1",
            "invalid_query": "left out of every mean, counted and listed",
            "cmc_family": "CMC",
            "ap_family": "rectangle",
        },
        "distance": {"name": "cosine", "definition": "1 - <x, y> / (|x| |y|), products summed in float64"},
        "rerank": {"name": "k_reciprocal", "k1": 20, "k2": 6, "lambda_value": 0.3, "variant": "zhong"},
        "inputs": {
            side: {
                "uri": f"data/market/{side}.zarr",
                "shape": [rows, 2048],
                "dtype": "float32",
                "content_digest": f"blake3:{rng.bytes(32).hex()}",
            }
            for side, rows in (("query", n_query), ("gallery", n_gallery))
        },
        "ties": {"rule": "distance, then gallery row", "n_tied_pairs": 12},
        "environment": {
            "reid_dist": "0.1.0",
            "python": "3.11.7",
            "packages": {"numpy": "2.4.6", "zarr": "3.1.6", "dask": "2026.7.1"},
            "host": "node-17",
            "cpu": "AMD EPYC 9454 48-Core Processor",
            "git_commit": None,
        },
        "timing": {
            "open": 0.041,
            "plan": 0.002,
            "relevance": 0.22,
            "distances": 1.9,
            "counts": 11.3,
            "metrics": 0.31,
        },
        "notes": [info("text", text="12 pairs of a query and two gallery rows have exactly the same distance.")],
        "topk": None
        if k is None
        else TopK(
            index=rng.integers(0, n_gallery, (n_query, k)),
            distance=np.sort(rng.random((n_query, k)), axis=1),
            junk=rng.random((n_query, k)) < 0.1,
            relevant=rng.random((n_query, k)) < 0.5,
        ),
    }
    return Report(**(fields | changes))


@pytest.fixture(scope="session")
def report() -> Report:
    return build_report()


@pytest.fixture(scope="session")
def make_report() -> Callable[..., Report]:
    return build_report


@pytest.fixture(scope="session")
def full_report(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report with every field that it can have."""
    return dataclasses.replace(report, **every_field(report, tmp_path_factory.mktemp("images")))
