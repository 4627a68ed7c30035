"""One table: digests on the CPU and on the device, times, ratios to torch alone, and versions; at most four minutes.

On a machine with a GPU, in the root of the repository::

    python -m tests.device

``--scale 0.001 --where cpu`` does the same with smaller sets on torch's own CPU device.  What such a machine lacks of
the packages of `pyproject.toml` may lie as wheels in the folder ``.whl``, which git ignores: install them with ``pip
install --no-index --no-deps --target FOLDER .whl/*.whl``, and name the folder in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.core.environment import (
    DEVICE_INTEGERS_VARIABLE,
    SCREEN_VARIABLE,
    TORCH_DEVICE_VARIABLE,
    cpu_model,
    usable_cores,
)
from reid_dist.engine.distances.devices import TorchDevice, device_of

# What is timed by itself.
VARIANTS: dict[str, dict[str, str]] = {
    "in float32": {DEVICE_INTEGERS_VARIABLE: "0"},
    "in eight bits": {DEVICE_INTEGERS_VARIABLE: "1"},
}
K = 21
RERANK = "k_reciprocal"
SITUATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"topk": 7},
    {"distance": "euclidean", "topk": 5},
    {"protocol": "cuhk03"},
    {"collapse": "camid"},
    {"metrics": ["mAP", "EER", "TAR@FAR=0.01"], "roc": True},
    {"rerank": RERANK},
    {"ties": True},
)


@contextmanager
def setting(variables: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment of this process for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def seconds(compute: Callable[[], object], repeats: int = 1) -> float:
    """Shortest time of some calls."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        compute()
        taken.append(time.perf_counter() - began)
    return min(taken)


