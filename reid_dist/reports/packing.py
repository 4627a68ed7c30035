"""A report as bytes, for a database: its document and its per-query arrays.

The arrays are apart from the document, as they depend on the result alone: reports of one ``result_digest``
can share them.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from reid_dist.errors import DamagedStoreError
from reid_dist.reports.files import ReportFiles, pack_arrays, unpack_arrays
from reid_dist.reports.report import SAVED, Report


@dataclass(frozen=True, slots=True)
class PackedReport:
    """A report without its nearest items and pictures.

    Attributes
    ----------
    document
        The content of ``report.json``, compressed.
    per_query
        The content of ``per_query.npz``.
    """

    document: bytes
    per_query: bytes


def pack(report: Report) -> PackedReport:
    """Return a report as bytes; ``topk`` and ``pictures`` are left out."""
    document = SAVED.with_digest(report.to_dict() | {"topk": None, "pictures": None})
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return PackedReport(zlib.compress(text.encode("ascii"), 9), pack_arrays(report.per_query))


def unpack(packed: PackedReport, where: str) -> Report:
    """Return the report that was packed, verified.

    Parameters
    ----------
    packed
        Its bytes.
    where
        What an error calls it.

    Raises
    ------
    DamagedStoreError
        If they cannot be decoded, or the numbers are not those that were packed.
    StoreError
        If it is of another schema.
    """
    try:
        document = json.loads(zlib.decompress(packed.document))
    except (ValueError, zlib.error) as error:
        raise DamagedStoreError(f"{where} cannot be decoded: {error}") from error
    if not isinstance(document, dict):
        raise DamagedStoreError(f"{where} holds a {type(document).__name__}, not a report")
    per_query = unpack_arrays(packed.per_query, where)
    return Report.from_files(ReportFiles(document=document, per_query=per_query, topk=None, pictures=None), where)
