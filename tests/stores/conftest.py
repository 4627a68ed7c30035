from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from s3_server import Bucket, Server
from support.feature_arrays import Arrays, make_arrays

_NUMBERS = count()


@pytest.fixture
def arrays() -> Arrays:
    return make_arrays()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def any_bucket(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket on a real S3 API, and the environment that leads there."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    yield Bucket(f"tests-{next(_NUMBERS)}", s3_server)
    s3_server.reset()


@pytest.fixture(params=["s3_server"])
def bucket(any_bucket: Bucket) -> Bucket:
    """An empty bucket; by its parameter, one process runs all tests that have one, and starts one server."""
    return any_bucket


@pytest.fixture(params=["disk", pytest.param("s3_server", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URI of a folder that is not there yet."""
    return str(tmp_path / "place") if request.param == "disk" else request.getfixturevalue("any_bucket").uri("place")
