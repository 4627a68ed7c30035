"""Symbolic links, pipes and sockets in stores and workspaces: refused and named when a store is opened."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from feature_arrays import Arrays, in_memory, make_piece

from reid_dist.core.fingerprint import fingerprint
from reid_dist.errors import StoreError
from reid_dist.stores import FeatureSet, Workspace, check_store, ingest
from reid_dist.stores.sparse import StoredGraph, write_graph
from reid_dist.stores.workspace import FORMAT

# Every kind of file and folder of a store.
OF_A_STORE = [
    "zarr.json",
    "features",
    "features/zarr.json",
    "features/c",
    "features/c/3",
    "features/c/3/0",
    "pids",
    "pids/zarr.json",
    "pids/c",
    "pids/c/0",
    "camids/c/0",
    "item_ids",
    "item_ids/utf8/c/0",
    "item_ids/offsets/c",
]


def move_out(store: Path, name: str, outside: Path) -> None:
    """Put a link in the place of something in a store, which is whole at the other end of it."""
    target = outside / name.replace("/", "-")
    shutil.move(store / name, target)
    (store / name).symlink_to(target)


def use(store: Path) -> None:
    """Read all that there is."""
    features = FeatureSet.open(store)
    assert features.pids is not None
    assert features.camids is not None
    assert features.item_ids is not None
    features.read(0, features.n_rows)


@pytest.fixture
def store(tmp_path: Path, arrays: Arrays) -> Path:
    (tmp_path / "outside").mkdir()
    in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=60)
    return tmp_path / "a.zarr"


@contextlib.contextmanager
def refused_link(folder: Path, name: str) -> Iterator[None]:
    with pytest.raises(StoreError) as refused:
        yield
    assert f"{folder}: {name!r} in it is a symbolic link to " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", OF_A_STORE)
def test_no_link_leads_out_of_a_store(store: Path, tmp_path: Path, name: str) -> None:
    """Although every byte at its end is right."""
    use(store)
    move_out(store, name, tmp_path / "outside")
    for read in (use, check_store):
        with refused_link(store, name):
            read(store)


def test_a_chunk_that_becomes_a_link_is_not_read(store: Path, tmp_path: Path) -> None:
    features = FeatureSet.open(store)
    move_out(store, "features/c/3/0", tmp_path / "outside")
    for read in (
        lambda: features.read(180, 240),
        lambda: features.read_rows(np.array([185])),
        lambda: features.read_rows(np.arange(180, 240)),
    ):
        with refused_link(store, "features/c/3/0"):
            read()
    assert len(features.read_rows(np.array([0, 179, 240]))) == 3


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../../../../../../../../etc/passwd",
        "/nowhere",
        "../2/0",
        # Another store, one of whose path the store's is the beginning of.
        *("../../../../b.zarr/features/c/3/0", "../../../../a.zarr.old/features/c/3/0"),
    ],
)
def test_a_link_is_refused_wherever_it_leads(store: Path, target: str) -> None:
    shutil.copytree(store, store.with_name("b.zarr"))
    shutil.copytree(store, store.with_name("a.zarr.old"))
    chunk = store / "features/c/3/0"
    chunk.unlink()
    chunk.symlink_to(target)
    with refused_link(store, "features/c/3/0"):
        FeatureSet.open(store)


def test_a_store_may_be_reached_through_links(store: Path, tmp_path: Path, arrays: Arrays) -> None:
    (tmp_path / "disk").mkdir()
    shutil.move(store, tmp_path / "disk" / "a.zarr")
    (tmp_path / "data").symlink_to("disk")
    (tmp_path / "latest.zarr").symlink_to("data/a.zarr")
    for reached in (tmp_path / "latest.zarr", tmp_path / "data" / "a.zarr"):
        use(reached)
        np.testing.assert_array_equal(FeatureSet.open(reached).read_rows(np.array([5, 250])), arrays.features[[5, 250]])
    # The way to it may change while it is open, as with a new disk.
    features = FeatureSet.open(tmp_path / "latest.zarr")
    shutil.copytree(tmp_path / "disk", tmp_path / "new")
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("new")
    np.testing.assert_array_equal(features.read(0, 300), arrays.features)


def test_another_group_is_not_read_through_a_link(tmp_path: Path, arrays: Arrays) -> None:
    (tmp_path / "outside").mkdir()
    group = zarr.open_group(tmp_path / "g.zarr")
    group.create_array("features", data=arrays.features, chunks=(60, 7))
    group.create_array("pids", data=arrays.pids)
    ingest(tmp_path / "g.zarr", tmp_path / "whole.zarr")
    move_out(tmp_path / "g.zarr", "features/c/2/0", tmp_path / "outside")
    with refused_link(tmp_path / "g.zarr", "features/c/2/0"):
        ingest(tmp_path / "g.zarr", tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize(
    "name", ["zarr.json", "indptr", "indices/c/0", "weights/zarr.json", "neighbours", "neighbours/index/c/0"]
)
def test_no_link_leads_out_of_a_graph(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").mkdir()
    piece = make_piece(6, 2)
    graph = tmp_path / "graph.zarr"
    write_graph(str(graph), (6, 6, 2), lambda _: piece, {}, overwrite=False)
    assert StoredGraph.open(str(graph)).piece(0).digest() == piece.digest()
    move_out(graph, name, tmp_path / "outside")
    with refused_link(graph, name):
        StoredGraph.open(str(graph)).piece(0)


def put(kind: str, path: Path) -> None:
    """Put a pipe or a socket in the place of a file, without waiting for anything."""
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
        return
    # Bound by a short name, as that of a socket may not be long.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["a pipe", "a socket"])
@pytest.mark.parametrize("name", [name for name in OF_A_STORE if name.endswith(("json", "/0"))])
def test_no_pipe_is_waited_for(store: Path, tmp_path: Path, name: str, kind: str) -> None:
    put(kind, store / name)
    for read in (use, check_store, lambda path: ingest(path, tmp_path / "b.zarr")):
        with pytest.raises(StoreError, match=f"{store / name} is {kind} and no file"):
            read(store)
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.timeout(20)
def test_a_chunk_that_becomes_a_pipe_is_not_waited_for(store: Path) -> None:
    features = FeatureSet.open(store)
    put("a pipe", store / "features/c/3/0")
    for rows in (np.array([185]), np.arange(180, 240)):
        with pytest.raises(StoreError, match="is a pipe and no file"):
            features.read_rows(rows)
    with pytest.raises(StoreError, match="is a pipe and no file"):
        features.read(180, 240)


@pytest.mark.timeout(20)
def test_a_part_that_is_a_pipe(tmp_path: Path) -> None:
    stage = Workspace.at(tmp_path / "workspace").stage("kind", "identity", {})
    stage.write("part", {"a": np.arange(3)})
    put("a pipe", Path(stage.path) / "part.npz")
    with pytest.raises(StoreError, match="is a pipe and no file"):
        stage.read("part")


class TestWorkspace:
    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Workspace:
        (tmp_path / "outside").mkdir()
        return Workspace.at(tmp_path / "workspace")

    @pytest.mark.parametrize("name", ["", "part.npz", "stage.json"])
    def test_no_link_is_read(self, workspace: Workspace, tmp_path: Path, name: str) -> None:
        stage = workspace.stage("kind", "identity", {"of": "a test"})
        stage.write("part", {"a": np.arange(3)})
        folder, inside = (Path(stage.path), name) if name else (Path(workspace.path), Path(stage.path).name)
        move_out(folder, inside, tmp_path / "outside")
        with refused_link(folder, inside):
            _ = stage.description, stage.read("part")

    def test_nothing_is_written_or_removed_through_a_link(self, workspace: Workspace, tmp_path: Path) -> None:
        stage = workspace.stage("kind", "identity", {})
        stage.write("part", {"a": np.arange(3)})
        move_out(Path(workspace.path), Path(stage.path).name, tmp_path / "outside")
        moved = tmp_path / "outside" / Path(stage.path).name
        before = sorted(path.name for path in moved.iterdir())
        for work in (lambda: stage.write("more", {"a": np.arange(3)}), lambda: stage.remove("part")):
            with pytest.raises(StoreError, match="in it is a symbolic link to"):
                work()
        workspace.remove(stage)
        assert sorted(path.name for path in moved.iterdir()) == before

    def test_a_link_in_the_place_of_a_part_is_replaced(self, workspace: Workspace, tmp_path: Path) -> None:
        stage = workspace.stage("kind", "identity", {})
        (tmp_path / "outside" / "other").write_text("other")
        (Path(stage.path) / "part.npz").symlink_to(tmp_path / "outside" / "other")
        stage.write("part", {"a": np.arange(3)})
        assert stage.read("part")["a"].tolist() == [0, 1, 2]
        assert (tmp_path / "outside" / "other").read_text() == "other"

    def test_a_workspace_may_be_reached_through_links(self, workspace: Workspace, tmp_path: Path) -> None:
        Path(workspace.path).mkdir()
        (tmp_path / "scratch").symlink_to("workspace")
        stage = Workspace.at(tmp_path / "scratch").stage("kind", "identity", {"of": "a test"})
        stage.write("part", {"a": np.arange(3)})
        assert workspace.stage("kind", "identity", {}).read("part")["a"].tolist() == [0, 1, 2]
        assert Path(stage.path).name == f"kind-{fingerprint(FORMAT, 'kind', 'identity')[:20]}"


def test_the_error_of_a_command_is_one_line(
    reid_dist: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_out(store, "features/c/3/0", tmp_path / "outside")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    for more in (
        ["check", "a.zarr"],
        ["evaluate", "a.zarr", "a.zarr", "--protocol", "same_set", "--cluster", "threads.yaml", "--output", "out"],
    ):
        done = reid_dist(*more)
        assert done.code == 2, done.err
        last = done.err.strip().splitlines()[-1]
        assert last.startswith(f"Error: {store}: 'features/c/3/0' in it is a symbolic link to ")
        assert "Traceback" not in done.err
    assert not os.path.lexists(tmp_path / "out")


def test_a_folder_that_is_no_store_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "1.jpg").symlink_to("elsewhere.jpg")
    searched, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda *place: (searched.extend(map(Path, place)), scandir(*place))[1])
    for read in (FeatureSet.open, check_store):
        with pytest.raises(StoreError, match="is not a feature store of reid-dist"):
            read(tmp_path / "images")
    # Whether it is empty is looked up; what its folders hold is not.
    assert set(searched) <= {tmp_path / "images"}
