"""The files of cluster_configs/schedules, and a command `reid-dist` that records how it was called."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reid_dist import FeatureSet

SCHEDULES = Path(__file__).parents[3] / "cluster_configs" / "schedules"

# It works in the directory that it is started in, as the command does, and writes what the command writes.
_STAND_IN = """\
#!/bin/sh
echo "started $PWD $*" >>'{record}'
trap 'echo interrupted >>'"'{record}'"'; exit 130' INT
echo "output of the night"
echo "errors of the night" >&2
for _ in $(seq 0 "$(cat '{tenths}')"); do sleep 0.1; done
directory=$(dirname "$4")/nightly
mkdir -p "$directory"
echo "# Night" >"$directory/summary.md"
echo ended >>'{record}'
exit "$(cat '{code}')"
"""


@dataclass(frozen=True)
class StandIn:
    """A command in the place of reid-dist.

    Attributes
    ----------
    programs
        Directory that it is in.
    """

    programs: Path

    def __post_init__(self) -> None:
        self.programs.mkdir()
        paths = {name: self.programs / f"{name}.txt" for name in ("record", "tenths", "code")}
        self.path.write_text(_STAND_IN.format(**paths))
        self.path.chmod(0o755)
        self.end_with(0)

    def end_with(self, code: int, *, after: float = 0) -> None:
        """From now on: end with this exit code, after so many seconds."""
        (self.programs / "tenths.txt").write_text(str(round(after * 10)))
        (self.programs / "code.txt").write_text(str(code))

    @property
    def path(self) -> Path:
        return self.programs / "reid-dist"

    @property
    def record(self) -> list[str]:
        """What it was started with, and how it ended."""
        path = self.programs / "record.txt"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def search_path(self) -> str:
        return f"{self.programs}:{os.environ['PATH']}"

    def await_start(self) -> None:
        """Wait until it was started."""
        deadline = time.monotonic() + 30
        while not self.record:
            assert time.monotonic() < deadline, "it was never started"
            time.sleep(0.02)


def install_command(programs: Path) -> None:
    """Put the command itself under its name there."""
    programs.mkdir(exist_ok=True)
    path = programs / "reid-dist"
    path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-m", "reid_dist.cli"])} "$@"\n')
    path.chmod(0o755)


SUITE = """\
suite: nightly
models: {small: {path: features}}
datasets: {toy: {query: "{path}/query.zarr", gallery: "{path}/gallery.zarr"}}
jobs: {plain: {}}
"""


def save_features(directory: Path, *, noise: float) -> None:
    """Features of a model, the worse the more noise there is, for `SUITE` in that directory."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 16))
    for name, n in (("query", 80), ("gallery", 240)):
        pids = rng.integers(0, 20, n)
        features = (centres[pids] + noise * rng.standard_normal((n, 16))).astype(np.float32)
        path = directory / "features" / f"{name}.zarr"
        FeatureSet.from_arrays(features, pids, rng.integers(0, 4, n)).save(str(path), overwrite=True)
