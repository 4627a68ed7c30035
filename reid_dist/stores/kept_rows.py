"""Blocks of feature rows: what may be in them and how they reach the dtype in which they are kept.

Features are kept as float32 or float16, little-endian, C order.  Nothing is converted silently into something else:
a value that would become infinite, or an integer that float32 cannot hold, is refused, and rounding leaves a note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.errors import InputError

FeatureArray: TypeAlias = NDArray[np.floating[Any]]

FIRST_OFFENDERS = 10
"""How many faulty rows are named one by one; all are counted."""

KEPT_DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
"""The dtypes in which features are kept, by the name that options and manifests use."""

BFLOAT16 = "bfloat16"
"""Name of the dtype, which numpy lacks."""

_MOST_SHAPES_SHOWN = 3
_CONVERTED_BYTES = 64 << 20
_HALF_EXPONENT = np.uint16(0x7C00)


@dataclass(frozen=True)
class Offenders:
    """Rows with one fault: all counted, the first `FIRST_OFFENDERS` named, ascending."""

    count: int = 0
    first: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: NDArray[np.integer[Any]] | Sequence[int]) -> Offenders:
        """Count and name the rows of an ascending sequence."""
        return cls(len(rows), tuple(int(row) for row in rows[:FIRST_OFFENDERS]))

    def __add__(self, later: Offenders) -> Offenders:
        """Join with the offenders of later rows."""
        return Offenders(self.count + later.count, (self.first + later.first)[:FIRST_OFFENDERS])

    def after(self, n_rows: int) -> Offenders:
        """Return them with the numbers that they have behind so many other rows."""
        return Offenders(self.count, tuple(row + n_rows for row in self.first))

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        rows = counted(self.count, "row", separator="")
        if not self.count:
            return rows
        if self.count == 1:
            return f"{rows} (row {self.first[0]})"
        return f"{rows} (first: {', '.join(map(str, self.first))})"


@dataclass(frozen=True)
class RowFaults:
    """Rows with NaN, rows with an infinity and no NaN, and rows of zeros, for which cosine is undefined."""

    nan: Offenders = Offenders()
    infinite: Offenders = Offenders()
    zero: Offenders = Offenders()

    def __add__(self, later: RowFaults) -> RowFaults:
        """Join with the faults of later rows."""
        return RowFaults(self.nan + later.nan, self.infinite + later.infinite, self.zero + later.zero)

    def refuse_non_finite(self, what: str = "features") -> None:
        """Raise InputError if a row is not finite; `what` tells whose features these are."""
        found = [f"{word} in {rows}" for word, rows in (("NaN", self.nan), ("infinity", self.infinite)) if rows]
        if found:
            remedy = "correct these rows, or leave them out (--exclude)"
            raise InputError(f"{what} must be finite: found {' and '.join(found)}; {remedy}")


def find_faults(block: FeatureArray, first_row: int = 0) -> RowFaults:
    """Find rows of (rows, dim) floats that are not finite, and rows of zeros; ``block[0]`` is row `first_row`."""
    finite = _is_finite(block)
    nan = infinite = Offenders()
    if not finite.all():
        bad = np.flatnonzero(~finite.all(axis=1))
        has_nan = np.isnan(block[bad]).any(axis=1)
        nan, infinite = Offenders.of(bad[has_nan] + first_row), Offenders.of(bad[~has_nan] + first_row)
    # One cache line distinguishes nearly every row from zero; only the others are read in full.
    candidates = np.flatnonzero(~block[:, :16].any(axis=1))
    zero = candidates[~block[candidates].any(axis=1)] if candidates.size else candidates
    return RowFaults(nan, infinite, Offenders.of(zero + first_row))


def _is_finite(block: FeatureArray) -> NDArray[np.bool_]:
    if block.dtype.itemsize > 2:
        return np.isfinite(block)
    # Numpy widens every half-precision number to test it; the exponent bits suffice, four times faster.
    finite: NDArray[np.bool_] = (block.view(np.uint16) & _HALF_EXPONENT) != _HALF_EXPONENT
    return finite


def kept_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the little-endian dtype in which features are kept; InputError for any but float32 and float16."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in KEPT_DTYPES:
        raise InputError(f"features are kept as float32 or float16, not as {name!r}")
    return KEPT_DTYPES[name]


def natural_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which features of some dtype are kept by default; InputError if they cannot be kept."""
    if dtype.kind == "O":
        raise InputError("features are an object array, which is never read; give one (n, dim) float32 array")
    if dtype.kind not in "fiub":
        raise InputError(f"features must be floating point or whole numbers, not {dtype}")
    return KEPT_DTYPES["float16" if dtype.kind == "f" and dtype.itemsize == 2 else "float32"]


def conversion_note(source: np.dtype[Any], target: np.dtype[Any]) -> str | None:
    """Return the note on a conversion that rounds, or None if it is exact."""
    rounds_floats = source.kind == "f" and source.itemsize > target.itemsize
    rounds_integers = source.kind in "iu" and target.itemsize == 2 and source.itemsize > 1
    if not rounds_floats and not rounds_integers:
        return None
    return f"features were {source.name} and have been rounded to {target.name}"


