"""A report as bytes, for a database: its document and its per-query arrays.

The arrays are apart from the document, as they depend on the result alone: reports of one ``result_digest``
can share them.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from io import BytesIO

from reid_dist.errors import DamagedStoreError
from reid_dist.reports.documents import with_digest
from reid_dist.reports.files import PER_QUERY
from reid_dist.reports.report import Report
from reid_dist.stores.archive import write_arrays


@dataclass(frozen=True, slots=True)
class PackedReport:
    """A report without its nearest items and pictures: ``report.json`` compressed, and ``per_query.npz``."""

    document: bytes
    per_query: bytes


def pack(report: Report) -> PackedReport:
    """Return a report as bytes; ``topk`` and ``pictures`` are left out."""
    document = with_digest(report.to_dict() | {"topk": None, "pictures": None})
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    write_arrays(arrays := BytesIO(), report.per_query, compressed=True)
    return PackedReport(zlib.compress(text.encode("ascii"), 9), arrays.getvalue())


def unpack(packed: PackedReport, where: str) -> Report:
    """Return the report that was packed, verified; errors call it `where`."""
    try:
        text = zlib.decompress(packed.document)
    except zlib.error as error:
        raise DamagedStoreError(f"{where} cannot be decoded: {error}") from error
    return Report.of_document(text, {PER_QUERY: packed.per_query}.__getitem__, where)
