"""How numbers and conventions are put into words: once, for the console and for the page.

Every metric is printed with its convention: the text of ``Report.definitions``, or the summary of its definition where
the report has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reid_dist.core.formatting import counted, integer, percent
from reid_dist.core.nested import PROSE, leaves
from reid_dist.metrics.metric import curve_family, metric_family

RATES: Final = ("FAR", "TAR", "FPIR", "FNIR", "precision")
"""Rates at a threshold, in their order in tables."""

# Fields of a description that are no parameters.
_PROSE = PROSE | {"name"}
# Entry of a stage that holds another one.
_WITHIN = "of"

_NOTHING_COUNTED: Final = {
    "n_genuine": "there is no genuine pair",
    "n_impostor": "there is no impostor pair",
    "n_mated": "no query has a relevant gallery row",
    "n_non_mated": "the gallery has the identity of every query",
}

_ADVICE: Final = {
    "camera_not_counted": "The protocol counts only queries from some cameras, and this query is from another one. "
    "This is no error.",
    "only_same_camera_positives": "The identity is in the gallery, but only in the query's own camera, whose items "
    "are junk under this protocol. Check the camera ids (is it the same constant everywhere? does the gallery number "
    "cameras differently?). For sets from one camera, use the protocol no_cameras, or same_set if queries are also "
    "gallery rows. With several cameras, both would count matches from the query's own camera.",
    "all_junk": "Every gallery item of this query is junk. Check for a pid of -1, for a gallery that has only the "
    "query's camera, and for a ground truth whose junk list contains the good items.",
    "no_positive_in_gallery": "The identity does not occur in the gallery. Check that query and gallery belong to the "
    "same split, and that both use the same identity numbers (no relabelled training set, other dtype or offset).",
}


def metric_words(name: str, definitions: Mapping[str, str]) -> str:
    """Return the convention of a metric in words; empty for a name without one."""
    if name in definitions:
        return definitions[name]
    family = metric_family(name)
    return "" if family is None else family.summary


def metric_brief(name: str, definitions: Mapping[str, str]) -> str:
    """Return the convention of a metric for a headline: a few words in place of the usual formula."""
    words, family = metric_words(name, definitions), metric_family(name)
    return family.brief if family is not None and family.brief and words == family.summary else words


def conventions_once(names: Sequence[str], definitions: Mapping[str, str]) -> list[str]:
    """Return the convention of every metric of a table in words; ``as CMC@1`` where one above it has the same.

    Metrics of one family (``CMC@1``, ``CMC@5``) differ by their number alone, which their names have.
    """
    first: dict[tuple[str, str], str] = {}
    texts = []
    for name in names:
        words = metric_words(name, definitions)
        above = first.setdefault((name.partition("@")[0], words), name)
        texts.append(words if above == name or not words else f"as {above}")
    return texts


def metric_value(name: str, value: float) -> str:
    """Return a metric as it is printed: a share in percent, a threshold in the unit of the distance."""
    if math.isnan(value):
        return "undefined"
    return percent(value) if is_share(name) else f"{value:.6g}"


def bounded_value(name: str, value: float, bounds: Sequence[float] | None) -> str:
    """Return a metric as it is printed; ``between a and b`` where only its lowest and highest value are known."""
    if bounds is None:
        return metric_value(name, value)
    low, high = bounds
    if low == high:
        return metric_value(name, low)
    if is_share(name):
        between = f"between {100 * low:.2f} and {100 * high:.2f}%"
    else:
        between = f"between {low:.6g} and {high:.6g}"
    return between if math.isnan(value) else f"{metric_value(name, value)}, {between}"


def distance(value: float | None) -> str:
    """Return a distance with four decimals; empty for none."""
    return "" if value is None else f"{value:.4f}"


def interval(name: str, ends: Sequence[float | None] | None) -> str:
    """Return a confidence interval as ``[low, high]``, a dash where there is none."""
    low, high = ends if ends is not None else (None, None)
    if low is None or high is None:
        return "-"
    return f"[{100 * low:.2f}, {100 * high:.2f}]" if is_share(name) else f"[{low:.6g}, {high:.6g}]"


def resampled(confidence: Mapping[str, Any]) -> str:
    """Return what confidence intervals were made of: which things were drawn again, how often, from which seed."""
    drawn = {
        "identity": "query identities (cluster bootstrap: each identity with all its queries)",
        "query": "queries (each on its own)",
    }.get(confidence["unit"], confidence["unit"])
    families = map(metric_family, confidence.get("intervals", ()))
    at_rates = any(family is not None and family.takes_share for family in families)
    return (
        f"{100 * confidence['level']:g}% confidence intervals, [low, high], from "
        f"{counted(confidence['n_resamples'], 'resample')} of the {drawn}, seed {confidence['seed']}; the gallery "
        f"{'and the thresholds at false accept rates are' if at_rates else 'is'} fixed"
    )


def nothing_counted(counts: Mapping[str, Any]) -> str:
    """Return why rates of verification and open-set search are undefined: of what there is none; empty for nothing."""
    return "; ".join(text for name, text in _NOTHING_COUNTED.items() if counts.get(name) == 0)


def is_share(name: str) -> bool:
    """Whether a metric, or a curve of one over ranks, is a share of one, printed in percent; False for other names."""
    family = metric_family(name) or curve_family(name)
    return family is not None and family.is_share


def counted_queries(counts: Mapping[str, Any]) -> str:
    """Return how many queries are valid, of how many, against how many gallery rows."""
    return (
        f"{counted(counts['n_valid'], 'valid query')} of {integer(counts['n_query'])}, against "
        f"{counted(counts['n_gallery'], 'gallery row')}"
    )


def published(benchmark: Mapping[str, Any]) -> str:
    """Return a benchmark in words: ``llcm, as published by …``."""
    return f"{benchmark['name']}, as published by {benchmark['source']}"


def named(description: Mapping[str, Any], detail: str) -> str:
    """Return the name of a stage and one of its texts, where it has it."""
    name, text = str(description.get("name", "unnamed")), description.get(detail)
    return f"{name}: {text}" if text else name


def breakdown_title(name: str) -> str:
    """Return the heading of a breakdown; the name of a label column is kept."""
    known = {"camera_pair": "Camera pairs", "gallery_size": "Distractor curve"}
    return known.get(name, f"By {name}")


def advice(reason: str, *, listed: bool = False) -> str:
    """Return what to check when queries are invalid for this reason; `listed` if lists define what is relevant."""
    if listed:
        return (
            "The ground truth lists no relevant row for this query. Check that the lists are in query order, and that "
            "row numbers start at 0."
        )
    return _ADVICE.get(reason, "")


def stage_name(description: Mapping[str, Any]) -> str:
    """Return the name of a stage, with that of a stage within it: ``top(k_reciprocal)``."""
    name, within = str(description.get("name", "unnamed")), description.get(_WITHIN)
    return f"{name}({stage_name(within)})" if isinstance(within, Mapping) else name


def call(description: Mapping[str, Any]) -> str:
    """Return a stage as a call with its parameters, or with a call: ``top(k_reciprocal(k1=20, k2=6), m=1000)``."""
    name = str(description.get("name", "unnamed"))
    within = description.get(_WITHIN)
    inner = [call(within)] if isinstance(within, Mapping) else []
    own = {key: value for key, value in description.items() if key != _WITHIN or not inner}
    arguments = ", ".join([*inner, *(f"{key}={text}" for key, text in flatten(own) if key not in _PROSE)])
    # A name that is a whole spec, such as a chain of expansions, has its parameters in it.
    return f"{name}({arguments})" if arguments else name


def entry_label(name: str) -> str:
    """Return the name of an entry of a document in words: ``n_tied_pairs`` as ``tied pairs``."""
    return ".".join(part.removeprefix("n_") for part in name.split(".")).replace("_", " ")


def flatten(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield ``(name, text)`` of a nested mapping, in its order; nested names are joined by dots."""
    for path, value in leaves(values):
        if not isinstance(value, Mapping):
            yield ".".join(path), scalar(value)


def scalar(value: object) -> str:
    """Return a plain value as text."""
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
