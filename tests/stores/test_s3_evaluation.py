"""Evaluations of sets on S3, in this process, on workers and by the command: the digest of a local run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from local_workers import started
from s3_server import KEY, SECRET, Bucket
from s3_sets import Sides, make_sides, store_sides

from reid_dist import evaluate

EXPANDED = {"expand": "dba(k=3)+aqe(k=2)", "rerank": "k_reciprocal(k1=6,k2=3)"}


@pytest.fixture
def sides() -> Sides:
    return make_sides()


@pytest.mark.parametrize("options", [{}, EXPANDED], ids=["plain", "expanded and re-ranked"])
def test_in_this_process(sides: Sides, bucket: Bucket, options: dict[str, str]) -> None:
    stored = store_sides(sides, bucket)
    remote = evaluate(*stored, **options)
    assert remote.result_digest == evaluate(*sides, **options).result_digest
    assert remote.inputs["gallery"]["uri"] == bucket.uri("gallery.zarr")
    for secret in (KEY, SECRET, bucket.server.endpoint):
        assert secret not in remote.to_json()


@pytest.mark.slow
def test_on_workers(sides: Sides, bucket: Bucket, tmp_path: Path) -> None:
    stored = store_sides(sides, bucket)
    with started(2, tmp_path) as client:
        asked = len(bucket.server.requests)
        assert evaluate(*stored, client=client).result_digest == evaluate(*sides).result_digest
        assert any(path.endswith("/features/c/3/0") for _, path in bucket.server.requests[asked:])


@pytest.mark.slow
def test_by_the_command(sides: Sides, bucket: Bucket, tmp_path: Path) -> None:
    stored = store_sides(sides, bucket)
    command = [sys.executable, "-m", "reid_dist.cli", "evaluate", *(side.uri for side in stored), "--json"]
    message = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert message.returncode == 0, message.stderr
    assert json.loads(message.stdout)["result_digest"] == evaluate(*sides).result_digest
    assert SECRET not in message.stdout + message.stderr
