"""Files that try to reach other files, to run something, or to take time and memory without end."""

from __future__ import annotations

import os
import struct
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade_pth import Tensor, write_pth

from reid_dist.errors import InputError, StoreError
from reid_dist.stores import open_features
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.labels import as_column

SECRET = b"root:x:0:0:root:/root:/bin/bash\n" * 8


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "passwd"
    path.write_bytes(SECRET)
    return path


# ---- HDF5 ------------------------------------------------------------------------------------------------------------


def matlab(path: Path, file: h5py.File) -> None:
    file["features"] = np.eye(3, 2, dtype=np.float32).T
    file["pids"] = np.array([[4], [5], [6]])
    for name in ("features", "pids"):
        file[name].attrs["MATLAB_class"] = np.bytes_("double")


def cells(file: h5py.File, references: list[Any]) -> None:
    file.create_dataset("paths", (len(references), 1), dtype=h5py.ref_dtype)[:, 0] = references


def test_cells_do_not_lead_out_of_the_file(tmp_path: Path, secret: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w") as file:
        matlab(tmp_path / "a.mat", file)
        outside = file.create_dataset("#refs#/a", (16, 1), "u1", external=[(str(secret), 0, 16)])
        cells(file, [outside.ref] * 3)
    with pytest.raises(StoreError, match="cell 0 of paths cannot be read: it is kept in another file"):
        open_features(tmp_path / "a.mat")


def test_virtual_cells_do_not_lead_out_of_the_file(tmp_path: Path, secret: Path) -> None:
    with h5py.File(tmp_path / "elsewhere" / "b.h5", "w") as other:
        other["secret"] = np.frombuffer(SECRET, np.uint8)
    layout = h5py.VirtualLayout((16, 1), "u1")
    layout[:, 0] = h5py.VirtualSource(str(tmp_path / "elsewhere" / "b.h5"), "secret", (len(SECRET),))[:16]
    with h5py.File(tmp_path / "a.mat", "w") as file:
        matlab(tmp_path / "a.mat", file)
        cells(file, [file.create_virtual_dataset("#refs#/a", layout).ref] * 3)
    with pytest.raises(StoreError, match="kept in another file"):
        open_features(tmp_path / "a.mat")


@pytest.mark.parametrize("kind", ["external", "virtual", "external link", "soft link", "group behind a link"])
@pytest.mark.parametrize("name", ["a.mat", "a.h5"])
def test_arrays_do_not_lead_out_of_the_file(tmp_path: Path, secret: Path, kind: str, name: str) -> None:
    with h5py.File(tmp_path / "elsewhere" / "b.h5", "w") as other:
        other["group/rows"] = np.ones((3, 2))
    with h5py.File(tmp_path / name, "w") as file:
        file["pids"] = [4, 5, 6]
        if kind == "external":
            file.create_dataset("features", (3, 2), "f4", external=[(str(secret), 0, 24)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3, 2), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "elsewhere" / "b.h5"), "group/rows", (3, 2))
            file.create_virtual_dataset("features", layout)
        elif kind == "external link":
            file["features"] = h5py.ExternalLink("elsewhere/b.h5", "group/rows")
        elif kind == "soft link":
            file["features"] = h5py.SoftLink("/pids")
        else:
            file["features"] = h5py.ExternalLink("elsewhere/b.h5", "group")
    with pytest.raises(InputError, match=r"'features' cannot be read: it is (a link|kept in another file)"):
        open_features(tmp_path / name)


