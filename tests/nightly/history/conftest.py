"""A history in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reid_dist.nightly.history import History


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nightly.db"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with History.open(path, timeout=5) as opened:
        yield opened
