"""A command in the place of reid-dist, and a SLURM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from schedule_files import StandIn

# SLURM is started as for clusters.
sys.path.append(str(Path(__file__).parents[2] / "clusters"))


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path / "programs")
