"""Labels of items: the properties of every labelled set, and a set with labels alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.stores.digests import digest_json, digest_label
from reid_dist.stores.labels import COLUMN_PREFIX, Labels, as_column, join_numbers, make_labels, number_jointly

Role: TypeAlias = Literal["query", "gallery"]


class LabelledSet:
    """Labels of n items by name; `uri` is where they come from, `content_digest` is of all that the set holds."""

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


_NUMBERED = {"pids": "pid_names", "camids": "camid_names"}
"""Labels that may number texts, and the names of these."""


def labels_of_rows(
    sets: Sequence[LabelledSet], rows: NDArray[np.int64] | None, *, keeps_numbers: bool = False
) -> LazyLabels:
    """Labels of all rows of some sets, one set after the other, or of rows by their numbers among them.

    They are those of a set that is made of these rows at once, in which a text that no row has is no name; with
    `keeps_numbers`, identities and cameras keep the numbers and names that they have in the first set.  InputError if
    the sets have different labels.
    """
    named = [[name for name in each._labels if name not in _NUMBERED.values()] for each in sets]
    for each, names in zip(sets, named, strict=True):
        if other := sorted(set(names) ^ set(named[0])):
            raise InputError(f"{', '.join(other)} are in one of {sets[0].uri} and {each.uri} alone; give both the same")
    numbered: Labels = {}
    for name, texts in _NUMBERED.items():
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
        (n,) identities, whole numbers or text.
    camids, item_ids, columns, image_paths
        As `FeatureSet.from_arrays` takes them.
    uri
        Where they come from.

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