def test_groups_that_hold_themselves_end(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"], file["pids"] = np.eye(3), [4, 5, 6]
        group = file.create_group("loop")
        group["again"] = group
        group["and_again"] = group
    assert open_features(tmp_path / "a.h5").pids.tolist() == [4, 5, 6]


def test_cells_hold_short_text_and_whole_numbers(tmp_path: Path) -> None:
    def write(*held: Any) -> Path:
        with h5py.File(tmp_path / "a.mat", "w") as file:
            matlab(tmp_path / "a.mat", file)
            made = []
            for at, (values, kind) in enumerate(held):
                dataset = file.create_dataset(f"#refs#/{at}", data=values)
                dataset.attrs["MATLAB_class"] = np.bytes_(kind)
                made.append(dataset.ref)
            cells(file, made)
        return tmp_path / "a.mat"

    text = np.frombuffer("a😀".encode("utf-16-le"), np.uint16)[:, None]
    found = open_features(write((text, "char"), (np.array([[7.0]]), "double"), (text[:1], "char")))
    assert found.image_paths.tolist() == ["a😀", "7", "a"]
    with pytest.raises(StoreError, match=r"cell 1 of paths holds 2\.5"):
        open_features(write((text, "char"), (np.array([[2.5]]), "double"), (text, "char")))
    with pytest.raises(StoreError, match="cell 0 of paths holds uint16 of shape"):
        open_features(write((np.zeros((70_000, 1), np.uint16), "char"), (text, "char"), (text, "char")))


def test_half_a_character_is_refused_in_one_line(reid_dist: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w") as file:
        matlab(tmp_path / "a.mat", file)
        texts = [np.array([[ord("a")], [code]], np.uint16) for code in (0x62, 0xD800, 0x63)]
        cells(file, [file.create_dataset(f"#refs#/{at}", data=text).ref for at, text in enumerate(texts)])
    refused = reid_dist("ingest", tmp_path / "a.mat", "--output", tmp_path / "a.zarr")
    refused.assert_refused("Error: paths holds no valid text in row 1: character 1 is U+D800")
    assert not (tmp_path / "a.zarr").exists()
    for wrong in ("\udfff", "x\ud83d"):
        with pytest.raises(InputError, match="no valid text in row 1"):
            as_column(np.array(["fine", wrong]), "names")
    beyond = np.array([[0x61, 0x110000]], np.uint32).view("<U2").reshape(-1)
    with pytest.raises(InputError, match=r"character 1 is U\+110000"):
        as_column(beyond, "names")


# ---- pickles in .pth -------------------------------------------------------------------------------------------------


def refused_in_bounds(path: Path, megabytes: int = 30) -> str:
    """Open a file that must be refused, within time (the test's own limit) and memory."""
    tracemalloc.start()
    try:
        with pytest.raises((StoreError, InputError)) as refused:
            open_features(path)
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()
    assert len(str(refused.value)) < 2000
    return str(refused.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02Nr\xff\xff\xff\x1f.",  # A memo of half a thousand million entries.
        b"\x80\x04\x8e\xff\xff\xff\xff\x01\x00\x00\x00.",  # Bytes of 8 GB, none of which are there.
        b"\x80\x05\x96\xff\xff\xff\xff\x01\x00\x00\x00.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",  # A whole number of 2 GB.
        b"\x80\x02}(" + b"K\x01" * 7 + b"u.",  # An odd number of keys and values.
        b"\x80\x020000.",
        b"\x80\x02\x85\x85\x85.",
        b"\x80\x02K\x01K\x02\x93.",
        b"\x80\x02h\x05.",
        b"\x80\x02\x82\x01.",
        b"",
    ],
)
def test_short_pickles_take_little(tmp_path: Path, program: bytes) -> None:
    path = write_pth(tmp_path / "a.pth", {}, raw_program=program or b"\x80")
    refused_in_bounds(path)


def nested(opening: bytes, twice: bytes, depth: int) -> bytes:
    """A pickle in which every level holds the one before it several times, by the memo."""
    program = b"\x80\x02" + opening + b"r" + struct.pack("<I", 0)
    for level in range(1, depth):
        program += b"0" + twice.replace(b"@", b"j" + struct.pack("<I", level - 1)) + b"r" + struct.pack("<I", level)
    return program + b"."


@pytest.mark.quick_cases(4)
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("opening", "twice"),
    [
        (b"K\x01", b"@@\x86"),  # Tuples: 2 ** depth numbers to look through.
        (b"]", b"](@@@@e"),
        (b"}", b"}(" + b"".join(b"K" + bytes([key]) + b"@" for key in range(50)) + b"u"),
        (b"K\x01", b"}(@@\x86K\x01u"),  # A key that would take 2 ** depth steps to hash.
        (b"]K\x01a", b"](}(X\x01\x00\x00\x00a@u" + b"}(X\x01\x00\x00\x00a@u" + b"e"),
        (b"X\x01\x00\x00\x00a", b"@@\x93"),
        (b"X\x01\x00\x00\x00a", b"@@R"),
        (b"X\x01\x00\x00\x00a", b"@@b"),
    ],
)
def test_nested_references_do_not_multiply(tmp_path: Path, opening: bytes, twice: bytes) -> None:
    refused_in_bounds(write_pth(tmp_path / "a.pth", {}, raw_program=nested(opening, twice, 100)))


