"""Labels of the rows: identities, cameras, item ids, paths, and further columns of whole numbers; sets that have them.

The labels of a set are a mapping from name to one-dimensional array:

=================  =====================================================================
``pids``           int64 (n,); always there
``camids``         int64 (n,)
``item_ids``       int64 or ``<U`` (n,): what an item is called, wherever it is stored
``image_paths``    ``<U`` (n,)
``columns/NAME``   int64 (n,): clothes, location, tracklet, …
``pid_names``      ``<U`` (P,): the text of pid p is at p - 1
``camid_names``    ``<U`` (C,): likewise for cameras
=================  =====================================================================

Texts are numbers where all of them are numbers in any notation (``0002``, ``-1.000e+00``); one that is not whole is
refused.  Plain digits with two spellings of one number in a set (``01`` and ``1``) are names instead, as words are.
Names are numbered 1, 2, … in sorted order, with -1, the junk of every protocol, left -1.

Labels are exact or refused: a floating type holds every whole number up to 2 to the number of its significant bits
(256 in bfloat16, 2,048 in float16, 2^24 in float32, 2^53 in float64), and a larger one may have been another before.

Two sets are matched by one rule, whatever the label (pid, camid, item id): digits are a number, so that ``01`` is ``1``
and 1, unless one of the sets holds two spellings of that number.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import DamagedStoreError, InputError, refuse
from reid_dist.stores.digests import digest_json, digest_label, is_owned
from reid_dist.stores.kept_rows import BFLOAT16, refuse_batches, to_numpy

Labels: TypeAlias = dict[str, NDArray[Any]]
Role: TypeAlias = Literal["query", "gallery"]

COLUMN_PREFIX = "columns/"
NUMBERED = {"pids": "pid_names", "camids": "camid_names"}
"""Labels that may number texts, and the names of these."""

Texts: TypeAlias = Sequence[str] | None
"""The texts that the numbers 1, 2, … of a set denote; None where numbers are themselves."""

_DIGITS = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 18
"""Longer numbers need not fit into int64; in plain digits they are names."""
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?|nan|inf)", re.IGNORECASE)
_WORDS_FROM = 10**18
"""Offset of name labels when the other set has integer labels: beyond every number in digits."""
_COLUMN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_JUNK = -1
_LARGEST = 2**63 - 1
_BFLOAT16_BITS = 8
_SURROGATES = (0xD800, 0xDFFF)
_LAST_CHARACTER = 0x10FFFF
_CHECKED_ROWS = 65_536


def as_column(values: ArrayLike, name: str, significant_bits: int | None = None) -> NDArray[Any]:
    """Bring numbers or texts of shape (n,), (1, n) or (n, 1), also torch and dask, to (n,) int64 or ``<U``.

    Floats that are not all whole stay floats.  `significant_bits` are those of the floating type in which the values
    were written, if they have been widened since.
    """
    if str(getattr(values, "dtype", "")).removeprefix("torch.") == BFLOAT16:
        significant_bits = _BFLOAT16_BITS
    refuse_batches(values, name, 0)
    try:
        array = np.asarray(to_numpy(values))
    except ValueError as error:
        raise InputError(f"{name} must be one label per row: {error}") from None
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
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} holds bytes that are no UTF-8 text ({error}); give text") from None
    if array.dtype.kind not in "iufU":
        raise InputError(f"{name} must be whole numbers or text, not {array.dtype}")
    if array.dtype.kind == "U":
        _refuse_no_text(array, name)
        return array
    return _exact(array, name, significant_bits)


def _exact(array: NDArray[Any], name: str, significant_bits: int | None = None) -> NDArray[Any]:
    """Bring an (n,) numeric array to int64, or leave floats that are not all whole; refuse inexact and too large ones.

    Before arrays of several types are joined: their common type would be a floating one.
    """
    if array.dtype.kind != "f":
        beyond = array > _LARGEST if array.dtype.kind == "u" else np.zeros(0, bool)
        if beyond.any():
            row = int(beyond.argmax())
            raise InputError(
                f"{name}: row {row} holds {array[row]}, and whole numbers are kept up to {_LARGEST} (int64); write "
                "larger ones as text"
            )
        return array.astype(np.int64)
    bits = np.finfo(array.dtype).nmant + 1 if significant_bits is None else significant_bits
    # Narrow types cannot hold their own bound times two.
    wide = array.astype(np.result_type(array.dtype, np.float64), copy=False)
    finite = np.isfinite(wide)
    beyond = finite & (np.abs(wide) > min(2**bits, _LARGEST))
    if beyond.any():
        row = int(beyond.argmax())
        kind = {_BFLOAT16_BITS: BFLOAT16}.get(bits, array.dtype.name)
        raise InputError(
            f"{name}: row {row} holds {int(wide[row])} as {kind}, which is exact only for whole numbers up to "
            f"{2**bits:,}; write labels as int64 or as text where they come from"
        )
    return wide.astype(np.int64) if (finite & (wide == np.floor(wide))).all() else array


def _refuse_no_text(array: NDArray[np.str_], name: str) -> None:
    """Refuse halves of surrogate pairs and numbers beyond Unicode, which no encoding can write."""
    width = array.dtype.itemsize // 4
    if not width or not array.size:
        return
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    rows = native.view(np.uint32).reshape(-1, width)
    for first in range(0, len(rows), _CHECKED_ROWS):
        codes = rows[first : first + _CHECKED_ROWS]
        wrong = ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1])) | (codes > _LAST_CHARACTER)
        if wrong.any():
            row, place = (int(each[0]) for each in np.nonzero(wrong))
            raise InputError(
                f"{name} holds no valid text in row {first + row}: character {place} is U+{codes[row, place]:04X}, "
                "which no text can hold; write the file again"
            )


def as_whole_numbers(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Bring an (n,) numeric array to int64; InputError if a value would change."""
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be whole numbers, not {array.dtype}")
    whole = _exact(array, name)
    if whole.dtype.kind == "f":
        row = int((~(np.isfinite(whole) & (whole == np.floor(whole)))).argmax())
        raise InputError(f"{name} must be whole numbers: row {row} holds {whole[row]}")
    return whole


