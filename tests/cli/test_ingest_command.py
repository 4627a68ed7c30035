"""``reid-dist ingest`` as users call it: every option reaches the store, one clear line for a mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.feature_arrays import Arrays, make_arrays

from reid_dist import FeatureSet

ROWS, DIM = 30, 6


def named(side: Arrays, words: tuple[str, ...], prefix: str = "") -> dict[str, np.ndarray]:
    """Arrays under names of one's own."""
    arrays = (side.features, *side.labels().values())
    return {prefix + word: array for word, array in zip(words, arrays, strict=True)}


def make_side(seed: int) -> Arrays:
    return make_arrays(ROWS, DIM, seed)


# Names that are not the customary ones.
OWN = ("emb", "vid", "where", "name", "jpeg")
ARRAYS = ("features", "pids", "camids", "item-ids", "image-paths")


def assert_holds(store: FeatureSet, side: Arrays) -> None:
    """A store holds a side, every array of it."""
    np.testing.assert_array_equal(store.read(0, store.n_rows), side.features)
    for name, values in side.labels().items():
        np.testing.assert_array_equal(getattr(store, name), values)


def test_arrays_of_one_set_go_by_any_name(reid_dist, tmp_path: Path) -> None:
    side = make_side(1)
    np.savez(tmp_path / "own.npz", **named(side, OWN))
    words = [word for array, name in zip(ARRAYS, OWN, strict=True) for word in (f"--{array}", name)]
    done = reid_dist("ingest", tmp_path / "own.npz", "--output", tmp_path / "own.zarr", *words)
    assert done.code == 0, done.err
    store = FeatureSet.open(tmp_path / "own.zarr")
    assert_holds(store, side)
    n_pids, n_cameras = len(set(side.pids.tolist()) - {-1}), len(set(side.camids.tolist()))
    message = f"{ROWS} x {DIM} float32, {n_pids} identities, {n_cameras} cameras, content "
    assert -1 in side.pids
    assert message + store.content_digest[:16] in done.out
    assert f"identities: {n_pids} " in reid_dist("check", tmp_path / "own.zarr").out


def test_arrays_of_both_sides_go_by_any_name(reid_dist, tmp_path: Path) -> None:
    sides = {"query": make_side(2), "gallery": make_side(3)}
    np.savez(tmp_path / "own.npz", **named(sides["query"], OWN, "a_"), **named(sides["gallery"], OWN, "b_"))
    words = [
        word
        for role, prefix in (("query", "a_"), ("gallery", "b_"))
        for array, name in zip(ARRAYS, OWN, strict=True)
        for word in (f"--{role}-{array}", prefix + name)
    ]
    done = reid_dist("ingest", tmp_path / "own.npz", "--output", tmp_path / "own", *words)
    assert done.code == 0, done.err
    for role, side in sides.items():
        assert_holds(FeatureSet.open(tmp_path / "own" / f"{role}.zarr"), side)
    reid_dist("ingest", tmp_path / "own.npz", "--output", tmp_path / "own", *words).assert_refused("own")
    reid_dist("ingest", tmp_path / "none.npz", "--output", tmp_path / "x").assert_refused("none.npz")
    assert not (tmp_path / "x").exists()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("prefixes", [("query_", "gallery_"), ("q_", "g_")])
@pytest.mark.parametrize(
    "words",
    [
        ("features", "pids", "camids"),
        ("feats", "labels", "cams"),
        ("f", "ids", "cameras"),
        ("embeddings", "person_ids", "camids"),
        ("embeddings", "vehicle_ids", "camids"),
    ],
)
def test_the_names_in_the_help_are_found(reid_dist, tmp_path: Path, words, prefixes) -> None:
    message = reid_dist("ingest", "--help").out.replace(",", " ").replace(";", " ").split()
    assert {*words, *prefixes, "item_ids", "image_paths", "columns/NAME"} <= {word.rstrip(".") for word in message}
    sides = {"query": make_side(7), "gallery": make_side(8)}
    held: dict[str, np.ndarray] = {}
    for prefix, side in zip(prefixes, sides.values(), strict=True):
        held |= named(side, (*words, "item_ids", "image_paths"), prefix)
    np.savez(tmp_path / "both.npz", **held)
    done = reid_dist("ingest", tmp_path / "both.npz", "--output", tmp_path / "both")
    assert done.code == 0, done.err
    for role, side in sides.items():
        assert_holds(FeatureSet.open(tmp_path / "both" / f"{role}.zarr"), side)


@pytest.mark.parametrize("form", ["npy", "text"])
def test_labels_from_files_of_their_own(reid_dist, tmp_path: Path, form: str) -> None:
    side = make_side(4)
    np.save(tmp_path / "features.npy", side.features)
    files = []
    for word, labels in (("pids", side.pids), ("camids", side.camids)):
        path = tmp_path / f"{word}.{form}"
        if form == "npy":
            np.save(path, labels)
        else:
            path.write_text(f"{word}\n" + "".join(f"{label}\n" for label in labels))
        files += [f"--{word}-file", path]
    done = reid_dist("ingest", tmp_path / "features.npy", "--output", tmp_path / "out.zarr", *files)
    assert done.code == 0, done.err
    store = FeatureSet.open(tmp_path / "out.zarr")
    np.testing.assert_array_equal(store.pids, side.pids)
    np.testing.assert_array_equal(store.camids, side.camids)


