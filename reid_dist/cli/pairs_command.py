"""``reid-dist pairs``."""

from __future__ import annotations

import click

from reid_dist.cli.click_options import shared_options
from reid_dist.cli.result_place import ResultPlace, result_options


@click.command("pairs")
@click.argument("left")
@click.argument("right", required=False)
@click.option(
    "--pairs", "list_file", required=True, metavar="FILE", help="Pair list: two row columns and a same/different label."
)
@click.option(
    "--by",
    type=click.Choice(["rows", "item_ids", "image_paths"]),
    default="rows",
    show_default=True,
    help="How the columns name rows; numbers start at 0.",
)
@shared_options("distance", distance={"metavar": "NAME"})
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="EER or TAR@FAR=x; repeatable.")
@click.option("--roc", is_flag=True, help="Add the ROC to the JSON.")
@click.option(
    "--folds",
    type=int,
    metavar="N",
    help="Accuracy in N consecutive folds, each at the best threshold of the others (LFW: 10).",
)
@result_options("result")
def command(
    left: str,
    right: str | None,
    list_file: str,
    by: str,
    distance: str,
    metrics: tuple[str, ...],
    roc: bool,
    folds: int | None,
    place: ResultPlace,
) -> None:
    """Verify listed pairs of rows of LEFT and RIGHT, or of LEFT alone: EER, TAR at given FAR, accuracy.

    The list is a text file with two rows and a label per line (1 or same, 0 or different), or an npz, npy, csv, parquet
    or mat file with columns such as left, right and same, or an array pairs. Without labels, a pair counts as same
    if its two pids are equal. A pair is accepted when its distance is less than the threshold.

    \b
    Examples:
      reid-dist pairs faces.zarr --pairs lfw_pairs.txt --folds 10
      reid-dist pairs g1.zarr g2.zarr --pairs matches.csv --by item_ids --metric TAR@FAR=1e-4 --output ijbc.json
    """
    if roc and place.form != "json" and not place.as_json:
        raise click.UsageError("--roc writes the curve into the JSON; add --output FILE.json or --json")
    from reid_dist.cli.progress import rows_progress
    from reid_dist.evaluation.pairs import DEFAULT_METRICS, evaluate_pairs
    from reid_dist.stores import open_features
    from reid_dist.stores.importers.row_lists import read_pair_list

    near = open_features(left)
    far = near if right is None else open_features(right)
    listed = read_pair_list(list_file, near, far, by=by)
    with rows_progress() as progress:
        result = evaluate_pairs(
            near,
            far,
            listed.rows,
            listed.same,
            distance=distance,
            metrics=metrics or DEFAULT_METRICS,
            roc=roc,
            folds=folds,
            progress=lambda done, n: progress(done, n, "pairs"),
        )
    place.deliver(result)
