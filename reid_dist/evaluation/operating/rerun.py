"""The ranking of a finished run, to compute something else of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.errors import InputError
from reid_dist.evaluation.options import EvaluationOptions
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.result_spec import options_of
from reid_dist.evaluation.sides import Sides
from reid_dist.reports import Report
from reid_dist.stores import FeatureSet, Role
from reid_dist.stores.fused import FUSED_NOTE
from reid_dist.stores.opening import recorded_place

_SIDES: Final[tuple[Role, Role]] = ("query", "gallery")
_AGAIN = "evaluate again, and give the new run"


@dataclass(frozen=True)
class RecordedRanking:
    """Spec of a run, the sources of its two sets, and the options of its ranking."""

    spec: Mapping[str, Any]
    sides: Sides
    options: EvaluationOptions

    @classmethod
    def of(cls, report: Report, job: PipelineJob | None = None) -> RecordedRanking:
        """Read the spec of a report; a ground truth and fused models come from the `job` of its pipeline.

        Raises
        ------
        InputError
            If the run has no features, or its sources or ground truth are not known.
        """
        spec = report.spec
        if not spec:
            raise InputError(f"the run is of an earlier version, which did not store its options; {_AGAIN}")
        given = [name for name in ("distances", "lists") if spec.get(name)]
        if given:
            raise InputError(f"the run was made from {given[0]}, and thresholds are found from feature stores")
        options = options_of(spec)
        if spec["ground_truth"] is not None:
            if job is None or job.ground_truth is None:
                raise InputError("the run has a ground truth; give the pipeline that names it (--pipeline)")
            options["ground_truth"] = job.ground_truth
        places = [recorded_place(report.inputs[side], side) for side in _SIDES]
        if job is None and any(note.startswith(FUSED_NOTE) for note in report.notes):
            raise InputError("the run is of fused models; give the pipeline that names them (--pipeline)")
        if job is None and None in places:
            side = _SIDES[places.index(None)]
            raise InputError(
                f"the {side} of the run was in memory ({report.inputs[side]['uri']}), where nothing is left to read "
                "again; give the same arrays to reid_dist.operating_points(query, gallery), or save the sets "
                "(FeatureSet.save) and evaluate their stores"
            )
        return cls(spec, Sides(str(places[0]), str(places[1])) if job is None else job.sides, options)

    def refuse_changed(self, query: FeatureSet, gallery: FeatureSet) -> None:
        """Refuse sets with another content than those of the run."""
        for side, opened in (("query", query), ("gallery", gallery)):
            if opened.content_digest != self.spec[side]:
                raise InputError(
                    f"{side} {opened.describe()['uri']} has changed since the run: its content digest is "
                    f"{opened.content_digest[:16]}, that of the run {self.spec[side][:16]}; {_AGAIN}"
                )
