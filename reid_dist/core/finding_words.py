"""The sentences of all findings, each by its code: the only place where they are worded.

A function with the name of a code, after an underscore, words it.  Its parameters are the values of the finding, as
:class:`reid_dist.core.findings.Finding` holds them: None stands for a number that is not finite.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from reid_dist.core.credentials import command_line
from reid_dist.core.formatting import counted, first_few, have, integer, joined, percent, plural, rate, share

WORDINGS: Final[dict[str, Callable[..., str]]] = {}
"""What words a finding, by its code."""

_MOST_NAMES: Final = 10

Texts = Sequence[str]


def worded(code: str, values: Mapping[str, Any], parts: tuple[str, int, int, int] | None = None) -> str:
    """Return the sentence of a finding, or of one that was made in some parts of a job."""
    sentence = WORDINGS[code](**values)
    if parts is None:
        return sentence
    part, n_parts, n_all, first = parts
    return f"in {n_parts} of {counted(n_all, part)}, with other numbers in each; in {part} {first}: {sentence}"


def is_worded(code: str, values: Mapping[str, Any]) -> bool:
    """Whether a code is known, with values of these names."""
    if code not in WORDINGS:
        return False
    try:
        inspect.signature(WORDINGS[code]).bind(**values)
    except TypeError:
        return False
    return True


def _of_code(words: Callable[..., str]) -> Callable[..., str]:
    WORDINGS[words.__name__[1:]] = words
    return words


def item_name(label: str) -> str:
    """Return what a label that names items is called."""
    return {"item_ids": "item id", "image_paths": "image path"}[label]


def keep_first(source: str, label: str) -> str:
    """Say what keeps the first row of each item of a source."""
    command = command_line(["reid-dist", "ingest", source, "--drop-duplicates", label])
    return f"`{command} --output NEW` keeps the first row of each"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _rest(number: int) -> str:
    return "rests" if number == 1 else "rest"


def _value(value: float | None, *, is_share: bool = True) -> str:
    if value is None:
        return "undefined"
    return percent(value) if is_share else f"{value:.6g}"


def _pids(pids: Sequence[int]) -> str:
    return f"pid {' or '.join(map(str, pids))}"


# ---- texts -----------------------------------------------------------------------------------------------------------


@_of_code
def _text(text: str) -> str:
    return text


@_of_code
def _input(text: str) -> str:
    """A change that was made to the values of a set before, as its store records it."""
    return text


# ---- sides and labels ------------------------------------------------------------------------------------------------


@_of_code
def _sides_swapped(n_junk: int, junk_pids: Sequence[int], n_query: int, n_gallery: int, few_rows: bool) -> str:
    signs = []
    remedy = "swap the arguments"
    if n_junk:
        signs.append(
            f"{n_junk:,} of {counted(n_query, 'query')} {have(n_junk)} {_pids(junk_pids)}, which marks junk, so these "
            "queries can never match"
        )
        drop = " ".join(f"--drop-pid {pid}" for pid in junk_pids)
        remedy += f"; if not, drop them (ingest {drop})"
    if few_rows:
        signs.append(f"there are {n_query:,} queries and only {counted(n_gallery, 'gallery row')}")
    return f"query and gallery may be swapped: {'; '.join(signs)}; if they are, {remedy}"


@_of_code
def _repeated_items(side: str, n: int, n_rows: int, by: str, row: int, first: str, source: str | None) -> str:
    remedy = (
        f"take the rows numpy.unique({by}, return_index=True)[1] alone, the first of each"
        if source is None
        else keep_first(source, by)
    )
    return (
        f"{side}: {n:,} of {counted(n_rows, 'row')} {have(n)} the {item_name(by)} of an earlier row (first: row {row}, "
        f"{first!r}), as rows that pad the last batch of a distributed sampler have, and {_is(n)} counted again: "
        f"{remedy}"
    )


@_of_code
def _unknown_cameras(n_query: int, of_query: int, n_gallery: int, of_gallery: int, camera: int) -> str:
    return (
        f"the camera of {n_query:,} of {counted(of_query, 'query')} and of {n_gallery:,} of "
        f"{counted(of_gallery, 'gallery row')} is unknown ({camera}): it is equal to no camera, so that none of these "
        "is junk for a query's camera"
    )


def _cameras(query: Texts, gallery: Texts) -> str:
    return f"query cameras {first_few(query, 6)} and gallery cameras {first_few(gallery, 6)}"


@_of_code
def _cameras_numbered_apart(query: Texts, gallery: Texts, apart: bool, starts: Sequence[int]) -> str:
    some = "no query camera is" if apart else "not all query cameras are"
    return (
        f"{some} in the gallery: {_cameras(query, gallery)} may be numbered from {starts[0]} and from {starts[1]}; "
        "number the cameras of both sides alike, or rows of a query's own camera count"
    )


@_of_code
def _cameras_spelled_apart(query: Texts, gallery: Texts) -> str:
    return (
        f"no query camera is in the gallery: {_cameras(query, gallery)} are spelled unlike; write them alike, or rows "
        "of a query's own camera count"
    )


@_of_code
def _cameras_apart(query: Texts, gallery: Texts) -> str:
    return (
        f"no query camera is in the gallery: {_cameras(query, gallery)}; nothing is junk for its camera, which is "
        "right only if the cameras of both sides are different ones, as visible and infrared ones are: otherwise "
        "number them alike"
    )


@_of_code
def _labels_exchanged(side: str) -> str:
    return (
        f"pids and camids of the {side} look exchanged: its pids are cameras of the other side, and its cameras are "
        "identities there"
    )


# ---- own rows --------------------------------------------------------------------------------------------------------

_SAME_SET: Final = "use the protocol 'same_set', which leaves own rows out"
_OWN_ROW_REMEDIES: Final = {
    "item ids": "give an image the same item id on both sides",
    "paths": "give the paths as item_ids to both sides and " + _SAME_SET,
    "names": "give item_ids or image_paths to both sides and " + _SAME_SET,
    "cameras": "check that both sides number their cameras alike, or give item_ids or image_paths to both sides and "
    + _SAME_SET,
    "protocol": _SAME_SET,
}


def _own_row_remedy(remedy: str, labels: Texts) -> str:
    if remedy != "labels":
        return _OWN_ROW_REMEDIES[remedy]
    differing = " and ".join(labels) or "labels"
    return f"their {differing} differ between the two sides: check them, or {_SAME_SET}"


@_of_code
def _same_labels(n: int, n_valid: int, remedy: str, labels: Texts) -> str:
    return (
        "query and gallery have the same labels in every row; if they are the same images, queries match themselves "
        f"(the own row of {n:,} of {counted(n_valid, 'valid query')} is one of the relevant gallery rows): "
        f"{_own_row_remedy(remedy, labels)}"
    )


@_of_code
def _own_rows(n: int, n_valid: int, by: str, remedy: str, labels: Texts) -> str:
    known = "query and gallery are the same set" if by == "content" else f"by {item_name(by)}"
    return (
        f"queries match themselves: the own row of {n:,} of {counted(n_valid, 'valid query')} is one of the relevant "
        f"gallery rows ({known}); {_own_row_remedy(remedy, labels)}"
    )


@_of_code
def _identical_features(n: int, n_valid: int, remedy: str) -> str:
    return (
        f"{n:,} of {n_valid:,} valid queries have a relevant gallery row at distance 0: identical features, as of an "
        f"image that is on both sides; if these are the same images, {_own_row_remedy(remedy, ())}"
    )


# ---- results that a mistake explains ---------------------------------------------------------------------------------

_UNLIKE: Final = (
    "both sides number their identities differently (compare their label maps), or features are of two models"
)
_UNFIT: Final = (
    "within the {}, rows of one identity are no nearer to each other than to others: its features are not in the order "
    "of its labels (compare the order of the rows with the list of images), or the model tells nothing apart"
)
_ANY_CAUSE: Final = (
    "{} are not in the order of the labels, both sides number their identities differently, or the model tells nothing "
    "apart: compare the order of the rows with the list of images, and the label maps of both sides"
)
_CAUSES: Final = {
    "gallery": _UNFIT.format("gallery"),
    "query": _UNFIT.format("query set"),
    "between": "the features of either side fit its own labels, and not those of the other side: " + _UNLIKE,
    "query or between": "features of the gallery fit its labels: those of the query set are not in the order of its "
    "labels, or " + _UNLIKE,
    "features": _ANY_CAUSE.format("features"),
    "distances": _ANY_CAUSE.format("rows or columns of the distances"),
}


@_of_code
def _chance_level(
    metric: str, result: float, chance: float, low: float, high: float, in_order: float | None, cause: str
) -> str:
    ordered = (
        ""
        if in_order is None
        else f", and the relevant item is before the other one in {share(in_order, 1)} of all pairs (random orders: "
        "50 %)"
    )
    return (
        f"the result is at chance level: {metric} {rate(result)}, where random orders have {rate(chance)} on average, "
        f"99 % of them {rate(low)} to {rate(high)}{ordered}: {_CAUSES[cause]}"
    )


@_of_code
def _tied_pairs(n: int, n_pairs: int) -> str:
    return (
        f"{share(n, n_pairs)} of the pairs of a relevant and another gallery row are tied: the order of the rows "
        "decides the result, not the model; features of most items are equal, as those of a collapsed model or of one "
        "row that was written many times (`reid-dist check` counts equal rows), or distances have few values"
    )


@_of_code
def _reversed_order(result: float, reversed: float, given: bool) -> str:
    remedy = (
        "check whether these are similarities, and give 1 - similarity then: smaller is nearer"
        if given
        else "check whether the features of one side are negated"
    )
    return f"the reversed order is better: mAP {percent(reversed)} in place of {percent(result)}; {remedy}"


# ---- evidence --------------------------------------------------------------------------------------------------------


@_of_code
def _few_valid_queries(n_valid: int, n_query: int, at_zero: bool) -> str:
    others = "the others count as 0" if at_zero else "the means are over these alone"
    return (
        f"only {integer(n_valid)} of {counted(n_query, 'query')} ({share(n_valid, n_query)}) {_is(n_valid)} valid, and "
        f"{others}"
    )


@_of_code
def _few_identities(n: int) -> str:
    return f"the numbers rest on {counted(n, 'identity')}"


@_of_code
def _narrow_intervals(n_units: int, unit: str, enough: int, rates: Texts = ()) -> str:
    of = f"{', '.join(rates)}: " if rates else ""
    if n_units == 1:
        return f"{of}{counted(n_units, unit)} gives no interval: there is nothing to resample"
    return (
        f"{of}{counted(n_units, unit)} are few: the intervals are too narrow (those of 95 % hold the true mean in some "
        f"73 % of cases from 3, 83 % from 5; from {enough} on they nearly keep their level)"
    )


def _few_accepts(number: int, noun: str, least: int, smallest: str | None) -> str:
    if smallest is None:
        return f"fewer than {least} false accepts: with {counted(number, noun)} every false accept rate does"
    return (
        f"fewer than {least} false accepts (FAR x {counted(number, noun)} < {least}); the smallest FAR that so many "
        f"support is {smallest}"
    )


@_of_code
def _few_false_accepts(names: Texts, number: int, of: str, least: int, smallest: str | None) -> str:
    return f"{', '.join(names)} {_rest(len(names))} on {_few_accepts(number, of, least, smallest)}"


@_of_code
def _roc_few_false_accepts(n: int, n_points: int, number: int, least: int, smallest: str | None) -> str:
    return f"ROC: {n} of its {n_points} points {_rest(n)} on {_few_accepts(number, 'impostor pair', least, smallest)}"


# ---- metrics and rankings --------------------------------------------------------------------------------------------


@_of_code
def _nearest_alone() -> str:
    return (
        "the metrics requested need the ranks of the nearest relevant items only, and others were not counted: AP and "
        "INP of queries, and the curves that need all ranks, are in reports with mAP"
    )


@_of_code
def _no_bounds_of_ties(metric: str, why: str) -> str:
    return f"{metric} has no bounds under ties: {why}"


@_of_code
def _hit_rate_named_recall(spelled: str, metric: str, k: int) -> str:
    return (
        f"{spelled} is reported as {metric}, a match among the first {k}; the share of all relevant items "
        f"there is R@{k}"
    )


@_of_code
def _recall_is_a_share(names: Texts, ranks: Sequence[int]) -> str:
    rates = ", ".join(f"CMC@{k}" for k in ranks)
    return (
        f"{', '.join(names)}: recall, the share of all relevant items among the first k; the hit rate (a match among "
        f"the first k) is {rates}"
    )


@_of_code
def _cut_lists(length: int, last_rank: int) -> str:
    return f"evaluated from lists of length {length}: curves end at rank {last_rank}"


@_of_code
def _bounded_metrics(names: Texts) -> str:
    return f"known only to lie between two bounds, since the lists are cut: {', '.join(names)}"


@_of_code
def _rows_not_counted(n_query: int, n_gallery: int) -> str:
    return (
        f"{counted(n_query, 'query row')} and {counted(n_gallery, 'gallery row')} of cameras that the protocol does "
        "not count took no part in expansion and re-ranking"
    )


@_of_code
def _gnn_entries(lists: float, rounds: Sequence[tuple[float, float]]) -> str:
    each = [
        f"{before:.1f} before and {after:.1f} after round {number}" for number, (before, after) in enumerate(rounds, 1)
    ]
    return f"gnn: entries of a row: {', '.join([f'{lists:.1f} in the lists', *each])}"


@_of_code
def _top_of_lists(m: int, n_gallery: int) -> str:
    if m >= n_gallery:
        return f"top: all {n_gallery} gallery items are among the {m} nearest; none in plain order"
    return (
        f"top: the {m} nearest gallery items of each query are re-ranked, junk items counted; the rest in plain order"
    )


@_of_code
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
    change, ends = after - before, (low, high)
    unit, scale, digits = (" points", 100, ".2f") if is_share else ("", 1, ".6g")
    between = " to ".join(f"{scale * each:+{digits}}" for each in ends)
    return (
        f"re-ranking makes {metric} worse at {n_points} of {counted(n_all, 'point')}, most of all {worst}: "
        f"{_value(before, is_share=is_share)} without, {_value(after, is_share=is_share)} with "
        f"({scale * change:+{digits}}{unit}, 95 % interval over identities {between})"
    )


# ---- benchmarks ------------------------------------------------------------------------------------------------------


@_of_code
def _other_gallery(benchmark: str, n_identities: int, expected: int) -> str:
    return (
        f"the gallery has {counted(n_identities, 'identity')}, and that of benchmark {benchmark} has {expected:,}: "
        "these are numbers of another set"
    )


@_of_code
def _published_means(benchmark: str, runs: str) -> str:
    return f"published numbers of {benchmark} are means over {runs}: `reid-dist average`"


@_of_code
def _other_code(
    benchmark: str,
    source: str,
    shares: str,
    metrics: Sequence[tuple[str, float | None, float | None]],
    n_valid: int | None,
    n_draws: int | None,
) -> str:
    begin = {"ranking": "the same ranking", "distances": "the same distances", "": "a run of its own"}[shares]
    found = ", ".join(
        f"{name} {_value(value)}{'' if change is None else f' ({100 * change:+.2f} points)'}"
        for name, value, change in metrics
    )
    found += "" if n_draws is None else f"; means over {counted(n_draws, 'draw')}"
    found += "" if n_valid is None else f"; {counted(n_valid, 'valid query')}"
    return f"{begin} under {benchmark} (as published by {source}): {found}"


@_of_code
def _other_code_by_command(benchmark: str, source: str, ranks: str) -> str:
    return (
        f"{benchmark} (as published by {source}) ranks {ranks}: `--benchmark {benchmark}` on the same sets gives its "
        "numbers"
    )


# ---- splits ----------------------------------------------------------------------------------------------------------


def _groups(number: int, *, per_camera: bool) -> str:
    return f"{counted(number, 'pair')} of identity and camera" if per_camera else counted(number, "identity")


@_of_code
def _groups_with_few_rows(n: int, n_groups: int, per_camera: bool, n_rows: int, side: str) -> str:
    return (
        f"{n:,} of {_groups(n_groups, per_camera=per_camera)} {have(n)} fewer than {counted(n_rows, f'{side} row')}: "
        "all of these are in every split"
    )


@_of_code
def _groups_without_query(n: int, n_groups: int, per_camera: bool) -> str:
    return (
        f"{n:,} of {_groups(n_groups, per_camera=per_camera)} {have(n)} no more rows than are drawn: none of these "
        "is a query"
    )


@_of_code
def _cameras_not_drawn(n: int, side: str) -> str:
    return f"{counted(n, f'{side} row')} of cameras that do not count {_is(n)} in no split"


@_of_code
def _junk_not_drawn(n: int, pid: int, side: str, rest_as_queries: bool) -> str:
    where = "in the gallery or the queries" if rest_as_queries else f"in the {side}"
    return f"rows of pid {pid} are not {where} of any split: {n:,} of the whole {side}"


@_of_code
def _one_split() -> str:
    return "one split has no spread"


# ---- several runs ----------------------------------------------------------------------------------------------------


@_of_code
def _metric_of_some_runs(metric: str, runs: Texts) -> str:
    return f"{metric}: only {joined(runs)} {have(runs)} it"


@_of_code
def _no_mean(metric: str, bounded: bool, runs: Texts) -> str:
    return f"{metric}: no mean ({'known only between bounds' if bounded else 'no value'} in {joined(runs)})"


@_of_code
def _same_result(runs: Texts) -> str:
    return f"{joined(runs)} have the same result, to the last bit: a run that is given twice counts twice"


@_of_code
def _models_of_one_set() -> str:
    return (
        "all runs have other features over the same labels: a mean is of trainings of one model; different models "
        "stand side by side in `reid-dist table`"
    )


@_of_code
def _several_versions(what: str, values: Sequence[tuple[str, Texts]]) -> str:
    return f"{what}: {', '.join(f'{value} in {joined(runs)}' for value, runs in values)}"


@_of_code
def _queries_resampled() -> str:
    return "by query: queries of one identity are taken for independent, so intervals are too narrow"


@_of_code
def _no_verdict(n_units: int, unit: str, level: float) -> str:
    return (
        f"{n_units} {plural(unit)} cannot give a verdict at a level of {100 * level:g} %, whatever they show; evaluate "
        "more, or lower the level"
    )


@_of_code
def _other_valid_queries(baseline: int, candidate: int) -> str:
    return f"{baseline} queries are valid in the baseline, {candidate} in the candidate"


@_of_code
def _other_invalid_rule() -> str:
    return "one run counts invalid queries as 0 and the other leaves them out; here they are left out"


# ---- conventions -----------------------------------------------------------------------------------------------------


@_of_code
def _no_camera_conventions(sides: Texts, why: str) -> str:
    reason = f"{' and '.join(sides)} {have(sides)} no camids" if sides else why
    return (
        f"{reason}: conventions of cameras (market1501, market1501_matlab, allshots, cuhk03, cuhk03_separate_cameras) "
        "are left out"
    )


@_of_code
def _no_single_shot() -> str:
    return "conventions of CUHK03 (CMC_single_shot) are left out: --single-shot, single_shot=True"


@_of_code
def _no_same_set(n: int, by: str) -> str:
    rows = "is a gallery row" if n == 1 else "are gallery rows"
    return (
        f"{counted(n, 'query')} {rows} as well, by {item_name(by)}: conventions without own rows (same_set) are left "
        "out; give the paths as item_ids to both sides for them"
    )


@_of_code
def _pid_is_absent(pid: int) -> str:
    return f"no gallery row has pid {pid}: whether these are junk makes no difference"


@_of_code
def _unfit_distance(distance: str, why: str) -> str:
    return f"the distance {distance} is left out: {why}"


@_of_code
def _no_valid_query_under(conventions: Texts) -> str:
    return f"no query has a relevant item under {'; '.join(conventions)}: left out"


@_of_code
def _ranks_alike(distance: str, other: str) -> str:
    return f"{distance} gives the ranks of {other} under every convention and has no rows of its own"


@_of_code
def _euclidean_ranks() -> str:
    return (
        "Euclidean distances of rows scaled to length 1 rank as cosine, and sqeuclidean as euclidean, but for "
        "rounding: they have no rows of their own"
    )
