"""Evaluations of sets on S3, with the digest of a local run, and runs with a workspace there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from s3_server import KEY, SECRET, Bucket
from s3_sets import Sides, make_sides, store_sides
from support.local_workers import started
from support.noted import noted

from reid_dist import FeatureSet, NeighbourGraph, evaluate, k_reciprocal_graph, nearest, pool, reranked_distances
from reid_dist.core.model import RowRange
from reid_dist.errors import RunFailedError, StoreError
from reid_dist.evaluation.sweeps import sweep_parameters
from reid_dist.stages import row_groups, search_plan
from reid_dist.stages.pooling_job import Pooled
from reid_dist.stores import DistanceBlock, Workspace

EXPANDED = {"expand": "dba(k=3)+aqe(k=2)", "rerank": "k_reciprocal(k1=6,k2=3)"}


@pytest.fixture
def sides() -> Sides:
    return make_sides()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("options", [{}, EXPANDED], ids=["plain", "expanded and re-ranked"])
def test_evaluation_in_this_process(sides: Sides, bucket: Bucket, options: dict[str, str]) -> None:
    stored = store_sides(sides, bucket)
    remote = evaluate(*stored, **options)
    assert remote.result_digest == evaluate(*sides, **options).result_digest
    assert remote.inputs["gallery"]["uri"] == bucket.uri("gallery.zarr")
    for secret in (KEY, SECRET, bucket.server.endpoint):
        assert secret not in remote.to_json()


@pytest.mark.slow
def test_evaluation_by_the_command(sides: Sides, bucket: Bucket, tmp_path: Path) -> None:
    stored = store_sides(sides, bucket)
    command = [sys.executable, "-m", "reid_dist.cli", "evaluate", *(side.uri for side in stored), "--json"]
    message = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert message.returncode == 0, message.stderr
    assert json.loads(message.stdout)["result_digest"] == evaluate(*sides).result_digest
    assert SECRET not in message.stdout + message.stderr


@pytest.mark.slow
def test_stages_are_kept_there_and_found_again(sides: Sides, bucket: Bucket) -> None:
    stored = store_sides(sides, bucket)
    digest = evaluate(*sides, **EXPANDED).result_digest
    assert evaluate(*stored, workspace=bucket.uri("work"), **EXPANDED).result_digest == digest
    written = set(bucket.listed("work/"))
    assert any("/expanded-" in key for key in written)
    assert evaluate(*stored, workspace=bucket.uri("work"), **EXPANDED).result_digest == digest
    assert set(bucket.listed("work/")) == written
    damaged = next(key for key in written if "/expanded-" in key and key.endswith(".zarr/zarr.json"))
    bucket.write(damaged, bucket.read(damaged).replace(b'"notes"', b'"n0tes"'))
    with pytest.warns(UserWarning, match="does not match its own digest.*made again"):
        assert evaluate(*stored, workspace=bucket.uri("work"), **EXPANDED).result_digest == digest
    assert set(bucket.listed("work/")) == written
    assert len(nearest(stored[1], stored[1], k=3, workspace=bucket.uri("work")).index) == 400


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("rerank", "kinds"),
    [
        ("k_reciprocal(k1=6,k2=3)", {"neighbours", "weights", "means"}),
        (
            "k_reciprocal(k1=6,k2=3,mode=inductive)",
            {"neighbours", "query_neighbours", "weights", "means", "query_weights"},
        ),
        ("gnn(k1=6,k2=3)", {"neighbours", "gnn", "gnn_sizes"}),
        ("ecn(k=6,t=2,q=2)", {"neighbours", "ecn"}),
        ("top(gnn(k1=6,k2=3),m=40)", {"query_neighbours", "heads"}),
    ],
)
def test_parts_of_a_stage_are_listed_once(
    sides: Sides, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, rerank: str, kinds: set[str]
) -> None:
    """However many blocks there are, and none of them is asked for by itself."""
    monkeypatch.setattr(search_plan, "TILE_ROWS", 32)
    monkeypatch.setattr(search_plan, "_MOST_BLOCK_ROWS", 100)

    def run() -> tuple[Counter[str], list[tuple[str, str]]]:
        n_listings, n_requests = len(bucket.server.listings), len(bucket.server.requests)
        reranked_distances(*sides, rerank=rerank, rows=[0], workspace=bucket.uri("work"))
        stages = [prefix.split("/")[1] for prefix in bucket.server.listings[n_listings:] if prefix.startswith("work/")]
        requests = bucket.server.requests[n_requests:]
        return Counter(name.rpartition("-")[0] for name in stages if name), requests

    first, requests = run()
    assert first.keys() == kinds
    tiles = {path for method, path in requests if method == "PUT" and "/tile-" in path}
    assert len(tiles) > 4
    # All tiles of a stage are removed by one request.
    removals = [path for method, path in requests if method in ("POST", "DELETE")]
    assert len(removals) == len(kinds & {"neighbours", "query_neighbours"})
    assert not [key for key in bucket.listed("work/") if "/tile-" in key]
    for kind, n_listings in first.items():
        # A pair of different blocks starts from the bounds of those that are done by then.
        assert n_listings == 1 or (kind == "neighbours" and n_listings <= 1 + len(tiles))
    again, requests = run()
    assert again == dict.fromkeys(kinds, 1)
    assert not [path for method, path in requests if method in ("HEAD", "PUT", "DELETE")]


@pytest.mark.slow
def test_scores_of_other_codes_are_kept_there(sides: Sides, bucket: Bucket) -> None:
    tracked = [
        FeatureSet.from_arrays(each.read(0, each.n_rows), each.pids, each.camids, columns={"tracklet": each.pids})
        for each in sides
    ]
    options: Any = {"benchmark": "veri776", "other_codes": True}
    expected = evaluate(*tracked, **options)
    (note,) = (note for note in noted(expected, "other_code") if note.values["shares"] == "")
    assert note.values["benchmark"] == "veri776_image_to_track"
    n_before = len(bucket.server.requests)
    found = evaluate(*tracked, workspace=bucket.uri("work"), **options)
    assert (found.result_digest, found.notes) == (expected.result_digest, expected.notes)
    written = [path for method, path in bucket.server.requests[n_before:] if method == "PUT"]
    assert any("/codes-" in path and path.endswith("/veri776_image_to_track.npz") for path in written)
    assert not bucket.listed("work/")


@pytest.mark.slow
def test_workers_share_it(sides: Sides, bucket: Bucket, tmp_path: Path) -> None:
    stored = store_sides(sides, bucket)
    with started(2, tmp_path) as client:
        n_before = len(bucket.server.requests)
        assert evaluate(*stored, client=client).result_digest == evaluate(*sides).result_digest
        assert any(path.endswith("/features/c/3/0") for _, path in bucket.server.requests[n_before:])
        there = {"client": client, "workspace": bucket.uri("work")}
        assert evaluate(*stored, **there, **EXPANDED).result_digest == evaluate(*sides, **EXPANDED).result_digest
        # Sets in memory reach the workers by way of the workspace.
        assert evaluate(*sides, **there).result_digest == evaluate(*sides).result_digest
    assert bucket.listed("work/features-")


@pytest.mark.slow
def test_a_run_that_was_cut_short_goes_on(reid_dist: Any, sides: Sides, bucket: Bucket, tmp_path: Path) -> None:
    workspace, output = bucket.uri("work"), tmp_path / "out"
    threads = tmp_path / "threads.yaml"
    threads.write_text("kind: threads\n")
    command = ["evaluate", *(side.uri for side in store_sides(sides, bucket)), "--cluster", threads]
    command += ["--chunk-rows", "20", "--workspace", workspace, "--output", str(output)]
    parts: list[str] = []

    def refuse(method: str, path: str) -> bool:
        """Accept three parts of the run, and no more."""
        if method == "PUT" and "/partials-" in path and path.endswith(".npz"):
            parts.append(path)
            return len(parts) > 3
        return False

    bucket.server.refuse, bucket.server.status = refuse, "403 Forbidden"
    done = reid_dist(*command)
    assert done.code in (2, 3)
    assert "credentials in the environment are refused" in done.err
    assert "Traceback" not in done.err
    assert SECRET not in done.err
    (stage,) = Workspace.at(workspace).stages("partials")
    kept = stage.done()
    assert len(kept) == 3
    assert Workspace.at(workspace).holds_parts()
    bucket.server.reset()
    done = reid_dist(*command, "--resume")
    assert done.code == 0, done.err
    report = json.loads((output / "report.json").read_text())
    assert report["result_digest"] == evaluate(*sides).result_digest
    written = {
        path.rpartition("/")[2].removesuffix(".npz") for method, path in bucket.server.requests if method == "PUT"
    }
    assert not written & kept
    assert Workspace.at(workspace).stages("partials") == []


@pytest.mark.parametrize("words", [("evaluate",), ("sweep", "--expand", "aqe", "--k", "1:2"), ("splits",)])
def test_a_report_stays_on_this_machine(reid_dist: Any, bucket: Bucket, words: tuple[str, ...]) -> None:
    name, *options = words
    done = reid_dist(name, bucket.uri("q"), bucket.uri("g"), *options, "--output", "s3://bucket/out")
    done.assert_refused("a report is kept in a local directory, found the URI s3://bucket/out")


def test_where_a_local_directory_is_needed(sides: Sides, bucket: Bucket) -> None:
    with pytest.raises(StoreError, match="use a path of this machine"):
        sweep_parameters(*sides, expand="aqe", k=range(1, 3), workspace=bucket.uri("work"))
    with pytest.raises(StoreError, match="use a path of this machine"):
        DistanceBlock.from_array([[0.5]]).save(bucket.uri("block.npy"))
    assert bucket.listed() == []


@pytest.mark.slow
def test_a_neighbour_graph(sides: Sides, bucket: Bucket) -> None:
    gallery = store_sides(sides, bucket)[1]
    graph = k_reciprocal_graph(gallery, rerank="k_reciprocal(k1=6,k2=3)")
    saved = graph.save(bucket.uri("graph.zarr"))
    found = NeighbourGraph.open(bucket.uri("graph.zarr"))
    for other in (saved, found):
        assert (other.to_scipy() != graph.to_scipy()).nnz == 0
        assert (other.lists.index == graph.lists.index).all()
    with pytest.raises(StoreError, match=r"graph\.zarr"):
        graph.save(bucket.uri("graph.zarr"))
    bucket.delete("graph.zarr/indices/c/0")
    with pytest.raises(StoreError, match=r"graph\.zarr"):
        NeighbourGraph.open(bucket.uri("graph.zarr")).to_scipy()


@pytest.mark.slow
def test_a_pooling_there_is_resumed(
    sides: Sides, bucket: Bucket, tmp_path: Path, reid_dist, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = store_sides(sides, bucket)[1]
    expected = pool(gallery, tmp_path / "here.zarr", by="pid_camid").content_digest
    monkeypatch.setattr(row_groups, "_LEAST_BYTES", 1)
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 1)
    monkeypatch.setattr(row_groups, "_READ_AGAIN", 1e9)
    begun: list[int] = []

    def broken(stage: Pooled, rows: RowRange, real: Any = Pooled.compute) -> Any:
        begun.append(rows.start)
        if len(begun) > 3:
            raise RunFailedError("broken")
        return real(stage, rows)

    target = bucket.uri("pooled.zarr")
    words = ("pool", gallery.uri, "--by", "pid_camid", "--output", target)
    with monkeypatch.context() as patched:
        patched.setattr(Pooled, "compute", broken)
        error = reid_dist(*words).assert_refused("broken", "the same command with --resume", code=3)
    assert SECRET not in error
    kept = [key for key in bucket.listed("pooled.zarr.unfinished/") if key.endswith(".npz")]
    reid_dist(*words).assert_refused(f"{target} is unfinished")
    done = reid_dist(*words, "--resume")
    assert done.code == 0, done.err
    assert f"content {expected[:16]}" in done.out
    assert len(kept) == 3
    assert bucket.listed("pooled.zarr.unfinished/") == []
    again = reid_dist(*words, "--resume")
    assert (again.code, again.out) == (0, done.out)
    reid_dist(*words).assert_refused("is already a complete store")
