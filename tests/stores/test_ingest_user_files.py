"""Files as users have them: names in place of labels, queries first, tables beside features, odd containers."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from array_files import flip_bit, write_arrays
from handmade_pth import Tensor, write_pth
from named_images import CAMIDS, FEATURES, NAMES, PIDS, assert_named
from support.refusals import in_full

from reid_dist import DistanceBlock, FeatureSet, evaluate
from reid_dist.errors import InputError, RunFailedError, StoreError
from reid_dist.stores import ingest, open_features
from reid_dist.stores.importers import image_names
from reid_dist.stores.importers.name_layouts import layout_of_pattern
from reid_dist.stores.importers.source import open_source

# ---- names of images -------------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("word", ["paths", "img_path", "image_paths", "filenames", "impath", "img_name"])
def test_names_inside_a_pth_become_labels(tmp_path: Path, word: str) -> None:
    paths = [f"data/market/query/{name}" for name in NAMES]
    source = write_pth(tmp_path / "a.pth", {"features": Tensor(FEATURES), word: paths})
    (store,) = ingest(source, tmp_path / "a.zarr")
    assert_named(store, paths)
    assert open_features(source).content_digest == store.content_digest


def test_names_of_both_sides_inside_a_file(tmp_path: Path) -> None:
    held = {"qf": FEATURES[:2], "q_paths": np.array(NAMES[:2]), "gf": FEATURES[2:], "g_paths": np.array(NAMES[2:])}
    np.savez(tmp_path / "a.npz", **held)
    query, gallery = ingest(tmp_path / "a.npz", tmp_path / "a")
    assert query.pids.tolist() == PIDS[:2]
    assert gallery.pids.tolist() == PIDS[2:]


def test_names_from_a_list(reid_dist: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "list.txt").write_text("path\n" + "\n".join(f"é/{name}" for name in NAMES), encoding=encoding)
        words = ("--names", tmp_path / "list.txt", "--overwrite", "--output", tmp_path / "a.zarr")
        done = reid_dist("ingest", tmp_path / "f.npy", *words)
        assert done.code == 0, done.err
        assert "4 identities, 6 cameras" in done.out
        assert f"note: labels come from names of images, layout market1501: 'é/{NAMES[0]}' is pids 0002" in done.out
        assert_named(FeatureSet.open(tmp_path / "a.zarr"), [f"é/{name}" for name in NAMES])


def test_names_replace_customary_labels_and_not_named_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=np.arange(6), own=np.arange(10, 16))
    (tmp_path / "list.txt").write_text("\n".join(NAMES))
    assert_named(open_features(tmp_path / "a.npz", names_file=tmp_path / "list.txt"))
    mixed = open_features(tmp_path / "a.npz", names={"pids": "own"}, names_file=tmp_path / "list.txt")
    assert mixed.pids.tolist() == list(range(10, 16))
    assert mixed.camids.tolist() == CAMIDS


def test_labels_of_a_file_are_not_replaced_by_its_paths(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, pids=np.arange(6), paths=np.array(NAMES))
    found = open_features(tmp_path / "a.npz")
    assert found.pids.tolist() == list(range(6))
    assert found.camids is None
    cameras = open_features(tmp_path / "a.npz", pattern="_c(?P<camid>[0-9]+)")
    assert cameras.pids.tolist() == list(range(6))
    assert cameras.camids.tolist() == CAMIDS


def test_a_pattern_reads_base_names_or_paths_and_further_columns(reid_dist: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES[:3])
    (tmp_path / "list.txt").write_text("anna/12-c3-t07.jpg\nbo/12-c1-t08.jpg\n007\\x\\13-c2-t09.jpg\n")
    words = ("ingest", tmp_path / "f.npy", "--names", tmp_path / "list.txt", "--overwrite", "--output")
    target = tmp_path / "a.zarr"
    base = reid_dist(*words, target, "--pattern", r"^(?P<pid>\d+)-c(?P<camid>\d)-t(?P<tracklet>\d+)")
    assert base.code == 0, base.err
    store = FeatureSet.open(target)
    assert store.pids.tolist() == [12, 12, 13]
    assert store.camids.tolist() == [3, 1, 2]
    assert store.columns["tracklet"].tolist() == [7, 8, 9]
    path = reid_dist(*words, target, "--pattern", r"^(?P<pid>[^/]+)/")
    assert path.code == 0, path.err
    assert FeatureSet.open(target).pid_names == ("007", "anna", "bo")


@pytest.mark.quick_cases(3)
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<pid>([a-z]+)+)_c(?P<camid>[0-9])$",
        "(?P<pid>(a|a)*)_c(?P<camid>[0-9])",
        "^(?=(?P<pid>(a+)+)b)(?P<camid>c)",
        "^(?P<pid>(.*)*)/(?P<camid>[0-9])$",
    ],
)
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_pattern_that_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, in_thread: bool
) -> None:
    monkeypatch.setattr(image_names, "_LIMIT_S", 0.2)
    n, late = 5000, "a" * 60 + ".jpg"
    np.save(tmp_path / "f.npy", np.ones((n, 2), np.float32))
    # Names that fit neither take time.
    names = np.array(["b_c1/1"] * n, dtype="<U80")
    names[4200] = late
    np.save(tmp_path / "names.npy", names)
    children = psutil.Process().children()

    def refusal() -> str:
        with pytest.raises(InputError) as refused:
            open_features(tmp_path / "f.npy", names_file=tmp_path / "names.npy", pattern=pattern)
        return in_full(refused.value)

    with ThreadPoolExecutor() as pool:
        message = pool.submit(refusal).result() if in_thread else refusal()
    assert message.startswith(f"--pattern {pattern!r} takes more than 0.2 s for 904 names; ")
    assert f"it was at row 4200: {late!r}" in message
    assert psutil.Process().children() == children


def test_a_search_that_is_killed_is_reported(tmp_path: Path) -> None:
    layout = layout_of_pattern("(?P<pid>[0-9]+)")
    ended = pytest.raises(RunFailedError, match=r"the process that searched .* has ended")
    # Those of earlier tests may still be ending.
    before = psutil.Process().children()
    with ended, image_names.searching(layout) as search:
        assert search(0, ["a/17.jpg", "b", "c/3"]) == [("17", "17"), None, ("3", "3")]
        started = [each for each in psutil.Process().children() if each not in before]
        (child,) = (each for each in started if "search_process.py" in " ".join(each.cmdline()))
        child.kill()
        search(3, ["4"])


@pytest.mark.parametrize("pattern", ["(" * 9999 + ")" * 9999, "(?P<pid>a{99999999999999999999})"])
def test_patterns_that_cannot_be_compiled(pattern: str) -> None:
    with pytest.raises(InputError, match="is no regular expression"):
        layout_of_pattern(pattern)


def test_names_longer_than_paths_are_refused(reid_dist: Any, tmp_path: Path) -> None:
    """Patterns of layouts take a time that grows with the square of the length."""
    np.save(tmp_path / "f.npy", FEATURES[:3])
    (tmp_path / "list.txt").write_text(f"{NAMES[0]}\n{'0' * 100_000}\n{NAMES[2]}\n")
    for layout in ("market1501", "msmt17"):
        words = ("--names", tmp_path / "list.txt", "--layout", layout, "--output", tmp_path / "a.zarr")
        found = reid_dist("ingest", tmp_path / "f.npy", *words)
        found.assert_refused("8192 characters at most: row 1 holds 100000, '0000")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            (),
            ("2 of 6 names do not fit the layout market1501", "row 1: 'Thumbs.db'", "row 4: 'IMG_4.jpg'", "--pattern"),
        ),
        (("--pattern", "(?P<pid>"), ("is no regular expression",)),
        (("--pattern", "[0-9]+"), ("neither a group pid nor a group camid",)),
        (("--pattern", "(?P<pid>[0-9]+)", "--pids-file", "x"), ("pids are named twice", "--pattern")),
        (("--labels", "x"), ("--labels", "--names", "give one of them")),
    ],
)
def test_names_that_do_not_fit_are_not_guessed(reid_dist: Any, tmp_path: Path, words: Any, parts: Any) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    names = list(NAMES)
    names[1], names[4] = "Thumbs.db", "IMG_4.jpg"
    (tmp_path / "list.txt").write_text("\n".join(names))
    given = ("--names", tmp_path / "list.txt", "--output", tmp_path / "a.zarr", *words)
    reid_dist("ingest", tmp_path / "f.npy", *given).assert_refused(*parts)
    assert not (tmp_path / "a.zarr").exists()


def test_names_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    names = [f'a, "b"/{name}' for name in NAMES]
    (tmp_path / "list.txt").write_bytes("\r\n".join([*names, ""]).encode())
    assert_named(open_features(tmp_path / "f.npy", names_file=tmp_path / "list.txt"), names)


def test_a_list_of_another_length_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "list.txt").write_text("\n".join(NAMES[:5]))
    with pytest.raises(InputError, match="5 names of images for 6 rows"):
        open_features(tmp_path / "f.npy", names_file=tmp_path / "list.txt")


@pytest.mark.parametrize("names", [NAMES, [f"shop/{at}.PNG" for at in range(6)], [Path(n).stem for n in NAMES]])
def test_names_of_files_are_no_identities(reid_dist: Any, tmp_path: Path, names: list[str]) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "list.txt").write_text("\n".join(names))
    given = ("--pids-file", tmp_path / "list.txt", "--output", tmp_path / "a.zarr")
    refused = reid_dist("ingest", tmp_path / "f.npy", *given)
    refused.assert_refused(f"pids are names of files and no labels: row 0 holds {names[0]!r}", "--names FILE")
    np.savez(tmp_path / "a.npz", features=FEATURES, ids=np.array(names))
    with pytest.raises(InputError, match="name the array with --image-paths"):
        open_features(tmp_path / "a.npz")


# ---- dictionaries from name to tensor --------------------------------------------------------------------------------


def test_a_dictionary_of_tensors_by_name(tmp_path: Path) -> None:
    """open-reid and cluster-contrast: rows in the order of the file, views of the batches they came from."""
    batches = [FEATURES[:4].copy(), FEATURES[4:].copy()]
    held = {
        name: Tensor(batches[row // 4], view=(row % 4 * 4, (4,), (1,))) for row, name in enumerate(NAMES)
    }  # fmt: skip
    (store,) = ingest(write_pth(tmp_path / "a.pth", held), tmp_path / "a.zarr")
    assert_named(store)
    labels = {name: Tensor(np.array(7 + row)) for row, name in reversed(list(enumerate(NAMES)))}
    both = open_features(write_pth(tmp_path / "b.pth", {"features": held, "labels": labels}))
    assert both.pids.tolist() == [7, 8, 9, 10, 11, 12]
    np.testing.assert_array_equal(both.read(0, 6), FEATURES)
    pair = write_pth(tmp_path / "c.pth", (held, labels))
    assert open_features(pair, names={"pids": "item1"}).pids.tolist() == [7, 8, 9, 10, 11, 12]
    sides = {"query": dict(list(held.items())[:2]), "gallery": dict(list(held.items())[2:])}
    gallery = open_features(write_pth(tmp_path / "d.pth", sides), "gallery")
    np.testing.assert_array_equal(gallery.read(0, 4), FEATURES[2:])
    assert gallery.pids.tolist() == PIDS[2:]


def test_a_flipped_byte_in_one_of_many_storages_is_found(tmp_path: Path) -> None:
    path = write_pth(tmp_path / "a.pth", {name: Tensor(FEATURES[row].copy()) for row, name in enumerate(NAMES)})
    flip_bit(path, FEATURES[3].tobytes())
    with pytest.raises(StoreError, match="damaged"):
        ingest(path, tmp_path / "a.zarr")


@pytest.mark.slow
def test_errors_list_ten_keys(reid_dist: Any, tmp_path: Path) -> None:
    held = {f"vectors_{row}": Tensor(np.ones((row + 1, 2), np.float32)) for row in range(2000)}
    path = write_pth(tmp_path / "a.pth", held)
    for words in ((), ("--features", "vector")):
        error = reid_dist("ingest", path, "--output", tmp_path / "a.zarr", *words).assert_refused("and 1990 more")
        assert len(error) < 2500
        assert error.count("vectors_") <= 22


def test_a_list_of_records(tmp_path: Path) -> None:
    records = [
        {"feature": Tensor(FEATURES[row].copy()), "pid": PIDS[row], "camid": CAMIDS[row], "path": NAMES[row]}
        for row in range(6)
    ]
    found = open_features(write_pth(tmp_path / "a.pth", records))
    np.testing.assert_array_equal(found.read(0, 6), FEATURES)
    assert found.pids.tolist() == PIDS
    assert found.image_paths.tolist() == NAMES


# ---- numpy inside of torch.save, and what else is beside it ----------------------------------------------------------


def test_numpy_arrays_of_torch_save(tmp_path: Path) -> None:
    held = {
        "feats": np.asfortranarray(FEATURES.astype(">f4")), "pids": np.array(PIDS, dtype=np.int16),
        "camids": np.array(CAMIDS)[None], "img_path": np.array(NAMES), "num_query": np.int64(2),
    }  # fmt: skip
    query, gallery = ingest(write_pth(tmp_path / "a.pth", held), tmp_path / "a")
    for number in (2, Tensor(np.array(2)), np.array(2)):
        again = ingest(write_pth(tmp_path / "a.pth", held | {"num_query": number}), tmp_path / "a", overwrite=True)
        assert [store.n_rows for store in again] == [2, 4]
    np.testing.assert_array_equal(np.concatenate([query.read(0, 2), gallery.read(0, 4)]), FEATURES)
    assert [*query.pids.tolist(), *gallery.pids.tolist()] == PIDS
    assert gallery.image_paths.tolist() == NAMES[2:]


def test_what_is_beside_the_features_does_not_block_them(tmp_path: Path) -> None:
    others = {
        "args": argparse.Namespace(lr=0.1), "boxes": np.array([None, {}], dtype=object), "when": np.datetime64("2020"),
        "mixed": [1, "a", None], 3.5: "x", None: "y",
    }  # fmt: skip
    source = write_pth(tmp_path / "a.pth", {"features": Tensor(FEATURES), "pids": PIDS, **others})
    assert open_features(source).pids.tolist() == PIDS
    refused = open_source(str(source)).refused
    assert "argparse.Namespace" in refused["args"]
    assert "object array" in refused["boxes"]
    with pytest.raises(InputError, match=r"'args' cannot be read: it is of argparse\.Namespace, which is never loaded"):
        open_features(source, names={"camids": "args"})


def test_deep_settings_beside_the_features_are_left_out(tmp_path: Path) -> None:
    deep: Any = {"lr": 1}
    for _ in range(20):
        deep = {"config": deep}
    source = write_pth(tmp_path / "a.pth", {"features": Tensor(FEATURES), "pids": PIDS, "settings": deep})
    assert open_features(source).pids.tolist() == PIDS
    with pytest.raises(InputError, match=r"(?s)found no features.*nested more than 8 deep"):
        open_features(write_pth(tmp_path / "b.pth", deep))


def test_object_arrays_that_are_not_needed_do_not_block_an_npz(tmp_path: Path) -> None:
    boxed = np.array([*NAMES], dtype=object)
    np.savez(tmp_path / "a.npz", features=FEATURES, pids=PIDS, paths=boxed, history=np.array([{}], dtype=object))
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    assert store.pids.tolist() == PIDS
    assert store.image_paths is None
    (note,) = [note for note in store.notes if note.startswith("not read: paths")]
    assert "object array" in note
    np.savez(tmp_path / "b.npz", features=FEATURES, pids=PIDS, camids=np.array([*CAMIDS], dtype=object))
    with pytest.raises(InputError, match="'camids' cannot be read"):
        open_features(tmp_path / "b.npz")
    np.save(tmp_path / "c.npy", np.array(CAMIDS))
    assert open_features(tmp_path / "b.npz", camids_file=tmp_path / "c.npy").camids is not None


@pytest.mark.parametrize("name", ["features.pkl", "features.pickle", "features.pth", "features"])
def test_a_pickle_is_refused_with_lines_that_convert_it(reid_dist: Any, tmp_path: Path, name: str) -> None:
    import pickle

    held = {"features": FEATURES, "pids": np.array(PIDS)}
    (tmp_path / name).write_bytes(pickle.dumps(held))
    refused = reid_dist("ingest", tmp_path / name, "--output", tmp_path / "a.zarr")
    error = refused.assert_refused("is a pickle. Loading one can run arbitrary code, so reid-dist refuses to")
    lines = [line.strip() for line in error.splitlines()[1:]]
    assert lines.pop(0).startswith("If you trust it")
    assert len(lines) == 3
    # The three lines do what they promise.
    program = "\n".join(lines).replace('"features.pkl"', repr(str(tmp_path / name)))
    exec(program.replace('"features.npz"', repr(str(tmp_path / "features.npz"))), {})
    assert open_features(tmp_path / "features.npz").pids.tolist() == PIDS


def test_a_pkl_of_torch_save_is_read(tmp_path: Path) -> None:
    source = write_pth(tmp_path / "features.pkl", {"features": Tensor(FEATURES), "pids": PIDS})
    assert open_features(source).pids.tolist() == PIDS


# ---- queries first ---------------------------------------------------------------------------------------------------


def test_queries_first_by_option(reid_dist: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", feats=FEATURES, pids=np.array(["b", "a", "b", "c", "a", "b"]), camids=CAMIDS)
    done = reid_dist("ingest", tmp_path / "a.npz", "--num-query", 2, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    query, gallery = (FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery"))
    np.testing.assert_array_equal(query.read(0, 2), FEATURES[:2])
    np.testing.assert_array_equal(gallery.read(0, 4), FEATURES[2:])
    assert (query.pids.tolist(), gallery.pids.tolist()) == ([2, 1], [2, 3, 1, 2])
    dropped = ingest(tmp_path / "a.npz", tmp_path / "dropped", num_query=2, drop_pids=[2], chunk_rows=2)
    assert [store.pids.tolist() for store in dropped] == [[1], [3, 1]]
    np.testing.assert_array_equal(dropped[1].read(0, 2), FEATURES[[3, 4]])
    for number in (0, 6, -1):
        refused = reid_dist("ingest", tmp_path / "a.npz", "--num-query", number, "--output", tmp_path / "no")
        refused.assert_refused(f"is {number}, and must be at least 1 and less than the 6 rows")
    assert not (tmp_path / "no").exists()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["npz", "mat", "pth", "h5"])
def test_queries_first_by_the_entry_of_a_file(reid_dist: Any, tmp_path: Path, kind: str) -> None:
    held = {"feats": FEATURES, "pids": PIDS, "camids": CAMIDS, "num_query": 2}
    path = write_arrays(tmp_path / f"a.{kind}", held)
    stores = ingest(path, tmp_path / "out")
    assert [store.pids.tolist() for store in stores] == [PIDS[:2], PIDS[2:]]
    if kind == "pth":
        done = reid_dist("evaluate", path, path, "--json")
        assert done.code == 0, done.err
        assert evaluate(*stores).result_digest in done.out
    assert [s.n_rows for s in ingest(path, tmp_path / "three", num_query=3)] == [3, 3]


def test_both_sides_are_not_cut_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", qf=FEATURES, q_pids=PIDS, gf=FEATURES, g_pids=PIDS)
    with pytest.raises(InputError, match=r"holds query and gallery, and these are for a single set: --num-query"):
        ingest(tmp_path / "a.npz", tmp_path / "out", num_query=3)


@pytest.mark.parametrize("suffix", [".mat", ".npz", ".h5", ".pth"])
def test_a_matrix_of_another_format_is_a_block(suffix: str, tmp_path: Path) -> None:
    block = np.random.default_rng(0).random((3, 4))
    path = write_arrays(tmp_path / f"scores{suffix}", {"dist": block, "query_label": np.arange(3)})
    np.testing.assert_array_equal(DistanceBlock.open(path).read(0, 3, 0, 4), block)
