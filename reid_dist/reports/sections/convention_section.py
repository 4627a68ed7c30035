"""The conventions in words, needed to compare the numbers with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reid_dist.core import formatting
from reid_dist.core.formatting import counted
from reid_dist.metrics.metric import curve_family, metric_family
from reid_dist.reports import words
from reid_dist.reports.report_data import ReportData

_LABELS = {
    "cmc_family": "CMC family",
    "ap_family": "AP family",
    "uri": "URI",
    "cpu": "CPU",
    "ground_truth.n_query": "ground truth: queries",
    "ground_truth.n_gallery": "ground truth: gallery rows",
}

# Entries that `in_words` has.
_IN_WORDS = {"name", "summary", "definition", "relevant", "junk", "ranked", "invalid_query", "query_cameras", "rule"}

# What the rules of `protocols` come to; another text is unchanged.
_INVALID = {
    "left out": "Left out of every mean, counted and listed",
    "counts as 0": "Count as 0 in every mean, which is divided by the number of all queries; their rows stay undefined",
}


def in_words(report: ReportData) -> list[tuple[str, str]]:
    """Return what every number of the report rests on, as pairs of a subject and its sentences."""
    return [(subject, text) for subject, text in _subjects(report) if text]


def parameters(report: ReportData) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return every stage with those of its parameters that `in_words` does not have, as tables."""
    ties = {name: value for name, value in report.ties.items() if name not in ("optimistic", "pessimistic")}
    described = {
        **({} if report.benchmark is None else {"Benchmark": report.benchmark}),
        "Protocol": report.protocol,
        "Distance": report.distance,
        "Query expansion": report.expand,
        "Re-ranking": report.rerank,
        "Ties": ties,
        **({"Options": report.options} if report.options else {}),
    }
    return [
        (title, described_rows({name: given for name, given in value.items() if name not in _IN_WORDS}))
        for title, value in described.items()
        if value is not None
    ]


def described_rows(values: Mapping[str, Any] | object) -> list[tuple[str, str]]:
    """Return a description as rows of a name and a text; one that has no names is one row."""
    if not isinstance(values, Mapping):
        return [("given", words.scalar(values))]
    return [(_LABELS.get(name) or words.entry_label(name), text) for name, text in words.flatten(values)]


def _subjects(report: ReportData) -> Iterator[tuple[str, str]]:
    protocol = report.protocol
    if report.benchmark is not None:
        yield "Benchmark", f"{words.published(report.benchmark)}."
    yield "Protocol", words.named(protocol, "summary")
    yield "Ground truth", _ground_truth(report)
    yield "Relevant items", _sentence(_text(protocol, "relevant"))
    if junk := _text(protocol, "junk"):
        yield "Junk", f"{_sentence(junk)} Junk items are ignored and take no rank."
    if ranked := _text(protocol, "ranked"):
        yield "Ranked", _sentence(ranked)
    yield "Queries without a relevant item", _invalid(report)
    if cameras := _text(protocol, "query_cameras"):
        yield "Query cameras", f"Only queries of the cameras {cameras} count."
    yield "CMC", _cmc(report)
    yield "Average precision", _average_precision(protocol)
    yield "Distance", words.named(report.distance, "definition")
    yield "Ties", _ties(report)
    for subject, stage in (("Query expansion", report.expand), ("Re-ranking", report.rerank)):
        # What is not there is listed as well: a re-ranked number beside a plain one is no comparison.
        yield subject, "None." if stage is None else words.call(stage)


def _invalid(report: ReportData) -> str:
    rule = _text(report.protocol, "invalid_query")
    if not rule:
        return ""
    return f"{_INVALID.get(rule, formatting.upper_first(rule))}."


def _cmc(report: ReportData) -> str:
    found = {name: curve_family(name) for name in (_text(report.protocol, "cmc_family"), *report.curves) if name}
    sentences = [family.explanation for family in found.values() if family is not None and family.headline == "match"]
    single = report.protocol.get("single_shot")
    if single:
        sentences.append(f"Single shot: {_sentence(_listed(single))}")
    return " ".join(sentences)


def _average_precision(protocol: Mapping[str, Any]) -> str:
    family = _text(protocol, "ap_family")
    if not family:
        return ""
    known = metric_family(family)
    rule = family if known is None else known.explanation
    return f"{rule} mAP is always the rectangle, mAP_trapezoid always the trapezoid."


def _ground_truth(report: ReportData) -> str:
    for holder in (report.protocol, report.inputs):
        given = holder.get("ground_truth")
        if isinstance(given, Mapping) and "entries" in given:
            entries = ", ".join(f"{formatting.integer(count)} {name}" for name, count in given["entries"].items())
            return f"Lists of gallery rows for {counted(given.get('n_query', 0), 'query')}: {entries}."
        if given:
            return _sentence(_listed(given))
    return "The labels of the two sets." if report.inputs else ""


def _listed(given: object) -> str:
    """Return a description as a text: ``draws 10, seed 0``."""
    if isinstance(given, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in words.flatten(given))
    return words.scalar(given)


def _ties(report: ReportData) -> str:
    if not report.ties:
        return ""
    rule = str(report.ties.get("rule", next(iter(report.ties.values()))))
    return f"Items are ordered by {rule}."


def _text(description: Mapping[str, Any], name: str) -> str:
    value = description.get(name)
    return "" if value is None else words.scalar(value)


def _sentence(text: str) -> str:
    """Return a text with a capital at its start and a stop at its end; an empty one stays empty."""
    if not text:
        return text
    ended = text if text.endswith((".", "!", "?")) else f"{text}."
    return formatting.upper_first(ended)
