"""Tables of runs as Markdown, LaTeX and CSV."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence

from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import counted, integer
from reid_dist.reports.csv_text import write_csv_table
from reid_dist.reports.tables.run_table_values import BEST, NEAR_BEST, Cell, Group, TableData
from reid_dist.reports.words import is_share

_LATEX = {
    "\\": r"\textbackslash{}",
    NEAR_BEST: r"\textdagger{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{each: "\\" + each for each in "#$%&_{}"},
}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


def heads(table: TableData, group: Group) -> list[str]:
    """Heads of all columns of a group; shares are in percent."""
    return ["run", *group.stages, *metric_heads(table)]


def metric_heads(table: TableData) -> list[str]:
    """Heads of the metrics; shares are in percent."""
    return [f"{name} (%)" if is_share(name) else name for name in table.metrics]


def number(name: str, value: float) -> str:
    """A metric without its unit, which the head has; a dash where it is not known."""
    if math.isnan(value):
        return "-"
    return f"{100 * value:.2f}" if is_share(name) else f"{value:.6g}"


def plain_value(name: str, cell: Cell, *, letters: bool = False) -> str:
    """A metric in plain text, a star before the best value of its column and the mark after it."""
    mark = cell.mark(letters=letters)
    return f"{BEST if cell.is_best else ''}{number(name, cell.value)}{f' {mark}' if mark else ''}"


def interval_text(name: str, cell: Cell) -> str:
    """The interval of a cell as ``[low, high]``; empty without one."""
    if cell.interval is None:
        return ""
    return f"[{number(name, cell.interval.low)}, {number(name, cell.interval.high)}]"


def notes_of(table: TableData, group: Group, *, intervals: bool, letters: bool) -> list[str]:
    """Notes below a group: what its marks are first, and what its intervals are where they are shown."""
    if letters:
        marks = [f"runs that share a letter do not differ {group.test}"] if group.test else []
    else:
        marked = any(cell.is_near_best for row in group.rows for cell in row.cells)
        marks = [f"{NEAR_BEST} does not differ significantly from the best value {group.test}"] if marked else []
        if group.test and not marked:
            marks = [f"every tested value differs significantly from the best one of its column {group.test}"]
    if not intervals or not group.n_units:
        return [*marks, *group.notes, *table.notes]
    drawn = f"{counted(group.n_units, table.unit)}, {integer(table.n_resamples)} draws, seed {table.seed}"
    return [
        *marks,
        *group.notes,
        f"[low, high]: {100 * table.level:g} % bootstrap intervals over {drawn}",
        *table.notes,
    ]


def markdown(table: TableData, *, intervals: bool, letters: bool) -> str:
    """Pipe tables as GitHub and pandoc read them, a heading above and a list of notes below each."""

    def value(name: str, cell: Cell) -> str:
        text = number(name, cell.value)
        text = f"**{text}**" if cell.is_best else text
        mark = cell.mark(letters=letters)
        return text + (f"<sup>{mark}</sup>" if mark else "")

    def lines() -> Iterator[str]:
        for group in table.groups:
            names = heads(table, group)
            yield f"### {_for_markdown(group.title)}"
            yield ""
            yield _piped(map(_for_markdown, names))
            yield _piped("---:" if at > len(group.stages) else "---" for at in range(len(names)))
            for cells in _rows(table, group, value, _for_markdown, intervals=intervals, around=("<br>", "")):
                yield _piped(cells)
            yield ""
            yield from (
                f"- {_for_markdown(note)}" for note in notes_of(table, group, intervals=intervals, letters=letters)
            )
            yield ""

    return "\n".join(lines())


def latex(table: TableData, *, intervals: bool, letters: bool) -> str:
    """Tabulars with the rules of booktabs, each with its notes below."""

    def value(name: str, cell: Cell) -> str:
        text = number(name, cell.value)
        text = rf"\textbf{{{text}}}" if cell.is_best else text
        mark = cell.mark(letters=letters).replace(NEAR_BEST, r"\textdagger")
        return text + (rf"\textsuperscript{{{mark}}}" if mark else "")

    def lines() -> Iterator[str]:
        yield r"% In the preamble: \usepackage{booktabs}"
        for group in table.groups:
            names = heads(table, group)
            yield rf"\begin{{tabular}}{{{'l' * (1 + len(group.stages))}{'r' * len(table.metrics)}}}"
            yield r"\toprule"
            yield rf"\multicolumn{{{len(names)}}}{{l}}{{{_for_latex(group.title)}}} \\"
            yield r"\midrule"
            yield " & ".join(map(_for_latex, names)) + r" \\"
            yield r"\midrule"
            for cells in _rows(table, group, value, _for_latex, intervals=intervals, around=(r" {\scriptsize ", "}")):
                yield " & ".join(cells) + r" \\"
            yield r"\bottomrule"
            yield r"\end{tabular}"
            yield r"\par\smallskip"
            notes = notes_of(table, group, intervals=intervals, letters=letters)
            yield r"{\footnotesize " + r"\par ".join(map(_for_latex, notes)) + r"\par}"
            yield r"\bigskip"

    return "\n".join(lines()) + "\n"


def comma_separated(table: TableData) -> str:
    """One line per run; for each metric its value, the ends of its interval, how it stands."""
    stages = list(dict.fromkeys(name for group in table.groups for name in group.stages))
    ends = ("", " low", " high", " best", " near best", " letters")
    columns = ["group", "run", "result_digest", *stages, *(f"{name}{end}" for name in table.metrics for end in ends)]

    def rows() -> Iterator[list[object]]:
        for group in table.groups:
            for row in group.rows:
                named = dict(zip(group.stages, row.stages, strict=True))
                cells = (each for cell in row.cells for each in _fields(cell))
                yield [
                    *(group.title, row.name, row.result_digest),
                    *(named.get(stage, "") for stage in stages),
                    *cells,
                ]

    out = io.StringIO()
    write_csv_table(columns, rows(), out)
    return out.getvalue()


def _fields(cell: Cell) -> tuple[object, ...]:
    ends = (cell.interval.low, cell.interval.high) if cell.interval is not None else ("", "")
    return (
        "" if math.isnan(cell.value) else cell.value,
        *ends,
        int(cell.is_best),
        int(cell.is_near_best),
        cell.letters,
    )


def _rows(
    table: TableData,
    group: Group,
    value: Callable[[str, Cell], str],
    escape: Callable[[str], str],
    *,
    intervals: bool,
    around: tuple[str, str],
) -> Iterator[list[str]]:
    """Texts of the cells of every row; intervals, where shown, are put between the two texts of `around`."""
    for row in group.ranked:
        cells = []
        for name, cell in zip(table.metrics, row.cells, strict=True):
            text = interval_text(name, cell) if intervals else ""
            cells.append(value(name, cell) + (f"{around[0]}{text}{around[1]}" if text else ""))
        yield [escape(row.name), *map(escape, row.stages), *cells]


def _piped(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _for_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _one_line(text))


def _for_latex(text: str) -> str:
    line = _one_line(text)
    written = "".join(_LATEX.get(each, each) for each in line)
    # The end of a row, and the rules of booktabs, look for an argument or a star beyond the end of their line.
    return f"{{{line[0]}}}{written[1:]}" if line.startswith(("[", "*")) else written


def _one_line(text: str) -> str:
    return " ".join(without_controls(text).split())
