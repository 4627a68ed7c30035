"""``reid-dist append``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli import ingest_command

# Parameters of `ingest` that are of a new store, or choose a query and a gallery: a store is one set.
_OF_NEW_STORES = {
    *("source", "output", "chunk_rows", "overwrite", "dtype"),
    *("num_query", "query_lists", "gallery_lists", "query_folders", "gallery_folders"),
}


def _takes(parameter: click.Parameter) -> bool:
    name = str(parameter.name)
    return name not in _OF_NEW_STORES and not name.startswith(("query_", "gallery_"))


@click.command("append")
@click.argument("store")
@click.argument("source")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    help="Round the rows to this type, which must be that of the store. Default: refuse rows that would be rounded.",
)
def command(store: str, source: str, **options: Any) -> None:
    """Append the rows of SOURCE, a single set, to the feature store STORE.

    The result equals that of one `ingest` of all rows and has the same content digest. Only the new rows, the last
    chunk and the labels are written. If the command is killed, either the old or the new store remains. Evaluations
    that have opened the old store continue to read it. Other readers of Zarr see only the first rows of a store with
    appended rows; give them a copy written by `reid-dist ingest STORE`.

    The new rows must match the store: the same dimension, labels and label columns, and length 1 if the rows of the
    store have length 1. The options for labels are the same as in `ingest`.

    \b
    Examples:
      reid-dist append data/gallery.zarr today.npz
      reid-dist append data/gallery.zarr rank1.zarr
      reid-dist append data/named.zarr features.npy --names list.txt --drop-pid -1
    """
    from reid_dist.cli.progress import rows_progress
    from reid_dist.stores import append
    from reid_dist.stores.repeated_items import repeat_notes
    from reid_dist.stores.stored import StoreReader

    named = ingest_command.named_arrays(options)
    options["words"] = ingest_command.words_of(options["words"])
    with rows_progress() as progress:
        grown = append(store, source, named, progress=progress, **options)
    appended = StoreReader.open(grown.uri).manifest.source["appended"][-1]
    facts = (f"{appended['rows']} rows appended", ingest_command.shape_of(grown), ingest_command.identities_of(grown))
    ingest_command.print_store(grown, facts, appended["notes"], repeat_notes(grown, "set"))


command.params += [parameter for parameter in ingest_command.command.params if _takes(parameter)]