def as_numbers(values: ArrayLike, name: str) -> tuple[NDArray[np.int64], NDArray[np.str_] | None]:
    """Bring identities or cameras, as `as_column` takes them, to int64, numbering texts as the module describes.

    The texts, (P,), that 1 … P denote are None if the numbers are themselves.
    """
    array = as_column(values, name)
    if array.dtype.kind != "U":
        return as_whole_numbers(array, name), None
    texts, inverse = np.unique(array, return_inverse=True)
    if texts.size and texts[0] == "":
        raise InputError(f"{name} holds an empty text in row {int(np.flatnonzero(array == '')[0])}")
    listed = texts.tolist()
    if all(_DIGITS.fullmatch(text) for text in listed):
        found = [number_in_digits(text) for text in listed]
        if None not in found and len(set(found)) == len(found):
            return np.array(found, dtype=np.int64)[inverse], None
    elif all(_NUMBER.fullmatch(text) for text in listed):
        return _whole(listed, inverse, name)[inverse], None
    junk = np.array([_is_junk(text) for text in listed], dtype=bool)
    named = texts[~junk]
    return np.where(junk, _JUNK, np.searchsorted(named, texts) + 1).astype(np.int64)[inverse], named


def number_in_digits(text: str) -> int | None:
    """Return the number of a text in digits; None for anything else."""
    return int(text) if len(text) <= _MOST_DIGITS + text.startswith("-") and _DIGITS.fullmatch(text) else None


