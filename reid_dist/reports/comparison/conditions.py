"""What must be equal in runs for their values to mean the same, and what may differ because it is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from reid_dist.core.formatting import short_digests
from reid_dist.core.nested import differing_fields
from reid_dist.errors import InputError
from reid_dist.reports import Report
from reid_dist.reports.comparison.comparison_values import Difference, Disagreement
from reid_dist.reports.words import call, metric_words, scalar

# Entry of a protocol that says what is reported under it; values do not depend on it.
_REPORTED: Final = "reported"

# Options that define metrics.
_OPTIONS: Final = ("max_rank", "single_shot_draws")
_STAGES: Final = ("distance", "expand", "rerank")
_GROUND_TRUTH: Final = "ground_truth"
_VERSION: Final = "version of reid_dist"
_N_GALLERY: Final = "n_gallery"
_LABELS: Final = {side: f"labels of the {side} set" for side in ("query", "gallery")}


def differing_conditions(baseline: Report, candidate: Report) -> Iterator[Difference]:
    """Whatever makes values of the two runs mean different things."""
    before, after = _specs((baseline, candidate))
    for name in ("protocol", _GROUND_TRUTH):
        yield from _differing(name, before[name], after[name])
    for name in ("n_query", _N_GALLERY):
        yield from _differing(name, baseline.counts[name], candidate.counts[name])
    for side in ("query", "gallery"):
        found = [_input(report, side).get("labels_digest") for report in (baseline, candidate)]
        if None in found or found[0] != found[1]:
            yield Difference(_LABELS[side], *("not recorded" if each is None else each for each in found))


def has_other_gallery(baseline: Report, candidate: Report) -> bool:
    """Whether gallery rows of the two runs may be different items."""
    return any(found.what in (_N_GALLERY, _LABELS["gallery"]) for found in differing_conditions(baseline, candidate))


def differing_options(baseline: Report, candidate: Report) -> Iterator[Difference]:
    """Whatever is being compared, in words."""
    for name in dict.fromkeys([*baseline.inputs, *candidate.inputs]):
        before, after = _input(baseline, name), _input(candidate, name)
        if before.get("content_digest") != after.get("content_digest"):
            yield from _differing(name, _content(before), _content(after))
    for name in _STAGES:
        yield from _differing(name, getattr(baseline, name), getattr(candidate, name))
    yield from _differing(_VERSION, baseline.environment.get("reid_dist"), candidate.environment.get("reid_dist"))


def differing_conventions(reports: Sequence[Report], metrics: Sequence[str]) -> Iterator[Disagreement]:
    """Whatever makes the values of these metrics differ in meaning between runs of one benchmark.

    Features, labels, numbers of rows and ground truth are inputs, which differ between models and splits.
    """
    specs = _specs(reports)
    for name in ("protocol", *_STAGES):
        yield from _disagreements(name, [spec[name] for spec in specs])
    yield from _disagreements("order of ties", [report.ties.get("rule", "not recorded") for report in reports])
    for name in _OPTIONS:
        yield from _disagreements(name, [spec[name] for spec in specs])
    for name in metrics:
        yield from _disagreements(
            f"definition of {name}", [metric_words(name, report.definitions) for report in reports]
        )


def differing_versions(reports: Sequence[Report]) -> Iterator[Disagreement]:
    """Versions of this package, if the runs are not of one."""
    yield from _disagreements(_VERSION, [report.environment.get("reid_dist") for report in reports])


def _specs(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Entries of the spec of every run; of all runs in words where one is of a version that stored no spec."""
    if not all(report.spec for report in reports):
        return [_described(report) for report in reports]
    names = (_GROUND_TRUTH, *_STAGES, *_OPTIONS)
    return [
        {"protocol": {name: _rules(value) for name, value in spec["protocol"].items()}}
        | {name: spec.get(name) for name in names}
        for spec in (report.spec for report in reports)
    ]


def _rules(value: object) -> object:
    """Lists of a protocol, of which some hold lists, as text in which these are told apart."""
    if not isinstance(value, list):
        return value
    return "; ".join(" and ".join(map(str, each)) if isinstance(each, list) else str(each) for each in value)


def _described(report: Report) -> dict[str, Any]:
    """What a run depends on, from its descriptions in words."""
    protocol = dict(report.protocol)
    truth = protocol.pop(_GROUND_TRUTH, None)
    return {
        "protocol": protocol,
        _GROUND_TRUTH: truth["content_digest"] if isinstance(truth, Mapping) else truth,
        **{name: getattr(report, name) for name in _STAGES},
        **{name: report.options.get(name, "not recorded") for name in _OPTIONS},
    }


def _input(report: Report, name: str) -> Mapping[str, Any]:
    found = report.inputs.get(name)
    return found if isinstance(found, Mapping) else {}


def _content(description: Mapping[str, Any]) -> dict[str, Any]:
    """What was read; labels are a condition and not an option."""
    return {name: value for name, value in description.items() if name != "labels_digest"}


def _differing(what: str, before: object, after: object) -> Iterator[Difference]:
    """Differences of two values."""
    yield from (Difference(each.what, *each.values) for each in _disagreements(what, (before, after)))


def _disagreements(what: str, values: Sequence[object]) -> Iterator[Disagreement]:
    """Disagreements of plain values, one per run; of mappings, field by field and without their prose."""
    mappings = [each for each in values if isinstance(each, Mapping)]
    if len(mappings) < len(values):
        texts = tuple(call(each) if isinstance(each, Mapping) else scalar(each) for each in values)
        if len(set(texts)) > 1:
            yield Disagreement(what, texts)
        return
    for field in differing_fields(mappings, scalar):
        if not field.is_prose and field.path[-1] != _REPORTED:
            yield Disagreement(f"{what}.{field.name}", field.texts)


def unlike_queries(baseline: Report, candidate: Report) -> str:
    """Return why rows of the two runs cannot be paired; empty if they can."""
    n_query = [int(report.counts["n_query"]) for report in (baseline, candidate)]
    if n_query[0] != n_query[1]:
        return f"{n_query[0]} queries against {n_query[1]}"
    for label in ("pid", "camid"):
        before, after = baseline.per_query.get(label), candidate.per_query.get(label)
        if before is None or after is None:
            continue
        unlike = np.flatnonzero(before != after)
        if len(unlike):
            row = int(unlike[0])
            return f"{label} of {len(unlike)} queries differs, first in row {row}: {before[row]} against {after[row]}"
    return ""


def refuse_unlike(
    baseline: Report, candidate: Report, conditions: tuple[Difference, ...], *, allow_different: bool
) -> None:
    """Refuse runs over different queries, and under different conditions unless these are allowed.

    Raises
    ------
    InputError
        Naming every difference.
    """
    unlike = unlike_queries(baseline, candidate)
    named = tuple(str(Difference(each.what, *short_digests(each.baseline, each.candidate))) for each in conditions)
    if unlike:
        raise InputError(
            "the runs hold different queries and cannot be paired; evaluate both models on the same query set",
            details=(unlike, *named),
        )
    if conditions and not allow_different:
        raise InputError(
            "the runs are not comparable; evaluate again under equal conditions, or compare them all the same with "
            "--allow-different (allow_different=True)",
            details=named,
        )
