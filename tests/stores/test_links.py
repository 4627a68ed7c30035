"""Symbolic links, pipes and sockets in stores and workspaces: what is read, and what is refused and named."""

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
from support.feature_arrays import Arrays, in_memory, make_piece

from reid_dist.core.fingerprint import fingerprint
from reid_dist.errors import DamagedPartError, DamagedStoreError, StoreError
from reid_dist.stores import FeatureSet, Workspace, check_store, ingest, open_features
from reid_dist.stores.sparse import GraphWriter, StoredGraph
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
    target = outside / f"moved-{name.replace('/', '-')}"
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
def refused_link(folder: Path, name: str, why: str | None = None) -> Iterator[None]:
    with pytest.raises(StoreError, match=why) as refused:
        yield
    assert f"{folder}: {name!r} in it is a symbolic link to " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", OF_A_STORE)
def test_a_link_out_of_a_store_leads_to_a_file(store: Path, tmp_path: Path, arrays: Arrays, name: str) -> None:
    """Folders elsewhere are refused, although every byte in them is right."""
    is_file = (store / name).is_file()
    move_out(store, name, tmp_path / "outside")
    if is_file:
        use(store)
        assert not check_store(store).damaged
        np.testing.assert_array_equal(FeatureSet.open(store).read_rows(np.array([5, 250])), arrays.features[[5, 250]])
        return
    for read in (use, check_store):
        with refused_link(store, name):
            read(store)


@pytest.mark.parametrize("objects", ["a.zarr/.git/annex/objects", "cache/files/md5", ".git/annex/objects"])
def test_a_store_of_links_to_a_cache(store: Path, tmp_path: Path, objects: str) -> None:
    """As DVC and git-annex check data out, with the cache beside the store or within it."""
    expected = FeatureSet.open(store).content_digest
    (tmp_path / objects).mkdir(parents=True)
    for number, path in enumerate(sorted(each for each in store.rglob("*") if each.is_file())):
        cached = tmp_path / objects / f"{number:032x}"
        shutil.move(path, cached)
        cached.chmod(0o444)
        path.symlink_to(os.path.relpath(cached, path.parent))
    use(store)
    assert not check_store(store).damaged
    assert FeatureSet.open(store).content_digest == expected
    # An object that is not there yet, as before `git annex get`, is named.
    (store / "pids/c/0").resolve().unlink()
    with refused_link(store, "pids/c/0"):
        use(store)


def test_the_files_at_the_ends_of_links_stay_when_a_store_is_replaced(store: Path, tmp_path: Path) -> None:
    move_out(store, "features/c/3/0", tmp_path / "outside")
    content = (tmp_path / "outside" / "moved-features-c-3-0").read_bytes()
    FeatureSet.from_arrays(np.ones((3, 2), np.float32), [1, 2, 3]).save(store, overwrite=True)
    assert FeatureSet.open(store).n_rows == 3
    assert (tmp_path / "outside" / "moved-features-c-3-0").read_bytes() == content


def test_a_folder_that_is_a_link_within_the_store(store: Path) -> None:
    shutil.move(store / "features/c/3", store / "moved")
    (store / "features/c/3").symlink_to("../../moved")
    (store / "features/c/around").symlink_to("..")
    use(store)
    assert not check_store(store).damaged


def test_a_chunk_that_becomes_a_link(store: Path, tmp_path: Path, arrays: Arrays) -> None:
    """Rows at its end are verified as all others are."""
    features = FeatureSet.open(store)
    move_out(store, "features/c/3/0", tmp_path / "outside")
    np.testing.assert_array_equal(features.read(180, 240), arrays.features[180:240])
    chunk = store / "features/c/3/0"
    chunk.unlink()
    chunk.symlink_to("../2/0")
    for read in (lambda: features.read(180, 240), lambda: features.read_rows(np.array([185]))):
        with pytest.raises(DamagedStoreError, match=r"features chunk 3 \(features/c/3/0\)"):
            read()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/nowhere", "leads nowhere"),
        ("0", "leads nowhere"),
        # Another store, one of whose path the store's is the beginning of.
        ("../../../../b.zarr/features/c/3/0", "a file of another store"),
        ("../../../../a.zarr.old/features/c/3/0", "a file of another store"),
        ("../../../../b.zarr", "leads out of it"),
        ("/etc", "leads out of it"),
    ],
)
def test_a_link_that_is_refused(store: Path, target: str, why: str) -> None:
    shutil.copytree(store, store.with_name("b.zarr"))
    shutil.copytree(store, store.with_name("a.zarr.old"))
    chunk = store / "features/c/3/0"
    chunk.unlink()
    chunk.symlink_to(target)
    for read in (FeatureSet.open, check_store, open_features):
        with refused_link(store, "features/c/3/0", why):
            read(store)


