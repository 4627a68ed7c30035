"""Tables as HTML, Markdown and LaTeX."""

from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Final

from markupsafe import Markup, escape

from reid_dist.core.credentials import without_controls
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Table

DAGGER: Final = "\N{DAGGER}"

# Besides its markup, entities and the formulas of GitHub.
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>|#~&$])")
# Unquoted characters of an address.
_ADDRESS: Final = "/:?#@!$&'()*+,;=%~"
_LATEX: Final = {
    "\\": r"\textbackslash{}",
    DAGGER: r"\textdagger{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    **{each: "\\" + each for each in "#$%&_{}"},
    # In math mode.
    "<": "$<$",
    ">": "$>$",
    "\N{MINUS SIGN}": "$-$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
    "\N{GREEK SMALL LETTER LAMDA}": r"$\lambda$",
    "\N{SUPERSCRIPT TWO}": "$^2$",
}
_SEPARATED: Final = re.compile(r"[^/_-]*[/_-]+|[^/_-]+")
# A number with its sign, which stands for itself and joins no words.
_SIGNED: Final = re.compile(r"(?<![\w.,)\-])[-+\N{MINUS SIGN}](?=\.?[0-9])[0-9.,]*[0-9](?:e[-+]?[0-9]+)?")
_EXPONENT: Final = re.compile(r"e([-+]?)0*([0-9]+)$")


# ---- HTML ------------------------------------------------------------------------------------------------------------


def html(table: Table, css: str = "", *, stacked: bool = False, keyed: bool = False, label: str = "") -> Markup:
    """Return a fragment: the table, which scrolls by itself where it is too wide.

    On a narrow page the cells of a row of a `stacked` one are below each other; those of a `keyed` one have what a
    script sorts them by.  Title and notes are not in it, except that the title, or `label`, names the table to those
    who do not see it.  A text of a cell that is markup is set as it is.
    """
    columns = table.shown
    # The first column of names, or else the first one, has the heads of the rows.
    head = next((at for at, column in enumerate(columns) if column.kind is Kind.NAME), 0)
    heads = _join(
        Markup('<th scope="col"{}>{}</th>').format(_class("number" if each.kind.is_number else ""), each.full_head)
        for each in columns
    )
    body = _join(
        Markup("<tr>{}</tr>\n").format(
            _join(
                _html_cell(column, cell, is_head=at == head, stacked=stacked, keyed=keyed)
                for at, (column, cell) in enumerate(zip(columns, row, strict=True))
            )
        )
        for row in table.cells()
    )
    return Markup(
        '<div{} tabindex="0" role="group" aria-label="{}">\n<table{}>\n'
        "<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>"
    ).format(_class(f"scroll {css}"), label or table.title, _class("stacks" if stacked else ""), heads, body)


def html_notes(notes: Iterable[Note]) -> Markup:
    """Return paragraphs of notes."""
    return _join(Markup('<p class="soft">{}</p>\n').format(text) for text in note_lines(notes))


def _html_cell(column: Column, cell: Cell, *, is_head: bool, stacked: bool, keyed: bool) -> Markup:
    shown: Markup = breakable(cell.text) if column.kind is Kind.FILE else escape(cell.text)
    if cell.image is not None:
        shown = Markup('<img class="thumb" src="{}" alt="">{}').format(image_address(cell.image), shown)
    if cell.link:
        shown = Markup('<a href="{}">{}</a>').format(cell.link, shown)
    if cell.is_best:
        shown = Markup("<b>{}</b>").format(shown)
    if cell.mark:
        shown += Markup("<sup>{}</sup>").format(cell.mark)
    if cell.ends is not None:
        shown += Markup(' <span class="ends">{}</span>').format(cell.ends.text)
    kind = {Kind.PROSE: "wide", Kind.DIGEST: "hash", Kind.FILE: "file"}.get(
        column.kind, "number" if column.kind.is_number else ""
    )
    sorted_by = escape(cell.text).striptags() if cell.value is None else repr(cell.value)
    key = Markup(' data-key="{}"').format(sorted_by) if keyed else Markup("")
    if cell.shade is not None:
        kind += " shaded"
        key += Markup(' style="--shade:{}"').format(f"{cell.shade:.2f}")
    if is_head:
        return Markup('<th scope="row"{}{}>{}</th>').format(_class(kind), key, shown)
    # The result itself needs no name beside it on a narrow page.
    below = stacked and column.kind is Kind.NUMBER
    head = Markup(' data-head="{}"').format(column.full_head) if below else Markup("")
    more = (" more none" if cell.text == "-" else " more") if below else ""
    return Markup("<td{}{}{}>{}</td>").format(_class(kind + more), head, key, shown)


def breakable(text: str) -> Markup:
    """Return a text that may break after the separators of a path."""
    return Markup("<wbr>").join(_SEPARATED.findall(text))


def image_address(image: bytes) -> str:
    """Return a JPEG as an address that holds it."""
    return f"data:image/jpeg;base64,{base64.b64encode(image).decode('ascii')}"


def _class(names: str) -> Markup:
    return Markup(' class="{}"').format(names.strip()) if names.strip() else Markup("")


