"""The workspace of a re-ranking: what is there is whole, is taken up again, and is told apart from what is damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from reranking_runs import labelled
from strategies import crowded_sets, scattered_sets

from reid_dist import evaluate, nearest
from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.reranking import KReciprocal, build
from reid_dist.reranking.neighbours import Table
from reid_dist.stores import Stage, Workspace

RERANK = {"k1": 6, "k2": 3}
STAGES = ("neighbours", "weights", "means")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of few items; and lists that this process has read already would hide what is on disk."""
    monkeypatch.setattr(build, "_TILE_ROWS", 32)
    monkeypatch.setattr(Table, "_key", None)
    monkeypatch.setattr(Table, "_index", None)


@pytest.fixture(scope="module")
def sets():
    return tuple(map(labelled, scattered_sets(30, 170, 9, seed=21)))


def run(sets, workspace, chunk_rows=None, **changes):
    rerank = KReciprocal(**{**RERANK, **changes})
    return evaluate(*sets, rerank=rerank, workspace=workspace, chunk_rows=chunk_rows, confidence=None, topk=5)


@pytest.fixture(scope="module")
def expected(sets):
    return run(sets, None).result_digest


def stamps(workspace):
    """When every part was written, to the nanosecond, by its name."""
    files = sorted(Path(workspace).rglob("*.npz"))
    return {str(file.relative_to(workspace)): (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}


def kinds(names):
    """How many parts of each kind of stage."""
    found = [Path(name).parts[0].rsplit("-", 1)[0] for name in names]
    return {kind: found.count(kind) for kind in sorted(set(found))}


# ------------------------------------------------------------------------------------------------- parts, by hand


def test_a_part_is_what_was_written(tmp_path):
    stage = Workspace(str(tmp_path / "deep" / "down")).stage("thing", [1, "a"], {"note": 5})
    arrays = {"one": np.arange(7), "two": np.zeros((0, 3), np.float32), "three": np.array([np.nan, np.inf, -0.0])}
    assert not stage.has("part")
    size = stage.write("part", arrays)
    assert stage.has("part")
    assert size == (Path(stage.path) / "part.npz").stat().st_size
    assert list(stage.read("part")) == list(arrays)
    for name, array in stage.read("part").items():
        assert array.tobytes() == arrays[name].tobytes()
        assert array.dtype == arrays[name].dtype
    assert list(stage.read("part", "two", "one")) == ["two", "one"]
    stage.remove("part")
    stage.remove("part")
    assert not stage.has("part")


def test_stages_are_told_apart_by_what_they_depend_on(tmp_path):
    workspace = Workspace(str(tmp_path))
    first = workspace.stage("thing", [1, 0.3], {"k": 1})
    assert workspace.stage("thing", [1, 0.3], {"k": 2}) == first
    assert first.description["k"] == 1, "who comes second goes on with what is there"
    others = [
        workspace.stage(kind, identity, {})
        for kind, identity in [("thing", [1, 0.30000000000000004]), ("thing", ["1", 0.3]), ("other", [1, 0.3])]
    ]
    assert len({first.path, *(other.path for other in others)}) == 4
    assert workspace.stages("thing") == sorted([first, *others[:2]], key=lambda stage: stage.path)
    workspace.remove(first)
    assert len(workspace.stages("thing")) == 2
    assert Workspace(str(tmp_path / "nowhere")).stages("thing") == []


def test_a_half_written_part_is_never_seen(tmp_path, monkeypatch):
    """Whoever is killed before the file has its name leaves no part, and the next one writes it."""
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stage.write("part", {"one": np.arange(9)})
    monkeypatch.undo()
    assert not stage.has("part")
    assert Workspace(str(tmp_path)).stages("thing") == [stage]
    stage.write("part", {"one": np.arange(9)})
    np.testing.assert_array_equal(stage.read("part", "one")["one"], np.arange(9))


class FullDisk:
    """A file that takes some bytes and no more."""

    def __init__(self, file, room):
        self._file, self._room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        self._file.write(bytes(content[: self._room]))
        if len(content) > self._room:
            raise OSError(28, "No space left on device")


@pytest.fixture
def full_disk(monkeypatch):
    """Let every write break off once some parts have been written."""
    opened = Path.open
    left = {"parts": 0}

    def open_file(self, mode="r", *arguments, **options):
        file = opened(self, mode, *arguments, **options)
        if mode != "wb" or ".npz." not in self.name:
            return file
        left["parts"] -= 1
        return file if left["parts"] >= 0 else FullDisk(file, 100)

    monkeypatch.setattr(Path, "open", open_file)
    return left


def test_a_full_disk(tmp_path, full_disk):
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    with pytest.raises(StoreError, match=r"^cannot write .*part\.npz in the workspace: No space left.*--workspace$"):
        stage.write("part", {"one": np.arange(999)})
    assert [file.name for file in Path(stage.path).iterdir()] == ["stage.json"]


@pytest.mark.parametrize("parts", [0, 4, 23])
def test_a_disk_that_fills_up_on_the_way(sets, tmp_path, full_disk, monkeypatch, parts, expected):
    """One clear message, nothing half-written, and the next run goes on from there."""
    full_disk["parts"] = parts
    with pytest.raises(StoreError, match="No space left on device; make room or choose another --workspace"):
        run(sets, tmp_path)
    files = [file.name for file in tmp_path.rglob("*") if file.is_file()]
    assert all(name == "stage.json" or name.endswith(".npz") for name in files), files
    assert sum(name.endswith(".npz") for name in files) <= parts
    monkeypatch.undo()
    before = stamps(tmp_path)
    assert run(sets, tmp_path).result_digest == expected
    after = stamps(tmp_path)
    assert all(after[name] == before[name] for name in before if name in after)


def test_a_workspace_that_cannot_be_written(sets, tmp_path):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(StoreError, match=r"cannot write .* in the workspace"):
        run(sets, tmp_path / "file")


# ------------------------------------------------------------------------------------------------- damaged parts


def flip(file, place=0.5):
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 0x10
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file):
    file.write_bytes(b"")


