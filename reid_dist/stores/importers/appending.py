"""Append the rows of a source of any known format to a feature store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy.typing import DTypeLike

from reid_dist.errors import InputError
from reid_dist.stores.featureset import FeatureSet, Progress
from reid_dist.stores.importers.exclusion import write_table
from reid_dist.stores.importers.ingestion import RowsReporter, copy_rows, origin_of
from reid_dist.stores.importers.label_options import LabelFields, LabelOptions, Location
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
    left_out: Location | None = None,
    progress: Progress | None = None,
    **labels: Unpack[LabelFields],
) -> FeatureSet:
    """Append the rows of a source to a feature store, in bounded memory.

    The store has the content digest that it would have if it had been made of all rows at once; texts of identities
    and cameras are numbered anew over all of them.  Until the append ends, readers see the old store, and so they do
    afterwards where they have opened it before.  A process that is killed leaves the old store or the new one.  Written
    are the new rows, the last chunk of the old ones if it is not full, and all labels.

    Parameters
    ----------
    store
        The store; on object storage, two appends at once are not made to wait: one of them fails and changes nothing.
    source
        A file or store of any known format with a single set.
    names, format_name
        As in `ingest`.
    dtype
        That of the store, to which new rows are rounded; rows that would be rounded are refused when None.
    allow_zero
        Keep rows of zeros; they are refused otherwise, unless the store was made with them.
    left_out
        A CSV file to write the rows of the source to that `exclude` and `drop_duplicates` leave out.
    progress
        Called after every block of rows.
    **labels
        Sources of labels, as in `ingest`; `drop_duplicates` compares the rows of the source with each other, and not
        with those of the store.

    Returns
    -------
    FeatureSet
        The store with all rows.

    Raises
    ------
    StoreNotFoundError, StoreExistsError, StoreError
        As reading and writing do.
    InputError
        If the rows or labels cannot be used, or dimension, dtype, labels or the lengths of rows differ from those of
        the store.

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
        if left_out is not None and part.left_out is not None:
            write_table(left_out, [(part.role or "", part.left_out)])
        with StoreAppender(
            store,
            {**origin_of(opened.uri, options), "notes": list(part.notes)},
            dim=part.features.shape[1],
            comes_as=part.features.dtype,
            dtype=dtype,
            allow_zero=allow_zero,
            notes=opened.notes,
        ) as writer:
            report = RowsReporter(progress, part.n_rows)
            copy_rows(part, opened.uri, writer, writer.allow_zero, report)
    return FeatureSet.open(writer.uri)
