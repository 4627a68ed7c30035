"""``reid-dist ingest``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from reid_dist.cli.click_options import PATH, chunk_option, shared_options
from reid_dist.core.credentials import without_controls
from reid_dist.core.findings import Finding, lines_of
from reid_dist.core.formatting import counted
from reid_dist.evaluation.options import LEFT_OUT

if TYPE_CHECKING:
    from reid_dist.stores import FeatureSet

_ARRAYS = ("features", "pids", "camids", "item_ids", "image_paths")


def _array_names() -> list[str]:
    """Keys of the arrays of a source: one set, or two sides."""
    return [f"{side}{array}" for side in ("", "query_", "gallery_") for array in _ARRAYS]


def _array_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for the name of every array that a source can hold."""
    for name in reversed(_array_names()):
        flag, words = f"--{name.replace('_', '-')}", name.replace("_", " ")
        function = click.option(flag, name, metavar="NAME", help=f"Array that holds the {words}.")(function)
    return function


def shape_of(store: FeatureSet) -> str:
    """Return rows, features and type of a store."""
    return f"{store.n_rows} x {store.dim} {store.dtype}"


def identities_of(store: FeatureSet) -> str:
    """Count identities as `reid-dist check` does: junk, pid -1, is none."""
    return counted(len(set(store.pids.tolist()) - {-1}), "identity")


def print_store(
    store: FeatureSet, facts: Iterable[str], notes: Iterable[str], findings: Iterable[Finding] = ()
) -> None:
    """Print what a command has written, and what is to be said of it."""
    click.echo(f"{store.uri}: {', '.join(facts)}, content {store.content_digest[:16]}")
    for word, text in [*(("note", note) for note in notes), *lines_of(findings)]:
        click.echo(without_controls(f"  {word}: {text}"))


def named_arrays(options: dict[str, Any]) -> dict[str, str]:
    """Take the names that are given to arrays out of the options of a command."""
    given = {name: options.pop(name, None) for name in _array_names()}
    return {name: value for name, value in given.items() if value is not None}


