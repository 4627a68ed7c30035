"""Re-ranked runs with a workspace, and what they leave in it."""

from __future__ import annotations

from pathlib import Path

from reid_dist import evaluate
from reid_dist.stages.reranking.k_reciprocal import KReciprocal

RERANK = {"k1": 6, "k2": 3}
STAGES = ("neighbours", "weights", "means")


def run(sets, workspace, chunk_rows=None, **changes):
    rerank = KReciprocal(**{**RERANK, **changes})
    return evaluate(*sets, rerank=rerank, workspace=workspace, chunk_rows=chunk_rows, confidence=None, topk=5)


def stamps(workspace):
    """When every part was written, to the nanosecond, by its name."""
    files = sorted(Path(workspace).rglob("*.npz"))
    return {str(file.relative_to(workspace)): (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}


def kinds(names):
    """How many parts of each kind of stage."""
    found = [Path(name).parts[0].rsplit("-", 1)[0] for name in names]
    return {kind: found.count(kind) for kind in sorted(set(found))}


def threads_file(folder):
    path = folder / "threads.yaml"
    path.write_text("kind: threads\n")
    return path
