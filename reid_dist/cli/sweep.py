"""``reid-dist sweep``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reid_dist.cli.options import choose_cluster, cluster_options, observation_options

if TYPE_CHECKING:
    from reid_dist.tuning import SweepReport

__all__ = ["command"]

_WORKSPACE = "workspace"
_BEST = "*"


@click.command("sweep")
@click.argument("query")
@click.argument("gallery")
@click.option("--expand", metavar="SPEC", help="The expansion, such as aqe; of dba(k=5)+aqe, the last is swept.")
@click.option("--k", metavar="VALUES", help="Numbers of neighbours of the expansion.")
@click.option("--alpha", metavar="VALUES", help="Exponents of their similarities.")
@click.option("--include-self", is_flag=True, help="Queries sit in the gallery, by item id, and are one of the k.")
@click.option("--rerank", metavar="SPEC", help="The re-ranking, such as k_reciprocal.")
@click.option("--k1", metavar="VALUES", help="Neighbours that a reciprocal set is taken from.")
@click.option("--k2", metavar="VALUES", help="Items whose weights are averaged.")
@click.option("--lambda-value", metavar="VALUES", help="Weights of the plain distance, 0 to 1.")
@click.option("--variant", metavar="NAMES", help="Variants of the re-ranking; see `reid-dist list rerankers`.")
@click.option("--protocol", default="market1501", show_default=True, help="See `reid-dist list protocols`.")
@click.option("--distance", default="cosine", show_default=True, help="See `reid-dist list distances`.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Repeatable.  [default: mAP, CMC@1, mINP]")
@click.option("--max-rank", type=int, default=50, show_default=True, help="Length of the curves in the digests.")
@click.option(
    "--ground-truth",
    metavar="FILE",
    help="Lists for oxford and revisitop: JSON, or a directory of Oxford text files.",
)
@click.option("--chunk-rows", type=int, metavar="N", help="Rows of a tile; the answer does not depend on it.")
@cluster_options
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Write sweep.json and sweep.html there.")
@click.option(
    "--workspace",
    metavar="URI",
    help="Directory for neighbour lists and derived features, seen by all workers; they stay there. "
    "Default: DIR/workspace, and nothing stays.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")
@observation_options
def command(
    query: str,
    gallery: str,
    metrics: tuple[str, ...],
    cluster_file: Path | None,
    workers: int | None,
    output: Path | None,
    workspace: str | None,
    as_json: bool,
    performance_report: Path | None,
    **asked: Any,
) -> None:
    """Evaluate QUERY against GALLERY at every point of a grid of parameters, from one sweep for neighbours.

    VALUES are numbers with commas between them and ranges that include both ends: 0:10, 0:1:0.1, 1,6,10:30:5.

    \b
    Examples:
      reid-dist sweep q.zarr g.zarr --expand aqe --k 0:10 --output results/aqe
      reid-dist sweep q.zarr g.zarr --expand alpha_qe --k 1:10 --alpha 0,1,3 --metric mAP
      reid-dist sweep q.zarr g.zarr --rerank k_reciprocal --k1 10:30:10 --k2 1,6 --lambda-value 0,0.3
    """
    cluster = choose_cluster(cluster_file, workers)
    from reid_dist.cli.drafts import without_old_drafts
    from reid_dist.cli.observed import observed_cluster, refuse_unobservable
    from reid_dist.cli.progress import points, rows_progress
    from reid_dist.reports.files import refuse_occupied
    from reid_dist.stores.importers import open_features
    from reid_dist.tuning import make_grid, sweep_parameters

    swept = {name: asked[name] for name in ("k", "alpha", "k1", "k2", "lambda_value", "variant")}
    make_grid(asked["expand"], asked["rerank"], swept, include_self=asked["include_self"])
    refuse_unobservable(cluster, performance_report)
    if output is not None:
        refuse_occupied(output)
    with contextlib.ExitStack() as on_exit:
        folder = workspace
        if workspace is None and output is not None:
            folder = str(_make_workspace(output, on_exit))
        with rows_progress() as progress:
            near = open_features(query, role="query", progress=progress)
            far = open_features(gallery, role="gallery", progress=progress)
        if folder is not None and "://" not in folder:
            on_exit.enter_context(without_old_drafts(Path(folder)))
        with observed_cluster(cluster, performance_report) as client, points() as (tasks, told):
            report = sweep_parameters(
                near,
                far,
                metrics=list(metrics) or None,
                client=client,
                workspace=folder,
                keep=workspace is not None,
                progress=tasks,
                told=lambda done, total, point, found: told(done, total, _setting(point.values), found),
                **asked,
            )
    if output is not None:
        report.save(output)
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    click.echo("\n".join(_lines(report)))
    if output is not None:
        click.echo(f"\nwritten to {output}: sweep.html, sweep.json")


def _make_workspace(output: Path, on_exit: contextlib.ExitStack) -> Path:
    """Make the workspace in the output directory: what cannot be written is refused before the work."""
    from reid_dist.errors import StoreError

    folder, made = output / _WORKSPACE, not output.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}; choose another --output") from None
    on_exit.callback(_remove_empty, folder, *([output] if made else []))
    return folder


def _remove_empty(*folders: Path) -> None:
    """Leave nothing empty behind that was not there before."""
    for leftover in folders:
        with contextlib.suppress(OSError):
            leftover.rmdir()


def _lines(report: SweepReport) -> list[str]:
    """The report as a table of plain text; the best value of each metric has a sign."""
    from reid_dist.reports.words import metric_value

    names = report.metric_names
    table = [[*report.parameters, *(f"{name} " for name in names)]]
    for number, row in enumerate(report.rows):
        values = [
            metric_value(name, row["metrics"][name])
            + (_BEST if report.best.get(name, {}).get("row") == number else " ")
            for name in names
        ]
        table.append([*(_written(value) for value in row["parameters"].values()), *values])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "   ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
    ]
    counts = report.counts
    facts = {
        _BEST: "best value of its metric; of equal ones, the first",
        "method": report.method["name"] + _fixed(report.method["fixed"]),
        "queries": f"{counts['n_valid']:,} valid of {counts['n_query']:,}",
        "gallery": f"{counts['n_gallery']:,} rows",
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
        "digest": report.result_digest[:16],
    }
    return [
        *lines,
        "",
        *(f"{name:<8}  {words}" for name, words in facts.items()),
        *(f"note      {note}" for note in report.notes),
    ]


def _fixed(values: dict[str, Any]) -> str:
    """Parameters that were not swept."""
    return f" ({', '.join(f'{name} {_written(value)}' for name, value in values.items())})" if values else ""


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_written(value)}" for name, value in values.items())
