"""Reports: the numbers of an evaluation with their conventions, as JSON, arrays, a table and a page.

>>> from reid_dist.reports import Report
>>> report = Report.load("results/market1501")  # doctest: +SKIP
>>> report.metrics["mAP"]  # doctest: +SKIP
0.8321
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.reports.console import print_report
    from reid_dist.reports.digest import result_digest
    from reid_dist.reports.heading import described_run
    from reid_dist.reports.html import render_html
    from reid_dist.reports.pictures import ImageSet, make_pictures
    from reid_dist.reports.ranked_pictures import Pictures
    from reid_dist.reports.report import Report
    from reid_dist.reports.topk_entries import TopK

__all__ = [
    "ImageSet",
    "Pictures",
    "Report",
    "TopK",
    "described_run",
    "make_pictures",
    "print_report",
    "render_html",
    "result_digest",
]

_NAMES = {
    "console": ("print_report",),
    "digest": ("result_digest",),
    "heading": ("described_run",),
    "html": ("render_html",),
    "pictures": ("ImageSet", "make_pictures"),
    "ranked_pictures": ("Pictures",),
    "report": ("Report",),
    "topk_entries": ("TopK",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
