"""The workspace of a re-ranking: what is there is whole, is taken up again, and is told apart from what is damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from reranking_runs import labelled
from strategies import crowded_sets, scattered_sets

from reid_dist import evaluate, nearest
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import DamagedPartError, DamagedStoreError, StoreError
from reid_dist.stages.neighbours import Table
from reid_dist.stages.neighbours import plan as neighbour_plan
from reid_dist.stages.reranking import KReciprocal
from reid_dist.stores import Stage, Workspace

RERANK = {"k1": 6, "k2": 3}
STAGES = ("neighbours", "weights", "means")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of few items; and lists that this process has read already would hide what is on disk."""
    monkeypatch.setattr(neighbour_plan, "TILE_ROWS", 32)
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


MADE_AGAIN = pytest.mark.filterwarnings("always:.*made again$:UserWarning")


def reported(caught, *words):
    """The one line for each damage."""
    found = [str(each.message) for each in caught if str(each.message).endswith(": made again")]
    assert all("\n" not in line for line in found)
    assert all(any(word in line for line in found) for word in words), found
    return found


@pytest.mark.quick_cases(6)
@MADE_AGAIN
@pytest.mark.parametrize("harm", [flip, truncate, empty, garbage])
@pytest.mark.parametrize("kind", STAGES)
def test_a_damaged_part_is_reported_and_made_again(sets, tmp_path, kind, harm):
    """One line that names the file, whatever is wrong with it; another lambda needs all parts."""
    run(sets, tmp_path)
    damaged = next(iter(sorted(tmp_path.glob(f"{kind}-*/*.npz"))))
    whole = damaged.read_bytes()
    harm(damaged)
    Table._key = None
    # Whoever reads it: weights are made of lists, means of weights, and distances of means.
    changes = {"neighbours": {"inclusive": True}, "weights": {"k2": 5}, "means": {"lambda_value": 0.5}}[kind]
    with pytest.warns(UserWarning, match="made again") as caught:
        report = run(sets, tmp_path, **changes)
    (line,) = reported(caught)
    assert line.startswith(f"{damaged} is damaged (")
    assert damaged.read_bytes() == whole
    Table._key = None
    assert report.result_digest == run(sets, None, **changes).result_digest


@pytest.mark.quick_cases(5)
@MADE_AGAIN
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("neighbours-*/lists-00000.npz", "neighbours-*/lists-00001.npz"),
        ("weights-*/rows-00000.npz", "weights-*/rows-00001.npz"),
        ("means-*/rows-00000.npz", "means-*/rows-00001.npz"),
        ("weights-*/rows-00001.npz", "means-*/rows-00001.npz"),
        ("neighbours-*/lists-00000.npz", "weights-*/rows-00000.npz"),
        ("neighbours-*/stage.json", "weights-*/stage.json"),
        ("weights-*/stage.json", "neighbours-*/stage.json"),
    ],
)
def test_a_part_in_the_place_of_another_is_never_used(sets, tmp_path, source, target, expected):
    run(sets, tmp_path)
    (first,), (second,) = tmp_path.glob(source), tmp_path.glob(target)
    whole, wrong = second.read_bytes(), first.read_bytes()
    second.write_bytes(wrong)
    Table._key = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The cut is the same here, so what a description says of it is written again and parts stay good.
        changes = [{}, {"lambda_value": 0.5}, {"k2": 4}, {"inclusive": True}]
        digests = [run(sets, tmp_path, **each).result_digest for each in changes]
    assert digests[0] == expected
    Table._key = None
    assert digests == [run(sets, None, **each).result_digest for each in changes]
    if second.suffix == ".npz":
        assert len(reported(caught, f"{second} is another part (it was written as {first.parent.name}/")) == 1
    assert second.read_bytes() == whole


@MADE_AGAIN
def test_two_parts_that_changed_places(sets, tmp_path, expected):
    run(sets, tmp_path)
    pairs = [sorted(tmp_path.glob(f"{kind}-*/*.npz"))[:2] for kind in STAGES]
    for (first, second), changes in zip(pairs, ({"inclusive": True}, {"k2": 5}, {}), strict=True):
        swapped = first.read_bytes(), second.read_bytes()
        second.write_bytes(swapped[0])
        first.write_bytes(swapped[1])
        Table._key = None
        with pytest.warns(UserWarning, match="made again") as caught:
            found = run(sets, tmp_path, **changes).result_digest
        (line,) = reported(caught)
        assert line.endswith("as are 1 more parts of this stage: made again")
        assert (first.read_bytes(), second.read_bytes()) == swapped
    assert found == expected


@MADE_AGAIN
def test_a_workspace_of_other_models_is_never_used(sets, tmp_path, expected):
    """All parts of another model's stages under the names of this one: nothing of them is used."""
    run(sets, tmp_path / "mine")
    others = tuple(map(labelled, scattered_sets(30, 170, 9, seed=99)))
    run(others, tmp_path / "theirs")
    for kind in STAGES:
        (mine,), (theirs,) = (list((tmp_path / each).glob(f"{kind}-*")) for each in ("mine", "theirs"))
        for part in theirs.glob("*.npz"):
            (mine / part.name).write_bytes(part.read_bytes())
    Table._key = None
    with pytest.warns(UserWarning, match="made again") as caught:
        assert run(sets, tmp_path / "mine").result_digest == expected
    assert len(reported(caught, "neighbours-", "means-")) <= len(STAGES)