@pytest.mark.timeout(20)
def test_deep_nesting_ends(tmp_path: Path) -> None:
    for program in (b"\x80\x02" + b"]" * 20_000 + b"a" * 19_999 + b".", b"\x80\x02N" + b"\x85" * 20_000 + b"."):
        refused_in_bounds(write_pth(tmp_path / "a.pth", {}, raw_program=program), megabytes=80)


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'touch {}'\ntR.",
        b"(S'touch {}'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch {}'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x08touch {}\x85R.",
        b"\x80\x02}(X\x08\x00\x00\x00featurescos\nsystem\nS'touch {}'\n\x85RX\x04\x00\x00\x00pids]K\x01au.",
        b"ccollections\nOrderedDict\n)Rcos\nsystem\nS'touch {}'\n\x85Rb.",
    ],
)
def test_nothing_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(f"ran {command}"))
    path = write_pth(tmp_path / "a.pth", {}, raw_program=program.replace(b"{}", b"bad"))
    with pytest.raises((InputError, StoreError)):
        open_features(path)
    assert not (tmp_path / "bad").exists()


def numpy_program(shape: str, code: bytes, state: bytes = b"") -> bytes:
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + shape.encode("latin-1")
        + b"cnumpy\ndtype\nU"
        + bytes([len(code)])
        + code
        + b"K\x00K\x01\x87R"
        + state
        + b"\x89U\x04abcdtb."
    )


@pytest.mark.parametrize(
    "program",
    [
        numpy_program("K\x7fK\x7f\x86", b"f4"),
        numpy_program("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40\x85", b"f4"),
        numpy_program("J\xff\xff\xff\xff\x85", b"f4"),
        numpy_program("K\x01\x85", b"O8"),
        numpy_program("K\x01\x85", b"V4"),
        numpy_program("K\x01\x85", b"U999999"),
        numpy_program("K\x01\x85", b"f4,O"),
        numpy_program("]", b"f4"),
    ],
)
def test_impossible_numpy_arrays_are_refused(tmp_path: Path, program: bytes) -> None:
    refused_in_bounds(write_pth(tmp_path / "a.pth", {}, raw_program=program))


@pytest.mark.slow
def test_few_numbers_do_not_become_many_rows(tmp_path: Path) -> None:
    numbers = np.ones(64, np.float32)
    wide = Tensor(numbers, view=(0, (10**12, 64), (0, 1)))
    assert "takes more numbers than its storage" in refused_in_bounds(
        write_pth(tmp_path / "a.pth", {"features": wide, "pids": [1]})
    )
    row = np.ones(1 << 16, np.float32)
    for one in (Tensor(row), row):
        path = write_pth(tmp_path / "a.pth", {"features": [one] * 5000, "pids": [1]})
        assert "describes 5000 rows and holds 1" in refused_in_bounds(path)


