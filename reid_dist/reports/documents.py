"""Saved documents: reports as JSON that carries the digest of its own content, and the files beside it.

The document digest is the SHA-256 of the document as compact JSON, in its order, without ``timing`` and the digest
itself: a changed option, input, interval or count is found when the document is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np

from reid_dist.core.findings import CAUTION, Finding, gravest_first
from reid_dist.core.formatting import short_digests
from reid_dist.core.json_text import parse_json
from reid_dist.core.optional_packages import import_extra
from reid_dist.errors import (
    DamagedStoreError,
    FaultsError,
    IncompleteStoreError,
    InputError,
    StoreError,
    StoreNotFoundError,
)
from reid_dist.metrics.confidence import Interval
from reid_dist.reports.heading import Heading
from reid_dist.reports.report_files import Writer, read_bytes, refuse_occupied, refuse_uri, write_together

if TYPE_CHECKING:
    from reid_dist.reports.tabular.table import Table

DIGEST: Final = "document_digest"
"""Entry that holds the digest of the document."""

_TIMING: Final = "timing"


_SUMMARISED: Final = frozenset(
    (
        "benchmark",
        "expansion",
        "re-ranking",
        "expansion and re-ranking",
        "best",
        "splits",
        "queries",
        "gallery",
        "digest",
    )
)


class Summarised(ABC):
    """Base class of results that interpreters and notebooks show as a table."""

    __slots__ = ()

    @abstractmethod
    def summary(self) -> Table:
        """Return the table that represents the result in an interpreter or a notebook."""

    def __repr__(self) -> str:
        from reid_dist.reports.tabular.terminal import plain_text

        return plain_text(self.summary()).rstrip()

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        from reid_dist.reports.tabular.markup import html, html_notes

        table = self.summary()
        return f"<div><strong>{escape(table.title)}</strong>\n{html(table)}\n{html_notes(table.notes)}</div>"


class Result(Summarised):
    """Base class of results: one JSON document with tables."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain Python values; numbers that are not finite become None."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return the tables for readers, with their notes."""

    def records(self) -> Sequence[Table]:
        """Return the tables for programs, as CSV writes them one below the other; by default the first table."""
        return self.tables()[:1]

    def to_json(self) -> str:
        """Return :meth:`to_dict` as indented ASCII JSON; every float reads back to the same bits."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_text(self, *, notes: str = "full") -> str:
        """Return the tables as plain text of 80 columns; `notes` is ``none``, ``short`` or ``full``, here and below."""
        from reid_dist.reports.tabular.terminal import plain_text

        return plain_text(*self._noted(notes))

    def to_markdown(self, *, notes: str = "full") -> str:
        """Return Markdown pipe tables; the best values are bold, and marks are superscripts."""
        from reid_dist.reports.tabular.markup import markdown

        return markdown(self._noted(notes))

    def to_latex(self, *, notes: str = "full") -> str:
        """Return one ``tabular`` per table with its notes below; load ``booktabs`` in your document."""
        from reid_dist.reports.tabular.markup import latex

        return latex(self._noted(notes))

    def to_csv(self) -> str:
        """Return CSV with a header and one line per row; floats read back to the same bits, shares are from 0 to 1."""
        from reid_dist.reports.tabular.csv_text import tables_csv

        return tables_csv(self.records())

    def to_html(self) -> str:
        """Return a self-contained HTML page without scripts; the same result gives the same bytes."""
        from reid_dist.reports.pages import render_tables

        return render_tables(self.tables())

    def written(self, form: str, *, notes: str = "full") -> str:
        """Return the result in a form of `reid_dist.core.formatting.TABLE_FORMS`."""
        by_form = {"text": self.to_text, "markdown": self.to_markdown, "latex": self.to_latex}
        if form in by_form:
            return by_form[form](notes=notes)
        return {"csv": self.to_csv, "html": self.to_html}.get(form, self.to_json)()

    def show(self, notes: str = "full", file: IO[str] | None = None) -> None:
        """Print the tables to standard output or a file; outside a terminal, as text of 80 columns."""
        from reid_dist.reports.tabular.terminal import print_parts

        print_parts(*self._noted(notes), file=file)

    def _noted(self, notes: str) -> list[Table]:
        return [table.with_notes(notes) for table in self.tables()]

    def summary(self) -> Table:
        """Return the table that represents the result in an interpreter or a notebook."""
        from reid_dist.reports.tabular.table import SEVERITY_WORDS, Kind

        table = self.tables()[0]
        named = _SUMMARISED.union(SEVERITY_WORDS)
        kept = [at for at, column in enumerate(table.columns) if column.kind is not Kind.PROSE]
        return replace(
            table,
            title=f"{type(self).__name__}: {table.title}",
            columns=[table.columns[at] for at in kept],
            rows=[[row[at] for at in kept] for row in table.rows],
            notes=[note for each in self.tables() for note in each.notes if note.name in named],
        ).brief()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DocumentReport(Result):
    """Base class of reports: one JSON document, one page, and other files next to them.

    A subclass is a frozen data class.  Its fields are the entries of the document, in their order.
    """

    schema: ClassVar[int] = 1
    """Version of the document; no other one is read."""
    document: ClassVar[str]
    """Name of the file of the document."""
    page: ClassVar[str]
    """Name of the file of the page."""
    _beside: ClassVar[tuple[str, ...]] = ()
    """Names of all other files that a report may have."""
    _what: ClassVar[str]
    """Kind of report, for messages."""
    another: ClassVar[str] = "the report of another job"
    """What one of another spec is called in an error."""
    _remedy: ClassVar[str] = "evaluate again"
    """What to do about a damaged document."""

    @property
    @abstractmethod
    def result_digest(self) -> str:
        """SHA-256 over the values, 64 hexadecimal digits."""

    @property
    @abstractmethod
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""

    if TYPE_CHECKING:

        @property
        def notes(self) -> list[Finding]:
            """Findings of the run."""

    @property
    @abstractmethod
    def weak_evidence(self) -> list[Finding]:
        """Findings about weak evidence: few valid queries, few identities."""

    @property
    def findings(self) -> list[Finding]:
        """Notes and weak evidence without repeats, most severe first."""
        # A note on intervals that are too narrow says how few identities there are, and more.
        is_said = any(each.code == "narrow_intervals" and not each.values["rates"] for each in self.notes)
        said = ("few_identities", CAUTION) if is_said else ()
        weak = (each for each in self.weak_evidence if (each.code, each.severity) != said)
        return gravest_first([*weak, *self.notes])

    @abstractmethod
    def to_html(self) -> str:
        """Return one offline page without scripts; the same report gives the same bytes."""

    def show(self, notes: str = "full", file: IO[str] | None = None) -> None:
        """Print name, warnings and tables, on standard output when `file` is None."""
        from reid_dist.reports.tabular.terminal import print_headed

        print_headed(self.heading, self.tables(), notes, file)

    @classmethod
    def prepare_save(cls) -> None:
        """Import what `save` needs, where that takes long."""

    def _entries(self) -> dict[str, Any]:
        """Entries of the document without schema and digests, in their order."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def _writers(self) -> dict[str, Writer]:
        """Functions that write the files beside the document and the page, by name."""
        return {}

    @classmethod
    def _restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name, from a document, in which None is not finite, and the files beside it."""
        return entries

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the document, made of plain Python values.

        Numbers that are not finite are None, as JSON has no others.
        """
        entries = {"schema": self.schema, **self._entries(), "result_digest": self.result_digest}
        return with_digest({name: plain(value) for name, value in entries.items()})

    def save(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the document, the page and the files that belong to them; return the directory.

        The document is written last and atomically: a directory that contains it holds a finished report.

        Parameters
        ----------
        directory
            A local directory, missing or empty.
        overwrite
            Also write into a directory that is not empty; files with other names are kept.

        Raises
        ------
        InputError
            If the directory is a URI.
        StoreExistsError
            If the directory is not empty and ``overwrite`` is false.
        StoreError
            If it cannot be written.
        """
        path = refuse_uri(directory) if overwrite else refuse_occupied(directory)
        # "replace": a path that is not UTF-8 may occur in the page; it is shown there, never read back.
        texts = {self.page: self.to_html().encode("utf-8", "replace"), self.document: self.to_json().encode("ascii")}
        writers = self._writers()
        writers |= {name: partial(_write, text) for name, text in texts.items()}
        write_together(path, writers, known=self._beside)
        return path

    def files_in(self, directory: Path) -> list[str]:
        """Return the names of the files of the report in a directory, the page first."""
        return [name for name in (self.page, self.document, *self._beside) if (directory / name).is_file()]

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote, and verify it.

        Raises
        ------
        StoreNotFoundError
            If there is no report.
        IncompleteStoreError
            If its writer never finished.
        DamagedStoreError
            If a file cannot be decoded, or anything except the timing was changed.
        StoreError
            If it cannot be read, has another schema, or was written by an earlier version.
        """
        path = refuse_uri(directory)
        where = f"{cls._what} in {os.fspath(directory)}"
        text = read_bytes(path, cls.document)
        if text is None:
            if any((path / name).exists() for name in (cls.page, *cls._beside)):
                raise IncompleteStoreError(
                    f"{path} has no {cls.document}: the report was never finished; evaluate again"
                )
            raise StoreNotFoundError(f"no report in {path}: it has no {cls.document}; name the --output of a run")

        def read(name: str) -> bytes:
            content = read_bytes(path, name)
            if content is None:
                raise DamagedStoreError(f"{path} has a {cls.document} and no {name}; evaluate again")
            return content

        return cls.of_document(text, read, where)

    @classmethod
    def of_document(cls, text: bytes, read: Callable[[str], bytes], where: str) -> Self:
        """Return the report of a document, verified; `read` returns a file beside it, errors call it `where`.

        Errors are those of `load`.
        """
        try:
            document = parse_json(text)
        except InputError as error:
            raise DamagedStoreError(f"{where} cannot be decoded: {error}; {cls._remedy}") from error
        if not isinstance(document, dict):
            raise DamagedStoreError(f"{where} holds a {type(document).__name__}, not a report")
        _verify(document, cls.schema, where, cls._remedy)
        try:
            # A report of an earlier version has no benchmark and no spec; every other entry is always there.
            restored = {"benchmark": None, "spec": {}, **cls._restored(dict(document), read, where)}
            restored["notes"] = [*map(Finding.restored, restored["notes"])]
            report = cls(**{each.name: restored[each.name] for each in fields(cls)})
            require_digest("result", report.result_digest, document["result_digest"])
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
            details = error.faults if isinstance(error, InputError) else (repr(error),)
            raise _changed(where, cls._remedy, *details) from error
        return report


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content of plain values with its digest as the last entry."""
    document = {name: value for name, value in content.items() if name != DIGEST}
    return {**document, DIGEST: _digest_of(document)}


