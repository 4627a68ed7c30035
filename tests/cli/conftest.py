"""Small stores on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.small_stores import save_stores


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    """A cluster file that needs no processes."""
    path = tmp_path / "threads.yaml"
    path.write_text("kind: threads\n")
    return path


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """A query and a gallery store."""
    return save_stores(tmp_path)
