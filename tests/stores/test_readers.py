"""One contract for every reader: what went into a file comes out, by rows, in any order, and as a feature set."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from array_files import flip_bit, write_arrays
from handmade_pth import BFloat16, Tensor, write_pth
from support.feature_arrays import SIDES, Arrays, model_arrays

from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.stores import FeatureSet, check_store, ingest, open_features
from reid_dist.stores.importers.source import open_source


class ReaderContract:
    """Inherited by the tests of each format; `write` makes a file of the given arrays."""

    suffix: ClassVar[str]
    holds_text: ClassVar[bool] = True

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        return write_arrays(path, arrays)

    def labels(self, arrays: Arrays) -> dict[str, np.ndarray]:
        labels = arrays.labels()
        return labels if self.holds_text else {"pids": labels["pids"], "camids": labels["camids"]}

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / f"source{self.suffix}"

    @pytest.fixture
    def single(self, path: Path, arrays: Arrays) -> Path:
        return self.write(path, {"features": arrays.features, **self.labels(arrays)})

    def expected(self, arrays: Arrays) -> FeatureSet:
        return FeatureSet.from_arrays(arrays.features, **self.labels(arrays))

    def test_rows_by_range(self, single: Path, arrays: Arrays) -> None:
        with open_source(str(single)) as source:
            features = source.arrays["features"]
            assert features.shape == arrays.features.shape
            for start, stop in [(0, 100), (100, 300), (0, 300), (7, 8), (250, 260), (3, 3), (0, 1), (299, 300)]:
                np.testing.assert_array_equal(features.read(start, stop), arrays.features[start:stop])

    def test_range_outside_is_refused(self, single: Path) -> None:
        features = open_source(str(single)).arrays["features"]
        for start, stop in [(0, 301), (-1, 3), (5, 4)]:
            with pytest.raises(InputError, match="not within"):
                features.read(start, stop)

    def test_ingest_keeps_rows_and_labels(self, single: Path, arrays: Arrays, tmp_path: Path) -> None:
        (store,) = ingest(single, tmp_path / "out.zarr", chunk_rows=64)
        np.testing.assert_array_equal(store.read(0, 300), arrays.features)
        np.testing.assert_array_equal(store.pids, arrays.pids)
        np.testing.assert_array_equal(store.camids, arrays.camids)
        if self.holds_text:
            np.testing.assert_array_equal(store.item_ids, arrays.item_ids)
            np.testing.assert_array_equal(store.image_paths, arrays.image_paths)
        assert store.content_digest == self.expected(arrays).content_digest
        assert not check_store(store.uri).damaged

    def test_open_features_equals_ingest(self, single: Path, arrays: Arrays) -> None:
        found = open_features(single)
        np.testing.assert_array_equal(found.read(10, 290), arrays.features[10:290])
        assert found.content_digest == self.expected(arrays).content_digest


class TwoSided(ReaderContract):
    """Formats whose files can hold a query and a gallery."""

    def test_query_and_gallery(self, path: Path, tmp_path: Path) -> None:
        held = model_arrays(1, (40, 90))
        source = self.write_sides(path, held)
        stores = ingest(source, tmp_path / "out")
        assert [Path(store.uri).name for store in stores] == ["query.zarr", "gallery.zarr"]
        for store, role in zip(stores, SIDES, strict=True):
            np.testing.assert_array_equal(store.read(0, store.n_rows), held[f"{role}_f"])
            np.testing.assert_array_equal(store.pids, held[f"{role}_label"])
            np.testing.assert_array_equal(store.camids, held[f"{role}_cam"])
            assert open_features(source, role).content_digest == store.content_digest
        with pytest.raises(InputError, match="query and gallery"):
            open_features(source)

    def write_sides(self, path: Path, held: dict[str, np.ndarray]) -> Path:
        return self.write(path, held)


class AnyNames(ReaderContract):
    """Formats that leave names and dtypes to their writer."""

    def test_float64_is_rounded_and_noted(self, path: Path, tmp_path: Path) -> None:
        features = np.random.default_rng(3).standard_normal((50, 4))
        source = self.write(path, {"features": features, "pids": np.arange(50)})
        (store,) = ingest(source, tmp_path / "out.zarr")
        np.testing.assert_array_equal(store.read(0, 50), features.astype(np.float32))
        assert any("float64" in note for note in store.notes)

    def test_labels_beyond_what_their_floats_tell_apart(self, path: Path, tmp_path: Path) -> None:
        features, pids = np.ones((3, 2), np.float32), np.array([1, 2**24, 3], np.float32)
        source = self.write(path, {"features": features, "pids": pids})
        assert open_features(source).pids.tolist() == [1, 2**24, 3]
        pids[1] += 2
        source = self.write(tmp_path / f"beyond{self.suffix}", {"features": features, "pids": pids})
        for read in (open_features, lambda path: ingest(path, tmp_path / "out.zarr")):
            with pytest.raises(
                InputError, match=r"row 1 holds 16777218 as float32, which is exact only .* up to 16,777,216;"
            ):
                read(source)
        assert not (tmp_path / "out.zarr").exists()

    def test_missing_names_list_the_content(self, path: Path, tmp_path: Path) -> None:
        source = self.write(path, {"descriptors": np.ones((5, 3), np.float32), "who": np.arange(5)})
        with pytest.raises(InputError, match=r"(?s)features.*descriptors.*\(5, 3\)"):
            ingest(source, tmp_path / "out.zarr")
        (store,) = ingest(source, tmp_path / "out.zarr", {"features": "descriptors", "pids": "who"})
        assert store.pids.tolist() == [0, 1, 2, 3, 4]


class OneFile(ReaderContract):
    """Formats that are a file and not a folder."""

    def test_cut_short(self, single: Path, tmp_path: Path) -> None:
        data = single.read_bytes()
        single.write_bytes(data[: len(data) - len(data) // 3])
        with pytest.raises((StoreError, InputError)):
            ingest(single, tmp_path / "out.zarr")
        assert not (tmp_path / "out.zarr").exists()


class TestNpz(TwoSided, AnyNames, OneFile):
    suffix = ".npz"

    def test_object_array_is_refused(self, path: Path, tmp_path: Path) -> None:
        np.savez(path, features=np.ones((3, 2), np.float32), pids=np.array([1, "a", None], dtype=object))
        with pytest.raises(InputError, match=r"'pids'.*object array.*never read"):
            ingest(path, tmp_path / "out.zarr")

    def test_flipped_byte_is_found(self, single: Path, tmp_path: Path) -> None:
        flip_bit(single, 1000)
        with pytest.raises(StoreError, match="damaged"):
            ingest(single, tmp_path / "out.zarr")


class TestCompressedNpz(TestNpz):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        np.savez_compressed(path, **arrays)
        return path

    def test_flipped_byte_is_found(self, path: Path, arrays: Arrays, tmp_path: Path) -> None:
        # Deflate blocks that are not compressed decode in spite of the flip; only the CRC-32 at the end shows it.
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=0) as archive:
            for name, array in (("features", arrays.features), ("pids", arrays.pids)):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array)
        flip_bit(path, arrays.features.tobytes()[1001:4000])
        with pytest.raises(StoreError, match="CRC-32"):
            ingest(path, tmp_path / "out.zarr")


class TestFortranNpz(TestNpz):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        np.savez(path, **{name: np.asfortranarray(array) for name, array in arrays.items()})
        return path


class TestCompressedFortranNpz(TestCompressedNpz):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        np.savez_compressed(path, **{name: np.asfortranarray(array) for name, array in arrays.items()})
        return path

    def test_more_axes_than_two(self, path: Path) -> None:
        cube = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
        self.write(path, {"cube": cube})
        with open_source(str(path)) as source:
            np.testing.assert_array_equal(source.arrays["cube"].whole(), cube)
            np.testing.assert_array_equal(source.arrays["cube"].read(1, 2), cube[1:])


class TestMatVersion5(TwoSided, AnyNames, OneFile):
    suffix = ".mat"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        scipy.io.savemat(path, arrays)
        return path

    def labels(self, arrays: Arrays) -> dict[str, np.ndarray]:
        # MATLAB characters are a matrix: scipy cannot write text beyond Latin-1 into one.
        return arrays.labels() | {"item_ids": np.array([text.replace("é", "") for text in arrays.item_ids])}

    def test_ingest_keeps_rows_and_labels(self, single: Path, arrays: Arrays, tmp_path: Path) -> None:
        (store,) = ingest(single, tmp_path / "out.zarr")
        assert store.content_digest == self.expected(arrays).content_digest
        assert store.item_ids[5] == arrays.item_ids[5].replace("é", "")

    def test_cells_of_text(self, path: Path) -> None:
        cells = np.array(["a.jpg", "bb.jpg"], dtype=object)
        scipy.io.savemat(path, {"features": np.eye(2, dtype=np.float32), "pids": [[1, 2]], "paths": cells})
        found = open_features(path)
        assert found.image_paths.tolist() == ["a.jpg", "bb.jpg"]


class TestCompressedMatVersion5(TestMatVersion5):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        scipy.io.savemat(path, arrays, do_compression=True)
        return path


class TestMatVersion73(TwoSided, AnyNames, OneFile):
    suffix = ".mat"
    holds_text = False

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        """Write as MATLAB does: 512 bytes of header, everything transposed, labels (1, n)."""
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, array in arrays.items():
                dataset = file.create_dataset(name, data=np.atleast_2d(array).T)
                dataset.attrs["MATLAB_class"] = np.bytes_("double" if array.dtype.kind == "f" else "int64")
        with path.open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file".ljust(116))
        return path

    def test_text_in_cells(self, path: Path) -> None:
        with h5py.File(path, "w") as file:
            file["features"] = np.eye(2, 3, dtype=np.float32).T
            file["pids"] = np.array([[4], [5]])
            texts = [np.array([[ord(c)] for c in text], dtype=np.uint16) for text in ("c1/ü.jpg", "c2/b.jpg")]
            references = [file.create_dataset(f"#refs#/{i}", data=text).ref for i, text in enumerate(texts)]
            file.create_dataset("paths", (2, 1), dtype=h5py.ref_dtype)[:, 0] = references
        found = open_features(path)
        assert found.image_paths.tolist() == ["c1/ü.jpg", "c2/b.jpg"]
        assert found.read(0, 2).tolist() == [[1, 0, 0], [0, 1, 0]]


class TestParquet(AnyNames, OneFile):
    suffix = ".parquet"

    def column(self, array: np.ndarray) -> Any:
        if array.ndim == 1:
            return pa.array(array.tolist() if array.dtype.kind == "U" else array)
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        table = pa.table({name: self.column(array) for name, array in arrays.items()})
        pq.write_table(table, path, row_group_size=110)
        return path

    def test_missing_values_are_refused(self, path: Path) -> None:
        pq.write_table(pa.table({"features": [[1.0, 2.0], [3.0, None]], "pids": [1, 2]}), path)
        with pytest.raises(InputError, match="must hold 2 numbers"):
            open_features(path)
        pq.write_table(pa.table({"features": [[1.0, 2.0], [3.0, 4.0]], "pids": [1, None]}), path)
        with pytest.raises(InputError, match=r"'pids'.*missing values"):
            open_features(path)

    def test_ragged_rows_are_refused(self, path: Path) -> None:
        pq.write_table(pa.table({"features": [[1.0, 2.0], [3.0]], "pids": [1, 2]}), path)
        with pytest.raises(InputError, match="must hold 2 numbers in every row"):
            open_features(path)


class TestParquetOfPlainLists(TestParquet):
    def column(self, array: np.ndarray) -> Any:
        if array.ndim == 1:
            return super().column(array)
        return pa.array(array.tolist(), pa.list_(pa.from_numpy_dtype(array.dtype)))


class TestParquetOfNumberedColumns(TestParquet):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        columns: dict[str, Any] = {}
        for name, array in arrays.items():
            if array.ndim == 2 and name == "features":
                # Written in another order than counted, as data frames are.
                columns |= {f"f{i}": array[:, i] for i in reversed(range(array.shape[1]))}
            else:
                columns[name] = self.column(array)
        pq.write_table(pa.table(columns), path, row_group_size=110)
        return path


class TestSafetensors(TwoSided, AnyNames, OneFile):
    suffix = ".safetensors"
    holds_text = False

    def test_header_beyond_the_file_is_refused(self, path: Path) -> None:
        path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
        with pytest.raises(StoreError, match="header claims"):
            open_features(path)

    def test_offsets_beyond_the_file_are_refused(self, path: Path) -> None:
        header = b'{"features":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(15))
        with pytest.raises(StoreError, match="cut short"):
            open_features(path)


class TestTorch(TwoSided, AnyNames, OneFile):
    suffix = ".pth"

    def test_nested_dicts_are_sides(self, path: Path) -> None:
        side = {"features": Tensor(np.eye(3, 2, dtype=np.float32) + 1), "pids": [1, 2, 3], "camids": [0, 0, 1]}
        found = open_features(write_pth(path, {"query": side, "gallery": side, "epoch": 3}), "gallery")
        assert found.pids.tolist() == [1, 2, 3]
        assert found.read(0, 1).tolist() == [[2, 1]]

    def test_views_of_a_storage(self, path: Path) -> None:
        numbers = np.arange(60, dtype=np.float32)
        transposed = Tensor(numbers, view=(0, (10, 6), (1, 10)))
        cropped = Tensor(numbers, view=(12, (8, 3), (6, 1)))
        found = open_source(str(write_pth(path, {"a": transposed, "b": cropped}))).arrays
        np.testing.assert_array_equal(found["a"].read(2, 9), numbers.reshape(6, 10).T[2:9])
        np.testing.assert_array_equal(found["b"].whole(), numbers.reshape(10, 6)[2:, :3])

    def test_view_beyond_its_storage_is_refused(self, path: Path) -> None:
        write_pth(path, {"features": Tensor(np.zeros(10, np.float32), view=(5, (3, 2), (2, 1)))})
        with pytest.raises(StoreError, match="cut short"):
            open_source(str(path))

    def test_bfloat16_is_widened_exactly(self, path: Path) -> None:
        exact = np.array([[1.5, -2.0], [0.15625, 384.0]], np.float32)
        found = open_source(str(write_pth(path, {"features": BFloat16(halves_of(exact))}))).arrays["features"]
        np.testing.assert_array_equal(found.read(0, 2), exact)

    @pytest.mark.parametrize(
        "program",
        [
            b"cos\nsystem\n(S'touch never'\ntR.",
            b"cbuiltins\neval\n(S'1'\ntR.",
            b"cnumpy.core.multiarray\n_reconstruct\n.",
        ],
        ids=["os.system", "eval", "numpy"],
    )
    def test_any_other_name_is_refused(self, path: Path, program: bytes) -> None:
        write_pth(path, {}, raw_program=program)
        module, name = program[1:].split(b"\n")[:2]
        with pytest.raises(InputError, match=re.escape(f"{module.decode()}.{name.decode()}, which is never loaded")):
            open_source(str(path))

    def test_old_format_is_refused(self, path: Path) -> None:
        path.write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
        with pytest.raises(StoreError, match=r"before 1\.6"):
            open_source(str(path))

    def test_flipped_byte_is_found(self, single: Path, tmp_path: Path, arrays: Arrays) -> None:
        flip_bit(single, arrays.features.tobytes()[17:])
        with pytest.raises(StoreError, match="damaged"):
            ingest(single, tmp_path / "out.zarr")


class TestZarr(TwoSided, AnyNames):
    suffix = ".zarr"
    holds_text = False
    version: ClassVar[Literal[2, 3]] = 3

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        group = zarr.create_group(path, zarr_format=self.version)
        for name, array in arrays.items():
            group.create_array(name, data=array, chunks=(37, *array.shape[1:]))
        return path


class TestZarrVersion2(TestZarr):
    version = 2


class TestOurStore(TwoSided):
    suffix = ".zarr"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> Path:
        arrays = dict(arrays)
        FeatureSet.from_arrays(arrays.pop("features"), **arrays).save(path, chunk_rows=41)
        return path

    def write_sides(self, path: Path, held: dict[str, np.ndarray]) -> Path:
        for role in ("query", "gallery"):
            side = FeatureSet.from_arrays(held[f"{role}_f"], held[f"{role}_label"], held[f"{role}_cam"])
            side.save(path / f"{role}.zarr")
        return path

    def test_names_and_columns_are_carried(self, path: Path, tmp_path: Path) -> None:
        FeatureSet.from_arrays(
            np.eye(3, dtype=np.float32), ["ann", "bob", "-1"], columns={"outfit": [3, 1, 2]}
        ).save(path)  # fmt: skip
        (store,) = ingest(path, tmp_path / "out.zarr", drop_pids=[1])
        assert store.pids.tolist() == [2, -1]
        assert store.pid_names == ("ann", "bob")
        assert store.columns["outfit"].tolist() == [1, 2]


def halves_of(values: np.ndarray) -> np.ndarray:
    """Numbers of bfloat16: the upper halves of those of float32."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2")


