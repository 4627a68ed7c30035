"""The three kinds of YAML files have one reader: what it cannot read is one line, and the encoding is UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from reid_dist.clusters import read_cluster
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
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


@pytest.mark.quick_cases(1)
@READERS
@pytest.mark.parametrize("text", ["[" * 100_000, "a: " + "{" * 100_000, "a: " + "[" * 5000 + "]" * 5000])
def test_brackets_without_end(tmp_path: Path, read: Reader, kind: str, text: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    assert refusal(read, path) == f"{path} is no {kind}: it is nested too deeply"


def powers(first: str, line: str, n: int) -> str:
    """A document of 9**n values: line by line, nine aliases of the line before."""
    return first + "".join(line.format(at=at, nine=", ".join([f"*n{at - 1}"] * 9)) for at in range(1, n))


BOMBS = {
    "lists": powers("n0: &n0 [a, b]\n", "n{at}: &n{at} [{nine}]\n", 60),
    "mappings": powers("n0: &n0 {{a: 1}}\n".format(), "n{at}: &n{at} {{a: [{nine}]}}\n", 60),
    "merges": powers("n0: &n0 {a: 1, b: 2}\n", "n{at}: &n{at}\n  <<: [{nine}]\n", 12),
    "text": "n: &n " + "a" * 100_000 + "\nmany: [" + ", ".join(["*n"] * 10_000) + "]\n",
    "long": "description: " + "a" * 3_000_000 + "\n",
}


@pytest.mark.quick_cases(6)
@READERS
@pytest.mark.parametrize("bomb", BOMBS)
def test_aliases_and_merges_that_expand_without_end(tmp_path: Path, read: Reader, kind: str, bomb: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[bomb])
    began = process_time()
    assert refusal(read, path).startswith(f"{path} is no {kind}: with its aliases written out it has more than ")
    assert process_time() - began < 10


@READERS
def test_aliases_that_contain_themselves(tmp_path: Path, read: Reader, kind: str) -> None:
    path = tmp_path / "circle.yaml"
    path.write_text("kind: threads\nmodels: &all\n  one: [*all]\n")
    assert refusal(read, path) == f"{path} is no {kind}: the value in line 2 contains an alias of itself"


@pytest.mark.quick_cases(1)
@READERS
def test_aliases_that_nest(tmp_path: Path, read: Reader, kind: str) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text("n0: &n0 [a]\n" + "".join(f"n{at}: &n{at} [*n{at - 1}]\n" for at in range(1, 3000)))
    assert refusal(read, path) == f"{path} is no {kind}: it is nested too deeply"


def test_a_few_aliases_and_merges_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        "suite: small\nmodels: {a: {}}\ndatasets:\n  one: &one {query: q, gallery: g, protocol: same_set}\n"
        "  two: {<<: *one, query: other}\njobs: {plain: &plain {}, again: *plain}\n"
    )
    planned = {each.name: each.pipeline for each in read_suite(path).planned()}
    assert len(planned) == 4
    assert (planned["a/two/plain"].query, planned["a/two/again"].protocol) == ("other", "same_set")


@READERS
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_files_in_another_encoding(tmp_path: Path, read: Reader, kind: str, encoding: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("description: Straße\n", encoding=encoding)
    message = refusal(read, path)
    assert message.startswith(f"{path} is not YAML: it is not UTF-8 text (byte ")
    assert message.endswith("save it as UTF-8")


def test_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes("kind: threads\r\ndescription: Straße\r\n".encode())
    code = "import sys; from reid_dist.clusters import read_cluster as read; print(ascii(read(sys.argv[1])))"
    words = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"})
    assert f"description={'Straße'!a}" in done.stdout


@READERS
def test_files_that_are_not_there(tmp_path: Path, read: Reader, kind: str) -> None:
    with pytest.raises(StoreNotFoundError, match=f"there is no {kind}"):
        read(tmp_path / "none.yaml")
    with pytest.raises(StoreError, match=f"cannot read {kind} .*directory"):
        read(tmp_path)


@READERS
def test_files_that_are_none(tmp_path: Path, read: Reader, kind: str) -> None:
    """A pipe without a writer would be waited for, a device has no end, and a sparse file takes no room."""
    os.mkfifo(tmp_path / "pipe.yaml")
    for path, words in ((tmp_path / "pipe.yaml", "is a pipe and no file"), ("/dev/zero", "is a device and no file")):
        with pytest.raises(StoreError, match=f"cannot read {kind}: {path} {words}"):
            read(path)
    with (tmp_path / "sparse.yaml").open("wb") as file:
        file.truncate(9 << 30)
    with pytest.raises(InputError, match=r"has 9.0 GiB or more, and at most 3\.8 MiB are read"):
        read(tmp_path / "sparse.yaml")
    # As before, a link to a file is one.
    (tmp_path / "real").write_text("- 1\n")
    (tmp_path / "link.yaml").symlink_to("real")
    with pytest.raises(InputError, match=r"link\.yaml"):
        read(tmp_path / "link.yaml")


@READERS
@pytest.mark.parametrize("text", [r"gallery.zarr\0", r"\uD800"])
def test_text_that_no_path_holds(tmp_path: Path, read: Reader, kind: str, text: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(f'query: q.zarr\ngallery:\n  - "{text}"\n')
    expected = "the text in line 3, under 'gallery', holds a zero byte, or half of a surrogate pair"
    assert refusal(read, path) == f"{path} is no {kind}: {expected}"
