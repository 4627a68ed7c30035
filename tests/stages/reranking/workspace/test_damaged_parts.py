"""The workspace of a re-ranking: complete parts are reused, damaged ones are detected."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from support.reranking_runs import labelled
from support.strategies import scattered_sets
from workspace_runs import STAGES, run, stamps, threads_file

from reid_dist import evaluate
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import DamagedPartError, DamagedStoreError
from reid_dist.stages.neighbour_search import forget_table
from reid_dist.stores import Stage, Workspace


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


@pytest.mark.quick_cases(1)
@MADE_AGAIN
@pytest.mark.parametrize("harm", [flip, truncate, empty, garbage])
@pytest.mark.parametrize("kind", STAGES)
def test_a_damaged_part_is_reported_and_made_again(sets, tmp_path, kind, harm):
    """One line that names the file, whatever is wrong with it; another lambda needs all parts."""
    run(sets, tmp_path)
    damaged = next(iter(sorted(tmp_path.glob(f"{kind}-*/*.npz"))))
    whole = damaged.read_bytes()
    harm(damaged)
    forget_table()
    # Whoever reads it: weights are made of lists, means of weights, and distances of means.
    changes = {"neighbours": {"inclusive": True}, "weights": {"k2": 5}, "means": {"lambda_value": 0.5}}[kind]
    with pytest.warns(UserWarning, match="made again") as caught:
        report = run(sets, tmp_path, **changes)
    (line,) = reported(caught)
    assert line.startswith(f"{damaged} is damaged (")
    assert damaged.read_bytes() == whole
    forget_table()
    assert report.result_digest == run(sets, None, **changes).result_digest


@pytest.mark.slow
@MADE_AGAIN
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("neighbours-*/rows-00000.npz", "neighbours-*/rows-00001.npz"),
        ("weights-*/rows-00000.npz", "weights-*/rows-00001.npz"),
        ("means-*/rows-00000.npz", "means-*/rows-00001.npz"),
        ("weights-*/rows-00001.npz", "means-*/rows-00001.npz"),
        ("neighbours-*/rows-00000.npz", "weights-*/rows-00000.npz"),
        ("neighbours-*/stage.json", "weights-*/stage.json"),
        ("weights-*/stage.json", "neighbours-*/stage.json"),
    ],
)
def test_a_part_in_the_place_of_another_is_never_used(sets, tmp_path, source, target, expected):
    run(sets, tmp_path)
    (first,), (second,) = tmp_path.glob(source), tmp_path.glob(target)
    whole, wrong = second.read_bytes(), first.read_bytes()
    second.write_bytes(wrong)
    forget_table()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The block size is the same here, so the same description is written again and parts stay valid.
        changes = [{}, {"lambda_value": 0.5}, {"k2": 4}, {"inclusive": True}]
        digests = [run(sets, tmp_path, **each).result_digest for each in changes]
    assert digests[0] == expected
    forget_table()
    assert digests == [run(sets, None, **each).result_digest for each in changes]
    if second.suffix == ".npz":
        assert len(reported(caught, f"{second} is another part (it was written as {first.parent.name}/")) == 1
    assert second.read_bytes() == whole


@pytest.mark.slow
@MADE_AGAIN
def test_two_parts_that_changed_places(sets, tmp_path, expected):
    run(sets, tmp_path)
    pairs = [sorted(tmp_path.glob(f"{kind}-*/*.npz"))[:2] for kind in STAGES]
    for (first, second), changes in zip(pairs, ({"inclusive": True}, {"k2": 5}, {}), strict=True):
        swapped = first.read_bytes(), second.read_bytes()
        second.write_bytes(swapped[0])
        first.write_bytes(swapped[1])
        forget_table()
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
    forget_table()
    with pytest.warns(UserWarning, match="made again") as caught:
        assert run(sets, tmp_path / "mine").result_digest == expected
    assert len(reported(caught, "neighbours-", "means-")) <= len(STAGES)


@pytest.mark.slow
@MADE_AGAIN
def test_parts_of_another_cut_are_never_used(sets, tmp_path, expected):
    for name, chunk_rows in (("mine", 16), ("theirs", 50)):
        run(sets, tmp_path / name, chunk_rows=chunk_rows)
    for part in (tmp_path / "theirs").glob("neighbours-*/rows-*.npz"):
        target = tmp_path / "mine" / part.relative_to(tmp_path / "theirs")
        assert target.parent.is_dir(), "the same items have the same stage, however they are cut"
        target.write_bytes(part.read_bytes())
    forget_table()
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
    with pytest.warns(UserWarning, match="made again"), pytest.raises(DamagedStoreError, match="rerun to recompute it"):
        run(sets, tmp_path)


@pytest.mark.quick_cases(1)
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


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", [None, "", "{", "[]", '"text"', "{}", "[" * 100_000])
def test_a_damaged_description_is_written_again(sets, tmp_path, content):
    """Parts hold the checksum of their description: a run with another description does not read them."""
    run(sets, tmp_path, chunk_rows=16)
    (description,) = tmp_path.glob("neighbours-*/stage.json")
    whole = description.read_bytes()
    if content is None:
        description.unlink()
    else:
        description.write_text(content)
    before = stamps(tmp_path)
    forget_table()
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
        forget_table()
        assert run(sets, tmp_path).result_digest == expected
        assert missing.exists()


def test_damage_is_one_line_on_the_command_line(sets, reid_dist, tmp_path):
    for side, each in zip(("query", "gallery"), sets, strict=True):
        each.save(tmp_path / f"{side}.zarr")
    words = ["evaluate", tmp_path / "query.zarr", tmp_path / "gallery.zarr", "--rerank", "k_reciprocal(k1=6)",
             "--workspace", tmp_path / "workspace", "--cluster", threads_file(tmp_path), "--json"]  # fmt: skip
    before = reid_dist(*words)
    assert before.code == 0
    damaged = sorted((tmp_path / "workspace").glob("means-*/*.npz"))[0]
    truncate(damaged)
    after = reid_dist(*words)
    assert after.code == 0
    assert json.loads(after.out)["result_digest"] == json.loads(before.out)["result_digest"]
    assert "Traceback" not in after.err
    (line,) = (line for line in after.err.splitlines() if line.startswith("Warning: "))
    assert line == f"Warning: {damaged} is damaged (File is not a zip file): made again"
