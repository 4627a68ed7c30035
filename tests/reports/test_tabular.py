"""A table as a value, and its forms: console text, HTML, Markdown, LaTeX and CSV.

The files in `golden` hold the forms as they are meant to look; ``REID_DIST_WRITE_GOLDEN=1`` writes them again.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run
from support.pages import tables as read_tables

from reid_dist import compare
from reid_dist.reports.tabular.csv_text import tables_csv
from reid_dist.reports.tabular.markup import html, html_notes, latex, latex_text, markdown
from reid_dist.reports.tabular.table import (
    Cell,
    Column,
    Ends,
    Kind,
    Note,
    Table,
    bare_cell,
    metric_cell,
    metric_column,
    points_cell,
)
from reid_dist.reports.tabular.terminal import plain_text

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = r"50% & more_of #1 \ {x} ~^ | <b> * [a] `c` $"

TABLE = Table(
    title="market1501: 80 queries",
    columns=[
        Column("run", Kind.NAME),
        metric_column("mAP"),
        Column("change"),
        Column("p"),
        Column("remark", Kind.PROSE),
        Column("digest", Kind.DIGEST, is_detail=True),
    ],
    rows=[
        [
            Cell("ours", link="ours/report.html"),
            bare_cell("mAP", 0.5123, (0.4, 0.6), is_best=True),
            points_cell(0.0123, (-0.002, 0.03)),
            Cell("<0.0001", 1e-5),
            "",
            "d42",
        ],
        [
            HOSTILE,
            bare_cell("mAP", 0.5, (0.39, 0.6), mark="\N{DAGGER}"),
            points_cell(0.0),
            "0.5",
            "a → b, \N{MINUS SIGN}3 ± 1",
            "c8",
        ],
        ["none", bare_cell("mAP", math.nan), Cell("-"), "-", "no value", ""],
    ],
    notes=[
        Note("does not differ from the best value", "\N{DAGGER}", needed=True),
        Note("80 of 80; 1e-05 < p, -1,234 and -1e-05"),
        Note("continued", ""),
    ],
    interval_head="95% interval",
)


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("REID_DIST_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("table.txt", plain_text),
        ("table.html", lambda table: f"{html(table, 'fit', stacked=True)}\n{html_notes(table.notes)}"),
        ("table.md", lambda table: markdown([table])),
        ("table.tex", lambda table: latex([table])),
        ("table.csv", lambda table: tables_csv([table])),
    ],
)
def test_the_five_forms(name: str, form) -> None:
    assert_golden(name, form(TABLE))


def test_a_comparison_as_text_and_for_a_paper() -> None:
    values = np.linspace(0.2, 0.8, 40)
    runs = [run(values, np.arange(40)), run(values - np.linspace(0, 0.1, 40), np.arange(40))]
    compared = compare(*runs, metrics="mAP", names=["plain", "quantised"])
    assert_golden("comparison.txt", compared.to_text())
    assert_golden("comparison.tex", compared.to_latex(notes="short"))
    assert repr(compared).splitlines()[0] == "Comparison: quantised against plain"
    assert len(repr(compared).splitlines()) < 12
    assert read_tables(compared._repr_html_())[0][1][-1] == "worse"


def test_cells_of_a_value() -> None:
    assert metric_cell("mAP", 0.5, (0.4, None)) == Cell("50.00%", 0.5)
    assert metric_cell("mAP", 0.5, (0.4, 0.6)).ends == ("[40.00, 60.00]", 0.4, 0.6)
    assert bare_cell("EER_threshold", 0.25).text == "0.25"
    assert [points_cell(value).text for value in (0.0, -0.0, 1e-6, -1e-6, 0.0123, math.nan)] == [
        "0.00", "0.00", "+0.00", "-0.00", "+1.23", "-"
    ]  # fmt: skip


def test_rows_have_as_many_cells_as_there_are_columns() -> None:
    with pytest.raises(ValueError, match="a row of 2 cells in a table of 1 columns"):
        Table(columns=[Column("one")], rows=[["1", "2"]])


def test_notes_of_a_level_and_a_brief_table() -> None:
    assert [len(TABLE.with_notes(level).notes) for level in ("none", "short", "full")] == [0, 1, 3]
    long = Table(columns=[Column("n")], rows=[[str(n)] for n in range(100)], notes=[*map(Note, map(str, range(9)))])
    brief = long.brief(10, 3)
    assert [cell.text for cell in brief.column("n")] == [*map(str, range(5)), "… 90 more", *map(str, range(95, 100))]
    assert [note.text for note in brief.notes] == ["0", "1", "2", "6 more in .notes"]


def test_a_wide_table_is_split_by_its_columns() -> None:
    wide = Table(
        columns=[Column("run", Kind.NAME), *(metric_column(f"CMC@{k}") for k in range(1, 15))],
        rows=[["first", *(bare_cell("CMC@1", k / 20, (0.1, 0.9)) for k in range(1, 15))]],
    )
    lines = plain_text(wide).splitlines()
    assert max(map(len, lines)) <= 80
    heads = [re.findall(r"CMC@\d+", line) for line in lines if line.startswith(" run")]
    assert len(heads) > 2
    assert [name for each in heads for name in each] == [f"CMC@{k}" for k in range(1, 15)]
    # An interval stays beside its value.
    assert all(line.count("interval") == len(names) for line, names in zip(lines[1::5], heads, strict=False))


texts = st.text(alphabet=st.characters(exclude_categories=["C", "Z"], max_codepoint=0x2FF), max_size=20)


@given(st.lists(st.tuples(texts, st.floats(0, 1)), min_size=1, max_size=4))
def test_every_form_holds_every_cell_whatever_is_in_it(rows: list[tuple[str, float]]) -> None:
    table = Table(
        columns=[Column("name", Kind.NAME), metric_column("mAP")], rows=[[n, bare_cell("mAP", v)] for n, v in rows]
    )
    assert [row[0] for row in read_tables(str(html(table)))[0][1:]] == [name for name, _ in rows]
    lines = [line for line in markdown([table]).splitlines() if line.startswith("| ")][2:]
    cells = [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in lines]
    assert [len(each) for each in cells] == [2] * len(rows)
    assert [re.sub(r"\\(.)", r"\1", each[0]).strip() for each in cells] == [" ".join(name.split()) for name, _ in rows]
    found = list(csv.reader(io.StringIO(tables_csv([table]))))
    assert [float(row[1]) for row in found[1:]] == [value for _, value in rows]
    assert all(row[0] in (name, f"'{name}") for row, (name, _) in zip(found[1:], rows, strict=True))
    text = latex([table])
    depth = 0
    for token in re.findall(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("-1.20", "$-1.20$"),
        ("[-5.97, +3.17]", "{[}$-5.97$, $+3.17$]"),
        ("-1,234", "$-1{,}234$"),
        ("-1e-05", r"$-1 \cdot 10^{-5}$"),
        ("k_1-2 and a-3", r"k\_1-2 and a-3"),
        ("r_1 <= k, 1 >= 0", r"r\_1 $\leq$ k, 1 $\geq$ 0"),
        ("±0.5 ≤ \N{GREEK SMALL LETTER ALPHA}", r"$\pm$0.5 $\leq$ $\alpha$"),
        ("[2pt]", "{[}2pt]"),
        ("*best", "{*}best"),
        ("--rerank gnn --- x", r"-{}-rerank gnn -{}-{}- x"),
    ],
)
def test_latex_has_numbers_with_signs_and_relations_in_math_mode(text: str, written: str) -> None:
    assert latex_text(text) == written


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    opening, closing = r"\documentclass{article}\usepackage{booktabs}\begin{document}", r"\end{document}"
    (tmp_path / "table.tex").write_text(opening + latex([TABLE]) + closing)
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "table.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]


def test_csv_of_several_tables_has_their_titles_and_all_columns() -> None:
    other = Table(title="other", columns=[Column("run", Kind.NAME), Column("EER")], rows=[["x", Cell("1%", 0.01)]])
    first, *_, last = csv.DictReader(io.StringIO(tables_csv([TABLE, other])))
    assert (first["table"], first["mAP"], first["mAP low"], first["mAP best"]) == (TABLE.title, "0.5123", "0.4", "1")
    assert (last["table"], last["mAP"], last["EER"], last["digest"]) == ("other", "", "0.01", "")


def test_csv_without_rows_has_its_header_and_unknown_numbers_are_empty() -> None:
    columns = [Column("run", Kind.NAME), Column("mAP")]
    assert tables_csv([Table(columns=columns, rows=[])]) == "run,mAP\n"
    unknown = Cell("-", math.nan, Ends("[0.4, -]", 0.4, math.nan))
    (row,) = csv.DictReader(io.StringIO(tables_csv([Table(columns=columns, rows=[["a", unknown]])])))
    assert row == {"run": "a", "mAP": "", "mAP low": "0.4", "mAP high": ""}
