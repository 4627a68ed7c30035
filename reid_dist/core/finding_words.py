"""The sentences of all findings, each by its code: the only place where they are worded.

A sentence is a template over the values of the finding, with the forms of `_FORMS`, or a function of these values.
None stands for a number that is not finite.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from reid_dist.core.credentials import command_line
from reid_dist.core.formatting import counted, first_few, have, integer, joined, percent, rate, share


def worded(code: str, values: Mapping[str, Any], parts: tuple[str, int, int, int] | None = None) -> str:
    """Return the sentence of a finding, or of one that was made in some parts of a job."""
    words = WORDINGS[code]
    sentence = _WORDS.vformat(words, (), values) if isinstance(words, str) else words(**values)
    if parts is None:
        return sentence
    part, n_parts, n_all, first = parts
    return f"in {n_parts} of {counted(n_all, part)}, with different numbers; in {part} {first}: {sentence}"


def is_worded(code: str, values: Mapping[str, Any]) -> bool:
    """Whether a code and its values are known: a later version may have others."""
    try:
        worded(code, values)
    except (LookupError, TypeError, ValueError, AttributeError):
        return False
    return True


def item_name(label: str) -> str:
    """Return what rows are called by that repeat each other."""
    return {"item_ids": "item id", "image_paths": "image path", "features": "features"}[label]


def keep_first(source: str, label: str) -> str:
    """Say what keeps the first row of each item of a source."""
    command = command_line(["reid-dist", "ingest", source, "--drop-duplicates", label])
    return f"`{command} --output NEW` keeps the first row of each; `reid-dist evaluate` has the same option"


# ---- forms -----------------------------------------------------------------------------------------------------------


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _share(value: float | None) -> str:
    return "undefined" if value is None else percent(value)


# How a template writes a value, by the form after the colon; after #, a count with its noun.
_FORMS: Final[dict[str, Callable[[Any], str]]] = {
    "all": ", ".join,
    "and": joined,
    "few": lambda names: first_few(names, 6),
    "has": have,
    "is": _is,
    "item": item_name,
    "level": lambda value: f"{100 * value:g}%",
    "semicolons": "; ".join,
}


class _Words(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("#"):
            return counted(value, format_spec[1:])
        return _FORMS[format_spec](value) if format_spec in _FORMS else format(value, format_spec)


_WORDS: Final = _Words()


# ---- sentences with several forms ------------------------------------------------------------------------------------


def _sides_swapped(n_junk: int, junk_pids: Sequence[int], n_query: int, n_gallery: int, few_rows: bool) -> str:
    signs = []
    remedy = "swap the arguments"
    if n_junk:
        signs.append(
            f"{n_junk:,} of {counted(n_query, 'query')} {have(n_junk)} pid {' or '.join(map(str, junk_pids))}, which "
            "marks junk, so these queries can never match"
        )
        remedy += f"; if not, drop these queries (ingest {' '.join(f'--drop-pid {pid}' for pid in junk_pids)})"
    if few_rows:
        signs.append(f"there are {n_query:,} queries, but only {counted(n_gallery, 'gallery row')}")
    return f"query and gallery may be swapped: {'; '.join(signs)}; if so, {remedy}"


def _repeated_items(side: str, n: int, n_rows: int, by: str, row: int, first: str, source: str | None) -> str:
    alone = f"keep only the rows numpy.unique({by}, return_index=True)[1], the first of each"
    return (
        f"{side}: {n:,} of {counted(n_rows, 'row')} {have(n)} the {item_name(by)} of an earlier row (first: row {row}, "
        f"{first!r}) and {_is(n)} counted twice, which is common when a distributed sampler pads the last batch: "
        f"{alone if source is None else keep_first(source, by)}"
    )


def _cameras_numbered_apart(query: Sequence[str], gallery: Sequence[str], apart: bool, starts: Sequence[int]) -> str:
    some = "no query camera is" if apart else "not all query cameras are"
    return (
        f"{some} in the gallery: query cameras {first_few(query, 6)} and gallery cameras {first_few(gallery, 6)} may "
        f"be numbered from {starts[0]} and from {starts[1]}; use the same numbers on both sides, or rows from a "
        "query's own camera count as matches"
    )


_SAME_SET: Final = "use the protocol 'same_set', which leaves out each query's own row"
_NAMES: Final = f"give item_ids or image_paths to both sides and {_SAME_SET}"
_OWN_ROW_REMEDIES: Final = {
    "item ids": "give each image the same item id on both sides",
    "paths": f"give the paths as item_ids to both sides and {_SAME_SET}",
    "names": _NAMES,
    "cameras": f"check that both sides use the same camera numbers, or {_NAMES}",
    "protocol": _SAME_SET,
}


def _own_row_remedy(remedy: str, labels: Sequence[str]) -> str:
    if remedy != "labels":
        return _OWN_ROW_REMEDIES[remedy]
    return f"their {' and '.join(labels) or 'labels'} differ between the two sides; check them, or {_SAME_SET}"


def _own_row(n: int, n_valid: int) -> str:
    return f"for {n:,} of {counted(n_valid, 'valid query')}, the query's own row is one of the relevant gallery rows"


def _same_labels(n: int, n_valid: int, remedy: str, labels: Sequence[str]) -> str:
    return (
        "query and gallery have the same labels in every row; if they are the same images, queries match themselves "
        f"({_own_row(n, n_valid)}): {_own_row_remedy(remedy, labels)}"
    )


def _own_rows(n: int, n_valid: int, by: str, remedy: str, labels: Sequence[str]) -> str:
    known = "query and gallery are the same set" if by == "content" else f"by {item_name(by)}"
    return f"queries match themselves: {_own_row(n, n_valid)} ({known}); {_own_row_remedy(remedy, labels)}"


def _identical_features(n: int, n_valid: int, remedy: str) -> str:
    return (
        f"{n:,} of {n_valid:,} valid queries have a relevant gallery row at distance 0, that is, identical features; "
        f"if the same image is on both sides, {_own_row_remedy(remedy, ())}"
    )


_UNLIKE: Final = (
    "the two sides number identities differently (compare their label maps), or their features come from two models"
)
_UNFIT: Final = (
    "within the {}, rows of one identity are no nearer to each other than to others, so either features and labels are "
    "in different orders (compare the order of the rows with the list of images), or the model does not discriminate"
)
_ANY_CAUSE: Final = (
    "{} and labels are in different orders, the two sides number identities differently, or the model does not "
    "discriminate; compare the order of the rows with the list of images, and the label maps of both sides"
)
_CAUSES: Final = {
    "gallery": _UNFIT.format("gallery"),
    "query": _UNFIT.format("query set"),
    "between": f"the features of each side fit its own labels, but not those of the other side, so either {_UNLIKE}",
    "query or between": "the gallery features fit their labels, so query features and labels are in different orders, "
    f"{_UNLIKE}",
    "features": _ANY_CAUSE.format("features"),
    "distances": _ANY_CAUSE.format("rows or columns of the distances"),
}


def _chance_level(
    metric: str, result: float, chance: float, low: float, high: float, in_order: float | None, cause: str
) -> str:
    before = ", and the relevant item ranks first in {} of all pairs (random orders: 50%)"
    return (
        f"the result is at chance level: {metric} {rate(result)}, while random orders average {rate(chance)}, 99% of "
        f"them between {rate(low)} and {rate(high)}{'' if in_order is None else before.format(share(in_order, 1))}; "
        f"{_CAUSES[cause]}"
    )


def _tied_pairs(n: int, n_pairs: int) -> str:
    return (
        f"{share(n, n_pairs)} of the pairs of a relevant and a non-relevant gallery row are tied, so row order "
        "decides the result rather than the model; either most features are equal, because the model collapsed or one "
        "row was written many times (`reid-dist check` counts equal rows), or the distances have few distinct values"
    )


def _reversed_order(result: float, reversed: float, given: bool, similarity: bool = False) -> str:
    doubt = "the features of one side are negated"
    if similarity:
        doubt = "these are distances; if so, leave out --similarity (similarity=True)"
    elif given:
        doubt = (
            "these are similarities; if so, use --similarity (similarity=True), or pass 1 - similarity, because "
            "smaller is nearer"
        )
    return f"the reversed order is better: mAP {percent(reversed)} instead of {percent(result)}; check whether {doubt}"


def _few_valid_queries(n_valid: int, n_query: int, at_zero: bool) -> str:
    return (
        f"only {integer(n_valid)} of {counted(n_query, 'query')} ({share(n_valid, n_query)}) {_is(n_valid)} valid, and "
        f"{'the others count as 0' if at_zero else 'the means include only the valid ones'}"
    )


def _narrow_intervals(n_units: int, unit: str, enough: int, rates: Sequence[str] = ()) -> str:
    of = f"{', '.join(rates)}: " if rates else ""
    if n_units == 1:
        return f"{of}{counted(n_units, unit)} is not enough for an interval: there is nothing to resample"
    return (
        f"{of}with only {counted(n_units, unit)}, the intervals are too narrow (95% intervals contain the true mean "
        f"in about 73% of cases with 3, in 83% with 5; from {enough} on they nearly reach their level)"
    )


def _few_accepts(number: int, noun: str, least: int, smallest: str | None) -> str:
    if smallest is None:
        return f"fewer than {least} false accepts, as is every rate with {counted(number, noun)}"
    return (
        f"fewer than {least} false accepts (FAR x {counted(number, noun)} < {least}); the smallest reliable FAR is "
        f"{rate(float(smallest))}"
    )


def _few_false_accepts(names: Sequence[str], number: int, of: str, least: int, smallest: str | None) -> str:
    return f"{', '.join(names)} {_is(len(names))} based on {_few_accepts(number, of, least, smallest)}"


def _roc_few_false_accepts(n: int, n_points: int, number: int, least: int, smallest: str | None) -> str:
    few = _few_accepts(number, "impostor pair", least, smallest)
    return f"ROC: {n} of its {n_points} points {_is(n)} based on {few}"


def _gnn_entries(lists: float, rounds: Sequence[tuple[float, float]]) -> str:
    each = [f"{before:.1f} before and {after:.1f} after round {at}" for at, (before, after) in enumerate(rounds, 1)]
    return f"gnn: mean entries per row: {', '.join([f'{lists:.1f} in the lists', *each])}"


def _top_of_lists(m: int, n_gallery: int) -> str:
    if m >= n_gallery:
        return f"top: all {n_gallery} gallery items are re-ranked, because they are among the {m} nearest"
    return f"top: the {m} nearest gallery items of each query, junk included, are re-ranked; the rest keep their order"


def _reranking_is_worse(
    metric: str,
    n_points: int,
    n_all: int,
    worst: str,
    before: float,
    after: float,
    low: float,
    high: float,
    is_share: bool,
) -> str:
    unit, scale, digits = (" points", 100, ".2f") if is_share else ("", 1, ".6g")
    without, given = (percent(each) if is_share else f"{each:.6g}" for each in (before, after))
    change, *ends = (f"{scale * each:+{digits}}" for each in (after - before, low, high))
    return (
        f"re-ranking makes {metric} worse at {n_points} of {counted(n_all, 'point')}, most at {worst}: {without} "
        f"without, {given} with ({change}{unit}, 95% interval over identities {' to '.join(ends)})"
    )


def _other_code(
    benchmark: str,
    source: str,
    shares: str,
    metrics: Sequence[tuple[str, float | None, float | None]],
    n_valid: int | None,
    n_draws: int | None,
) -> str:
    begin = f"the same {shares}" if shares else "a separate run"
    found = ", ".join(
        f"{name} {_share(value)}{'' if change is None else f' ({100 * change:+.2f} points)'}"
        for name, value, change in metrics
    )
    found += "" if n_draws is None else f"; means over {counted(n_draws, 'draw')}"
    found += "" if n_valid is None else f"; {counted(n_valid, 'valid query')}"
    return f"{begin} under {benchmark} (as published by {source}): {found}"


def _several_versions(what: str, values: Sequence[tuple[str, Sequence[str]]]) -> str:
    return f"{what}: {', '.join(f'{value} in {joined(runs)}' for value, runs in values)}"


# ---- all codes -------------------------------------------------------------------------------------------------------

_NO_CAMERAS: Final = (
    "conventions that depend on cameras (market1501, market1501_matlab, allshots, cuhk03, cuhk03_separate_cameras) "
    "are left out"
)
_APART: Final = "no query camera is in the gallery: query cameras {query:few} and gallery cameras {gallery:few}"

WORDINGS: Final[dict[str, str | Callable[..., str]]] = {
    "text": "{text}",
    # A change that was made to the values of a set before, as its store records it.
    "input": "{text}",
    # Sides and labels.
    "sides_swapped": _sides_swapped,
    "repeated_items": _repeated_items,
    "unknown_cameras": "the camera of {n_query:,} of {of_query:#query} and of {n_gallery:,} of "
    "{of_gallery:#gallery row} is unknown ({camera}): an unknown camera equals no other, so none of these rows is "
    "junk because of its camera",
    "cameras_numbered_apart": _cameras_numbered_apart,
    "cameras_spelled_apart": f"{_APART} are spelled differently; use the same names on both sides, or rows from a "
    "query's own camera count as matches",
    "cameras_apart": f"{_APART}; no row is junk because of its camera, which is right only if both sides really have "
    "different cameras (for instance visible and infrared); otherwise use the same numbers on both sides",
    "labels_exchanged": "pids and camids of the {side} look swapped: its pids are cameras of the other side, and its "
    "camids are identities there",
    # Own rows.
    "same_labels": _same_labels,
    "own_rows": _own_rows,
    "identical_features": _identical_features,
    # Results that a mistake explains.
    "chance_level": _chance_level,
    "tied_pairs": _tied_pairs,
    "reversed_order": _reversed_order,
    # Evidence.
    "few_valid_queries": _few_valid_queries,
    "few_identities": "the results are based on only {n:#identity}",
    "narrow_intervals": _narrow_intervals,
    "few_false_accepts": _few_false_accepts,
    "roc_few_false_accepts": _roc_few_false_accepts,
    # Metrics and rankings.
    "nearest_alone": "the requested metrics need only the ranks of the nearest relevant items, so no others were "
    "counted; request mAP to get AP and INP of queries, and the curves that need all ranks",
    "no_bounds_of_ties": "{metric} has no bounds under ties: {why}",
    "hit_rate_named_recall": "{spelled} is reported as {metric}, a match among the first {k}; R@{k} is the share of "
    "all relevant items there",
    "recall_is_a_share": "{names:all}: recall, the share of all relevant items among the first k; the hit rate (a "
    "match among the first k) is {hit_rates:all}",
    "cut_lists": "evaluated from lists of length {length}: curves end at rank {last_rank}",
    "bounded_metrics": "only bounds are known, because the lists are truncated: {names:all}",
    "rows_not_counted": "{n_query:#query row} and {n_gallery:#gallery row} of cameras that the protocol does not count "
    "were left out of expansion and re-ranking",
    "gnn_entries": _gnn_entries,
    "top_of_lists": _top_of_lists,
    "reranking_is_worse": _reranking_is_worse,
    # Benchmarks.
    "other_gallery": "the gallery has {n_identities:#identity}, but that of benchmark {benchmark} has {expected:,}, "
    "so the numbers are not comparable",
    "published_means": "published numbers of {benchmark} are means over {runs}; use `reid-dist average`",
    "other_code": _other_code,
    "other_code_by_command": "{benchmark} (as published by {source}) ranks {ranks}; run `--benchmark {benchmark}` on "
    "the same sets to get its numbers",
    # Splits.
    "groups_with_few_rows": "{n:,} of {n_groups:#{of}} {n:has} fewer than {n_rows:#{side} row}, so every split "
    "contains all of their rows",
    "groups_without_query": "{n:,} of {n_groups:#{of}} {n:has} no more rows than are drawn, so none of their rows is "
    "a query",
    "cameras_not_drawn": "{n:#{side} row} of cameras that the protocol does not count {n:is} in no split",
    "junk_not_drawn": "rows of pid {pid} are left out of the {where:and} of every split: {n:,} of the whole {side}",
    "one_split": "a single split has no spread",
    # Several runs.
    "metric_of_some_runs": "{metric}: only {runs:and} {runs:has} it",
    "no_mean": "{metric}: no mean ({why} in {runs:and})",
    "same_result": "{runs:and} have the same result, to the last bit: a run given twice counts twice",
    "models_of_one_set": "all runs have different features for the same labels; average only repeated training runs of "
    "one model, and compare different models with `reid-dist table`",
    "several_versions": _several_versions,
    "queries_resampled": "resampled by query: queries of one identity are treated as independent, so the intervals "
    "are too narrow",
    "no_verdict": "{n_units:#{unit}} can never give a verdict at a level of {level:level}; evaluate more, or lower "
    "the level",
    "other_valid_queries": "{baseline} queries are valid in the baseline, {candidate} in the candidate",
    "other_invalid_rule": "one run counts invalid queries as 0, the other leaves them out; this comparison leaves "
    "them out",
    # Conventions.
    "no_camids": f"{{sides:and}} {{sides:has}} no camids: {_NO_CAMERAS}",
    "unlike_camids": f"{{why}}: {_NO_CAMERAS}",
    "no_single_shot": "conventions of CUHK03 (CMC_single_shot) are left out; add them with --single-shot or "
    "single_shot=True",
    "no_same_set": "{n:#query} {n:is} also in the gallery (same {by:item}), so conventions that leave out a query's "
    "own row (same_set) are not evaluated; to include them, pass the paths as item_ids on both sides",
    "pid_is_absent": "no gallery row has pid {pid}, so it makes no difference whether such rows are junk",
    "unfit_distance": "the distance {distance} is left out: {why}",
    "no_valid_query_under": "left out, because no query has a relevant item: {conventions:semicolons}",
    "ranks_alike": "{distance} gives the same ranks as {other} under every convention and is not listed separately",
    "euclidean_ranks": "up to rounding, Euclidean distances of rows scaled to length 1 rank like cosine, and "
    "sqeuclidean ranks like euclidean, so they are not listed separately",
    "no_lengths": "{stages} changes only rounding under {distance}, and is left out there",
    "unfit_stages": "{stages} is left out under {distance}: {why}",
    "also_left_out": "expansions, re-rankings and feature treatments are left out; add them with --also NAME or "
    "also=[…] (treatments adds all feature treatments)",
}
"""The template that words a finding, or a function of its values, by its code."""
