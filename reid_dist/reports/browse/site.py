"""The files of an explorer by name, each made when it is asked for.

==============================  ========================================================================
``index.html``                  the page, with the heading of the run and no data
``report.html``                 the page of the report, whose bars and hard queries lead to their lists
``browse.js``, ``browse.css``   its script and its style
``data/run.js``                 facts about the run: numbers, names, kinds of failures
``data/queries-00000.js``       columns of `QUERY_ROWS` queries each
``data/lists-00000.js``         lists of `LIST_ROWS` queries each, with the labels of their items
``data/against-00000.js``       likewise, of the run to compare with
``pictures/query/0001/1234.jpg``  thumbnails by row, 1,000 to a folder
==============================  ========================================================================

A file of data is one call ``rankedLists.receive(NAME, VALUE)``.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import INFO, by_severity
from reid_dist.reports.browse.subject import Subject
from reid_dist.reports.failure_kinds import KINDS
from reid_dist.reports.html import page_environment, render_html
from reid_dist.reports.recorded_sides import SIDES
from reid_dist.reports.thumbnails import NO_PILLOW, Thumbnails, pillow_is_there
from reid_dist.reports.topk_entries import TopK
from reid_dist.stores import LabelledSet

PAGE: Final = "index.html"
REPORT: Final = "report.html"

QUERY_ROWS: Final = 10_000
LIST_ROWS: Final = 64
"""Queries in one file of columns, and in one file of lists: half a megabyte and 100 kB for lists of 50 items."""

FOLDER_ROWS: Final = 1000

_DATA = re.compile(r"data/(queries|lists|against)-(\d{5,9})\.js")
_PICTURE = re.compile(r"pictures/(query|gallery)/(\d{4,9})/(\d{1,12})\.jpg")
Column = NDArray[np.int64] | None

_LETTERS: Final = {"right": "r", "wrong": "w", "junk": "j", "not assessed": "n"}

# Whole numbers that a script can hold.
_LARGEST: Final = 2**53

# Significant digits of distances, and digits of shares: more than are shown.
_DIGITS: Final = 6


class Site:
    """The files of the explorer of a run.

    Parameters
    ----------
    subject
        The run.
    depth
        Items shown of every list; None for all.
    pictures
        Whether pictures are shown where paths are known.
    """

    def __init__(self, subject: Subject, *, depth: int | None = None, pictures: bool = True) -> None:
        self.subject = subject
        self.depth = subject.topk.k if depth is None else min(depth, subject.topk.k)
        sides = {"query": subject.query, "gallery": subject.gallery}
        paths = {side: None if found is None else found.image_paths for side, found in sides.items()}
        self._columns = {
            "query": _SideColumns(subject.query, subject.column("pid"), subject.column("camid")),
            "gallery": _SideColumns(subject.gallery),
        }
        self.notes = list(subject.notes)
        if pictures and any(each is not None for each in paths.values()) and not pillow_is_there():
            self.notes.append(f"No pictures: {NO_PILLOW}.")
            pictures = False
        self.thumbnails = Thumbnails({side: each if pictures else None for side, each in paths.items()}, subject.roots)

    def names(self) -> Iterator[str]:
        """Names of all files without pictures, the page last."""
        yield from ("browse.css", "browse.js", REPORT, "data/run.js")
        kinds = [("queries", QUERY_ROWS), ("lists", LIST_ROWS)]
        if self._other is not None:
            kinds.append(("against", LIST_ROWS))
        for kind, rows in kinds:
            yield from (f"data/{kind}-{at:05d}.js" for at in range(-(-self.subject.n_query // rows)))
        yield PAGE

    def picture_rows(self, side: str) -> NDArray[np.int64]:
        """Rows of one side whose pictures are shown, ascending."""
        if not self.thumbnails.has(side):
            return np.zeros(0, np.int64)
        if side == "query":
            return np.arange(self.subject.n_query)
        lists = [topk.index[:, : self.depth] for topk in (self.subject.topk, self._other) if topk is not None]
        rows: NDArray[np.int64] = np.unique(np.concatenate([each.ravel() for each in lists]))
        return rows[rows >= 0]

    def content(self, name: str) -> bytes | None:
        """Content of a file, None if there is none of this name; a picture is None where it cannot be read."""
        if (picture := _PICTURE.fullmatch(name)) is not None:
            side, row = picture[1], int(picture[3])
            return self.thumbnails.get(side, row) if name == picture_name(side, row) else None
        if (data := _DATA.fullmatch(name)) is not None:
            return self._data(data[1], int(data[2]), name)
        makers: dict[str, Callable[[], bytes]] = {
            PAGE: self._page,
            REPORT: lambda: render_html(self.subject.report, PAGE).encode("utf-8", "replace"),
            "browse.js": lambda: _template("browse.js"),
            "browse.css": lambda: (
                page_environment().get_template("page.css").render().encode() + _template("browse.css")
            ),
            "data/run.js": lambda: _call("run", self._run()),
        }
        return makers[name]() if name in makers else None

    @property
    def _other(self) -> TopK | None:
        return None if self.subject.against is None else self.subject.against.topk

    def _data(self, kind: str, number: int, name: str) -> bytes | None:
        size = QUERY_ROWS if kind == "queries" else LIST_ROWS
        rows = slice(number * size, min((number + 1) * size, self.subject.n_query))
        if rows.start >= self.subject.n_query or name != f"data/{kind}-{number:05d}.js":
            return None
        key = f"{kind}-{number:05d}"
        if kind == "queries":
            return _call(key, self._queries(rows))
        topk = self.subject.topk if kind == "lists" else self._other
        return None if topk is None else _call(key, self._lists(topk, rows))

    def _page(self) -> bytes:
        report = self.subject.report
        found = by_severity(report.findings)
        content = {
            "heading": report.heading,
            "findings": {**found, INFO: [*self.notes, *found[INFO]]},
            "against": self.subject.against,
            "kinds": [kind for kind in KINDS if kind.name in self.subject.failures],
        }
        return page_environment().get_template("browse.html.j2").render(content).encode("utf-8", "replace")

    def _run(self) -> dict[str, Any]:
        subject, against = self.subject, self.subject.against
        average = subject.report.per_query_headline("average")
        return {
            "title": subject.report.heading.title,
            "n_query": subject.n_query,
            "k": self.depth,
            "query_rows": QUERY_ROWS,
            "list_rows": LIST_ROWS,
            "folder_rows": FOLDER_ROWS,
            "average": average.per_query_name if average.per_query_name in subject.report.per_query else None,
            "kinds": [[kind.name, kind.label] for kind in KINDS if kind.name in subject.failures],
            "reasons": self._reasons.tolist(),
            **{side: self._columns[side].described() | {"pictures": self.thumbnails.has(side)} for side in SIDES},
            "against": None if against is None else {"title": against.title, "lists": against.topk is not None},
        }

    @functools.cached_property
    def _reasons(self) -> NDArray[np.str_]:
        """The reasons for which queries are invalid, ascending; the first one is ""."""
        reasons = self.subject.column("reason")
        return np.unique(np.append(np.zeros(0, "<U1") if reasons is None else reasons, ""))

    def _queries(self, rows: slice) -> dict[str, Any]:
        """Columns of some queries; None for those that the run does not have."""
        subject, report = self.subject, self.subject.report
        found: dict[str, Any] = self._columns["query"].of(np.arange(rows.start, rows.stop))
        names = {
            "average": report.per_query_headline("average").per_query_name,
            "inverse": report.per_query_headline("last").per_query_name,
            "first_rank": "first_rank",
            "n_relevant": "n_relevant",
        }
        for key, name in names.items():
            column = subject.column(name)
            found[key] = None if column is None else _rounded(column[rows].astype(np.float64), _DIGITS)
        flags = np.zeros(rows.stop - rows.start, np.int64)
        for place, failing in enumerate(subject.failures.values()):
            flags |= failing[rows].astype(np.int64) << place
        reasons = subject.column("reason")
        found["kinds"] = flags.tolist()
        found["reason"] = None if reasons is None else np.searchsorted(self._reasons, reasons[rows]).tolist()
        found["loss"] = None if subject.against is None else _rounded(subject.against.loss[rows], _DIGITS)
        return found

    def _lists(self, topk: TopK, rows: slice) -> dict[str, Any]:
        """Lists of some queries: places in a table of their items, distances, and a letter for each mark."""
        depth = min(self.depth, topk.k)
        index, distance = topk.index[rows, :depth], _shortened(topk.distance[rows, :depth], _DIGITS)
        marks = topk.marks(rows)[:, :depth]
        items = np.unique(index[index >= 0])
        places = np.searchsorted(items, index)
        ends = (index >= 0).sum(axis=1).tolist()
        lists = [
            [
                places[at, :end].tolist(),
                distance[at, :end].tolist(),
                "".join(_LETTERS[mark] for mark in marks[at, :end].tolist()),
            ]
            for at, end in enumerate(ends)
        ]
        return {"rows": items.tolist(), **self._columns["gallery"].of(items), "lists": lists}


class _Numbers:
    """A column of labels: whole numbers, and the texts that 1, 2, … denote (None where numbers are themselves)."""

    def __init__(self, values: NDArray[np.int64], texts: tuple[str, ...] | None) -> None:
        if texts is None and len(values) and int(np.abs(values).max()) > _LARGEST:
            names, inverse = np.unique(values, return_inverse=True)
            values, texts = inverse + 1, tuple(map(str, names.tolist()))
        self.values, self.texts = values, texts

    def of(self, rows: NDArray[np.int64]) -> list[int]:
        found: list[int] = self.values[rows].tolist()
        return found


class _SideColumns:
    """Labels and paths of one side as a script reads them; without their common folder, paths are shorter.

    Without labels of the side itself, they are those of the report, if it has them.
    """

    def __init__(self, side: LabelledSet | None, pids: Column = None, camids: Column = None) -> None:
        self.paths = None if side is None else side.image_paths
        names: list[tuple[str, ...] | None] = [None, None]
        if side is not None:
            pids, camids, names = side.pids, side.camids, [side.pid_names, side.camid_names]
        self.pids = None if pids is None else _Numbers(pids, names[0])
        self.camids = None if camids is None else _Numbers(camids, names[1])
        self.folder = ""
        if self.paths is not None and len(self.paths):
            # The first and the last in order share no more than all do.
            texts = self.paths.tolist()
            ends = zip(min(texts), max(texts), strict=False)
            common = "".join(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
            self.folder = common[: common.rfind("/") + 1]

    def described(self) -> dict[str, Any]:
        return {
            "pid_names": None if self.pids is None else self.pids.texts,
            "camid_names": None if self.camids is None else self.camids.texts,
            "folder": self.folder,
        }

    def of(self, rows: NDArray[np.int64]) -> dict[str, list[Any] | None]:
        cut = len(self.folder)
        return {
            "pids": None if self.pids is None else self.pids.of(rows),
            "camids": None if self.camids is None else self.camids.of(rows),
            "paths": None if self.paths is None else [path[cut:] for path in self.paths[rows].tolist()],
        }


def picture_name(side: str, row: int) -> str:
    """Name of the file of a thumbnail."""
    return f"pictures/{side}/{row // FOLDER_ROWS:04d}/{row}.jpg"


def _call(name: str, value: object) -> bytes:
    # ASCII: no line separator that ends a statement, and no doubt about the encoding.
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return f"rankedLists.receive({json.dumps(name)},{text});\n".encode("ascii")


def _shortened(values: NDArray[np.floating[Any]], digits: int) -> NDArray[np.object_]:
    """Values as numbers of JSON with so many significant digits; below 1e-294 they are 0, and None if not finite."""
    finite = np.isfinite(values)
    exact = np.where(finite, values, 0).astype(np.float64)
    size = np.abs(exact)
    # Quotients of whole numbers and powers of ten are the floats whose shortest decimals have these digits alone.
    power = digits - 1 - np.floor(np.log10(size, where=size > 0, out=np.zeros_like(size)))
    more, fewer = 10 ** np.clip(power, 0, 300), 10 ** np.clip(-power, 0, 300)
    shown: NDArray[np.object_] = (np.round(exact * more / fewer) / more * fewer).astype(object)
    shown[~finite] = None
    return shown


def _rounded(values: NDArray[np.float64], digits: int) -> list[float | None]:
    """Values as numbers of JSON, whole ones without a point; None where they are not finite."""
    rounded = np.round(values, digits).tolist()
    return [None if not math.isfinite(each) else int(each) if each == int(each) else each for each in rounded]


@functools.cache
def _template(name: str) -> bytes:
    return (importlib.resources.files("reid_dist.reports") / "templates" / name).read_bytes()
