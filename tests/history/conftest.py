"""A history in a file, and a way to call the command that sees what a user sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reid_dist.cli import main
from reid_dist.history import History


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def reid_dist(capfd: pytest.CaptureFixture[str]):
    """Call ``reid-dist`` in this process."""

    def call(*words: object) -> Outcome:
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(int(left.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nightly.db"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with History.open(path, timeout=5) as opened:
        yield opened
