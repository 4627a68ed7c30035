from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from disturbed_runs import Processes, cluster_of_processes, save_sets


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Two stores, and a cluster beside them that is not started yet."""
    save_sets(tmp_path)
    with cluster_of_processes(tmp_path) as running:
        yield running
