"""A night whose history lies on a network file system goes on, and says so once."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_nights import save_model, write_suite

import reid_dist.nightly.history.mounts as mounts
from reid_dist.nightly.history import History


@pytest.mark.parametrize("kind", ["nfs4", "ext4"])
def test_a_night_warns_once(reid_dist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"22 1 8:1 / / rw - {kind} nas:/export rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    suite = write_suite(tmp_path, {"ours": save_model(tmp_path / "ours", 0.8)}, {"plain": {}})
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    history = tmp_path / "nights.db"
    told = reid_dist("nightly", suite, "--history", history, "--cluster", tmp_path / "threads.yaml")
    assert told.code == 0
    warnings = [line for line in told.err.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == (kind == "nfs4")
    assert all(f"history {history} is on a network file system (nfs4)" in line for line in warnings)
    with History.open(history, create=False, read_only=True) as opened:
        assert opened.run(1).exit_code == 0
