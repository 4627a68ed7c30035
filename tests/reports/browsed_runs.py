"""Runs with lists, labels and pictures for the tests of the explorer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from full_report import write_images

from reid_dist import FeatureSet, Report, evaluate
from reid_dist.reports.browse import ListServer, Site

N_QUERY, N_GALLERY, K = 130, 400, 12

# A text that would be markup, a script or a path if it were taken for one.
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@contextmanager
def serving(site: Site) -> Iterator[ListServer]:
    """A server that answers, and ends however its test does."""
    with ListServer(site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def make_runs(folder: Path) -> tuple[Report, Report]:
    """Write stores with pictures to a folder, and evaluate them with features of more and of less noise.

    Identities have names, one of them markup; every seventh picture is missing; an item of the gallery is junk in one
    of twenty.
    """
    rng = np.random.default_rng(21)
    names = write_images(folder / "img" / HOSTILE[:20], 6, size=(32, 64))
    persons = np.array([f"person {at}" for at in range(11)] + [HOSTILE])
    centres = rng.standard_normal((len(persons), 8))
    runs = []
    sides = {}
    for side, n in (("query", N_QUERY), ("gallery", N_GALLERY)):
        who, cameras = rng.integers(0, len(persons), n), rng.integers(1, 5, n)
        pids = persons[who]
        if side == "gallery":
            pids = np.where(rng.random(n) < 0.05, "-1", pids)
        files = [names[row % 6] if row % 7 else "missing.jpg" for row in range(n)]
        paths = [f"img/{HOSTILE[:20]}/{name}" for name in files]
        sides[side] = (who, pids, cameras, paths, rng.standard_normal((n, 8)))
    for name, noise in (("plain", 0.9), ("other", 1.4)):
        stores = []
        for side, (who, pids, cameras, paths, errors) in sides.items():
            features = (centres[who] + noise * errors).astype(np.float32)
            features /= np.linalg.norm(features, axis=1, keepdims=True)
            made = FeatureSet.from_arrays(features, pids, cameras, image_paths=paths)
            stores.append(made.save(folder / f"{side}-{name}.zarr"))
        report = evaluate(*stores, topk=K)
        report.save(folder / name)
        runs.append(report)
    return runs[0], runs[1]