def _is_junk(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and Decimal(text) == _JUNK


def _whole(texts: list[str], inverse: NDArray[np.intp], name: str) -> NDArray[np.int64]:
    """The whole numbers of texts in any notation."""
    numbers = np.empty(len(texts), dtype=np.int64)
    wrong: list[int] = []
    for place, text in enumerate(texts):
        value = Decimal(text)
        # The exponent comes first: a whole number of a thousand million digits would be computed.
        fits = value.is_finite() and value.adjusted() < _MOST_DIGITS
        if fits and value == value.to_integral_value():
            numbers[place] = int(value)
        else:
            wrong.append(place)
    if wrong:
        row = int(np.flatnonzero(np.isin(inverse, wrong))[0])
        raise InputError(f"{name} must be whole numbers: row {row} holds {texts[inverse[row]]}")
    return numbers


def number_jointly(parts: Sequence[ArrayLike], name: str) -> tuple[list[NDArray[np.int64]], NDArray[np.str_] | None]:
    """Bring the same label of several sets to int64 so that equal texts get equal numbers.

    InputError as `as_numbers`, and if one set has numbers where another has words alone.
    """
    columns = [as_column(part, name) for part in parts]
    texts = [column for column in columns if column.dtype.kind == "U"]
    if not texts:
        return [as_whole_numbers(column, name) for column in columns], None
    if len(texts) < len(columns):
        if not all(any(_NUMBER.fullmatch(text) for text in np.unique(column).tolist()) for column in texts):
            raise InputError(f"{name} is text in one set and numbers in the other; give both in one form")
        columns = [
            column if column.dtype.kind == "U" else as_whole_numbers(column, name).astype(np.str_) for column in columns
        ]
    columns = _with_one_spelling(columns)
    numbers, names = as_numbers(np.concatenate(columns), name)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(numbers, ends), names


def ambiguous_numbers(*sets: Iterable[str]) -> set[int]:
    """Return the numbers of which one of the sets holds two spellings."""
    ambiguous: set[int] = set()
    for texts in sets:
        seen: set[int] = set()
        for value in map(number_in_digits, texts):
            if value is not None:
                (ambiguous if value in seen else seen).add(value)
    return ambiguous


def _with_one_spelling(columns: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Write a number alike in all sets, unless one of them holds two spellings of it."""
    each = [np.unique(column).tolist() for column in columns]
    same = ambiguous_numbers(set().union(*each)) - ambiguous_numbers(*each)
    if not same:
        return columns
    return [
        np.array(
            [str(value) if (value := number_in_digits(text)) in same else text for text in column.tolist()],
            dtype=np.str_,
        )
        for column in columns
    ]


def make_labels(
    n_rows: int,
    pids: ArrayLike,
    camids: ArrayLike | None = None,
    item_ids: ArrayLike | None = None,
    columns: Mapping[str, ArrayLike] | None = None,
    image_paths: ArrayLike | None = None,
    names: Mapping[str, NDArray[np.str_]] | None = None,
) -> Labels:
    """Validate the labels of a set and bring them, read-only, to the form in which they are kept.

    `n_rows` is the number of features; labels come in any form that `as_column` takes; `names` are ``pid_names`` and
    ``camid_names`` of labels that have been numbered already.
    """
    labels: Labels = {}
    names = names or {}
    for values, (key, names_key) in zip((pids, camids), NUMBERED.items(), strict=True):
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
    refuse(
        [
            f"{name} has {counted(len(array), 'entry')} for {counted(n_rows, 'row')} of features; give one per row"
            for name, array in labels.items()
            if not name.endswith("_names") and len(array) != n_rows
        ],
        many="labels",
    )
    for name, array in labels.items():
        # Owned and read-only: labels are handed out by reference, and a digest is taken of them.
        labels[name] = array.copy() if array.flags.writeable or not is_owned(array) else array
        labels[name].flags.writeable = False
    return labels


def label_arguments(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return labels by name as keyword arguments of `make_labels` and of sets, without the texts of numbers."""
    columns = {name.removeprefix(COLUMN_PREFIX): labels[name] for name in labels if name.startswith(COLUMN_PREFIX)}
    single = ("pids", "camids", "item_ids", "image_paths")
    return {**{name: labels[name] for name in single if name in labels}, "columns": columns}


def numbers_among(texts: Iterable[str]) -> set[int]:
    """Return the numbers of texts in digits."""
    return {value for value in map(number_in_digits, texts) if value is not None}


def _spelled(text: str, ambiguous: set[int]) -> str:
    """Digits without leading zeros; anything else, and ambiguous numbers, as written."""
    value = number_in_digits(text)
    return text if value is None or value in ambiguous else str(value)


def join_numbers(numbers: NDArray[np.int64], own: Texts, query: Texts, gallery: Texts) -> NDArray[np.int64]:
    """Number the labels of one of two sets so that equal labels of both get equal numbers; junk stays.

    `own`, `query` and `gallery` are the texts of numbers in this set and in both.
    """
    if own is None:
        return numbers
    ambiguous = ambiguous_numbers(query or (), gallery or ())
    spelled = [_spelled(text, ambiguous) for text in own]
    every = {_spelled(text, ambiguous) for text in (*(query or ()), *(gallery or ()))}
    if query is None or gallery is None:
        # The other set has numbers: digits are those numbers, and words are beyond all of them.
        words = {text: _WORDS_FROM + at for at, text in enumerate(sorted(t for t in every if _plain(t) is None))}
        table = np.array([words[text] if (value := _plain(text)) is None else value for text in spelled])
    else:
        table = np.searchsorted(np.array(sorted(every)), np.array(spelled)) + 1
    return np.where(numbers > 0, table[np.maximum(numbers, 1) - 1], numbers)


def _plain(text: str) -> int | None:
    """The number of a text that is its plain spelling."""
    value = number_in_digits(text)
    return value if value is not None and str(value) == text else None


def given_labels(labels: NDArray[np.int64], names: Texts) -> list[int] | list[str]:
    """Labels as they were given; what is not positive (junk) has no name of its own."""
    if names is None:
        numbers: list[int] = labels.tolist()
        return numbers
    return [names[label - 1] if label > 0 else str(label) for label in labels.tolist()]


def join_item_ids(
    query: NDArray[Any], gallery: NDArray[Any]
) -> tuple[NDArray[np.int64] | NDArray[np.str_], NDArray[np.int64] | NDArray[np.str_]]:
    """Bring the item ids of two sets to one form, in which equal ids are equal: texts, unless both are numbers."""
    if query.dtype.kind != "U" and gallery.dtype.kind != "U":
        return query, gallery
    written = [side.astype(np.str_) for side in (query, gallery)]
    ambiguous = ambiguous_numbers(*(np.unique(side).tolist() for side in written))
    made = [np.array([_spelled(text, ambiguous) for text in side.tolist()], dtype=np.str_) for side in written]
    if query.dtype.kind != gallery.dtype.kind and not np.isin(made[0], made[1]).any():
        raise InputError(
            f"item ids of the query set are {query.dtype}, of the gallery {gallery.dtype}, and none are equal; "
            "give both the same kind"
        )
    return made[0], made[1]


# ---- labelled sets ---------------------------------------------------------------------------------------------------


class LabelledSet:
    """Labels of n items by name; ``uri`` is where they come from, ``content_digest`` is of all that the set holds."""

    is_made_of_sets: ClassVar[bool] = False
    """Whether its rows are read from other sets."""

    if TYPE_CHECKING:
        # Attributes, some of which a kind of set computes when they are used.
        @property
        def uri(self) -> str:
            """Where it comes from."""

        @property
        def n_rows(self) -> int:
            """Number of items."""

        @property
        def content_digest(self) -> str:
            """Hex digest of all that the set holds."""

        @property
        def _labels(self) -> Mapping[str, NDArray[Any]]:
            """By the names that `reid_dist.stores.labels` gives them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {counted(self.n_rows, 'row')} at {self.uri}"

    def _label_digest(self, name: str) -> str:
        """Return the digest of a label array."""
        return digest_label(self._labels[name])

    @property
    def _shown(self) -> str:
        """Where it comes from, in reports."""
        return self.uri

    @property
    def pids(self) -> NDArray[np.int64]:
        """(n,) identities."""
        pids = self._labels.get("pids")
        if pids is None:
            raise DamagedStoreError(f"{self.uri} has no pids in its manifest; ingest the source again")
        return pids

    @property
    def camids(self) -> NDArray[np.int64] | None:
        """(n,) cameras, if known."""
        return self._labels.get("camids")

    @property
    def item_ids(self) -> NDArray[np.int64] | NDArray[np.str_] | None:
        """(n,) names of the items, whole numbers or text, if given."""
        return self._labels.get("item_ids")

    @property
    def image_paths(self) -> NDArray[np.str_] | None:
        """(n,) paths of the images, if given."""
        return self._labels.get("image_paths")

    @property
    def pid_names(self) -> tuple[str, ...] | None:
        """The texts that pids 1 … P denote (entry p - 1), or None if pids are numbers themselves."""
        names = self._labels.get("pid_names")
        return None if names is None else tuple(names.tolist())

    @property
    def camid_names(self) -> tuple[str, ...] | None:
        """The texts that camids 1 … C denote (entry c - 1), or None if camids are numbers themselves."""
        names = self._labels.get("camid_names")
        return None if names is None else tuple(names.tolist())

    @property
    def columns(self) -> dict[str, NDArray[np.int64]]:
        """Further (n,) whole-number labels by name."""
        return {
            name.removeprefix(COLUMN_PREFIX): self._labels[name]
            for name in self._labels
            if name.startswith(COLUMN_PREFIX)
        }

    @property
    def labels(self) -> Labels:
        """All label arrays by the names that `reid_dist.stores.labels` gives them."""
        return dict(self._labels)

    @cached_property
    def labels_digest(self) -> str:
        """Hex digest of the labels that an evaluation can use, without the features.

        It covers pids, camids, item ids and columns, with the texts that numbers denote; not the image paths, which
        only give the origin of items.  Two sets of features of the same items, in the same order, share it, which is
        what makes their evaluations comparable query by query.
        """
        digests = {name: self._label_digest(name) for name in self._labels if name != "image_paths"}
        header = {"kind": "reid_dist labels 1", "labels": digests}
        return digest_json(header)

    @property
    def notes(self) -> list[str]:
        """Changes made to the values before, one line each."""
        return []

    def describe(self) -> dict[str, Any]:
        """Return the entry of an input in a report."""
        return {
            "uri": self.uri,
            "shape": [self.n_rows],
            "content_digest": self.content_digest,
            "labels_digest": self.labels_digest,
        }


def joint_labels(name: str, sets: Sequence[LabelledSet]) -> list[NDArray[np.int64]]:
    """Labels of one or two sets under one numbering: ``pid``, ``camid`` or a column, shapes (n,), int64.

    `KeyError` for a label that a set lacks.
    """
    kind = f"{name}s"
    if name not in ("pid", "camid"):
        return [each.columns[name] for each in sets]
    texts = [getattr(each, f"{name}_names") for each in sets]
    return [join_numbers(each._labels[kind], own, texts[0], texts[-1]) for each, own in zip(sets, texts, strict=True)]


class LazyLabels(Mapping[str, NDArray[Any]]):
    """Label arrays by name, each read once, when it is used; for several threads."""

    def __init__(self, names: Iterable[str], read: Callable[[str], NDArray[Any]]) -> None:
        self._names, self._read = dict.fromkeys(names), read
        self._held: Labels = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        with self._lock:
            if name not in self._held:
                found = self._read(name)
                found.flags.writeable = False
                self._held[name] = found
            return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def labels_of_rows(
    sets: Sequence[LabelledSet], rows: NDArray[np.int64] | None, *, keeps_numbers: bool = False
) -> LazyLabels:
    """Labels of all rows of some sets, one set after the other, or of rows by their numbers among them.

    They are those of a set that is made of these rows at once, in which a text that no row has is no name; with
    `keeps_numbers`, identities and cameras keep the numbers and names that they have in the first set.  InputError if
    the sets have different labels.
    """
    named = [[name for name in each._labels if name not in NUMBERED.values()] for each in sets]
    for each, names in zip(sets, named, strict=True):
        if other := sorted(set(names) ^ set(named[0])):
            raise InputError(f"{', '.join(other)} are in only one of {sets[0].uri} and {each.uri}; give both the same")
    numbered: Labels = {}
    for name, texts in NUMBERED.items():
        if keeps_numbers and texts in sets[0]._labels:
            numbered[texts] = sets[0]._labels[texts]
        elif any(texts in each._labels for each in sets):
            numbered |= _numbered(name, texts, sets, rows)

    def read(name: str) -> NDArray[Any]:
        return numbered[name] if name in numbered else _joined([each._labels[name] for each in sets], rows, name)

    return LazyLabels([*named[0], *numbered], read)


def _joined(parts: Sequence[NDArray[Any]], rows: NDArray[np.int64] | None, name: str) -> NDArray[Any]:
    if len({part.dtype.kind for part in parts}) > 1:
        raise InputError(f"{name} are text in one set and numbers in another; give both in one form")
    whole = np.concatenate(parts)
    return whole if rows is None else whole[rows]


def _numbered(name: str, texts: str, sets: Sequence[LabelledSet], rows: NDArray[np.int64] | None) -> Labels:
    """Identities or cameras of rows of which some set has texts, numbered anew, and the texts, if there are still any.

    Junk, which has no text of its own, stays.
    """
    numbers = _joined([each._labels[name] for each in sets], rows, name)
    owner = _joined([np.full(each.n_rows, place) for place, each in enumerate(sets)], rows, name)
    places, given = [], list[NDArray[Any]]()
    for own, each in enumerate(sets):
        has_texts = texts in each._labels
        place = np.flatnonzero((owner == own) & ((numbers > 0) | (not has_texts)))
        if len(place):
            distinct, of_row = np.unique(numbers[place], return_inverse=True)
            places.append((place, of_row))
            given.append(each._labels[texts][distinct - 1] if has_texts else distinct.astype(np.str_))
    found, names = number_jointly(given, name) if given else ([], None)
    for (place, of_row), anew in zip(places, found, strict=True):
        numbers[place] = anew[of_row]
    return {name: numbers} if names is None else {name: numbers, texts: names}


class LabelledRows(LabelledSet):
    """Labels without features: used to assign relevance to a distance block or to neighbour lists.

    Parameters
    ----------
    pids
        (n,) identities, integers or text.
    camids, item_ids, columns, image_paths
        As in `FeatureSet.from_arrays`.
    uri
        Origin of the labels, for reports.

    Raises
    ------
    InputError
        If the labels cannot be used.
    """

    uri: str
    n_rows: int
    content_digest: str
    _labels: Labels

    def __init__(
        self,
        pids: ArrayLike,
        camids: ArrayLike | None = None,
        item_ids: ArrayLike | None = None,
        *,
        columns: Mapping[str, ArrayLike] | None = None,
        image_paths: ArrayLike | None = None,
        uri: str = "memory",
    ) -> None:
        self.n_rows = len(as_column(pids, "pids"))
        self._labels = make_labels(self.n_rows, pids, camids, item_ids, columns, image_paths)
        self.uri = uri
        self.content_digest = self.labels_digest

    def __len__(self) -> int:
        return self.n_rows


class HeldLabels(LabelledSet):
    """Labels in the form in which they are kept, of rows whose content has no digest yet."""

    uri: str
    n_rows: int
    content_digest: str = ""
    _labels: Mapping[str, NDArray[Any]]

    def __init__(self, uri: str, n_rows: int, labels: Mapping[str, NDArray[Any]]) -> None:
        self.uri, self.n_rows, self._labels = uri, n_rows, labels


def labels_as_given(
    sides: Sequence[LabelledSet], rows: Sequence[int], *, with_paths: bool = True
) -> dict[str, list[int] | list[str]]:
    """Labels of a row of each side as they were given: ``pids``, and if both have them ``camids`` and ``paths``."""
    at = list(zip(sides, rows, strict=True))
    names: dict[str, Any] = {"pids": [_as_given(each, "pid", each.pids[row]) for each, row in at]}
    if all(each.camids is not None for each in sides):
        names["camids"] = [_as_given(each, "camid", each.camids[row]) for each, row in at if each.camids is not None]
    if with_paths and all("image_paths" in each._labels for each in sides):
        names["paths"] = [str(each._labels["image_paths"][row]) for each, row in at]
    return names


def _as_given(labels: LabelledSet, name: str, number: np.int64) -> int | str:
    # A tuple of all names would be made anew for every row.
    names = labels._labels.get(NUMBERED[f"{name}s"])
    return int(number) if names is None else str(names[number - 1] if number > 0 else number)