def bfloat16_in_safetensors(path: Path, pids: np.ndarray) -> Path:
    header = (
        b'{"features":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},'
        b'"pids":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]}}'
    )
    data = np.ones((2, 1), "<f4").tobytes() + halves_of(pids).tobytes()
    (path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path / "a.safetensors"


def bfloat16_in_pth(path: Path, pids: np.ndarray) -> Path:
    held = {"features": Tensor(np.ones((2, 2), np.float32)), "pids": BFloat16(halves_of(pids)[:, np.newaxis])}
    return write_pth(path / "a.pth", held)


def bfloat16_in_hdf5(path: Path, pids: np.ndarray) -> Path:
    """Such datasets are read as float32."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    with h5py.File(path / "a.h5", "w") as file:
        file["features"] = np.ones((2, 3), np.float32)
        dataset = h5py.h5d.create(file.id, b"pids", kind, h5py.h5s.create_simple((2,)))
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, pids.astype(np.float32))
    return path / "a.h5"


@pytest.mark.parametrize("write", [bfloat16_in_safetensors, bfloat16_in_pth, bfloat16_in_hdf5])
def test_labels_in_bfloat16(tmp_path: Path, write: Callable[[Path, np.ndarray], Path]) -> None:
    assert open_features(write(tmp_path, np.array([1, 256]))).pids.tolist() == [1, 256]
    with pytest.raises(InputError, match=r"row 1 holds 300 as bfloat16, which is exact only .* up to 256"):
        ingest(write(tmp_path, np.array([1, 300])), tmp_path / "out.zarr")


class TestNpy:
    def test_with_label_files(self, tmp_path: Path, arrays: Arrays) -> None:
        np.save(tmp_path / "f.npy", arrays.features)
        (tmp_path / "pids.txt").write_text("\n".join(map(str, arrays.pids)) + "\n")
        (tmp_path / "cams.csv").write_text("camid\n" + "\n".join(map(str, arrays.camids)))
        (store,) = ingest(
            tmp_path / "f.npy", tmp_path / "out.zarr",
            pids_file=tmp_path / "pids.txt", camids_file=tmp_path / "cams.csv",
        )  # fmt: skip
        expected = FeatureSet.from_arrays(arrays.features, arrays.pids, arrays.camids)
        assert store.content_digest == expected.content_digest

    def test_without_labels_the_error_says_what_to_give(self, tmp_path: Path) -> None:
        np.save(tmp_path / "f.npy", np.ones((3, 2), np.float32))
        with pytest.raises(InputError, match=r"(?s)name them with --pids or --pids-file of .*pids, pids_file"):
            open_features(tmp_path / "f.npy")

    def test_is_memory_mapped(self, tmp_path: Path) -> None:
        np.save(tmp_path / "f.npy", np.ones((3, 2), np.float32))
        np.save(tmp_path / "p.npy", np.arange(3))
        memory: Any = open_features(tmp_path / "f.npy", pids_file=tmp_path / "p.npy")._features
        while memory is not None and not isinstance(memory, np.memmap):
            memory = memory.base
        assert isinstance(memory, np.memmap)

    def test_fortran_order(self, tmp_path: Path, arrays: Arrays) -> None:
        np.save(tmp_path / "f.npy", np.asfortranarray(arrays.features))
        np.testing.assert_array_equal(
            open_source(str(tmp_path / "f.npy")).arrays["features"].read(11, 77), arrays.features[11:77]
        )

    def test_object_array_is_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "f.npy", np.array([[1, None]], dtype=object))
        with pytest.raises(InputError, match="never read"):
            open_features(tmp_path / "f.npy")


def test_unknown_suffix_lists_the_known(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"")
    with pytest.raises(InputError, match=r"(?s)'\.docx'.*\.mat.*\.npz"):
        open_source(str(tmp_path / "a.docx"))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no such file"):
        open_features(tmp_path / "a.npz")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"pip install 'reid-dist\[parquet\]'"):
        open_source(str(tmp_path / "a.parquet"))