def require_digest(what: str, found: str, recorded: object) -> None:
    """Refuse content of another digest with an `InputError`, which `DocumentReport.load` completes."""
    if found != recorded:
        raise FaultsError(f"{what} digest", details=_digest_lines(what, found, recorded))


def _digest_lines(what: str, found: str, recorded: object) -> tuple[str, str]:
    found, written = short_digests(found, f"{recorded!s:.64}")
    return f"{what} digest: {found}", f"recorded in the file: {written}"


def _changed(where: str, remedy: str, *details: str) -> DamagedStoreError:
    return DamagedStoreError(f"{where} was changed after it was written; {remedy}", details=details)


def restored_number(value: float | None) -> float:
    """Return a number of a document, in which None was not finite, as NaN."""
    return math.nan if value is None else float(value)


def plain(value: object) -> Any:
    """Return a value made of None, bool, int, float, str, list and dict.

    What is not a finite number becomes None, and an interval the list of its ends.
    """
    match value:
        case None | bool() | str():
            return value
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Finding():
            return value.to_dict()
        case Interval():
            return plain([value.low, value.high])
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
        case _:
            return str(value)


def plain_fields(value: object) -> Any:
    """Return a data class, and those in it, as mappings of plain values."""
    match value:
        case Finding() | Interval():
            return plain(value)
        case tuple():
            return [*map(plain_fields, value)]
        case _ if is_dataclass(value):
            return {each.name: plain_fields(getattr(value, each.name)) for each in fields(value)}
        case _:
            return plain(value)


