"""``reid-dist list``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

_KINDS = ("metrics", "protocols", "distances", "rerankers", "expansions", "poolings", "formats")


@click.command("list")
@click.argument("kind", type=click.Choice(_KINDS))
def command(kind: str) -> None:
    """List what there is, one line each with its source.

    \b
    Examples:
      reid-dist list protocols
      reid-dist list poolings
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", ratio=3)
    table.add_column("source", ratio=2)
    for entry in _registry(kind):
        # As plain text: definitions hold square brackets, which are no markup here.
        table.add_row(Text(entry.name), Text(entry.summary), Text(entry.source))
    Console(highlight=False).print(table)


def _registry(kind: str) -> Any:
    if kind == "metrics":
        from reid_dist.metrics.definitions import METRICS

        return METRICS
    if kind == "protocols":
        from reid_dist.relevance.protocols import PROTOCOLS

        return PROTOCOLS
    if kind == "distances":
        from reid_dist.engine.distances import DISTANCES

        return DISTANCES
    if kind == "rerankers":
        from reid_dist.stages.reranking import RERANKERS, VARIANTS

        # Variants are values of a parameter, and are shown as what one writes.
        variants = (replace(each, name=f"k_reciprocal(variant={each.name})") for each in VARIANTS)
        return [*RERANKERS, *variants]
    if kind == "expansions":
        from reid_dist.stages.expansion import EXPANSIONS

        return EXPANSIONS
    if kind == "poolings":
        from reid_dist.stages.pooling import POOLINGS

        return POOLINGS
    from reid_dist.stores.importers import FORMATS

    return FORMATS
