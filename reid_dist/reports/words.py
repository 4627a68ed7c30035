"""How numbers and conventions are put into words: once, for the console and for the page.

A number of this field means little without its convention, so every metric is printed with one.  An evaluation
hands the words of its metrics over in ``Report.definitions``; the table here answers for the names of
``semantics`` where it did not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["advice", "duration", "flatten", "integer", "metric_value", "metric_words", "percent", "scalar", "share"]

_METRICS: tuple[tuple[str, str], ...] = (
    (r"CMC@1", "queries whose first kept item is a right answer"),
    (r"CMC@(?P<k>\d+)", "queries with a right answer at rank {k} or before"),
    (r"CMC_allshots@(?P<k>\d+)", "positives with fewer than {k} negatives before them"),
    (r"CMC_single_shot@(?P<k>\d+)", "one item per gallery identity; positives in the first {k}"),
    (r"mAP", "rectangle rule, all positives in the denominator"),
    (r"mAP_trapezoid", "trapezoid rule, all positives in the denominator"),
    (r"mAP@(?P<k>\d+)", "rectangle rule over the first {k}, all positives in the denominator"),
    (r"mAP_found@(?P<k>\d+)", "rectangle rule over the first {k}, positives found in the denominator"),
    (r"mINP", "positives / rank of the last positive"),
    (r"P@(?P<k>\d+)", "positives in the first {k} / {k}"),
    (r"R@(?P<k>\d+)", "positives in the first {k} / all positives"),
    (r"P_clipped@(?P<k>\d+)", "positives in the first K / K, K = min(last positive's rank, {k})"),
    (r"Rprec", "positives in the first n / n, n positives in all"),
    (r"MRR", "1 / rank of the first positive"),
    (r"TAR@FAR=(?P<k>\S+)", "genuine pairs accepted where {k} of the impostors are"),
    (r"DIR@FAR=(?P<k>\S+)", "mated probes found first, accepted where {k} of the others are"),
    (r"EER", "error rate where false accepts equal false rejects"),
)

# What to look at, by what the reason speaks of; the first match answers.
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"camera|camid",
        "The identity is in the gallery, but only under the query's own camera, which this protocol hides. "
        "Check the camera ids (one constant for all? another numbering in the gallery?); protocol no_cameras "
        "does without them.",
    ),
    (
        r"junk",
        "Every gallery item of this query is junk. Look for a pid of -1, and for a ground truth whose junk list "
        "swallows the good one.",
    ),
    (
        r"positive|relevant|identity|pid|gallery|mate",
        "The identity does not occur in the gallery. Check that query and gallery are one split, and that both number "
        "their identities alike (a relabelled training set, another dtype, an offset).",
    ),
)


def metric_words(name: str, definitions: Mapping[str, str]) -> str:
    """Return the convention of a metric in words; empty for a name that nobody explained."""
    if name in definitions:
        return definitions[name]
    for pattern, words in _METRICS:
        match = re.fullmatch(pattern, name)
        if match is not None:
            return words.format(**match.groupdict())
    return ""


def metric_value(name: str, value: float) -> str:
    """Return a metric as it is printed: a share in percent, a threshold in the unit of the distance."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.6g}" if "threshold" in name.lower() else percent(value)


def percent(value: float) -> str:
    """Return a share of one in percent with two decimals."""
    return "undefined" if math.isnan(value) else f"{100 * value:.2f} %"


def integer(value: float | None) -> str:
    """Return a count with thousands separated, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{int(value):,}"


def share(part: float, whole: float) -> str:
    """Return ``part`` of ``whole`` in percent with one decimal."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def duration(seconds: float) -> str:
    """Return a time in the unit that a person would choose."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def advice(reason: str) -> str:
    """Return what to look at when queries are invalid for this reason; empty when nothing is known."""
    folded = reason.lower()
    return next((words for pattern, words in _ADVICE if re.search(pattern, folded)), "")


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``(name, text)`` of a nested mapping, in its order; nested names are joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", scalar(value)


def scalar(value: object) -> str:
    """Return any plain value as a person would write it."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case Mapping():
            return ", ".join(f"{name}={text}" for name, text in flatten(value))
        case Sequence():
            return ", ".join(map(scalar, value))
        case _:
            return str(value)
