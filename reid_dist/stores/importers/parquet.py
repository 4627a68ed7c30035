"""``.parquet`` and data frames: features as one list column, or as columns f0, f1, …; labels as columns beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.stores.importers.file_rows import Blocks, StreamedRows
from reid_dist.stores.importers.source import (
    FORMATS,
    Format,
    Frame,
    RowArray,
    Source,
    begins_with,
    listed,
    refuse_repeated,
    require,
    text_rows,
)

_NUMBERED = re.compile(r"(?P<stem>[A-Za-z_]*)(?P<number>0|[1-9][0-9]*)")
_FEWEST_NUMBERED = 2
_BATCH_ROWS = 1024
_MOST_KNOWN = 10
_BUFFER_BYTES = 1 << 20


Batches: TypeAlias = Callable[[list[str], int], Generator[tuple[int, Any]]]
"""Record batches of some columns of a table, each with its first row, from the one that holds a given row or before."""


@dataclass(frozen=True)
class _Columns:
    """Columns of a table, which errors call `where`: one of lists or of single values, or several, side by side."""

    where: str
    batches: Batches
    names: list[str]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def rows(self) -> RowArray:
        """Return the rows of the columns."""
        return StreamedRows(self.shape, self.dtype, self._blocks)

    def _blocks(self, start: int) -> Blocks:
        with closing(self.batches(self.names, start)) as batches:
            for first, batch in batches:
                yield first, self._as_array(batch, first)

    def _as_array(self, batch: Any, first: int) -> NDArray[Any]:
        columns = [batch.column(name) for name in self.names]
        for name, column in zip(self.names, columns, strict=True):
            if column.null_count and not _is_flag(column):
                row = first + column.is_null().to_pylist().index(True)
                raise InputError(
                    f"column {name!r} of {self.where} holds missing values (row {row}); fill them in or leave them out"
                )
        if len(self.shape) == 1:
            return _flat(columns[0], self.dtype)
        if len(columns) > 1:
            return np.stack([_flat(column, self.dtype) for column in columns], axis=1)
        return _flat(self._values(columns[0], first), self.dtype).reshape(-1, self.shape[1])

    def _values(self, column: Any, first: int) -> Any:
        """Return the numbers of all lists, which must be of one length and hold nothing else."""
        length = self.shape[1]
        # Lengths row by row: rows of 3, 2 and 4 numbers would fill three rows of 3.
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != length)
        values = column.flatten()
        if not wrong.size and values.null_count:
            wrong = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) // length
            found = "holds missing values"
        elif wrong.size:
            found = f"holds {lengths[wrong[0]]}"
        if wrong.size:
            raise InputError(
                f"column {self.names[0]!r} of {self.where} must hold {length} numbers in every row: row "
                f"{first + int(wrong[0])} {found}"
            )
        return values


def _opened(path: Path) -> Any:
    # Without a buffer, a column of a row group is read as a whole, and many files have one row group.
    file = require("pyarrow.parquet", "parquet").ParquetFile
    return file(
        path, memory_map=False, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
    )  # fmt: skip


def _batches_of_file(path: Path, columns: list[str], start: int) -> Generator[tuple[int, Any]]:
    with _opened(path) as file:
        first, group = 0, 0
        while group < file.num_row_groups and first + file.metadata.row_group(group).num_rows <= start:
            first += file.metadata.row_group(group).num_rows
            group += 1
        groups = list(range(group, file.num_row_groups))
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False):
            yield first, batch
            first += batch.num_rows


def _is_flag(column: Any) -> bool:
    return bool(require("pyarrow", "parquet").types.is_boolean(column.type))


def _flat(column: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    if _is_flag(column):
        # A data frame leaves flags of rows that are not evaluated empty.
        return np.array([value is True for value in column.to_pylist()], dtype=np.bool_)
    if dtype.kind == "U":
        return text_rows(column.to_pylist(), "a column")
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)


def _open_parquet(path: Path) -> Source:
    arrow = require("pyarrow", "parquet")
    with _opened(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    return _source(arrow.types, str(path), schema, n_rows, partial(_batches_of_file, path))


def open_frame(frame: Frame, where: str = "the data frame", *, features: str | Sequence[str] | None = None) -> Source:
    """Open a data frame, which errors call `where`.

    `features` is a column, the beginning of several that end in numbers, or several columns; they become ``features``.
    """
    if not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            f"{where} is {type(frame).__name__}; give a data frame of pandas or polars, or a table of Arrow"
        )
    arrow = require("pyarrow", "parquet")
    try:
        table = arrow.table(frame)
    except (ValueError, TypeError, NotImplementedError) as error:
        # Of a series, of columns that share a name, and of values of several types in one column.
        raise InputError(
            f"{where} is not a table of columns of one type each: {' '.join(str(error).split())}; give the columns "
            "that are needed, each of one type and under a name of its own"
        ) from None

    def batches(columns: list[str], start: int) -> Generator[tuple[int, Any]]:
        for batch in table.select(columns).slice(start).to_batches(_BATCH_ROWS):
            yield start, batch
            start += batch.num_rows

    return _source(arrow.types, where, table.schema, table.num_rows, batches, features)


def _source(
    types: Any,
    where: str,
    schema: Any,
    n_rows: int,
    batches: Batches,
    features: str | Sequence[str] | None = None,
) -> Source:
    """The columns of a table, which errors call `where`; `features` are as of `open_frame`."""
    refuse_repeated(schema.names, f"{where} has the column")
    found: dict[str, RowArray | str] = {}
    for column in schema:
        kind = column.type
        shape: tuple[int, ...] = (n_rows,)
        if types.is_dictionary(kind):
            kind = kind.value_type
        if types.is_integer(kind) or types.is_floating(kind):
            dtype = np.dtype(kind.to_pandas_dtype())
        elif types.is_boolean(kind):
            dtype = np.dtype(np.bool_)
        elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            dtype = np.dtype(np.str_)
        elif _is_list(types, kind):
            shape, dtype = (n_rows, _list_length(column, batches)), np.dtype(kind.value_type.to_pandas_dtype())
        else:
            found[column.name] = f"a column of {kind}"
            continue
        found[column.name] = _Columns(where, batches, [column.name], shape, dtype).rows()
    if features is None:
        _gather_numbered(where, found, n_rows, batches)
    else:
        found["features"] = _chosen(where, found, n_rows, batches, features)
    return Source.of(where, found)


def _chosen(
    where: str, found: Mapping[str, RowArray | str], n_rows: int, batches: Batches, features: str | Sequence[str]
) -> RowArray:
    """Features of columns that were chosen."""
    names = _with_prefix(where, found, features) if isinstance(features, str) else [*map(str, features)]
    columns = []
    for name in names:
        column = found.get(name)
        if column is None:
            raise unknown_name("column of features", name, found, _MOST_KNOWN, details=(f"file: {where}",))
        if isinstance(column, str):
            raise InputError(f"column {name!r} of {where} holds no features: it is {column}")
        columns.append(column)
    if len(columns) == 1:
        return columns[0]
    wrong = next((name for name, each in zip(names, columns, strict=True) if len(each.shape) > 1), None)
    if wrong is not None or not columns:
        raise InputError(f"give one column of lists, or several columns of numbers; {wrong!r} of {where} holds lists")
    dtype = np.result_type(*(each.dtype for each in columns))
    return _Columns(where, batches, names, (n_rows, len(names)), dtype).rows()


def _with_prefix(where: str, found: Mapping[str, object], features: str) -> list[str]:
    """The column of a name, or all that are this name and a number, in the order of the numbers."""
    ends = {name: name.removeprefix(features) for name in found if name.startswith(features)}
    numbered = sorted((int(end), name) for name, end in ends.items() if end.isdecimal())
    if features in found or not numbered:
        return [features]
    numbers = [number for number, _ in numbered]
    if numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
        raise InputError(
            f"the columns {features}… of {where} are not numbered without gaps: {numbers[0]} to {numbers[-1]}, "
            f"{len(numbers)} of them; give the list of columns"
        )
    return [name for _, name in numbered]


def _is_list(types: Any, kind: Any) -> bool:
    tests = (types.is_fixed_size_list, types.is_list, types.is_large_list)
    if not any(test(kind) for test in tests):
        return False
    return bool(types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _list_length(column: Any, batches: Batches) -> int:
    """Return the length of the lists: of the type, or of the first row, which all others must match."""
    if hasattr(column.type, "list_size"):
        return int(column.type.list_size)
    with closing(batches([column.name], 0)) as held:
        return next((len(batch.column(0).slice(0, 1).flatten()) for _, batch in held), 0)


def _gather_numbered(where: str, found: dict[str, RowArray | str], n_rows: int, batches: Batches) -> None:
    """Join columns f0, f1, … or x1, x2, … into one array of features, unless there is one already."""
    stems: dict[str, dict[int, str]] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    for name, array in found.items():
        numbered = _NUMBERED.fullmatch(name)
        if numbered and isinstance(array, RowArray) and len(array.shape) == 1 and array.dtype.kind in "fiu":
            stems.setdefault(numbered["stem"], {})[int(numbered["number"])] = name
            dtypes[name] = array.dtype
    whole = {
        stem: numbers
        for stem, numbers in stems.items()
        if len(numbers) >= _FEWEST_NUMBERED and max(numbers) - min(numbers) + 1 == len(numbers) and min(numbers) < 2
    }
    if isinstance(found.get("features"), RowArray) or not whole:
        return
    if len(whole) > 1:
        raise InputError(f"{where} has several families of numbered columns: {listed(sorted(whole))}; keep one")
    columns = [name for _, name in sorted(next(iter(whole.values())).items())]
    dtype = np.result_type(*(dtypes[name] for name in columns))
    found["features"] = _Columns(where, batches, columns, (n_rows, len(columns)), dtype).rows()
    for name in columns:
        del found[name]


FORMATS.register(
    Format(
        "parquet",
        "a list column `features`, or numbered columns f0, f1, …, and label columns",
        "Apache Parquet",
        (".parquet", ".pq"),
        _open_parquet,
        sniff=begins_with(b"PAR1"),
    )
)
