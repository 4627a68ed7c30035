"""Small data sets of models that are better or worse, and suites over them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from reid_dist import FeatureSet
from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import Run
from reid_dist.nightly.running import NightContext, run_suite
from reid_dist.nightly.suite import read_suite

N_IDENTITY, N_CAMERA, DIM = 60, 4, 24
_RNG = np.random.default_rng(5)
_CENTRES = _RNG.standard_normal((N_IDENTITY, DIM))
_PIDS = {"query": np.repeat(np.arange(N_IDENTITY), 3), "gallery": np.repeat(np.arange(N_IDENTITY), 8)}
_CAMIDS = {name: _RNG.integers(0, N_CAMERA, len(pids)) for name, pids in _PIDS.items()}


def save_model(folder: Path, noise: float, seed: int = 0, *, n_more: int = 0) -> Path:
    """Write the features of a model of that noise, in the place of those that are there; of `n_more` gallery rows."""
    rng = np.random.default_rng(seed)
    for name in _PIDS:
        # The first rows once more, as other pictures of their identities.
        more = n_more if name == "gallery" else 0
        pids, camids = (np.concatenate([each[name], each[name][:more]]) for each in (_PIDS, _CAMIDS))
        target = folder / f"{name}.zarr"
        shutil.rmtree(target, ignore_errors=True)
        features = _CENTRES[pids] + noise * rng.standard_normal((len(pids), DIM))
        names = [
            f"{name}/{pid:04}_c{camid}_{row}.jpg" for row, (pid, camid) in enumerate(zip(pids, camids, strict=True))
        ]
        FeatureSet.from_arrays(features.astype(np.float32), pids, camids, image_paths=names).save(target)
    return folder


def write_suite(folder: Path, models: Mapping[str, Path | dict[str, Any]], jobs: dict[str, Any], **more: Any) -> Path:
    """Write a suite of models, paths or fields, on one data set."""
    content = {
        "suite": "small",
        "models": {name: each if isinstance(each, dict) else {"path": str(each)} for name, each in models.items()},
        "datasets": {"set": {"query": "{path}/query.zarr", "gallery": "{path}/gallery.zarr"}},
        "jobs": jobs,
        **more,
    }
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def threads(**callbacks: Any) -> NightContext:
    """The threads of this process."""
    return NightContext(connect=contextlib.nullcontext, **callbacks)


def run_night(suite: Path, context: NightContext | None = None, *, most_jobs: int = 99, **options: Any) -> Run:
    """Run the first jobs of a suite, with history and page beside it."""
    read, folder = read_suite(suite), suite.parent
    with History.open(folder / "nights.db") as history:
        return run_suite(
            read, [*read.planned()][:most_jobs], history, folder / "nights", context or threads(), **options
        )


def damage(store: Path) -> None:
    """Flip one byte of the features of a store."""
    chunk = max(
        (path for path in (store / "features").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