def garbage(file):
    file.write_bytes(b"not an archive" * 50)


def assert_damage(caught, stage_file):
    text = str(caught.value)
    assert "\n" not in text
    assert "run again" in text
    assert Path(stage_file).parent.name in text


@pytest.mark.parametrize("harm", [flip, truncate, empty, garbage])
@pytest.mark.parametrize("kind", STAGES)
def test_a_damaged_part(sets, tmp_path, kind, harm):
    """One line that says which, whatever is wrong with it; another lambda needs all parts."""
    run(sets, tmp_path)
    damaged = next(iter(sorted(tmp_path.glob(f"{kind}-*/*.npz"))))
    harm(damaged)
    Table._key = None
    # Whoever reads it: weights are made of lists, means of weights, and distances of means.
    changes = {"neighbours": {"inclusive": True}, "weights": {"k2": 5}, "means": {"lambda_value": 0.5}}[kind]
    with pytest.raises(DamagedStoreError) as caught:
        run(sets, tmp_path, **changes)
    assert_damage(caught, damaged)


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7, 0.9])
def test_a_flipped_bit_is_noticed_anywhere_in_the_values(tmp_path, place):
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    stage.write("part", {"one": np.arange(500.0)})
    flip(Path(stage.path) / "part.npz", place)
    with pytest.raises(DamagedStoreError, match=r"part part of workspace stage .* is damaged"):
        stage.read("part")


@pytest.mark.parametrize("content", [None, "", "{", "[]", '"text"', "{}"])
def test_a_damaged_description(sets, tmp_path, content):
    """Parts are cut as the description says: without it nobody knows how, and another cut would mix them up."""
    run(sets, tmp_path, chunk_rows=16)
    (description,) = tmp_path.glob("neighbours-*/stage.json")
    if content is None:
        description.unlink()
    else:
        description.write_text(content)
    Table._key = None
    with pytest.raises(DamagedStoreError) as caught:
        run(sets, tmp_path, lambda_value=0.5)
    assert_damage(caught, description)


def test_a_missing_part_is_made_again(sets, tmp_path, expected):
    """Also one of a stage in the middle."""
    run(sets, tmp_path)
    for kind in STAGES:
        missing = sorted(tmp_path.glob(f"{kind}-*/*.npz"))[1]
        missing.unlink()
        Table._key = None
        assert run(sets, tmp_path).result_digest == expected
        assert missing.exists()


