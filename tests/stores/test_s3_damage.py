"""Object storage that sends wrong bytes now and then: right numbers or an error, and a workspace that stays right."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from s3_server import Bucket, flipped
from s3_sets import make_sides, store_sides

from reid_dist import evaluate
from reid_dist.errors import ReidDistError

_JOBS: list[dict[str, str]] = [
    {},
    {"rerank": "k_reciprocal(k1=8,k2=3)"},
    {"rerank": "k_reciprocal(k1=6,k2=3)"},
    {"rerank": "gnn(k1=8,k2=3)"},
    {"rerank": "ecn(t=2,q=3,method=origdist)"},
    {"rerank": "top(k_reciprocal(k1=5,k2=2),m=30)"},
    {"expand": "gcr(k1=8)"},
    {"expand": "dba(k=3)+alpha_qe(k=2,alpha=2)"},
]

_SPOILS: dict[str, Callable[[bytes], bytes]] = {
    "flipped": flipped,
    "zeros": lambda body: bytes(len(body)),
    "reversed": lambda body: body[::-1],
    "empty": lambda body: b"",
    "half": lambda body: body[: len(body) // 2],
}


def outcome(run: Callable[[], str], expected: str) -> str:
    try:
        found = run()
    except ReidDistError:
        return "refused"
    return "right" if found == expected else "other numbers"


@pytest.mark.filterwarnings("ignore:.*made again:UserWarning")
# Zarr leaves coroutines of other writes behind when one ends in an error.
@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*coroutine object:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("spoil", "n_jobs"),
    [("empty", 2), *(pytest.param(name, len(_JOBS), marks=pytest.mark.slow) for name in _SPOILS)],
)
def test_wrong_bodies_never_change_a_number(
    bucket: Bucket, spoil: str, n_jobs: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Wrong bodies of chunks, labels, metadata and parts; what runs leave behind is used later, on sound storage."""
    sides, rng, seen = make_sides(), random.Random(spoil), Counter[str]()
    stored, server = store_sides(sides, bucket), bucket.server
    server.spoil = _SPOILS[spoil]
    for number, job in enumerate(_JOBS[:n_jobs]):
        expected = evaluate(*sides, **job).result_digest
        workspace = bucket.uri(f"work-{number % 2}")

        def run(job: dict[str, str] = job, workspace: str = workspace) -> str:
            return evaluate(*stored, workspace=workspace, **job).result_digest

        for share in (0.03, 0.1, 0.3):
            server.corrupt = lambda method, path, share=share: method == "GET" and rng.random() < share
            seen[outcome(run, expected)] += 1
        server.corrupt = lambda method, path: False
        assert outcome(run, expected) == "right"
    assert set(seen) <= {"right", "refused"}
    assert seen["right"] >= n_jobs
    # The client library prints what it does not expect.
    assert "panicked" not in capfd.readouterr().err
