"""A report directory is whole or is refused."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.processes import COMMAND

from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    InputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from reid_dist.reports import Report
from reid_dist.reports.documents import with_digest

FILES = {"report.json", "report.html", "per_query.npz", "per_query.parquet", "topk.npz"}


@pytest.fixture
def small_report(make_report: Callable[..., Report]) -> Report:
    return make_report(n_query=40, n_invalid=3, k=4)


@pytest.fixture
def saved(small_report: Report, tmp_path: Path) -> Path:
    return small_report.save(tmp_path / "out")


def listing(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["report", "full_report"])
def test_save_then_load_gives_everything_back(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    report: Report = request.getfixturevalue(kind)
    directory = report.save(tmp_path / "deep" / "out")
    assert listing(directory) == FILES | ({"pictures.json"} if report.pictures else set())
    loaded = Report.load(directory)
    assert loaded.to_json() == report.to_json()
    assert loaded.to_html() == report.to_html()
    for name in ("confidence", "bounds", "breakdowns", "verification", "ties", "metrics", "pictures"):
        assert getattr(loaded, name) == getattr(report, name), name
    assert loaded.topk is not None
    assert report.topk is not None
    for found, expected in ((loaded.per_query, report.per_query), (loaded.topk.arrays, report.topk.arrays)):
        assert list(found) == list(expected)
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column)
            assert found[name].dtype == column.dtype
    assert math.isnan(loaded.per_query["AP"][report.per_query["reason"] != ""][0])


def test_columns_of_every_type_and_name(make_report: Callable[..., Report], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    n = 11
    columns = {
        "flag": np.arange(n) % 3 == 0,
        "text": np.array(["", "\xe9", "a longer text"] * n)[:n],
        "number": np.arange(2 * n, dtype=np.int32)[::2],
        "half": np.linspace(-1, 1, n).astype(np.float16),
        "value": np.where(np.arange(n) % 2, np.nan, -np.inf),
        # Names of arguments of numpy.savez, and none at all.
        **{name: np.arange(n) for name in ("file", "allow_pickle", "TAR@FAR=0.1", "")},
    }
    plain = make_report(n_query=n, n_invalid=0, k=None)
    saved = make_report(n_query=n, n_invalid=0, k=None, per_query={**plain.per_query, **columns}).save(tmp_path / "out")
    table = parquet.read_table(saved / "per_query.parquet")
    for name, array in columns.items():
        np.testing.assert_array_equal(np.array(table[name].to_pylist()), array, name)
        np.testing.assert_array_equal(Report.load(saved).per_query[name], array, name)


def test_no_parquet_where_pyarrow_is_missing(
    small_report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert listing(small_report.save(tmp_path / "out")) == FILES - {"per_query.parquet"}


def test_modes_follow_the_umask(saved: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert {(saved / name).stat().st_mode & 0o777 for name in FILES} == {0o666 & ~mask}


def test_an_occupied_directory_is_refused_and_left_alone(small_report: Report, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreExistsError, match=r"not empty.*notes\.txt"):
        small_report.save(tmp_path)
    assert listing(tmp_path) == {"notes.txt"}


def test_overwrite_replaces_the_whole_report_and_nothing_else(saved: Path, make_report: Callable[..., Report]) -> None:
    (saved / "workspace").mkdir()
    other = make_report(n_query=20, n_invalid=0, k=None)
    other.save(saved, overwrite=True)
    assert listing(saved) == FILES - {"topk.npz"} | {"workspace"}
    assert Report.load(saved).result_digest == other.result_digest


def test_a_full_disk_leaves_the_old_report(
    saved: Path, small_report: Report, make_report: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"cannot write .*No space left on device") as caught:
        make_report(n_query=20, n_invalid=0).save(saved, overwrite=True)
    assert "\n" not in str(caught.value)
    assert listing(saved) == FILES
    assert Report.load(saved).result_digest == small_report.result_digest


def _read_only(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command where a directory is on a file system that cannot be written, in a mount namespace of its own."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    start = ["unshare", "-m", "sh", "-c", mount, str(path), *COMMAND]
    return subprocess.run([*start, *words], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "words",
    [
        ["report", "RUN"],
        ["thresholds", "RUN", "--output", "RUN"],
        ["table", "RUN", "--format", "csv", "--output", "RUN/table.csv"],
        ["thresholds", "RUN", "--output", "RUN/deep/points"],
        ["compare", "RUN", "RUN", "--output", "RUN/compared.json"],
    ],
)
def test_a_read_only_file_system(saved: Path, words: list[str]) -> None:
    if _read_only(saved, "--version").returncode != 0:
        pytest.skip("mounts are not permitted")
    before = {path: path.read_bytes() for path in saved.iterdir()}
    done = _read_only(saved, *(word.replace("RUN", str(saved)) for word in words))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: cannot write")
    assert ": Read-only file system; choose another " in line
    assert {path: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("survivors", range(5))
def test_a_writer_killed_between_two_files_leaves_nothing_that_looks_whole(
    saved: Path, make_report: Callable[..., Report], monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    replaced: list[Path] = []
    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if len(replaced) == survivors:
            raise KeyboardInterrupt
        replaced.append(target)
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        make_report(n_query=20, n_invalid=0).save(saved, overwrite=True)
    assert len(replaced) == survivors
    assert not (saved / "report.json").exists()
    with pytest.raises(IncompleteStoreError, match="never finished"):
        Report.load(saved)


def test_a_file_in_the_place_of_the_directory(small_report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError) as caught:
            small_report.save(target)
        assert str(target) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_nothing_to_load_and_no_place_to_save(small_report: Report, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="local directory"):
        small_report.save("s3://bucket/out")
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreNotFoundError, match="no report"):
            Report.load(directory)


@pytest.mark.parametrize("place", ["metric", "column", "neighbour"])
def test_a_changed_value_is_found(saved: Path, small_report: Report, place: str) -> None:
    """Also where the digest of the document is written anew."""
    columns = {name: array.copy() for name, array in small_report.per_query.items()}
    lists = {name: array.copy() for name, array in small_report.topk.arrays.items()}
    if place == "metric":
        document = json.loads((saved / "report.json").read_text())
        document["metrics"]["mAP"] = math.nextafter(document["metrics"]["mAP"], 1)
        (saved / "report.json").write_text(json.dumps(with_digest(document)))
    elif place == "column":
        columns["n_relevant"][7] += 1
        np.savez(saved / "per_query.npz", **columns)
    else:
        lists["index"][0, 0] += 1
        np.savez(saved / "topk.npz", **lists)
    with pytest.raises(DamagedStoreError, match="topk digest" if place == "neighbour" else "result digest"):
        Report.load(saved)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", ["per_query.npz", "topk.npz"])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "empty"])
def test_a_damaged_archive_is_found(saved: Path, name: str, damage: str) -> None:
    path = saved / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        with zipfile.ZipFile(path) as archive:
            member = archive.infolist()[0]
        content[member.header_offset + 200] ^= 0xFF
        path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match=name):
        Report.load(saved)


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["per_query.npz", "topk.npz"])
def test_no_object_of_an_archive_is_unpickled(saved: Path, tmp_path: Path, name: str) -> None:
    np.savez(saved / name, AP=np.array([Payload(tmp_path / "begun")], dtype=object))
    with pytest.raises(DamagedStoreError, match=name):
        Report.load(saved)
    assert not (tmp_path / "begun").exists()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_never_changes_a_number(saved: Path, small_report: Report, bit: int) -> None:
    """Either the changed bytes have no meaning (the date of a member), or the archive is refused."""
    path = saved / "per_query.npz"
    content = path.read_bytes()
    refused = 0
    for at in range(bit, len(content), 23):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :])
        try:
            assert Report.load(saved).result_digest == small_report.result_digest
        except DamagedStoreError:
            refused += 1
    assert refused > len(content) / 23 / 2


def test_equal_reports_give_equal_bytes(make_report: Callable[..., Report], tmp_path: Path) -> None:
    one, other = (make_report(n_query=40, n_invalid=3, k=4).save(tmp_path / name) for name in ("one", "other"))
    for name in FILES - {"per_query.parquet"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 1, "metrics": 3}', "\udcff"])
def test_a_file_that_is_no_document_is_refused(saved: Path, text: str) -> None:
    (saved / "report.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError):
        Report.load(saved)