@MADE_AGAIN
def test_parts_of_another_cut_are_never_used(sets, tmp_path, expected):
    for name, chunk_rows in (("mine", 16), ("theirs", 50)):
        run(sets, tmp_path / name, chunk_rows=chunk_rows)
    for part in (tmp_path / "theirs").glob("neighbours-*/lists-*.npz"):
        target = tmp_path / "mine" / part.relative_to(tmp_path / "theirs")
        assert target.parent.is_dir(), "the same items have the same stage, however they are cut"
        target.write_bytes(part.read_bytes())
    Table._key = None
    with pytest.warns(UserWarning, match="made again") as caught:
        found = run(sets, tmp_path / "mine", chunk_rows=16, k2=5).result_digest
    assert found == run(sets, None, k2=5).result_digest
    reported(caught, "its rows are cut in another way")


@MADE_AGAIN
def test_what_a_run_has_finished_of_its_sweep(sets, tmp_path, monkeypatch):
    """Partial results of another model, and one under the name of another, in what a stopped run goes on from."""
    plain = {"confidence": None, "chunk_rows": 16}
    expected = evaluate(*sets, **plain).result_digest
    others = tuple(map(labelled, scattered_sets(30, 170, 9, seed=99)))

    class StoppedError(Exception):
        pass

    class Stops(Progress):
        def advance(self, stage):
            self.done = getattr(self, "done", 0) + (stage == "sweep")
            if self.done == 6:
                raise StoppedError

    for name, each in (("mine", sets), ("theirs", others)):
        with pytest.raises(StoppedError):
            evaluate(*each, **plain, workspace=tmp_path / name, progress=Stops())
    mine, theirs = (sorted((tmp_path / name).glob("partials-*/*.npz")) for name in ("mine", "theirs"))
    assert len(mine) > 1
    mine[0].write_bytes(mine[1].read_bytes())
    for part in mine[2:]:
        part.write_bytes(theirs[0].read_bytes())
    with pytest.warns(UserWarning, match="made again") as caught:
        assert evaluate(*sets, **plain, workspace=tmp_path / "mine").result_digest == expected
    assert len(reported(caught, "partials-")) == 1


def test_a_part_that_cannot_be_made_whole_ends_the_run(sets, tmp_path, monkeypatch):
    """A disk that never gives back what was written: one line, and no loop."""
    write = Stage.write

    def damaged(self, part, arrays):
        size = write(self, part, arrays)
        if part == "rows-00001":
            flip(Path(self.path) / f"{part}.npz")
        return size

    monkeypatch.setattr(Stage, "write", damaged)
    with pytest.warns(UserWarning, match="made again"), pytest.raises(DamagedStoreError, match="run again"):
        run(sets, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_anywhere_in_a_part(tmp_path, seed):
    """What is read is what was written, or it is refused and removed, whichever bit of the file flips."""
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    arrays = {"one": np.arange(40.0), "two": np.arange(9, dtype=np.int32).reshape(3, 3)}
    stage.write("part", arrays)
    file = Path(stage.path) / "part.npz"
    whole = file.read_bytes()
    places = np.random.default_rng(seed).permutation(8 * len(whole))[:400]
    refused = []
    for place in places.tolist():
        content = bytearray(whole)
        content[place // 8] ^= 1 << (place % 8)
        file.write_bytes(content)
        try:
            found = stage.read("part", *arrays)
        except DamagedPartError as error:
            refused.append(str(error))
        else:
            assert {name: each.tobytes() for name, each in found.items()} == {
                name: each.tobytes() for name, each in arrays.items()
            }
    assert len(refused) > 250
    assert all(line.startswith(f"{file} is ") and "\n" not in line for line in refused)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("content", [None, "", "{", "[]", '"text"', "{}", "[" * 100_000])
def test_a_damaged_description_is_written_again(sets, tmp_path, content):
    """Parts are cut as the description says, and carry its seal: another cut does not take them for its own."""
    run(sets, tmp_path, chunk_rows=16)
    (description,) = tmp_path.glob("neighbours-*/stage.json")
    whole = description.read_bytes()
    if content is None:
        description.unlink()
    else:
        description.write_text(content)
    before = stamps(tmp_path)
    Table._key = None
    # The same cut: the parts are good.
    assert (
        run(sets, tmp_path, chunk_rows=16, lambda_value=0.5).result_digest
        == run(sets, None, lambda_value=0.5).result_digest
    )
    assert description.read_bytes() == whole
    assert stamps(tmp_path) == before


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
             "--workspace", tmp_path / "workspace", "--cluster", threads_file(tmp_path), "--json"]  # fmt: skip
    code, before, _ = call(main, words)
    assert code == 0
    damaged = sorted((tmp_path / "workspace").glob("means-*/*.npz"))[0]
    truncate(damaged)
    code, out, err = call(main, words)
    assert code == 0
    assert json.loads(out)["result_digest"] == json.loads(before)["result_digest"]
    assert "Traceback" not in err
    (line,) = (line for line in err.splitlines() if line.startswith("Warning: "))
    assert line == f"Warning: {damaged} is damaged (File is not a zip file): made again"


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

    stage = Stage("somewhere", "seal")
    assert pickle.loads(pickle.dumps(stage)) == stage


def test_the_error_of_a_part_travels(tmp_path):
    """From a worker to the client, with what it takes to make the part again."""
    import pickle

    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    with pytest.raises(DamagedPartError, match=r"part\.npz is missing; the workspace must be a place") as caught:
        stage.read("part")
    travelled = pickle.loads(pickle.dumps(caught.value))
    assert (str(travelled), travelled.place, travelled.part) == (str(caught.value), stage.path, "part")


# --------------------------------------------------------------------------------------------------- killed runs

SLOW_RUN = """
import sys, time
from reid_dist.stages.neighbours import plan
from reid_dist.stores import workspace

plan._MOST_BLOCK_ROWS = 40
plan.TILE_ROWS = 40
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


@pytest.mark.slow
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