def test_damage_is_one_line_on_the_command_line(sets, tmp_path):
    from reid_dist.cli import main

    for side, each in zip(("query", "gallery"), sets, strict=True):
        each.save(tmp_path / f"{side}.zarr")
    words = ["evaluate", tmp_path / "query.zarr", tmp_path / "gallery.zarr", "--rerank", "k_reciprocal(k1=6)",
             "--workspace", tmp_path / "workspace", "--cluster", threads_file(tmp_path)]  # fmt: skip
    assert call(main, words)[0] == 0
    truncate(sorted((tmp_path / "workspace").glob("means-*/*.npz"))[0])
    code, out, err = call(main, [*words, "--seed", "4"])
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    (line,) = (line for line in err.splitlines() if line.startswith("Error: "))
    assert "is damaged" in line


def threads_file(folder):
    path = folder / "threads.yaml"
    path.write_text("kind: threads\n")
    return path


def call(main, words):
    """Exit code, standard output and standard error of a command in this process."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0), out.getvalue(), err.getvalue()


# --------------------------------------------------------------------------------------------------------- reuse


def written_by(sets, workspace, **changes):
    """Which parts a run writes, by kind; none of those that were there is written again."""
    before = stamps(workspace)
    digest = run(sets, workspace, **changes).result_digest
    after = stamps(workspace)
    assert {name: after.get(name) for name in before} == before
    assert digest == run(sets, None, **changes).result_digest
    return kinds(name for name in after if name not in before)


def test_only_what_depends_on_it_is_redone(sets, tmp_path):
    written = written_by(sets, tmp_path)
    n_blocks = written["neighbours"]
    assert written == dict.fromkeys(STAGES, n_blocks)
    assert n_blocks > 1
    everything, means = {"weights": n_blocks, "means": n_blocks}, {"means": n_blocks}
    for changes, wanted in [
        ({}, {}),
        ({"lambda_value": 0.7}, {}),
        ({"lambda_value": 0.0}, {}),
        ({"k2": 5}, means),
        ({"k2": 1}, {}),
        ({"inclusive": True}, everything),
        ({"variant": "zhong_d4"}, everything),
        ({"variant": "faiss_k1"}, everything),
        ({"variant": "paper", "k2": 1}, {"weights": n_blocks}),
        ({"variant": "paper", "k2": 2}, means),
        ({"variant": "paper", "weights": "binary"}, everything),
        # Lists that are long enough are there already.
        ({"k1": 3}, everything),
        ({"k1": 5, "variant": "zhong_d4"}, everything),
        ({"k1": 3, "lambda_value": 0.1}, {}),
        # And now they are not.
        ({"k1": 9}, {"neighbours": n_blocks, **everything}),
        ({"k1": 8}, everything),
    ]:
        assert written_by(sets, tmp_path, **changes) == wanted, changes


def test_the_cut_of_a_run_does_not_matter_to_the_next(sets, tmp_path):
    n_blocks = written_by(sets, tmp_path, chunk_rows=16)["neighbours"]
    assert written_by(sets, tmp_path, chunk_rows=50, lambda_value=0.6) == {}
    assert written_by(sets, tmp_path, k2=4) == {"means": n_blocks}


def test_other_distances_and_sets_are_something_else(sets, tmp_path):
    run(sets, tmp_path)
    query, gallery = sets
    before = stamps(tmp_path)
    report = evaluate(query, gallery, rerank=KReciprocal(**RERANK), distance="sqeuclidean", workspace=tmp_path)
    lists = {name for name in set(stamps(tmp_path)) - set(before) if name.startswith("neighbours")}
    assert lists
    # The graph of `euclidean` is that of `sqeuclidean`.
    before = stamps(tmp_path)
    other = evaluate(query, gallery, rerank=KReciprocal(**RERANK), distance="euclidean", workspace=tmp_path)
    assert stamps(tmp_path) == before
    assert other.metrics == report.metrics
    evaluate(gallery, query, rerank=KReciprocal(**RERANK), workspace=tmp_path)
    assert set(stamps(tmp_path)) > set(before)


def test_nearest_takes_up_longer_lists(tmp_path):
    items = labelled(crowded_sets(1, 150, 7, seed=22)[1])
    longer = nearest(items, items, k=20, workspace=tmp_path)
    before = stamps(tmp_path)
    shorter = nearest(items, items, k=7, workspace=tmp_path)
    assert stamps(tmp_path) == before
    np.testing.assert_array_equal(shorter.index, longer.index[:, :7])
    np.testing.assert_array_equal(shorter.index, nearest(items, items, k=7).index)


def test_tiles_are_removed_once_they_are_merged(sets, tmp_path):
    run(sets, tmp_path)
    assert not list(tmp_path.rglob("tile-*"))
    assert json.loads(next(iter(tmp_path.glob("neighbours-*/stage.json"))).read_text())["kind"] == "neighbours"


def test_a_stage_travels():
    import pickle

    stage = Stage("somewhere")
    assert pickle.loads(pickle.dumps(stage)) == stage


# --------------------------------------------------------------------------------------------------- killed runs

SLOW_RUN = """
import sys, time
from reid_dist.reranking import build
from reid_dist.stores import workspace

