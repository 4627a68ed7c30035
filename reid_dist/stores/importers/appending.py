"""Append the rows of a source of any known format to a feature store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy.typing import DTypeLike

from reid_dist.errors import InputError
from reid_dist.stores.featureset import FeatureSet, Progress
from reid_dist.stores.importers.ingestion import RowsReporter, copy_rows, list_left_out, origin_of
from reid_dist.stores.importers.label_options import LabelFields, LabelOptions
from reid_dist.stores.importers.labelling import label_parts
from reid_dist.stores.importers.names import ArrayNames
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.store_appender import StoreAppender

if TYPE_CHECKING:
    from typing import Unpack


def append(
    store: str | os.PathLike[str],
    source: str | os.PathLike[str],
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    dtype: DTypeLike | None = None,
    allow_zero: bool = False,
    progress: Progress | None = None,
    **labels: Unpack[LabelFields],
) -> FeatureSet:
    """Append the rows of a source to a feature store, in bounded memory.

    The store then has the same content digest as one written from all rows at once; identities and cameras given as
    text are renumbered over all rows.  Readers see the old store until the append ends; those that opened it earlier
    continue to see it.  If the process is killed, either the old or the new store remains.  Only the new rows, the last
    old chunk if it is not full, and all labels are written.

    Rows are then in several arrays of Zarr, of which another program that opens ``features`` sees only the first: give
    it what `ingest` makes of the store, which has one.

    Parameters
    ----------
    store
        The store.  On object storage, there is no lock: one of two simultaneous appends fails and changes nothing.
    source
        A file or store of any supported format with a single set.
    names, format_name
        As in `ingest`.
    dtype
        Type to round the new rows to, which must be that of the store; None refuses rows that would be rounded.
    allow_zero
        Keep rows of zeros; they are refused otherwise, unless the store was made with them.
    progress
        Called after every block of rows.
    **labels
        Sources of labels, as in `ingest`; ``drop_duplicates`` compares the rows of the source only with each other.

    Returns
    -------
    FeatureSet
        The store with all rows.

    Raises
    ------
    StoreNotFoundError, StoreExistsError, StoreError
        If the source cannot be read, or the store cannot be written.
    InputError
        If the rows or labels cannot be used, or if dimension, dtype, kinds of labels or row lengths do not match the
        store.

    Examples
    --------
    >>> from reid_dist import append
    >>> gallery = append("gallery.zarr", "today.npz", drop_pids=[-1])  # doctest: +SKIP
    """
    options = LabelOptions(names=ArrayNames.of(names), **labels)
    with open_source(os.fspath(source), format_name) as opened:
        parts = label_parts(opened, options)
        if len(parts) > 1:
            raise InputError(
                f"{opened.uri} holds query and gallery, and a store is one set; make stores of it with `reid-dist "
                "ingest`, and append one of these"
            )
        part = parts[0]
        with StoreAppender(
            store,
            {**origin_of(opened.uri, options), "notes": [*opened.notes, *part.notes]},
            dim=part.features.shape[1],
            comes_as=part.features.dtype,
            dtype=dtype,
            allow_zero=allow_zero,
            notes=opened.notes,
        ) as writer:
            report = RowsReporter(progress, part.n_rows)
            copy_rows(part, opened.uri, writer, writer.allow_zero, report)
            list_left_out(parts, options)
    return FeatureSet.open(writer.uri)