def convert_rows(block: NDArray[Any], target: np.dtype[Any], first_row: int = 0) -> FeatureArray:
    """Bring (rows, dim) numbers or booleans to one of `KEPT_DTYPES`, C-contiguous; no copy where they have it already.

    ``block[0]`` is row `first_row`.  InputError if a finite value would become infinite, or an integer is not exactly
    representable in float32.
    """
    natural = natural_dtype(block.dtype)
    if block.dtype == target:
        return np.ascontiguousarray(block)
    exact: NDArray[Any] = block
    if block.dtype.kind in "iu" and block.dtype.itemsize > 2:
        exact = block.astype(natural)
        # Compared as Python would, without rounding the integer: 2**63 - 1 becomes 2**63 in any float.
        wrong = exact.astype(np.longdouble) != block.astype(np.longdouble)
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise InputError(
                f"whole-number features must be exact in float32: row {row + first_row} holds {block[row, column]}; "
                "convert them to float32 yourself if rounding is meant"
            )
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(exact, dtype=target)
    if target.itemsize < block.dtype.itemsize:
        _refuse_overflow(block, converted, target, first_row)
    return cast("FeatureArray", converted)


def _refuse_overflow(block: NDArray[Any], converted: NDArray[Any], target: np.dtype[Any], first_row: int) -> None:
    overflowed = np.isinf(converted)
    if not overflowed.any():
        return
    overflowed &= np.isfinite(block)
    if overflowed.any():
        rows = Offenders.of(np.flatnonzero(overflowed.any(axis=1)) + first_row)
        advice = "keep them as float32" if target.itemsize == 2 else "scale them"
        raise InputError(f"{block.dtype} features do not fit {target.name}: they overflow in {rows}; {advice}")


def refuse_batches(values: Any, name: str, n_axes: int) -> None:
    """Refuse a list of arrays of more axes than a row has, `n_axes`, which are batches of rows."""
    if not isinstance(values, list | tuple):
        return
    shapes = [tuple(getattr(each, "shape", ())) for each in values]
    if not any(len(shape) > n_axes and (n_axes or math.prod(shape) != 1) for shape in shapes):
        return
    join = "torch.cat" if any(hasattr(each, "detach") for each in values) else "numpy.concatenate"
    shown = first_few([*map(str, shapes)], _MOST_SHAPES_SHOWN)
    raise InputError(
        f"{name} are a list of {counted(len(values), 'array')} of shapes {shown}; join batches to one array: "
        f"{join}({name})"
    )


def to_numpy(values: Any) -> Any:
    """Bring a torch tensor, a list of these or a dask array into memory as numpy; leave anything else as it is."""
    if isinstance(values, list | tuple) and any(hasattr(each, "detach") for each in values):
        return [to_numpy(each) for each in values]
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        tensor = values.detach().cpu()
        # Numpy has no bfloat16; widening it is exact.
        return (tensor.float() if str(tensor.dtype) == f"torch.{BFLOAT16}" else tensor).numpy()
    if hasattr(values, "__dask_graph__") and hasattr(values, "compute"):
        values = values.compute()
    # Other libraries add it to numpy as a type of their own.
    return np.asarray(values, np.float32) if str(getattr(values, "dtype", "")) == BFLOAT16 else values


def as_feature_array(features: Any) -> NDArray[Any]:
    """Bring whatever a caller holds to a two-dimensional numpy array, without a copy where there is one already."""
    refuse_batches(features, "features", 1)
    try:
        array = np.asarray(to_numpy(features))
    except ValueError as error:
        raise InputError(f"features must be one (n, dim) array: {error}") from None
    check_shape(array.shape)
    return array


def check_shape(shape: tuple[int, ...], what: str = "features") -> tuple[int, int]:
    """Return rows and columns of features; InputError if they are not (n, dim), or there are none."""
    if len(shape) != 2:
        advice = ""
        if len(shape) == 3:
            advice = (
                f"; for {shape[0]} tracklets of {shape[1]} frames, give their means (features.mean(axis=1)), or give "
                "every frame a row and a label column tracklet, and pool the rows (`reid-dist pool`, reid_dist.pool)"
            )
        raise InputError(f"{what} must be (n, dim), two-dimensional, not of shape {shape}{advice}")
    n_rows, dim = shape
    if n_rows == 0 or dim == 0:
        raise InputError(f"{what} are empty: shape {shape}; a set needs at least one row and one column")
    return n_rows, dim


def kept_array(array: NDArray[Any], target: np.dtype[Any]) -> FeatureArray:
    """Bring (n, dim) numbers to the dtype in which they are kept, C-contiguous; as they are where they have it."""
    if array.dtype == target and array.flags.c_contiguous:
        return array
    # By blocks, so that checking a large array needs little beside the result.
    kept = np.empty(array.shape, dtype=target)
    step = max(1, _CONVERTED_BYTES // (array.shape[1] * 8))
    for start in range(0, len(array), step):
        kept[start : start + step] = convert_rows(array[start : start + step], target, start)
    return kept