@pytest.mark.parametrize("name", ["features/c/3/0", "zarr.json", "pids/c/0"])
def test_a_link_to_any_file_shows_nothing_of_it(store: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("a secret that nobody is to see, " * 200)
    (store / name).unlink()
    (store / name).symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError) as refused:
        use(store)
    assert "nobody" not in str(refused.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("target", "kind"), [("/dev/zero", "a device"), ("pipe", "a pipe")])
def test_a_link_to_a_device_or_a_pipe(store: Path, tmp_path: Path, target: str, kind: str) -> None:
    features = FeatureSet.open(store)
    os.mkfifo(tmp_path / "pipe")
    chunk = store / "features/c/3/0"
    chunk.unlink()
    chunk.symlink_to(tmp_path / target)
    for read in (lambda: FeatureSet.open(store), lambda: features.read(180, 240), lambda: check_store(store)):
        with pytest.raises(StoreError, match=f"{chunk} is {kind} and no file"):
            read()


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


def test_another_group_is_not_read_through_a_link_out_of_it(tmp_path: Path, arrays: Arrays) -> None:
    (tmp_path / "outside").mkdir()
    group = zarr.open_group(tmp_path / "g.zarr")
    group.create_array("features", data=arrays.features, chunks=(60, 7))
    group.create_array("pids", data=arrays.pids)
    ingest(tmp_path / "g.zarr", tmp_path / "whole.zarr")
    move_out(tmp_path / "g.zarr", "features/c/2/0", tmp_path / "outside")
    with refused_link(tmp_path / "g.zarr", "features/c/2/0"):
        ingest(tmp_path / "g.zarr", tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()
    # Within the group it is one of its own files.
    shutil.move(tmp_path / "outside", tmp_path / "g.zarr/features/objects")
    (tmp_path / "g.zarr/features/c/2/0").unlink()
    (tmp_path / "g.zarr/features/c/2/0").symlink_to("../../objects/moved-features-c-2-0")
    (found,) = ingest(tmp_path / "g.zarr", tmp_path / "b.zarr")
    assert found.content_digest == FeatureSet.open(tmp_path / "whole.zarr").content_digest


@pytest.mark.parametrize(
    "name", ["zarr.json", "indptr", "indices/c/0", "weights/zarr.json", "neighbours", "neighbours/index/c/0"]
)
def test_a_link_out_of_a_graph_leads_to_a_file(tmp_path: Path, name: str) -> None:
    """As out of a feature store."""
    (tmp_path / "outside").mkdir()
    piece = make_piece(6, 2)
    graph = tmp_path / "graph.zarr"
    with GraphWriter(graph, (6, 6, 2), {}, overwrite=False) as writer:
        writer.append(piece)
    assert StoredGraph.open(graph).piece(0).digest() == piece.digest()
    is_file = (graph / name).is_file()
    move_out(graph, name, tmp_path / "outside")
    if not is_file:
        with refused_link(graph, name):
            StoredGraph.open(graph)
        return
    assert StoredGraph.open(graph).piece(0).digest() == piece.digest()
    moved = tmp_path / "outside" / f"moved-{name.replace('/', '-')}"
    moved.write_bytes(moved.read_bytes()[::-1])
    with pytest.raises(DamagedStoreError):
        StoredGraph.open(graph).piece(0)


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

    def test_a_stage_is_no_link(self, workspace: Workspace, tmp_path: Path) -> None:
        stage = workspace.stage("kind", "identity", {"of": "a test"})
        stage.write("part", {"a": np.arange(3)})
        move_out(Path(workspace.path), Path(stage.path).name, tmp_path / "outside")
        with refused_link(Path(workspace.path), Path(stage.path).name):
            _ = stage.description, stage.read("part")

    def test_a_part_at_the_end_of_a_link_is_the_part_that_was_written(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        stage = workspace.stage("kind", "identity", {"of": "a test"})
        stage.write("part", {"a": np.arange(3)})
        for name in ("part.npz", "stage.json"):
            move_out(Path(stage.path), name, tmp_path / "outside")
        assert stage.description["of"] == "a test"
        assert stage.read("part")["a"].tolist() == [0, 1, 2]
        (tmp_path / "outside" / "moved-part.npz").write_text("a secret")
        with pytest.raises(DamagedPartError) as refused:
            stage.read("part")
        assert "secret" not in str(refused.value)

    def test_nothing_is_written_or_removed_through_a_link(self, workspace: Workspace, tmp_path: Path) -> None:
        stage = workspace.stage("kind", "identity", {})
        stage.write("part", {"a": np.arange(3)})
        move_out(Path(workspace.path), Path(stage.path).name, tmp_path / "outside")
        moved = tmp_path / "outside" / f"moved-{Path(stage.path).name}"
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
    move_out(store, "features/c/3", tmp_path / "outside")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    for more in (
        ["check", "a.zarr"],
        ["evaluate", "a.zarr", "a.zarr", "--protocol", "same_set", "--cluster", "threads.yaml", "--output", "out"],
    ):
        error = reid_dist(*more).assert_refused()
        assert error.startswith(f"Error: {store}: 'features/c/3' in it is a symbolic link to ")
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