def _verify(document: Mapping[str, Any], schema: int, where: str, remedy: str) -> None:
    """Refuse a document of another schema or with another digest."""
    if document.get("schema") != schema:
        raise StoreError(f"{where} has schema {document.get('schema')!r}, this version reads {schema}; {remedy}")
    if DIGEST not in document:
        raise StoreError(f"{where} has no {DIGEST}: it was written by an earlier version, or is damaged; {remedy}")
    actual = _digest_of(document)
    if document[DIGEST] != actual:
        raise _changed(where, remedy, *_digest_lines("document", actual, document[DIGEST]))
    timing = document.get(_TIMING)
    if not isinstance(timing, dict) or not all(map(_is_seconds, timing.values())):
        raise _changed(where, remedy, "its timing holds no seconds by stage")


def _digest_of(document: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name not in (_TIMING, DIGEST)}
    return hashlib.sha256(json.dumps(rest, separators=(",", ":")).encode("ascii")).hexdigest()


def _is_seconds(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def make_frame(columns: Mapping[str, Any], *, index: str | None = None, names: Sequence[Any] | None = None) -> Any:
    """Return a `pandas.DataFrame` of arrays or lists by name; `index` is the name of the index, `names` its values."""
    advice = "; per_query and metrics hold the same values as arrays and numbers"
    pandas = import_extra("pandas", "pandas", "to_pandas", advice=advice)
    frame = pandas.DataFrame(dict(columns), index=names)
    return frame.rename_axis(index)
