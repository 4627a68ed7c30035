"""Labels of the rows: identities, cameras, item ids, paths, and further columns of whole numbers.

A label set is a mapping from name to one-dimensional array:

=================  =====================================================================
``pids``           int64 (n,); always there
``camids``         int64 (n,)
``item_ids``       int64 or ``<U`` (n,): what an item is called, wherever it is stored
``image_paths``    ``<U`` (n,)
``columns/NAME``   int64 (n,): clothes, location, tracklet, …
``pid_names``      ``<U`` (P,): the text that was mapped to pid p stands at p - 1
``camid_names``    ``<U`` (C,): likewise for cameras
=================  =====================================================================

Identities that come as text are read as numbers if all of them are decimal numbers and no two different texts are
the same number; otherwise they are numbered 1, 2, … in sorted order, with "-1", the junk of every protocol, left -1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.errors import InputError

__all__ = ["COLUMN_PREFIX", "Labels", "NumberedTexts", "as_column", "as_numbers", "make_labels", "number_jointly"]

Labels: TypeAlias = dict[str, NDArray[Any]]

COLUMN_PREFIX = "columns/"

NumberedTexts: TypeAlias = tuple[NDArray[np.int64], NDArray[np.str_] | None]
"""Labels as numbers, and the texts they stand for, if any."""

_DECIMAL = re.compile(r"-?[0-9]{1,18}")
_COLUMN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_JUNK_TEXT = "-1"


def as_column(values: ArrayLike, name: str) -> NDArray[Any]:
    """Bring labels to one dimension.

    Parameters
    ----------
    values
        (n,), (1, n) or (n, 1) numbers or texts; torch tensors and dask arrays are taken as well.
    name
        For messages.

    Returns
    -------
    numpy.ndarray
        (n,) of a numeric dtype or ``<U``.

    Raises
    ------
    InputError
        If it has another shape, or holds neither numbers nor texts.
    """
    array = np.asarray(to_numpy(values))
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InputError(f"{name} must be one label per row, shape (n,), (1, n) or (n, 1), not {array.shape}")
    if array.dtype.kind == "O":
        # Pandas keeps text in object arrays; anything else in one is not a label.
        if not all(isinstance(value, str) for value in array):
            raise InputError(f"{name} is an object array, which is never read; give whole numbers or text")
        array = array.astype(np.str_)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind not in "iufU":
        raise InputError(f"{name} must be whole numbers or text, not {array.dtype}")
    return array


def to_numpy(values: Any) -> Any:
    """Bring a torch tensor or a dask array into memory as numpy; leave anything else as it is."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        tensor = values.detach().cpu()
        # Numpy has no bfloat16; widening it is exact.
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    if hasattr(values, "__dask_graph__") and hasattr(values, "compute"):
        return values.compute()
    return values


