"""The table of conventions on the console, in 80 columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from reid_dist.core.findings import lines_of
from reid_dist.core.formatting import counted, integer
from reid_dist.evaluation.convention_settings import Setting
from reid_dist.evaluation.convention_table import Candidate, Conventions, Row, Target
from reid_dist.reports.console import add_numbers, fact_table, print_parts, value_table

# Settings side by side, and candidates that are shown.
_AT_ONCE: Final = 8
_SHOWN: Final = 12
_DIGEST_DIGITS: Final = 16


def print_conventions(table: Conventions) -> None:
    """Print the table, or the conventions nearest to the targets; where that is no terminal, as plain text."""
    names = list(dict.fromkeys(row.setting.name for row in table.rows))
    if table.targets:
        print_parts(_nearest(table), fact_table(_facts(table, [])))
    else:
        print_parts(*_values(table, names), fact_table(_facts(table, names)))


# ---- all conventions -------------------------------------------------------------------------------------------------


def _values(table: Conventions, names: Sequence[str]) -> Iterator[Table | Text]:
    """Values in percent: metrics in rows, settings by number in columns."""
    cells = {(row.distance, row.setting.name, row.metric): row.value for row in table.rows}
    metrics = list(dict.fromkeys(row.metric for row in table.rows))
    for distance in dict.fromkeys(row.distance for row in table.rows):
        for start in range(0, len(names), _AT_ONCE):
            some = list(enumerate(names, 1))[start : start + _AT_ONCE]
            yield Text(f"{distance}, values in percent", style="bold")
            values = value_table("metric", *(str(number) for number, _ in some))
            for metric in metrics:
                values.add_row(metric, *(f"{100 * cells[distance, name, metric]:.2f}" for _, name in some))
            yield values


def _facts(table: Conventions, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, name in enumerate(names, 1):
        yield from _setting([row for row in table.rows if row.setting.name == name], str(number))
    if table.targets:
        yield from _chosen(table)
    for name in ("query", "gallery"):
        described = table.inputs[name]
        yield name, f"{described['uri']}, {counted(described['shape'][0], 'row')}"
    yield "digest", table.result_digest[:_DIGEST_DIGITS]
    yield from lines_of(table.notes)


def _setting(rows: Sequence[Row], head: str) -> Iterator[tuple[str, str]]:
    """Lines on a setting: its name, others with the same ranks, how it is reproduced, who computes it."""
    first = rows[0]
    valid = "" if first.n_valid == first.n_query else f"; {integer(first.n_valid)} of {integer(first.n_query)} valid"
    yield head, f"{_how(first.setting)}{valid}"
    if first.same_as:
        yield "", f"same ranks: {'; '.join(first.same_as)}"
    computed: dict[str, dict[str, None]] = {}
    for row in rows:
        for code in row.codes:
            computed.setdefault(code.name, {})[row.metric.partition("@")[0]] = None
    if computed:
        yield "", "; ".join(f"{name}: {', '.join(stems)}" for name, stems in computed.items())


def _how(setting: Setting) -> str:
    """How a setting is reproduced: by the option, or by the entry of a pipeline."""
    if not setting.parts:
        return f"--protocol {setting.name}"
    # JSON is YAML, too.
    return f"protocol: {json.dumps(setting.describe())}"


# ---- the nearest to targets ------------------------------------------------------------------------------------------


def _nearest(table: Conventions) -> Table:
    """The nearest conventions, one line each; metrics of equal values share one."""
    shown = value_table()
    shown.add_column("", no_wrap=True)
    for target in table.targets:
        add_numbers(shown, target.metric, "off by")
    shown.add_column("convention", overflow="fold", ratio=1)
    for candidates in _alike(table)[:_SHOWN]:
        numbers = [
            cell
            for target, row, difference in zip(
                table.targets, _rows(table, candidates[0]), candidates[0].differences, strict=True
            )
            for cell in (_value(target, row.value), _difference(target, difference))
        ]
        shown.add_row("=" if candidates[0].matches else "", *numbers, Text(_convention(table, candidates)))
    return shown


def _alike(table: Conventions) -> list[list[Candidate]]:
    """Candidates of equal values under one setting and distance, together."""
    groups: dict[tuple[object, ...], list[Candidate]] = {}
    for each in table.candidates:
        row = table.rows[each.rows[0]]
        groups.setdefault((row.setting.name, row.distance, each.differences), []).append(each)
    return list(groups.values())


def _rows(table: Conventions, candidate: Candidate) -> list[Row]:
    return [table.rows[place] for place in candidate.rows]


def _value(target: Target, value: float) -> str:
    """A value with one digit more than the target."""
    return f"{target.scale * value:.{target.digits + 1}f}"


def _difference(target: Target, difference: float) -> str:
    return f"{target.scale * difference:+.{target.digits + 1}f}"


def _convention(table: Conventions, candidates: Sequence[Candidate]) -> str:
    each = [_rows(table, candidate) for candidate in candidates]
    metrics = ", ".join(dict.fromkeys(row.metric for rows in each for row in rows))
    # Code that computes every target so.
    codes = [code.name for rows in each for code in rows[0].codes if all(code in row.codes for row in rows)]
    first = each[0][0]
    by = f" ({', '.join(dict.fromkeys(codes))})" if codes else ""
    return f"{metrics}; {first.setting.name}; {first.distance}{by}"


def _chosen(table: Conventions) -> Iterator[tuple[str, str]]:
    """Lines on the targets, and on the settings that are shown."""
    known = {row.metric for row in table.rows}
    for target in table.targets:
        meant = ", ".join(name for name in target.metrics if name in known)
        unit = " %" if target.scale == 100 else ""
        half = f"{float(target.scale * target.half):g}"
        yield "target", f"{target.metric} {target.number}{unit}, plus or minus {half}: {meant}"
    n_matches = len(table.matches)
    together = "all targets" if len(table.targets) > 1 else "the target"
    found = f"{integer(n_matches)} of" if n_matches else "none of"
    give = "give" if n_matches > 1 else "gives"
    conventions = counted(len(table.candidates), "convention")
    yield "matches", f"{found} {conventions} {give} {together} to the printed digits{', marked =' if n_matches else ''}"
    names = dict.fromkeys(_rows(table, group[0])[0].setting.name for group in _alike(table)[:_SHOWN])
    for name in names:
        row = next(row for row in table.rows if row.setting.name == name)
        if row.setting.parts:
            yield "composed", _how(row.setting)
