"""``reid-dist list``."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reid_dist.core.registry import Registry
    from reid_dist.reports.tabular.table import Table

# Module and name of each registry; imported when it is listed.
_REGISTRIES = {
    "metrics": ("reid_dist.metrics.metric", "METRICS"),
    "protocols": ("reid_dist.relevance.protocols", "PROTOCOLS"),
    "distances": ("reid_dist.engine.distances", "DISTANCES"),
    "rerankers": ("reid_dist.stages.reranking.rerankers", "RERANKERS"),
    "expansions": ("reid_dist.stages.expansion.expansion_steps", "EXPANSIONS"),
    "poolings": ("reid_dist.stages.pooling_job", "POOLINGS"),
    "formats": ("reid_dist.stores", "FORMATS"),
    "layouts": ("reid_dist.stores.importers.name_layouts", "LAYOUTS"),
    "benchmarks": ("reid_dist.evaluation.benchmarks", "BENCHMARKS"),
}


@click.command("list")
@click.argument("kind", type=click.Choice([*_REGISTRIES]), metavar="KIND")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print full records as JSON, and nothing else.")
def command(kind: str, name: str | None, *, as_json: bool) -> None:
    """List all metrics, protocols, … with their sources, or show one entry in full.

    KIND is metrics, protocols, distances, rerankers, expansions, poolings, formats, layouts or benchmarks.

    \b
    Examples:
      reid-dist list protocols
      reid-dist list layouts msmt17
      reid-dist list benchmarks --json
    """
    from reid_dist.core.registry import unknown_name
    from reid_dist.reports.tabular.terminal import fact_table, print_parts
    from reid_dist.reports.words import flatten

    entries = {entry.name: entry for entry in _entries(kind)}
    if name is not None and name not in entries:
        raise unknown_name(_registry(kind).kind, name, entries)
    chosen = list(entries.values()) if name is None else [entries[name]]
    if as_json:
        records = [_record(entry) for entry in chosen]
        click.echo(json.dumps(records if name is None else records[0], indent=1, ensure_ascii=False))
    elif name is None and sys.stdout.isatty():
        print_parts(_table(chosen))
    elif name is None:
        # A line for each entry, and nothing else, where another program reads them.
        for entry in chosen:
            click.echo("\t".join((entry.name, entry.summary, entry.source)))
    else:
        facts = ((key.replace("_", " "), text) for key, text in flatten(_record(chosen[0])) if text)
        print_parts(fact_table(facts))


def _table(entries: Iterable[Any]) -> Table:
    """Return one line for each entry."""
    from reid_dist.reports.tabular.table import Column, Kind, Table

    columns = (Column("name", Kind.NAME), Column("what it is", Kind.TEXT), Column("source", Kind.TEXT))
    return Table(columns=columns, rows=[(entry.name, entry.summary, entry.source) for entry in entries])


def _record(entry: Any) -> dict[str, Any]:
    """Return the entries of a definition that are values, and not code."""
    names = dict.fromkeys(["name", "summary", "source", *(field.name for field in dataclasses.fields(entry))])
    values = {name: getattr(entry, name) for name in names}
    return {name: _value(value) for name, value in values.items() if not callable(value)}


def _value(value: Any) -> Any:
    """Return a value as JSON has it: of a pattern its text, of another definition its name."""
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, Mapping):
        return {str(key): _value(each) for key, each in value.items() if not callable(each)}
    if isinstance(value, list | tuple | frozenset):
        return [_value(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "name", None) or str(value)


def _entries(kind: str) -> list[Any]:
    # Variants are values of a parameter, listed after their definition as they are written.
    found = [entry for each in _registry(kind) for entry in (each, *getattr(each, "choices", ()))]
    if kind != "metrics":
        return found
    from reid_dist.metrics.metric import MACRO_MEANS

    return [*found, MACRO_MEANS]


def _registry(kind: str) -> Registry[Any]:
    module, name = _REGISTRIES[kind]
    registry: Registry[Any] = getattr(importlib.import_module(module), name)
    return registry
