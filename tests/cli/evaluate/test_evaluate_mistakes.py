"""Mistakes in the options of `reid-dist evaluate`: exit code 2 and one line."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
from evaluate_sets import N_QUERY


@pytest.mark.quick_cases(11)
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["--breakdown", "camera_pairs"],
            ["unknown breakdown 'camera_pairs'", "did you mean 'camera_pair'", "clothes"],
        ),
        (["--metric", "mINPP"], ["unknown metric 'mINPP'", "did you mean 'mINP'"]),
        (["--max-rank", "0"], ["'--max-rank': must be a whole number from 1 to 2**31 - 1, found '0'"]),
        (["--protocl", "x"], ["No such option", "--protocol"]),
        (["--num-query", "3"], ["No such option", "--num-query is an option of: ingest"]),
        (["--gallery-size", "5"], ["gallery_sizes belong to the breakdown"]),
        (
            ["--breakdown", "gallery_size", "--gallery-size", "half"],
            ["'--gallery-size': must be a list of numbers, found 'half'"],
        ),
        (["--gallery-order", "up"], ["'--gallery-order'", "'up'"]),
        (["--gallery-order", "random"], ["--gallery-order random is of the distractor curve", "gallery_size"]),
        (["--breakdown", "camera", "--gallery-order", "random"], ["add --breakdown gallery_size"]),
        (["--topk", "3", "--image-root", "."], ["--image-root is where", "add --pictures"]),
        (["--seed", "1.5"], ["--seed", "'1.5'"]),
        (["--confidence", "1"], ["'--confidence': must be a number between 0 and 1, found '1'"]),
        (["--single-shot-draws", "5"], ["single_shot_draws are for the single-shot CMC"]),
        (["--protocol", "oxford"], ["needs a ground truth", "--ground-truth FILE"]),
        (["--protocol", "oxford", "--ground-truth", "none.json"], ["no such ground truth", "none.json"]),
        (["--ground-truth", "DATA/truth.json"], ["goes by labels and takes no ground truth"]),
        (["--distances", "none.npy"], ["there is no distance block 'none.npy'"]),
        (["--distances", "DATA/labels.npz"], ["is no .npy file of distances", "holds no matrix"]),
        (["--lists", "none.npz"], ["there is no file of lists 'none.npz'"]),
        (["--lists", "DATA/block.npy"], ["is no .npz file of lists"]),
        (["--lists", "DATA"], ["is no .npz file of lists"]),
        (["--lists", "DATA/labels.npz", "--distances", "DATA/block.npy"], ["not from both"]),
        (["--distances", "DATA/block.npy", "--distance", "euclidean"], ["'euclidean' is computed from features"]),
        (["--pictures", "hardest"], ["set topk as well (--topk 10)"]),
        (
            ["--pictures", "some", "--topk", "3"],
            ["'--pictures': must be a list of whole numbers, or hardest, found 'some'"],
        ),
        (["--pictures", "3,", "--topk", "3"], ["found '3,'"]),
        (["--pictures", "3,24", "--topk", "3"], ["query row 24 is none of the 24 queries"]),
    ],
    ids=lambda part: " ".join(part) if part[0].startswith("--") else "",
)
def test_mistakes_are_reported_in_one_line(refused, data, tmp_path, words, parts):
    line = refused(*(word.replace("DATA", str(data)) for word in words), "--output", tmp_path / "out")
    for part in parts:
        assert part in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--topk", "3"], "--topk writes topk.npz to the output directory; add --output DIR"),
        (["--resume"], "--resume needs the output directory of the run; add --output DIR"),
        (["--resume", "--json"], "add --output DIR"),
    ],
)
def test_what_needs_an_output_directory(refused, words, part):
    assert part in refused(*words)


def test_lists_without_a_directory_have_a_digest(answer):
    """Which the report as JSON holds."""
    assert answer("--topk", "3")["topk"]["k"] == 3


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--ties"], "ties is not available for top-k lists"),
        (["--metric", "mINP"], "metric 'mINP' needs the rank of every query's last positive"),
        (["--pictures", "hardest"], "none are found where lists are given"),
    ],
)
def test_what_lists_cannot_answer(refused, tmp_path, words, part):
    np.savez(tmp_path / "lists.npz", index=np.tile(np.arange(5), (N_QUERY, 1)))
    assert part in refused("--lists", tmp_path / "lists.npz", *words, "--output", tmp_path / "out")


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def test_damaged_lists(refused, tmp_path):
    path = tmp_path / "lists.npz"
    np.savez_compressed(path, index=np.tile(np.arange(5), (N_QUERY, 1)))
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"PK\x03\x04", b""):
        path.write_bytes(content)
        assert "is no .npz file of lists" in refused("--lists", path)
    changed = bytearray(whole)
    changed[60:70] = bytes(10)
    path.write_bytes(changed)
    assert "lists" in refused("--lists", path)
    archive(path, index=b"not an array")
    assert "lists" in refused("--lists", path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("index.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("index.npy", b"")
    assert "holds 'index.npy' twice" in refused("--lists", path)
    np.savez(path, index=np.array([[None] * 5] * N_QUERY, dtype=object))
    assert "is no .npz file of lists" in refused("--lists", path)
    np.savez(path, index=np.zeros((N_QUERY, 5)))
    assert "must be whole numbers" in refused("--lists", path)
    np.savez(path, index=np.tile(np.arange(5), (7, 1)))
    assert "7 top-k lists for 24 queries" in refused("--lists", path)
    np.savez(path, index=np.tile(np.arange(5), (N_QUERY, 1)), distance=np.zeros((N_QUERY, 4)))
    assert "distances of top-k lists" in refused("--lists", path)


def test_labels_that_do_not_serve(refused, data, tmp_path):
    words = ("--distances", data / "block.npy")
    assert "no such file or store" in refused(*words, sides=["none.npz", "none.npz"])
    np.savez(tmp_path / "nothing.npz", camids=np.zeros(3, int))
    empty = [tmp_path / "nothing.npz"] * 2
    assert "found no identities of the query side" in refused(*words, sides=empty)
    np.savez(tmp_path / "short.npz", query_pids=np.ones(3, int), gallery_pids=np.ones(4, int))
    short = [tmp_path / "short.npz"] * 2
    line = refused(*words, "--protocol", "no_cameras", sides=short)
    assert "the distance block is 24 x 120, and there are labels of 3 queries and 4 gallery rows" in line
    np.savez(tmp_path / "uneven.npz", pids=np.ones(5, int), camids=np.ones(4, int))
    assert "camids" in refused(*words, sides=[tmp_path / "uneven.npz"] * 2)