build._MOST_BLOCK_ROWS = 40
build._TILE_ROWS = 40
wanted, n_parts = sys.argv[1], int(sys.argv[2])
written = []
write = workspace.Stage.write

def slow_write(self, part, arrays):
    # A killed run must leave something undone: it stops for ever where it is to be killed.
    if part.startswith(wanted) and f"/{sys.argv[3]}-" in self.path:
        if len(written) >= n_parts:
            print("here", flush=True)
            time.sleep(600)
        written.append(part)
    return write(self, part, arrays)

workspace.Stage.write = slow_write
from reid_dist.cli import main
main(sys.argv[4:])
"""


def words_for(folder):
    return ["evaluate", folder / "query.zarr", folder / "gallery.zarr", "--rerank", "k_reciprocal(k1=6,k2=3)",
            "--cluster", threads_file(folder), "--topk", 5, "--output", folder / "out", "--resume",
            "--workspace", folder / "kept"]  # fmt: skip


@pytest.mark.parametrize(("part", "n_parts", "kind"), [("tile", 7, "neighbours"), ("rows", 2, "weights")])
def test_a_killed_run_is_resumed(sets, tmp_path, part, n_parts, kind):
    """SIGKILL in the middle of a stage: the next run does nothing twice, and says what an undisturbed one says."""
    from reid_dist import Report
    from reid_dist.cli import main

    for side, each in zip(("query", "gallery"), sets, strict=True):
        each.save(tmp_path / f"{side}.zarr")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(SLOW_RUN))
    words = [str(word) for word in words_for(tmp_path)]
    with subprocess.Popen(
        [sys.executable, str(program), part, str(n_parts), kind, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        # Whatever the other threads are about to write, they write.
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)
    assert first_line.startswith("here")
    kept = tmp_path / "kept"
    before = stamps(kept)
    assert sum(Path(name).name.startswith(part) and name.startswith(kind) for name in before) >= n_parts
    assert not (tmp_path / "out" / "report.json").exists()
    written = count_writes(main, words)
    assert not set(written) & set(before)
    after = stamps(kept)
    finished = {name: stamp for name, stamp in before.items() if name in after}
    assert {name: after[name] for name in finished} == finished
    assert all(Path(name).name.startswith("tile-") for name in set(before) - set(after))
    report = Report.load(tmp_path / "out")
    near, far = sets
    rerank = "k_reciprocal(k1=6,k2=3)"
    assert report.result_digest == evaluate(near, far, rerank=rerank, topk=5).result_digest
    assert report.topk.digest == evaluate(near, far, rerank=rerank, topk=5).topk.digest


def count_writes(main, words):
    """Stages and names of the parts that a command writes."""
    written = []
    write = Stage.write

    def noted(self, part, arrays):
        written.append(f"{Path(self.path).name}/{part}.npz")
        return write(self, part, arrays)

    Stage.write = noted
    try:
        code, _, err = call(main, words)
    finally:
        Stage.write = write
    assert code == 0, err
    return written
