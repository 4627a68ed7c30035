"""Labels of items: the properties of every labelled set, and a set with labels alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.errors import DamagedStoreError
from reid_dist.stores.digests import digest_json, digest_label
from reid_dist.stores.labels import COLUMN_PREFIX, Labels, as_column, join_numbers, make_labels

Role: TypeAlias = Literal["query", "gallery"]


class LabelledSet:
    """Labels of n items by name; `uri` is where they come from, `content_digest` is of all that the set holds."""

    uri: str
    n_rows: int
    content_digest: str
    # By the names that `reid_dist.stores.labels` gives them.
    _labels: Mapping[str, NDArray[Any]]

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array."""
        return digest_label(self._labels[name])

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
        digests = {name: self.label_digest(name) for name in self._labels if name != "image_paths"}
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
    if any(kind not in each.labels for each in sets):
        raise KeyError(name)
    texts = [getattr(each, f"{name}_names") for each in sets]
    return [join_numbers(each.labels[kind], own, texts[0], texts[-1]) for each, own in zip(sets, texts, strict=True)]


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