def test_a_compressed_pickle_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + b"N0" * 10_000_000 + b".")
    assert "compressed" in refused_in_bounds(tmp_path / "a.pth")


def test_one_long_text_among_many_is_refused(tmp_path: Path) -> None:
    texts = ["a"] * 200_000
    texts[77] = "x" * 100_000
    held = {"features": Tensor(np.ones((200_000, 1), np.float32)), "pids": texts}
    path = write_pth(tmp_path / "a.pth", held)
    with pytest.raises(InputError, match="row 77 holds a text of 100000 characters"):
        open_features(path)


# ---- what is no file -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["a.npz", "a.pth", "a.mat", "a.parquet", "a.safetensors", "a.csv", "a"])
def test_a_pipe_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreError, match="is a pipe and no file"):
        open_features(tmp_path / name)
    with pytest.raises(StoreError, match="is a pipe and no file"):
        open_source(str(tmp_path / name), "npz")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("option", ["pids_file", "camids_file", "names_file", "labels_file"])
def test_a_pipe_of_labels_is_refused(tmp_path: Path, option: str) -> None:
    np.save(tmp_path / "f.npy", np.eye(3, dtype=np.float32))
    os.mkfifo(tmp_path / "labels")
    given: dict[str, Any] = {option: tmp_path / "labels"}
    with pytest.raises(StoreError, match="is a pipe and no file"):
        open_features(tmp_path / "f.npy", **given)


# ---- safetensors and parquet -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["[3,2]", "[5,2]", "[4]", "[2,-4]", "[4,2.0]", "[99999999999,99999999999]"])
def test_shapes_that_do_not_fill_their_offsets_are_refused(tmp_path: Path, shape: str) -> None:
    header = b'{"features":{"dtype":"F32","shape":%s,"data_offsets":[0,32]}}' % shape.encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(StoreError, match="does not take the 32 bytes that its offsets give it"):
        open_source(str(tmp_path / "a.safetensors"))


