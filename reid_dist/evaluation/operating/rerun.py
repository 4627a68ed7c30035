"""Sources and options of a finished run, to compute something else of the same ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from reid_dist.core.specs import call_text
from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks import with_benchmark
from reid_dist.evaluation.options import OPTIONS, EvaluationOptions
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.sides import Sides
from reid_dist.relevance.protocols import PROTOCOLS, Protocol
from reid_dist.reports import Report
from reid_dist.stores import FeatureSet, Role
from reid_dist.stores.fused import FUSED_NOTE
from reid_dist.stores.opening import recorded_place

_SIDES: Final[tuple[Role, Role]] = ("query", "gallery")
_AGAIN = "evaluate again, and give the new run"


@dataclass(frozen=True)
class RunOptionsOf:
    """Sources of the two sets of a run, their content digests, and the options of its ranking."""

    sides: Sides
    digests: dict[str, str]
    options: EvaluationOptions

    def refuse_changed(self, query: FeatureSet, gallery: FeatureSet) -> None:
        """Refuse sets with another content than those of the run."""
        for side, opened in (("query", query), ("gallery", gallery)):
            if opened.content_digest != self.digests[side]:
                raise InputError(
                    f"{side} {opened.describe()['uri']} has changed since the run: its content digest is "
                    f"{opened.content_digest[:16]}, that of the run {self.digests[side][:16]}; {_AGAIN}"
                )


def run_options_of(report: Report, job: PipelineJob | None = None) -> RunOptionsOf:
    """Sources and options of the ranking of a run.

    A report names protocols and counts lists; a composed protocol and a ground truth come from the `job` of the
    pipeline that the run was made from.

    Raises
    ------
    InputError
        If the run has no features, or its protocol or ground truth is not known.
    """
    given = sorted({"distances", "lists"} & set(report.inputs))
    if given:
        raise InputError(f"the run was made from {given[0]}, and thresholds are found from feature stores")
    values: dict[str, Any] = {name: value for name, value in report.options.items() if name in OPTIONS}
    truth = None if job is None else job.ground_truth
    if "ground_truth" in report.protocol and truth is None:
        raise InputError("the run has a ground truth; give the pipeline that names it (--pipeline)")
    values |= {
        "protocol": _protocol(report, job),
        "ground_truth": truth,
        "distance": report.distance["name"],
        "expand": None if report.expand is None else report.expand["name"],
        "rerank": None if report.rerank is None else _spec(report.rerank),
        "collapse": report.protocol.get("collapse"),
    }
    sides = {side: report.inputs[side] for side in _SIDES}
    places = [recorded_place(report.inputs[side], side) for side in _SIDES]
    if job is None and any(note.startswith(FUSED_NOTE) for note in report.notes):
        raise InputError("the run is of fused models; give the pipeline that names them (--pipeline)")
    if job is None and None in places:
        side = _SIDES[places.index(None)]
        raise InputError(
            f"the {side} of the run was in memory ({report.inputs[side]['uri']}), where nothing is left to read again; "
            "give the same arrays to reid_dist.operating_points(query, gallery), or save the sets (FeatureSet.save) "
            "and evaluate their stores"
        )
    return RunOptionsOf(
        Sides(str(places[0]), str(places[1])) if job is None else job.sides,
        {side: str(each["content_digest"]) for side, each in sides.items()},
        cast("EvaluationOptions", values),
    )


def _spec(described: Mapping[str, Any]) -> str:
    """Spec of a re-ranking, and of one within it, from its description."""
    within = described.get("of")
    inner = _spec(within) if isinstance(within, Mapping) else None
    prose = ("name", "definition", "source", *(() if inner is None else ("of",)))
    return call_text(described["name"], {key: value for key, value in described.items() if key not in prose}, inner)


def _protocol(report: Report, job: PipelineJob | None) -> str | Protocol:
    """Protocol of a run: that of its pipeline or of its benchmark, or a registered one."""
    if job is not None:
        candidates = [job.options()["protocol"]]
    elif report.benchmark is not None:
        candidates = [with_benchmark(report.benchmark["name"], {})[1]["protocol"]]
    else:
        candidates = [*PROTOCOLS]
    for candidate in candidates:
        found = candidate if isinstance(candidate, Protocol) else PROTOCOLS.get(candidate)
        described = found.describe().items()
        if all(report.protocol.get(name) == text for name, text in described if name not in _OF_COLLAPSE):
            return found
    name = report.protocol["name"]
    if job is not None:
        raise InputError(f"the pipeline has another protocol than the run, whose protocol is {name!r}")
    raise InputError(
        f"protocol {name!r} of the run is composed, and a report has its name alone; give the pipeline that the run "
        "was made from (--pipeline)"
    )


# Entries of a description that an option of the run adds.
_OF_COLLAPSE = ("collapse", "ranked")