def words_of(given: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Read what texts denote, by group."""
    words: dict[str, dict[str, int]] = {}
    for each in given:
        found = re.fullmatch(r"(\w+):(.+)=(-?[0-9]{1,18})", each)
        if found is None:
            raise click.BadParameter(
                f"{each!r} is not of the form GROUP:TEXT=N, such as modality:ir=2", param_hint="--word"
            )
        words.setdefault(found[1], {})[found[2]] = int(found[3])
    return words


@click.command("ingest")
@click.argument("source")
@click.option(
    "--output", required=True, metavar="PATH", help="Where to write the store, or query.zarr and gallery.zarr."
)
@click.option("--format", "format_name", metavar="NAME", help="Input format.  Default: from the suffix.")
@click.option("--pids-file", type=PATH, help="File of identities, instead of --pids: .npy, or text with one per line.")
@click.option("--camids-file", type=PATH, help="File of cameras, in the same form.")
@click.option(
    "--names",
    "names_file",
    type=PATH,
    metavar="FILE",
    help="File with the names of the images, one per line, in row order; labels are read from the names.",
)
@click.option(
    "--layout",
    metavar="NAME",
    help="Data set whose naming rules and lists apply, such as market1501, msmt17 or veri776; see `reid-dist list "
    "layouts`. Default: market1501.",
)
@click.option(
    "--list",
    "lists",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="Label list of the data set, in the format of --layout: text, XML, JSON, CSV or .mat. Images are looked up "
    "by name; without names, its records must be in row order. Repeatable.",
)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="Regular expression for names of another layout: groups (?P<pid>…) and (?P<camid>…); any other group becomes "
    "a label column. It is searched for in the base name, or in the whole path if the pattern contains a /.",
)
@click.option(
    "--word",
    "words",
    multiple=True,
    metavar="GROUP:TEXT=N",
    help="Map a text value to an integer, e.g. modality:ir=2, or pid:unknown=-1 for junk. Repeatable.",
)
@click.option(
    "--query-list",
    "query_lists",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="File with the names of the query images, one per line. All others are the gallery unless you select it. "
    "Repeatable.",
)
@click.option(
    "--gallery-list",
    "gallery_lists",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="File with the names of the gallery images, in the same form.",
)
@click.option(
    "--query-folder",
    "query_folders",
    multiple=True,
    metavar="NAME",
    help="Images in folders of this name, such as query or test/C, are queries. Default: the folders of the layout. "
    "Repeatable.",
)
@click.option(
    "--gallery-folder",
    "gallery_folders",
    multiple=True,
    metavar="NAME",
    help="Images in folders of this name are the gallery. Repeatable.",
)
@click.option(
    "--labels",
    "labels_file",
    type=PATH,
    metavar="FILE",
    help="Table of labels with one row per feature row: CSV, parquet or any known format.",
)
@click.option(
    "--num-query",
    type=int,
    metavar="N",
    help="The first N rows are queries, the others the gallery. Default: the entry num_query, if there is one.",
)
@chunk_option
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    help="Type of the stored features. Default: float16 is kept, all others become float32.",
)
@click.option("--drop-pid", "drop_pids", type=int, multiple=True, metavar="N", help="Leave out this pid; repeatable.")
@shared_options(*LEFT_OUT)
@click.option(
    "--allow-zero", is_flag=True, help="Keep zero vectors; under cosine they are at distance 1 from everything."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing store; not on S3.")
@_array_options
def command(source: str, output: str, **options: Any) -> None:
    """Read SOURCE (.npz .npy .mat .h5 .parquet .safetensors .pth .pt or Zarr) in bounded memory; write feature stores.

    SOURCE may also be a directory or a quoted glob of such files, for instance one per rank or day. The files are read
    in natural order of their names, 2 before 10.

    A source with query and gallery becomes PATH/query.zarr and PATH/gallery.zarr. A single array is split in the same
    way if you say how: by its first rows (--num-query), by the arrays is_query and is_gallery, or by folders or lists
    (--layout, --query-folder, --query-list). Otherwise a single set becomes one store at PATH.

    Common array names are recognised: features, feats, f or embeddings; pids, labels, ids, person_ids or vehicle_ids;
    camids, cams or cameras; item_ids; image_paths, img_paths, paths or filenames; columns/NAME for your own labels.
    With two sides, the names begin with query_ and gallery_, or with q_ and g_. Use the options for other names. A
    dictionary from file names to tensors is a set with image_paths.

    If the source has no identities, they are read from image names such as 0002_c1s1_000451_03.jpg, either in the
    source or in --names. Use --layout for the names and lists of other data sets. A name that does not match is an
    error. --labels takes a table with one row per feature row and the same column names, such as a data frame with
    label, path, camera, split, is_query and is_gallery.

    Labels are integers or text. For pids, camids and item ids alike, 01 and 1 are the same label, unless one set
    contains both; then they stay distinct. A pid or camid of 1.0e+00 is read as 1. A pid of -1 marks junk.

    \b
    Examples:
      reid-dist ingest pytorch_result.mat --output data/market
      reid-dist ingest gallery.npy --pids-file pids.txt --camids-file cams.txt --output data/gallery.zarr
      reid-dist ingest features.npz --features emb --pids vid --output data/veri.zarr --drop-pid -1
      reid-dist ingest features.npy --names list.txt --num-query 3368 --output data/named
      reid-dist ingest features.npy --names list.txt --layout market1501 --query-list query.txt --output data/listed
      reid-dist ingest features.npy --labels df.csv --output data/oml
      reid-dist ingest 'features/rank*.npz' --drop-duplicates item_ids --exclude bad.txt --output data/ranks.zarr
    """
    from reid_dist.cli.progress import rows_progress
    from reid_dist.stores import ingest
    from reid_dist.stores.repeated_items import repeat_notes

    named = named_arrays(options)
    options["words"] = words_of(options["words"])
    with rows_progress() as progress:
        stores = ingest(source, output, named, progress=progress, **options)
    for store in stores:
        cameras = "no cameras" if store.camids is None else counted(len(set(store.camids.tolist())), "camera")
        print_store(store, (shape_of(store), identities_of(store), cameras), store.notes, repeat_notes(store, "set"))
