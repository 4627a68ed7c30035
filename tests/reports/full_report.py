"""The fields of a report beside its numbers, hand-made: small, round, and with a gap of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reid_dist.reports import ImageSet, Pictures, Report, make_pictures

N_CAMERAS = 6


def confidence(names: list[str]) -> dict[str, Any]:
    return {
        "level": 0.95,
        "unit": "identity",
        "n_resamples": 1000,
        "seed": 7,
        "intervals": {name: [0.4123, 0.4567] for name in names},
    }


def breakdowns() -> dict[str, dict[str, Any]]:
    """Six cameras (one without a valid query), 57 identities, two values of a label, all camera pairs, a curve."""
    rng = np.random.default_rng(5)
    pair = rng.random((N_CAMERAS, N_CAMERAS)).round(4)
    np.fill_diagonal(pair, np.nan)
    pids = np.arange(100, 157)
    identity = 0.2 + (pids * 37 % 57) / 100  # a permutation: every identity has its own value
    return {
        "camera": {
            "camid": np.arange(1, 7),
            "n_query": np.array([400, 300, 500, 300, 250, 250]),
            "n_valid": np.array([398, 290, 497, 300, 0, 250]),
            "mAP": [0.5123, 0.4711, 0.6001, 0.3999, None, 0.5555],
            "CMC@1": [0.8123, 0.7711, 0.9001, 0.6999, None, 0.8555],
        },
        "identity": {
            "pid": pids,
            "n_query": np.full(57, 3),
            "n_valid": np.where(pids == 156, 0, 3),
            "mAP": [None if pid == 156 else value for pid, value in zip(pids, identity, strict=True)],
        },
        "clothes": {
            "value": ["<b>same</b>", "other"],
            "n_query": [1200, 800],
            "n_valid": [1200, 750],
            "mAP": [0.7, 0.3],
        },
        "camera_pair": {
            "query_camid": np.arange(1, 7),
            "gallery_camid": np.arange(1, 7),
            "n_valid": np.where(np.isnan(pair), 0, 120),
            "mAP": pair,
            "CMC@1": np.sqrt(pair),
        },
        "gallery_size": {
            "order": "random",
            "seed": 3,
            "n_rows": [1000, 3000, 10_000, 100_000, 1_000_000],
            "mAP": [0.83, 0.79, 0.72, None, 0.51],
            "CMC@1": [0.95, 0.94, 0.91, 0.85, 0.8],
        },
    }


def verification() -> dict[str, Any]:
    return {
        "n_genuine": 49_378,
        "n_impostor": 30_987_654,
        "thresholds": {"TAR@FAR=0.001": 0.31251234, "EER": 0.4321, "DIR@FAR=0.01": np.inf},
        "n_mated": 1_900,
        "n_non_mated": 44,
    }


def roc() -> dict[str, np.ndarray]:
    far = np.logspace(-6, 0, 61)
    return {"ROC_FAR": far, "ROC_TAR": far**0.05, "ROC_threshold": np.linspace(0.1, 1.3, 61)}


def write_images(directory: Path, n_images: int, *, size: tuple[int, int] = (64, 128)) -> list[str]:
    """Write pictures of two colours each, and return their names."""
    rng = np.random.default_rng(11)
    names = []
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(n_images):
        pixels = np.empty((size[1], size[0], 3), np.uint8)
        pixels[: size[1] // 2], pixels[size[1] // 2 :] = rng.integers(0, 255, (2, 3))
        names.append(f"{number:05d}.jpg")
        Image.fromarray(pixels).save(directory / names[-1])
    return names


def every_field(report: Report, images: Path) -> dict[str, Any]:
    """Changes that give a report every field, with pictures of its hardest queries."""
    names = write_images(images, 40)
    assert report.topk is not None
    n_gallery = report.counts["n_gallery"]
    pictures: Pictures = make_pictures(
        report,
        ImageSet(
            np.array([names[row % 40] for row in range(report.counts["n_query"])]),
            report.per_query["pid"],
            report.per_query["camid"],
        ),
        ImageSet(
            np.array([names[row % 40] if row % 13 else "missing.jpg" for row in range(n_gallery)]),
            np.arange(n_gallery),
            np.arange(n_gallery) % 6,
        ),
        chosen=[3],
        n_hardest=4,
        root=images,
    )
    return {
        "metrics": {**report.metrics, "TAR@FAR=0.001": 0.7079, "EER": 0.0521, "DIR@FAR=0.01": 0.61},
        "confidence": confidence([name for name in report.metrics if name != "MRR"]),
        "bounds": {"mAP@7": [0.12, 0.1875]},
        "ties": {
            **report.ties,
            "optimistic": {"mAP": 0.5, "CMC@1": 0.875},
            "pessimistic": {"mAP": 0.25, "CMC@1": 0.125},
        },
        "breakdowns": breakdowns(),
        "verification": verification(),
        "curves": {**report.curves, **roc(), "P": np.linspace(0.8, 0.1, 50), "R": np.linspace(0.1, 0.9, 50)},
        "pictures": pictures,
    }