class Run:
    """The sections of the table."""

    def __init__(self, device: TorchDevice, scale: float) -> None:
        self.device, self.torch, self.scale, self.n_wrong = device, device.torch, scale, 0

    def n(self, number: int) -> int:
        return max(64, int(number * self.scale))

    def row(self, *cells: object) -> None:
        print(" | ".join(str(each) for each in cells), flush=True)

    def peak(self) -> str:
        """Most device memory since the last call, in GB."""
        if not self.device.is_cuda:
            return "-"
        found = self.torch.cuda.max_memory_allocated() / 1e9
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        return f"{found:.2f} GB"

    def unit_rows(self, n: int, dim: int) -> Any:
        """Random rows of length 1 on the device."""
        rows = self.torch.randn(n, dim, device=self.device.where)
        return rows / rows.norm(dim=1, keepdim=True)

    def labelled(self, n_query: int, n_gallery: int, dim: int, spread: float, n_pids: int) -> tuple[FeatureSet, ...]:
        """Both sides of an evaluation, around one centre per identity."""
        rng = np.random.default_rng(0)
        n_pids = min(n_pids, n_gallery // 4)
        centres = rng.standard_normal((n_pids, dim), np.float32)
        sides = []
        for n in (n_query, n_gallery):
            pids = rng.integers(0, n_pids, n)
            rows = centres[pids] + np.float32(spread) * rng.standard_normal((n, dim), np.float32)
            sides.append(FeatureSet.from_arrays(rows, pids, rng.integers(0, 6, n)))
        return tuple(sides)

    def digests(self) -> None:
        """Results on the CPU in float32, and on the device."""
        rng = np.random.default_rng(1)
        # Long rows of identities apart, so that lists and most ranks are read in eight bits where these are used.
        plain = self.labelled(100, 1500, 2048, 1.0, 40)
        crowded = tuple(
            FeatureSet.from_arrays(
                rng.integers(-1, 2, (n, 6)).astype(np.float16) + np.float16(0.5),
                rng.integers(0, 9, n),
                rng.integers(0, 3, n),
            )
            for n in (100, 900)
        )
        for name, sides in (("scattered", plain), ("ties, float16", crowded)):
            for options in SITUATIONS:
                found = []
                for which in ("float32", "cuda"):
                    with setting({SCREEN_VARIABLE: which}):
                        found.append(evaluate(*sides, **options))
                equal = found[0].result_digest == found[1].result_digest
                self.n_wrong += not equal
                self.row(name, options, "equal" if equal else "DIFFERENT", found[1].environment["products"])

    def torch_lists(self, rows: Any) -> float:
        """Seconds of torch alone for the nearest rows, by products in float32 and `topk`; from a part of the rows."""
        torch, n = self.torch, len(rows)
        part = min(n, 65536)

        def lists() -> None:
            for start in range(0, part, 8192):
                value, index = None, None
                for first in range(0, n, 131072):
                    some = torch.mm(rows[start : start + 8192], rows[first : first + 131072].T).topk(min(K, n - first))
                    if value is None:
                        value, index = some.values, some.indices + first
                    else:
                        value, place = torch.cat([value, some.values], 1).topk(K)
                        index = torch.cat([index, some.indices + first], 1).gather(1, place)
            if self.device.is_cuda:
                torch.cuda.synchronize()

        lists()
        return seconds(lists) * n / part

    def rates(self) -> None:
        """Times of products by themselves, which choose between them."""
        for dim in (64, 128, 512, 2048):
            found = self.device.rates(dim)
            pairs = ", ".join(f"{1e12 * each:.1f}" for each in found)
            chosen = "int8" if found.integers_pay else "float32"
            self.row(f"tiles of {dim} elements, float32 and int8", f"{pairs} ps a pair", f"{chosen} is used")

    def neighbours(self, number: int = 1_000_000) -> None:
        n = self.n(number)
        rows = self.unit_rows(n, 128)
        alone = self.torch_lists(rows)
        items = FeatureSet.from_arrays(rows.cpu().numpy(), np.zeros(n, int))
        del rows
        small = FeatureSet.from_arrays(items.read(0, min(n, 20_000)), np.zeros(min(n, 20_000), int))
        nearest(small, small, k=K)
        self.peak()
        taken = seconds(lambda: nearest(items, items, k=K))
        self.row(f"neighbours, {n} x 128, k = {K}", f"{taken:.2f} s", f"{taken / alone:.2f} of torch", self.peak())

    def in_memory(self) -> None:
        n_query, n_gallery = self.n(2048), self.n(200_000)
        sides = self.labelled(n_query, n_gallery, 512, 2.0, 3000)
        taken = seconds(lambda: evaluate(*sides), 3)
        self.row(f"evaluate, {n_query} x {n_gallery} x 512", f"{taken:.2f} s", "-", self.peak())

    def market(self) -> None:
        n_query, n_gallery = self.n(3368), self.n(19_732)
        sides = self.labelled(n_query, n_gallery, 512, 2.0, 800)
        taken = seconds(lambda: evaluate(*sides, rerank=RERANK), 3)
        self.row(f"re-rank, {n_query} x {n_gallery} x 512", f"{taken:.2f} s", "-", self.peak())

    def command(self, name: str, folder: Path, *words: str) -> None:
        """Time a whole process."""
        command = [sys.executable, "-m", "reid_dist.cli", "evaluate", *words, "--json", "--device", "cuda"]
        environment = {name: value for name, value in os.environ.items() if name != SCREEN_VARIABLE}
        began = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        taken = time.perf_counter() - began
        if done.returncode:
            self.n_wrong += 1
            self.row(name, "FAILED", done.stderr.strip().splitlines()[-1:])
            return
        report = json.loads(done.stdout)
        phases = ", ".join(f"{phase} {spent:.1f}" for phase, spent in report["timing"].items() if spent >= 0.1)
        self.row(name, f"{taken:.1f} s", report["environment"]["products"], f"whole process from Zarr; {phases}")

    def stored(self) -> None:
        """Whole processes over stores."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rng = np.random.default_rng(2)

            def save(place: str, n: int, n_pids: int) -> None:
                rows = self.unit_rows(n, 128).half().cpu().numpy()
                FeatureSet.from_arrays(rows, rng.integers(0, n_pids, n), rng.integers(0, 6, n)).save(folder / place)

            few, million, many = self.n(10_000), self.n(1_000_000), self.n(10_000_000)
            save("query.zarr", few, 5000)
            save("million.zarr", million, 50_000)
            self.command(
                f"re-rank and evaluate, {million} x 128", folder, "query.zarr", "million.zarr", "--rerank", RERANK
            )
            save("many.zarr", many, 500_000)
            self.command(f"evaluate, {few} x {many} x 128, float16", folder, "query.zarr", "many.zarr")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", default="cuda", help="device of torch")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of each set")
    given = parser.parse_args()
    os.environ[TORCH_DEVICE_VARIABLE] = given.where
    device = device_of(given.where)
    if device is None:
        print(f"torch cannot use {given.where} here", file=sys.stderr)
        return 2
    run = Run(device, given.scale)
    run.row(device.name, device.driver, f"{usable_cores()} cores of {cpu_model()}", platform.python_version())
    began = time.perf_counter()
    run.rates()
    with setting({SCREEN_VARIABLE: "cuda"}):
        for section in (run.in_memory, run.market, run.neighbours, run.stored):
            section()
    for name, variables in VARIANTS.items():
        run.row(name)
        with setting({SCREEN_VARIABLE: "cuda"} | variables):
            run.digests()
            run.in_memory()
            run.neighbours(250_000)
    run.row("all", f"{time.perf_counter() - began:.0f} s", f"{run.n_wrong} wrong")
    return 1 if run.n_wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
