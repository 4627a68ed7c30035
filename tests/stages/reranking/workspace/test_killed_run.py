"""A killed re-ranking is resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from workspace_runs import stamps, threads_file

from reid_dist import Report, evaluate
from reid_dist.stages.reranking.gnn import GNN
from reid_dist.stores import Stage

SLOW_RUN = """
import sys, time
from reid_dist.stages import search_plan as plan
from reid_dist.stores import workspace

plan._MOST_BLOCK_ROWS = 40
plan.TILE_ROWS = 40
from reid_dist.stages.reranking.gnn import GNN
GNN.most_block_rows = 40
wanted, n_parts = sys.argv[1], int(sys.argv[2])
written = []
write = workspace.Stage.write

def slow_write(self, part, arrays):
    # A killed run must leave something undone: it stops for ever where it is to be killed.
    if part.startswith(wanted) and f"/{sys.argv[3]}-" in self.path:
        if len(written) >= n_parts:
            print("here", flush=True)
            time.sleep(600)
        written.append(part)
    return write(self, part, arrays)

workspace.Stage.write = slow_write
from reid_dist.cli import main
main(sys.argv[4:])
"""


def words_for(folder, rerank):
    return ["evaluate", folder / "query.zarr", folder / "gallery.zarr", "--rerank", rerank,
            "--cluster", threads_file(folder), "--topk", 5, "--output", folder / "out", "--resume",
            "--workspace", folder / "kept"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rerank", "part", "n_parts", "kind"),
    [
        ("k_reciprocal(k1=6,k2=3)", "tile", 7, "neighbours"),
        ("k_reciprocal(k1=6,k2=3)", "rows", 2, "weights"),
        ("gnn(k1=6,k2=3)", "rows", 1, "gnn"),
        ("ecn(k=6,t=2,q=2)", "rows", 0, "ecn"),
        ("ecn(t=2,q=2,method=origdist)", "rows", 0, "crossed"),
        ("top(gnn(k1=6,k2=3),m=50)", "rows", 2, "heads"),
    ],
)
def test_a_killed_run_is_resumed(sets, reid_dist, monkeypatch, tmp_path, rerank, part, n_parts, kind):
    """SIGKILL in the middle of a stage: the next run repeats no finished part and gives the report of a whole run."""
    for side, each in zip(("query", "gallery"), sets, strict=True):
        each.save(tmp_path / f"{side}.zarr")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(SLOW_RUN))
    words = [str(word) for word in words_for(tmp_path, rerank)]
    with subprocess.Popen(
        [sys.executable, str(program), part, str(n_parts), kind, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        # Whatever the other threads are about to write, they write.
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)
    assert first_line.startswith("here")
    kept = tmp_path / "kept"
    before = stamps(kept)
    assert sum(Path(name).name.startswith(part) and name.startswith(kind) for name in before) >= n_parts
    assert not (tmp_path / "out" / "report.json").exists()
    monkeypatch.setattr(GNN, "most_block_rows", 40)
    written, write = [], Stage.write

    def noted(self, part, arrays):
        written.append(f"{Path(self.path).name}/{part}.npz")
        return write(self, part, arrays)

    monkeypatch.setattr(Stage, "write", noted)
    assert reid_dist(*words).code == 0
    assert not set(written) & set(before)
    after = stamps(kept)
    finished = {name: stamp for name, stamp in before.items() if name in after}
    assert {name: after[name] for name in finished} == finished
    assert all(Path(name).name.startswith("tile") or name.startswith("crossed") for name in set(before) - set(after))
    report = Report.load(tmp_path / "out")
    near, far = sets
    assert report.result_digest == evaluate(near, far, rerank=rerank, topk=5).result_digest
    assert report.topk.digest == evaluate(near, far, rerank=rerank, topk=5).topk.digest