def as_whole_numbers(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Bring an (n,) numeric array to int64 without changing a value.

    Raises
    ------
    InputError
        If a value is not whole or does not fit.
    """
    if array.dtype.kind == "f":
        # Beyond 2**53 a float no longer tells neighbouring whole numbers apart.
        wrong = ~(np.abs(array) <= 2.0**53) | (array != np.floor(array))
    elif array.dtype.kind == "u":
        wrong = array > np.iinfo(np.int64).max
    elif array.dtype.kind == "i":
        return array.astype(np.int64)
    else:
        raise InputError(f"{name} must be whole numbers, not {array.dtype}")
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(f"{name} must be whole numbers: row {row} holds {array[row]}")
    return array.astype(np.int64)


def as_numbers(values: ArrayLike, name: str) -> NumberedTexts:
    """Bring identities or cameras to int64, numbering texts as the module says.

    Parameters
    ----------
    values
        (n,), (1, n) or (n, 1) numbers or texts.
    name
        For messages.

    Returns
    -------
    numpy.ndarray, numpy.ndarray or None
        (n,) int64; the (P,) texts that 1 … P stand for, or None if the numbers are themselves.

    Raises
    ------
    InputError
        If the values are no labels, or a text is empty.
    """
    array = as_column(values, name)
    if array.dtype.kind != "U":
        return as_whole_numbers(array, name), None
    texts, inverse = np.unique(array, return_inverse=True)
    if texts.size and texts[0] == "":
        raise InputError(f"{name} holds an empty text in row {int(np.flatnonzero(array == '')[0])}")
    if all(_DECIMAL.fullmatch(text) for text in texts.tolist()):
        numbers = np.array([int(text) for text in texts.tolist()], dtype=np.int64)
        if np.unique(numbers).size == numbers.size:
            return numbers[inverse], None
    named = texts[texts != _JUNK_TEXT]
    numbers = np.where(texts == _JUNK_TEXT, -1, np.searchsorted(named, texts) + 1).astype(np.int64)
    return numbers[inverse], named


def number_jointly(parts: Sequence[ArrayLike], name: str) -> tuple[list[NDArray[np.int64]], NDArray[np.str_] | None]:
    """Bring the same label of several sets to int64 so that equal texts get equal numbers.

    Parameters
    ----------
    parts
        One array of labels per set.
    name
        For messages.

    Raises
    ------
    InputError
        As `as_numbers`, and if one set has numbers where another has text.
    """
    columns = [as_column(part, name) for part in parts]
    if len({column.dtype.kind == "U" for column in columns}) > 1:
        raise InputError(f"{name} is text in one set and numbers in the other; give both in one form")
    if columns[0].dtype.kind != "U":
        return [as_whole_numbers(column, name) for column in columns], None
    numbers, names = as_numbers(np.concatenate(columns), name)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(numbers, ends), names


def make_labels(
    n_rows: int,
    pids: ArrayLike,
    camids: ArrayLike | None = None,
    item_ids: ArrayLike | None = None,
    columns: Mapping[str, ArrayLike] | None = None,
    image_paths: ArrayLike | None = None,
    names: Mapping[str, NDArray[np.str_]] | None = None,
) -> Labels:
    """Validate the labels of a set and bring them to the form in which they are kept.

    Parameters
    ----------
    n_rows
        Number of feature rows, which every label must have.
    pids, camids, item_ids, image_paths
        Labels in any form that `as_column` takes.
    columns
        Further whole-number labels by name.
    names
        ``pid_names`` and ``camid_names`` of labels that have been numbered already.

    Returns
    -------
    dict of str to numpy.ndarray
        As the module says, read-only.

    Raises
    ------
    InputError
        If a label has another length, is not a label, or a column has an unusable name.
    """
    labels: Labels = {}
    names = names or {}
    for key, values, names_key in (("pids", pids, "pid_names"), ("camids", camids, "camid_names")):
        if values is None:
            continue
        labels[key], texts = as_numbers(values, key)
        texts = names.get(names_key, texts)
        if texts is not None:
            labels[names_key] = texts
    if item_ids is not None:
        array = as_column(item_ids, "item_ids")
        labels["item_ids"] = array if array.dtype.kind == "U" else as_whole_numbers(array, "item_ids")
    if image_paths is not None:
        labels["image_paths"] = as_column(image_paths, "image_paths")
        if labels["image_paths"].dtype.kind != "U":
            raise InputError(f"image_paths must be text, not {labels['image_paths'].dtype}")
    for name, values in (columns or {}).items():
        if not _COLUMN_NAME.fullmatch(name):
            raise InputError(f"column name {name!r} must be a letter followed by letters, digits and underscores")
        labels[COLUMN_PREFIX + name], texts = as_numbers(values, name)
        if texts is not None:
            raise InputError(f"column {name!r} must be whole numbers, not text")
    for name, array in labels.items():
        if not name.endswith("_names") and len(array) != n_rows:
            raise InputError(f"{name} has {len(array)} entries for {n_rows} rows of features; give one per row")
        # Owned and read-only: labels are handed out by reference, and a digest has been taken of them.
        labels[name] = array.copy() if array.flags.writeable else array
        labels[name].flags.writeable = False
    return labels