def test_how_rows_are_kept(reid_dist, tmp_path: Path) -> None:
    side = make_side(5)
    side.features[0] = 0
    np.savez(tmp_path / "a.npz", features=side.features, pids=side.pids)
    source, target = tmp_path / "features.of.a.model", tmp_path / "out.zarr"
    (tmp_path / "a.npz").rename(source)
    words = ("--format", "npz", "--dtype", "float16", "--chunk-rows", 4, "--allow-zero")
    drop = ("--drop-pid", -1, "--drop-pid", 2)
    done = reid_dist("ingest", source, "--output", target, *words, *drop)
    assert done.code == 0, done.err
    assert "note: " in done.out
    assert f"note: left out {np.isin(side.pids, [-1, 2]).sum()} of {ROWS} rows: pid -1, 2\n" in done.out
    store = FeatureSet.open(target)
    kept = ~np.isin(side.pids, [-1, 2])
    assert 0 < kept.sum() < ROWS
    np.testing.assert_array_equal(store.pids, side.pids[kept])
    np.testing.assert_array_equal(store.read(0, store.n_rows), side.features[kept].astype(np.float16))
    assert (store.dtype, store.chunk_rows) == (np.dtype("float16"), 4)
    # The store is replaced with --overwrite only.
    refused = reid_dist("ingest", source, "--output", target, "--format", "npz", "--allow-zero")
    refused.assert_refused("replace it with --overwrite")
    assert FeatureSet.open(target).content_digest == store.content_digest
    again = reid_dist("ingest", source, "--output", target, "--format", "npz", "--allow-zero", "--overwrite")
    assert again.code == 0, again.err
    assert FeatureSet.open(target).n_rows == ROWS


def test_a_dropped_pid_without_rows_is_noted(reid_dist, tmp_path: Path) -> None:
    side = make_side(9)
    np.savez(tmp_path / "a.npz", features=side.features, pids=side.pids)
    done = reid_dist("ingest", tmp_path / "a.npz", "--output", tmp_path / "out.zarr", "--drop-pid", 99)
    assert done.code == 0, done.err
    assert f"  note: left out 0 of {ROWS} rows; no row has pid 99\n" in done.out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--features", "embeddings"), ("unknown array 'embeddings'", "holds: ", "emb (30, 6) float32")),
        (("--features", "emb"), ("found features 'emb' but no identities", "--pids or --pids-file")),
        ((), ("found no features in ", "--features, or --query-features and --gallery-features")),
        (("--query-features", "emb"), ("no gallery features; name them with --gallery-features",)),
        (
            ("--query-features", "emb", "--gallery-features", "emb", "--query-pids", "vid"),
            ("name them with --gallery-pids",),
        ),
        (("--features", "emb", "--pids-file", "none.txt"), ("none.txt",)),
        (
            ("--features", "emb", "--pids", "vid", "--pids-file", "none.txt"),
            ("pids are named twice", "'vid' (--pids", "none.txt (--pids-file", "give one of them"),
        ),
        (
            ("--features", "emb", "--pids", "vid", "--camids", "vid", "--camids-file", "none.txt"),
            ("camids are named twice", "'vid' (--camids", "none.txt (--camids-file"),
        ),
        (("--features", "emb", "--pids", "short"), ("pids has 7 entries for 30 rows",)),
        (("--features", "emb", "--pids", "boxed"), ("'boxed' cannot be read", "never read")),
        (("--features", "emb", "--pids", "vid", "--drop-pid", "two"), ("--drop-pid",)),
        (("--features", "emb", "--pids", "vid", "--chunk-rows", "0"), ("--chunk-rows",)),
        (("--features", "emb", "--pids", "vid", "--dtype", "float64"), ("--dtype",)),
        (("--format", "npzz"), ("unknown format 'npzz'", "did you mean 'npz'")),
        (("--format", "mat"), ("cannot be read as mat",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, tmp_path: Path, words, parts) -> None:
    side = make_side(6)
    boxed = side.pids.astype(object)
    np.savez(tmp_path / "own.npz", emb=side.features, vid=side.pids, short=side.pids[:7], boxed=boxed)
    refused = reid_dist("ingest", tmp_path / "own.npz", "--output", tmp_path / "out.zarr", *words)
    refused.assert_refused(*parts)
    assert not (tmp_path / "out.zarr").exists()


def test_repeated_rows_are_noted_and_dropped_on_request(reid_dist, tmp_path: Path) -> None:
    side = make_side(1)
    rows = np.append(np.arange(ROWS), [0, 1, 2])
    paths = np.array([f"img{row}.jpg" for row in range(ROWS)])
    np.savez(tmp_path / "a.npz", features=side.features[rows], pids=side.pids[rows], image_paths=paths[rows])
    done = reid_dist("ingest", tmp_path / "a.npz", "--output", tmp_path / "a.zarr")
    assert done.code == 0
    (line,) = (line for line in done.out.splitlines() if line.startswith("  caution: set: "))
    assert f"3 of {ROWS + 3} rows have the image path of an earlier row (first: row {ROWS}, 'img0.jpg')" in line
    command = done.out.partition("`")[2].partition("`")[0].split()
    assert command[:2] == ["reid-dist", "ingest"]
    command[-1] = str(tmp_path / "b.zarr")
    done = reid_dist(*command[1:])
    assert "note: left out 3 of 33 rows, whose image path an earlier row has" in done.out
    assert FeatureSet.open(tmp_path / "b.zarr").image_paths.tolist() == paths.tolist()
