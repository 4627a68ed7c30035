"""``reid-dist list``."""

from __future__ import annotations

import importlib
from typing import Any

import click

# Module and name of each registry; imported when it is listed.
_REGISTRIES = {
    "metrics": ("reid_dist.metrics.definitions", "METRICS"),
    "protocols": ("reid_dist.relevance.protocols", "PROTOCOLS"),
    "distances": ("reid_dist.engine.distances", "DISTANCES"),
    "rerankers": ("reid_dist.stages.reranking", "RERANKERS"),
    "expansions": ("reid_dist.stages.expansion", "EXPANSIONS"),
    "poolings": ("reid_dist.stages.pooling", "POOLINGS"),
    "formats": ("reid_dist.stores.importers", "FORMATS"),
    "layouts": ("reid_dist.stores.importers", "LAYOUTS"),
    "benchmarks": ("reid_dist.evaluation.benchmarks", "BENCHMARKS"),
}


@click.command("list")
@click.argument("kind", type=click.Choice([*_REGISTRIES]))
def command(kind: str) -> None:
    """List what there is, one line each with its source.

    \b
    Examples:
      reid-dist list protocols
      reid-dist list poolings
      reid-dist list benchmarks
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", ratio=3)
    table.add_column("source", ratio=2)
    for entry in _entries(kind):
        # As plain text: definitions hold square brackets, which are no markup here.
        table.add_row(Text(entry.name), Text(entry.summary), Text(entry.source))
    Console(highlight=False).print(table)


def _entries(kind: str) -> list[Any]:
    module, name = _REGISTRIES[kind]
    # Variants are values of a parameter, listed after their definition as they are written.
    defined = importlib.import_module(module)
    found = [entry for each in getattr(defined, name) for entry in (each, *getattr(each, "choices", ()))]
    return [*found, defined.MACRO_MEANS] if kind == "metrics" else found
