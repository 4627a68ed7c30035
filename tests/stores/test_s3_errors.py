"""Errors of S3: one line, soon, and without a secret."""

from __future__ import annotations

import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from s3_server import KEY, SECRET, Bucket
from support.feature_arrays import Arrays, in_memory, make_arrays

from reid_dist.cli import main
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.stores import FeatureSet, Workspace, check_store, ingest, objects
from reid_dist.stores.locations import canonical_uri
from reid_dist.stores.opening import open_features


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections: it is taken, and no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


WAYS: dict[str, Callable[[Bucket, Path], Any]] = {
    "open": lambda bucket, _: FeatureSet.open(bucket.uri("set.zarr")),
    "check": lambda bucket, _: check_store(bucket.uri("set.zarr")),
    "save": lambda bucket, _: in_memory(make_arrays()).save(bucket.uri("new.zarr")),
    "stage": lambda bucket, _: Workspace.at(bucket.uri("work")).stage("lists", [1], {}),
    "stages": lambda bucket, _: Workspace.at(bucket.uri("work")).stages("lists"),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("way", WAYS)
class TestOneLineEach:
    def message(self, way: str, bucket: Bucket, tmp_path: Path, within: float = 12) -> str:
        begun = time.monotonic()
        with pytest.raises(StoreError) as caught:
            WAYS[way](bucket, tmp_path)
        assert time.monotonic() - begun < within
        message = str(caught.value)
        assert "\n" not in message
        assert SECRET not in message
        assert KEY not in message
        assert caught.value.exit_code == 2
        return message

    def test_no_bucket(self, way: str, bucket: Bucket, tmp_path: Path) -> None:
        bucket.name = "another-one"
        message = self.message(way, bucket, tmp_path)
        assert "there is no bucket 'another-one' at 127.0.0.1:" in message

    def test_connection_refused(
        self, way: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:{closed_port}")
        message = self.message(way, bucket, tmp_path)
        assert f"at 127.0.0.1:{closed_port}: connection refused; check AWS_ENDPOINT_URL" in message

    def test_no_such_host(self, way: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.invalid")
        assert "at storage.invalid: its name is not known" in self.message(way, bucket, tmp_path)

    def test_no_credentials(
        self, way: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int
    ) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        # Where the role of a machine in a cloud is requested.
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{closed_port}")
        message = self.message(way, bucket, tmp_path)
        assert "no credentials for s3://" in message
        assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in message

    def test_plain_http_is_not_assumed(
        self, way: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        assert "it is not https; set AWS_ALLOW_HTTP=true if that is meant" in self.message(way, bucket, tmp_path)


@pytest.mark.slow
def test_no_answer(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, silent_port: int) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent_port}")
    monkeypatch.setattr(objects, "_READ_TIMEOUT", timedelta(seconds=1))
    begun = time.monotonic()
    with pytest.raises(StoreError, match="no answer in time"):
        FeatureSet.open(bucket.uri("set.zarr"))
    assert time.monotonic() - begun < 12


def test_credentials_that_are_refused(bucket: Bucket) -> None:
    bucket.server.status = "403 Forbidden"
    bucket.server.refuse = lambda method, path: True
    with pytest.raises(StoreError, match="credentials in the environment are refused"):
        FeatureSet.open(bucket.uri("set.zarr"))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("s3://bucket/../other/set.zarr", "no part of it may be empty"),
        ("s3://bucket/a/./set.zarr", "no part of it may be empty"),
        ("s3://bucket/a//set.zarr", "no part of it may be empty"),
        (f"s3://{KEY}:{SECRET}@bucket/set.zarr", "holds no credentials"),
        (f"s3://bucket/set.zarr?X-Amz-Signature={SECRET}", "without query"),
        (f"https://user:{SECRET}@bucket.invalid/set.zarr?key={SECRET}", "known are paths"),
    ],
)
def test_uris_that_are_refused(uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        canonical_uri(uri)
    assert SECRET not in str(caught.value)


def test_one_form_of_a_uri() -> None:
    assert canonical_uri("s3://bucket/a/set.zarr/") == "s3://bucket/a/set.zarr"


@pytest.mark.parametrize("format_name", [None, "npz"])
@pytest.mark.parametrize("source", ["days/1.npz", "days/", "days", "days/*.npz", "days/[12].npz", "other/*.npz"])
def test_only_stores_are_read(source: str, format_name: str | None, bucket: Bucket, tmp_path: Path) -> None:
    for day in (1, 2):
        bucket.write(f"days/{day}.npz", b"PK")
    for read in (lambda uri: ingest(uri, tmp_path / "out", format_name=format_name), open_features):
        with pytest.raises(InputError, match="reads feature stores and no other files") as caught:
            read(bucket.uri(source))
        assert "copy the files to a disk" in caught.value.details[0]
        assert caught.value.details[1].split()[:2] == ["reid-dist", "ingest"]


def test_nothing_is_not_taken_for_a_file(bucket: Bucket, tmp_path: Path) -> None:
    for read in (lambda uri: ingest(uri, tmp_path / "out"), open_features):
        with pytest.raises(StoreNotFoundError):
            read(bucket.uri("absent.npz"))
    with pytest.raises(InputError, match="unknown format"):
        ingest(bucket.uri("absent.npz"), tmp_path / "out", format_name="no_such")


def test_without_the_library(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InputError, match=r"pip install 'reid-dist\[s3\]'"):
        FeatureSet.open(bucket.uri("set.zarr"))


def test_the_error_of_a_command_is_one_line(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    bucket.name = "another-one"
    with pytest.raises(SystemExit) as ended:
        main(["check", bucket.uri("set.zarr")])
    assert ended.value.code == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("Error: ")
    assert "there is no bucket" in message
    assert "\n" not in message


def test_secrets_are_not_stored(bucket: Bucket, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=50)
    stage = Workspace.at(bucket.uri("work")).stage("lists", [1], {"k": 3})
    stage.write("a", {"x": np.arange(3)})
    seen = [repr(stored).encode(), pickle.dumps(stored), repr(stage).encode(), pickle.dumps(stage)]
    seen += [str(stored.describe()).encode(), *(bucket.read(key) for key in bucket.listed())]
    for content in seen:
        assert SECRET.encode() not in content
        assert KEY.encode() not in content
        assert bucket.server.endpoint.encode() not in content


@pytest.mark.parametrize(
    "endpoint",
    ["http://me:hunter2@127.0.0.1:bad", "hunter2", "https://", "http://127.0.0.1:99999", "ftp://hunter2@host"],
)
def test_an_endpoint_that_is_no_url(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """The client library aborts the process for some of them."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(InputError, match="AWS_ENDPOINT_URL is no URL") as caught:
        FeatureSet.open("s3://bucket/query.zarr")
    assert "hunter2" not in str(caught.value)