LISTS = {
    "list": pa.list_(pa.float32()), "large list": pa.large_list(pa.float32()), "fixed": pa.list_(pa.float32(), 3),
}  # fmt: skip


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("kind", ["list", "large list"])
@pytest.mark.parametrize("lengths", [(3, 2, 4), (3, 0, 6, 3), (3, 3, 3, 2), (3, 3, 4)])
@pytest.mark.parametrize("group", [1, 2, 100])
def test_list_columns_of_differing_lengths_are_refused(
    reid_dist: Any, tmp_path: Path, kind: str, lengths: tuple[int, ...], group: int
) -> None:
    rows = [np.arange(length, dtype=np.float32) for length in lengths]
    table = pa.table({"features": pa.array(rows, LISTS[kind]), "pids": list(range(len(rows)))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=group)
    wrong = next(row for row, length in enumerate(lengths) if length != 3)
    refused = reid_dist("ingest", tmp_path / "a.parquet", "--output", tmp_path / "a.zarr")
    refused.assert_refused(f"must hold 3 numbers in every row: row {wrong} holds {lengths[wrong]}")
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize("kind", LISTS)
def test_list_columns_in_pieces_are_read_as_they_are(tmp_path: Path, kind: str) -> None:
    features = np.arange(9000, dtype=np.float32).reshape(3000, 3) + 1
    whole = pa.chunked_array(
        [pa.array(list(features[:1000]), LISTS[kind]), pa.array(list(features[1000:]), LISTS[kind])]
    )
    table = pa.table({"features": whole, "pids": pa.array(range(3000))}).slice(7, 2500)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    found = open_features(tmp_path / "a.parquet")
    np.testing.assert_array_equal(found.read(0, 2500), features[7:2507])
    assert found.pids.tolist() == list(range(7, 2507))


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("missing", ["row", "number"])
def test_what_is_missing_in_a_list_column_is_named(tmp_path: Path, kind: str, missing: str) -> None:
    rows: list[Any] = [[1.0, 2.0, 3.0] for _ in range(2000)]
    rows[1500] = None if missing == "row" else [1.0, None, 3.0]
    pq.write_table(pa.table({"features": pa.array(rows, LISTS[kind]), "pids": range(2000)}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"missing values.*1500|row 1500 holds missing values"):
        open_features(tmp_path / "a.parquet")


# ---- names that occur twice ------------------------------------------------------------------------------------------


def write_npz_twice(path: Path) -> Path:
    with zipfile.ZipFile(path / "a.npz", "w") as archive:
        for name, array in (("features", np.eye(3)), ("pids", np.arange(3)), ("features", -np.eye(3))):
            with warnings.catch_warnings(), archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    return path / "a.npz"


def write_pth_twice(path: Path) -> Path:
    write_pth(path / "a.pth", {"features": Tensor(np.eye(3, dtype=np.float32)), "pids": [1, 2, 3]})
    with zipfile.ZipFile(path / "a.pth", "a") as archive:
        (name,) = (each for each in archive.namelist() if "/data/" in each)
        archive.writestr(name, archive.read(name)[::-1])
    return path / "a.pth"


def write_safetensors_twice(path: Path) -> Path:
    entry = b'"features":{"dtype":"F32","shape":[2,2],"data_offsets":[%d,%d]}'
    header = b"{%s,%s}" % (entry % (0, 16), entry % (16, 32))
    (path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(32))
    return path / "a.safetensors"


def write_parquet_twice(path: Path) -> Path:
    columns = [pa.array([[1.0], [2.0]]), pa.array([1, 2]), pa.array([2, 1])]
    pq.write_table(pa.Table.from_arrays(columns, ["features", "pids", "pids"]), path / "a.parquet")
    return path / "a.parquet"


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_npz_twice, "a.npz holds 'features.npy' twice; keep one of the two"),
        (write_pth_twice, "twice; keep one of the two"),
        (write_safetensors_twice, "a.safetensors: its header: 'features' occurs twice in one object"),
        (write_parquet_twice, "a.parquet has the column 'pids' twice; keep one of the two"),
    ],
)
def test_arrays_that_occur_twice_are_refused(reid_dist: Any, tmp_path: Path, write: Any, message: str) -> None:
    path = write(tmp_path)
    reid_dist("ingest", path, "--output", tmp_path / "a.zarr").assert_refused(message)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "pid,path,pid\n1,a.jpg,2\n", "a.csv has the column 'pid' twice"),
        ("a.json", '{"pid": [1], "path": ["a.jpg"], "pid": [2]}', "'pid' occurs twice in one object"),
        ("a.json", '[{"pid": 1, "path": "a.jpg", "pid": 2}]', "'pid' occurs twice in one object"),
    ],
)
def test_columns_that_occur_twice_are_refused(
    reid_dist: Any, tmp_path: Path, name: str, text: str, message: str
) -> None:
    np.save(tmp_path / "f.npy", np.ones((1, 2), np.float32))
    (tmp_path / name).write_text(text)
    words = ["--list", tmp_path / name, "--layout", "wildlife"] if name == "a.json" else ["--labels", tmp_path / name]
    reid_dist("ingest", tmp_path / "f.npy", *words, "--output", tmp_path / "a.zarr").assert_refused(message)


def test_labels_in_npy_are_one_array(reid_dist: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.eye(3, dtype=np.float32))
    np.savez(tmp_path / "a.npz", pids=[1, 2, 3])
    (tmp_path / "a.npz").rename(tmp_path / "p.npy")
    for option in ("--pids-file", "--names"):
        found = reid_dist("ingest", tmp_path / "f.npy", option, tmp_path / "p.npy", "--output", tmp_path / "a.zarr")
        found.assert_refused("p.npy cannot be read as npy")
