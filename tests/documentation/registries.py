"""The reference page of conventions, `pipelines/conventions.md`, made from the registries of the package."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reid_dist.cli.group import run_command
from tests.documentation.pages import ROOT

PAGE = ROOT / "pipelines" / "conventions.md"

_HEAD = """\
# Conventions, protocols and metrics

<!-- Made by `python -m tests.documentation conventions`. Edit the registries or tests/documentation/registries.py. -->

Each convention of the field has its own name here, and every report names the conventions that it follows.
[Reproduce a paper's number](paper-numbers.md) shows how to find the one behind a published number.
"""

_METRICS = """\
r_1 < … < r_n are the 1-based ranks of the n relevant items of a query, after junk is removed. Items are ordered by
distance, then by gallery row; `--ties` also gives the highest and the lowest value over all orders of tied items.
Means are over the valid queries unless the protocol defines otherwise. A query without relevant items is listed with
the reason.

`rank-k`, `Rk`, `top-k`, `hit@k`, `HR@k` and `Recall@k` are other spellings of `CMC@k`, and `MAP@R` is one of `mAP_R`.
`R@k` is recall.
"""

_PROTOCOLS = """\
Items that meet all conditions of a rule in the column *junk* are ignored: they take no rank. Camera -1 means unknown
and equals no camera. The protocols with lists take `--ground-truth`: JSON, or a directory of Oxford text files.
[Compose a protocol](paper-numbers.md#compose-a-protocol) shows how to define your own.
"""

_BENCHMARKS = "`--benchmark NAME` sets the protocol, cameras, draws and metrics of a published evaluation.\n"
_LAYOUTS = "`ingest --layout NAME` reads labels from the names and lists of these data sets.\n"
_RERANKERS = "[Re-rank and expand](reranking.md) shows them at work. A variant is a value of a parameter.\n"

# Their entries are defined in several modules, so that the order of a registry is that of their imports.
_BY_NAME = ("distances", "rerankers", "expansions", "formats")

Record = Mapping[str, Any]
Column = tuple[str, Callable[[Record], str]]


def text() -> str:
    """The page, from what ``reid-dist list`` gives as JSON."""
    return "\n".join(_parts())


def store() -> None:
    PAGE.write_text(text(), encoding="utf-8")


def _parts() -> Iterator[str]:
    yield _HEAD
    yield _section("Metrics", "metrics", _METRICS, ("per query", lambda record: _code(record["per_query_name"])))
    yield _section("Protocols", "protocols", _PROTOCOLS, ("junk", _junk))
    yield _section("Distances", "distances", "", ("definition", lambda record: record["definition"]))
    yield _section("Benchmarks", "benchmarks", _BENCHMARKS, ("protocol", lambda record: _code(record["protocol"])))
    yield _section("Re-rankers", "rerankers", _RERANKERS)
    yield _section("Expansions", "expansions", "", ("parameters", _parameters))
    yield _section("Pooling", "poolings", "")
    yield _section("Layouts", "layouts", _LAYOUTS)
    yield _section("Formats", "formats", "", ("suffixes", lambda record: " ".join(map(_code, record["suffixes"]))))
    yield f"## Exit codes\n\n{_exit_codes()}\n"


def _section(title: str, kind: str, introduction: str, *columns: Column) -> str:
    """A heading, an introduction and a table with a row for each entry of a registry."""
    columns = (
        ("name", lambda record: _code(record["name"])),
        ("what it is", lambda record: record["summary"]),
        *columns,
        ("source", lambda record: record["source"]),
    )
    lines = [[head for head, _ in columns], ["---"] * len(columns)]
    lines += [[_escaped(cell(record)) for _, cell in columns] for record in _records(kind)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return "\n".join(part for part in (f"## {title}\n", introduction, table) if part)


def _records(kind: str) -> list[Record]:
    found: list[Record] = json.loads(_printed("list", kind, "--json"))
    return sorted(found, key=lambda record: record["name"]) if kind in _BY_NAME else found


def _printed(*words: str) -> str:
    """What the command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = run_command([*words])
    if code:
        raise RuntimeError(f"reid-dist {' '.join(words)} ended with {code}")
    return output.getvalue()


def _exit_codes() -> str:
    paragraphs = [" ".join(each.split()) for each in _printed("--help").split("\n\n")]
    (found,) = (each for each in paragraphs if each.startswith("Exit codes: "))
    return found


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _escaped(cell: str) -> str:
    """A cell in which Markdown finds no bar, tag or emphasis of its own; what stands in backquotes is code already."""
    parts = cell.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("_", r"\_").replace("*", r"\*") for part in parts[::2]]
    return "`".join(parts).replace("|", r"\|")


def _junk(record: Record) -> str:
    rules = [" and ".join(f"same {label}" for label in rule) for rule in record["junk"]]
    junk_pid = record["junk_pid"]
    rules += [] if junk_pid is None else [f"pid {junk_pid}"]
    rules += [f"listed as {name}" for name in record["junk_lists"]]
    return "; ".join(rules)


def _parameters(record: Record) -> str:
    parameters = record.get("parameters") or {}
    return ", ".join(_code(name if value is None else f"{name}={value}") for name, value in parameters.items())
