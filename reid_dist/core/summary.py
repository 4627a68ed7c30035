"""The table that represents a result in a console or a notebook, and data frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from reid_dist.core.credentials import without_controls
from reid_dist.core.findings import Finding, lines_of
from reid_dist.core.formatting import aligned, shortened
from reid_dist.core.optional_packages import import_extra

_MOST_ROWS = 12
_MOST_NOTES = 5
_NOTE_LENGTH = 200


@dataclass(frozen=True)
class Summary:
    """A title with a small table, facts and notes below it; of many rows the first and the last are shown.

    Without `heads` there is no table; `remarks` are sentences before the notes.
    """

    title: str
    heads: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[Finding] = ()
    remarks: Sequence[str] = ()

    def to_text(self) -> str:
        """Return plain text: one line if there is nothing but the title."""
        table = aligned([self.heads, *self._shown()], n_left=1, gap="  ") if self.heads else []
        facts = [f"{name}: {words}" for name, words in self._lines()]
        return without_controls("\n".join([self.title, *(f"  {line}" for line in (*table, *facts))]))

    def to_html(self) -> str:
        """Return an HTML fragment."""
        heads = "".join(f"<th>{escape(head)}</th>" for head in self.heads)
        body = "".join(
            f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
            for row in self._shown()
        )
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>" if self.heads else ""
        facts = "".join(f"<div>{escape(name)}: {escape(words)}</div>" for name, words in self._lines())
        return f"<div><strong>{escape(self.title)}</strong>{table}{facts}</div>"

    def _shown(self) -> list[tuple[str, ...]]:
        if len(self.rows) <= _MOST_ROWS:
            return list(self.rows)
        half = _MOST_ROWS // 2
        left_out = (f"… {len(self.rows) - 2 * half} more", *("" for _ in self.heads[1:]))
        return [*self.rows[:half], left_out, *self.rows[-half:]]

    def _lines(self) -> list[tuple[str, str]]:
        notes = [*(("note", text) for text in self.remarks), *lines_of(self.notes)]
        lines = [*self.facts.items(), *((word, shortened(text, _NOTE_LENGTH)) for word, text in notes[:_MOST_NOTES])]
        if len(notes) > _MOST_NOTES:
            lines.append(("notes", f"{len(notes) - _MOST_NOTES} more"))
        return lines


class Summarised(ABC):
    """Base of all results: a console and a notebook show their summary in place of all values."""

    __slots__ = ()

    @abstractmethod
    def summary(self) -> Summary:
        """Return the title and the table that represent the result in a console or a notebook."""

    def __repr__(self) -> str:
        return self.summary().to_text()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.summary().to_html()


def make_frame(columns: Mapping[str, Any], *, index: str | None = None, names: Sequence[Any] | None = None) -> Any:
    """Return a `pandas.DataFrame` of arrays or lists by name; `index` is the name of the index, `names` its values."""
    advice = "; per_query and metrics hold the same values as arrays and numbers"
    pandas = import_extra("pandas", "pandas", "to_pandas", advice=advice)
    frame = pandas.DataFrame(dict(columns), index=names)
    return frame.rename_axis(index)
