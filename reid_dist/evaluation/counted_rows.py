"""Evaluations whose stages see the rows that a protocol counts, and reports in which all rows have their place.

A protocol that counts some cameras alone, as those of clothes-changing benchmarks do, leaves the rows of the others out
of every ranking; the published codes never load them.  So they take no part in expansion, normalisation and
re-ranking either: the sets without them are evaluated, and the report gets its entries of the other rows back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info
from reid_dist.engine.jobs import joined_label_sets
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.relevance.protocols import CAMERA_NOT_COUNTED
from reid_dist.reports import Report, TopK
from reid_dist.reports.item_names import ItemNames
from reid_dist.stores import FeatureSet
from reid_dist.stores.featureset import with_cameras

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class CountedRows:
    """The sides of an evaluation, those without the rows that are left out, and the rows of the latter, ascending."""

    whole: tuple[FeatureSet, FeatureSet]
    sides: tuple[FeatureSet, FeatureSet]
    rows: tuple[Int64, Int64]

    @classmethod
    def of(cls, checked: CheckedOptions, query: FeatureSet, gallery: FeatureSet) -> CountedRows | None:
        """Rows that the stages of an evaluation see; None if these are all rows, or a side has none that counts."""
        protocol = checked.protocol
        cameras = protocol.query_cameras, protocol.gallery_cameras
        if cameras == (None, None):
            return None
        sides, rows = [], []
        both = joined_label_sets(query, gallery, checked.joined, protocol, checked.rows_are_items)
        for features, labels, counted_cameras in zip((query, gallery), both, cameras, strict=True):
            own = np.arange(features.n_rows)
            if counted_cameras is not None and labels.camids is not None and features.camids is not None:
                own = np.flatnonzero(np.isin(labels.camids, counted_cameras))
                if len(own) < features.n_rows:
                    features = with_cameras(features, tuple(np.unique(features.camids[own]).tolist()))
            sides.append(features)
            rows.append(own)
        whole = query, gallery
        if all(one is other for one, other in zip(sides, whole, strict=True)) or not all(map(len, rows)):
            return None
        return cls(whole, (sides[0], sides[1]), (rows[0], rows[1]))

    @property
    def note(self) -> Finding:
        """Finding of the report."""
        n_query, n_gallery = (each.n_rows - len(own) for each, own in zip(self.whole, self.rows, strict=True))
        return info("rows_not_counted", n_query=n_query, n_gallery=n_gallery)

    @property
    def inputs(self) -> dict[str, Any]:
        """Entry of a report."""
        query, gallery = self.whole
        return {"query": query.describe(), "gallery": gallery.describe()}

    def counts(self, counts: dict[str, Any]) -> dict[str, Any]:
        """Counts of the whole sides, from those of the rows that count."""
        n_query, n_gallery = (each.n_rows - len(own) for each, own in zip(self.whole, self.rows, strict=True))
        reasons = {**counts["n_invalid_by_reason"], **({CAMERA_NOT_COUNTED: n_query} if n_query else {})}
        more = {"n_query": n_query, "n_gallery": n_gallery, "n_junk_rows": n_gallery}
        return {**counts, **{name: counts[name] + n for name, n in more.items()}, "n_invalid_by_reason": reasons}

    def restored(self, report: Report) -> Report:
        """Report of the whole sides, from that of the rows that count."""
        query, near = self.whole[0], self.rows[0]
        own = {"pid": query.pids, "camid": query.camids, "reason": np.full(query.n_rows, CAMERA_NOT_COUNTED)}
        per_query = {
            name: _widened(values, near, query.n_rows, own.get(name)) for name, values in report.per_query.items()
        }
        topk = None if report.topk is None else self._lists(report.topk)
        return replace(
            report,
            per_query=per_query,
            topk=topk,
            names=ItemNames.of(*self.whole, None if topk is None else topk.index),
            counts=self.counts(report.counts),
            inputs=self.inputs,
            data_problems=None if report.data_problems is None else self._problems(report.data_problems),
            hardest=[self._pair(each) for each in report.hardest],
            notes=[*report.notes, self.note],
        )

    def _lists(self, topk: TopK) -> TopK:
        """Lists with gallery rows by their numbers in the whole set; those of queries that do not count are empty."""
        near, far = self.rows
        n_query = self.whole[0].n_rows

        def widened(values: NDArray[Any], fill: Any) -> NDArray[Any]:
            return _placed(values, near, np.full((n_query, values.shape[1]), fill, values.dtype))

        return TopK(
            index=widened(np.where(topk.index >= 0, far[topk.index], -1), -1),
            distance=widened(topk.distance, np.inf),
            junk=None if topk.junk is None else widened(topk.junk, False),
            relevant=None if topk.relevant is None else widened(topk.relevant, False),
        )

    def _problems(self, problems: dict[str, Any]) -> dict[str, Any]:
        """Likely errors of the data, with rows by their numbers in the whole sets."""
        pairs = {kind: [self._pair(each) for each in problems[kind]] for kind in ("suspects", "duplicates")}
        identities = [{**each, "queries": self.rows[0][each["queries"]].tolist()} for each in problems["identities"]]
        return {**problems, **pairs, "identities": identities}

    def _pair(self, pair: dict[str, Any]) -> dict[str, Any]:
        """A query and a gallery item, with rows by their numbers in the whole sets."""
        near, far = self.rows
        return {**pair, "query": int(near[pair["query"]]), "gallery": int(far[pair["gallery"]])}


def _placed(values: NDArray[Any], rows: Int64, target: NDArray[Any]) -> NDArray[Any]:
    target[rows] = values
    return target


def _widened(values: NDArray[Any], rows: Int64, n_rows: int, own: NDArray[Any] | None) -> NDArray[Any]:
    """Values per query for all queries: NaN, 0 or what `own` holds of those that do not count."""
    if own is not None:
        return _placed(values, rows, own.astype(np.result_type(own, values)))
    fill = np.nan if values.dtype.kind == "f" else 0
    return _placed(values, rows, np.full((n_rows, *values.shape[1:]), fill, values.dtype))