def _join(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


# ---- Markdown --------------------------------------------------------------------------------------------------------


def markdown(tables: Iterable[Table]) -> str:
    """Return pipe tables as GitHub and pandoc read them, a heading above and a list of notes below each.

    The best value of a column is bold, and marks are superscripts.
    """
    return "\n".join(line for table in tables for line in _markdown_lines(table))


def _markdown_lines(table: Table) -> Iterator[str]:
    if table.title:
        yield from (f"### {markdown_text(table.title)}", "")
    if table.rows:
        yield _piped(markdown_text(column.full_head) for column in table.shown)
        yield _piped("---:" if column.kind.is_number else "---" for column in table.shown)
        yield from (_piped(map(_markdown_cell, row)) for row in table.cells())
        yield ""
    if table.notes:
        yield from (f"- {markdown_text(line)}" for line in note_lines(table.notes))
        yield ""


def _markdown_cell(cell: Cell) -> str:
    shown = markdown_text(cell.text)
    shown = markdown_link(shown, cell.link) if cell.link else shown
    shown = f"**{shown}**" if cell.is_best else shown
    shown += f"<sup>{cell.mark}</sup>" if cell.mark else ""
    return shown + (f"<br>{cell.ends.text}" if cell.ends is not None else "")


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    """Return a text of which nothing is markup, in one line."""
    return _MARKDOWN.sub(r"\\\1", _one_line(text))


def markdown_link(markdown: str, address: str) -> str:
    """Return Markdown as a link to an address."""
    return f"[{markdown}](<{urllib.parse.quote(address, safe=_ADDRESS)}>)"


# ---- LaTeX -----------------------------------------------------------------------------------------------------------


def latex(tables: Iterable[Table]) -> str:
    """Return tabulars with the rules of ``booktabs``, each with its notes below.

    The best value of a column is bold, marks are superscripts, and signed numbers are in math mode.
    """
    lines = [r"% In the preamble: \usepackage{booktabs}"]
    for table in tables:
        lines += _latex_lines(table)
    return "\n".join(lines) + "\n"


def _latex_lines(table: Table) -> Iterator[str]:
    columns = table.shown
    if table.rows:
        kinds = (
            "r" if column.kind.is_number else r"p{0.35\linewidth}" if column.kind is Kind.PROSE else "l"
            for column in columns
        )
        yield rf"\begin{{tabular}}{{{''.join(kinds)}}}"
        yield r"\toprule"
        if table.title:
            yield rf"\multicolumn{{{len(columns)}}}{{l}}{{{latex_text(table.title)}}} \\"
            yield r"\midrule"
        yield _latex_row([latex_text(column.full_head) for column in columns])
        yield r"\midrule"
        yield from (_latex_row(map(_latex_cell, row)) for row in table.cells())
        yield r"\bottomrule"
        yield r"\end{tabular}"
    if table.notes:
        yield r"\par\smallskip"
        notes = r"\par ".join(map(latex_text, note_lines(table.notes)))
        yield rf"{{\footnotesize {notes}\par}}"
    yield r"\bigskip"


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    shown = "--" if cell.text == "-" else latex_text(cell.text)
    shown = rf"\textbf{{{shown}}}" if cell.is_best else shown
    mark = r"\textdagger" if cell.mark == DAGGER else latex_text(cell.mark)
    shown += rf"\textsuperscript{{{mark}}}" if mark else ""
    return shown + (rf" {{\scriptsize {latex_text(cell.ends.text)}}}" if cell.ends is not None else "")


def latex_text(text: str) -> str:
    """Return what prints a text, in one line; signed numbers and relations are in math mode."""
    line = _one_line(text)
    shown, last = "", 0
    for found in _SIGNED.finditer(line):
        shown += _escaped(line[last : found.start()]) + _in_math(found[0])
        last = found.end()
    shown += _escaped(line[last:])
    # The end of a row, and the rules of booktabs, look for an argument or a star beyond the end of their line.
    return f"{{{shown[0]}}}{shown[1:]}" if shown.startswith(("[", "*")) else shown


def _in_math(number: str) -> str:
    number = number.replace("\N{MINUS SIGN}", "-")
    exponent = _EXPONENT.search(number)
    if exponent is None:
        # A comma between thousands is no punctuation.
        return f"${number.replace(',', '{,}')}$"
    sign = "-" if exponent[1] == "-" else ""
    return rf"${number[: exponent.start()]} \cdot 10^{{{sign}{exponent[2]}}}$"


def _escaped(text: str) -> str:
    # Formulas in plain text have comparisons of two characters.
    text = text.replace("<=", "\N{LESS-THAN OR EQUAL TO}").replace(">=", "\N{GREATER-THAN OR EQUAL TO}")
    # Hyphens in a row, as those of an option, would be joined to a dash.
    return "".join(_LATEX.get(each, each) for each in text).replace("--", "-{}-").replace("--", "-{}-")


# ---- common ----------------------------------------------------------------------------------------------------------


def note_lines(notes: Iterable[Note]) -> list[str]:
    """Return each note in one line, after what it is about; continuations are joined to the note above."""
    lines: list[str] = []
    for note in notes:
        text = _one_line(str(note.text))
        if not note.name and lines:
            lines[-1] += f"; {text}"
        else:
            lines.append(text if note.name in ("", "note") else f"{note.name}: {text}")
    return lines


def _one_line(text: str) -> str:
    return " ".join(without_controls(text).split())
