"""The three kinds of YAML files have one reader: what it cannot read is one line, and the encoding is UTF-8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reid_dist.clusters.reading import read_cluster
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.evaluation.pipelines import read_job
from reid_dist.nightly.suite import read_suite

READERS = pytest.mark.parametrize(
    ("read", "kind"), [(read_job, "pipeline file"), (read_suite, "suite file"), (read_cluster, "cluster file")]
)
Reader = Callable[[Path], Any]


def refusal(read: Reader, path: Path) -> str:
    with pytest.raises(InputError) as refused:
        read(path)
    text = str(refused.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@READERS
@pytest.mark.parametrize("text", ["[" * 100_000, "a: " + "{" * 100_000, "a: " + "[" * 5000 + "]" * 5000])
def test_brackets_without_end(tmp_path: Path, read: Reader, kind: str, text: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    assert refusal(read, path) == f"{path} is no {kind}: it is nested too deeply"


@READERS
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_files_in_another_encoding(tmp_path: Path, read: Reader, kind: str, encoding: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("description: Straße\n", encoding=encoding)
    said = refusal(read, path)
    assert said.startswith(f"{path} is not YAML: it is not UTF-8 text (byte ")
    assert said.endswith("save it as UTF-8")


def test_utf_8_whatever_the_locale_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("kind: threads\ndescription: Straße\n", encoding="utf-8")
    read_text = Path.read_text

    def in_ascii(self: Path, encoding: str | None = None, *options: Any) -> str:
        return read_text(self, encoding or "ascii", *options)

    monkeypatch.setattr(Path, "read_text", in_ascii)
    assert read_cluster(path).description == "Straße"


@READERS
def test_files_that_are_not_there(tmp_path: Path, read: Reader, kind: str) -> None:
    with pytest.raises(StoreNotFoundError, match=f"there is no {kind}"):
        read(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=f"cannot read {kind} .*directory"):
        read(tmp_path)
