"""The same features under every convention that could be meant: one table, from one pass over the tiles per distance.

A *setting* says which items are relevant, which are junk, and what a query without relevant items is worth; it is a
protocol, registered or composed.  All settings are ranked from one pass (`reid_dist.engine.outputs.protocol_ranks`),
and a *row* of the table is one metric of one setting under one distance, with the bits of a run of its own.  Expansions
and re-rankings that are also tried take a pass each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info
from reid_dist.core.model import RankedQueries
from reid_dist.engine.checks import check_labels, check_sets, joined_labels
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import joined_label_sets
from reid_dist.engine.outputs.output import Output, Results
from reid_dist.engine.outputs.protocol_ranks import EVERY_ROW, ProtocolCurves, ProtocolRanks, single_shot_places
from reid_dist.engine.reductions.single_shot_counts import SingleShot
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError
from reid_dist.evaluation.convention_settings import Setting, codes_of, settings_for
from reid_dist.evaluation.convention_stages import PLAIN, Stages, parse_also, passes_of
from reid_dist.evaluation.convention_table import (
    ALLOWED,
    Conventions,
    Row,
    default_names,
    find_candidates,
    parse_targets,
)
from reid_dist.evaluation.evaluate import scored_sets
from reid_dist.evaluation.no_valid_query import explain_no_valid_query
from reid_dist.evaluation.options import OPTIONS
from reid_dist.evaluation.projection import most_matches, planned_job
from reid_dist.evaluation.report_assembly import QueryCounts
from reid_dist.evaluation.sessions import Shown, begin_session
from reid_dist.metrics.metric import RANKS, SINGLE_SHOT, Metric, parse_metrics
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports.notes import input_notes
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, FeatureSource, as_feature_set

if TYPE_CHECKING:
    from distributed import Client

DEFAULT_DISTANCES: Final = ("cosine", "euclidean")

# The stage of progress where passes are counted.
_PASSES: Final = "passes"

Pair = tuple[Setting, Setting]
"""A setting that leaves invalid queries out, and the same with these at 0."""


def conventions(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    targets: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    distances: str | Sequence[str] | None = None,
    also: str | Sequence[str] | None = None,
    single_shot: bool = False,
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
) -> Conventions:
    """Evaluate the same features under every convention, in one pass per distance.

    The conventions combine all choices that the labels allow: items with the query's identity and camera are kept or
    junk; pid -1 and pid 0 are junk or not; a query's own row is junk or not; queries without relevant items are left
    out or count as 0.  Each has several average precisions and CMC curves under each distance.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    targets
        Numbers to reproduce, such as ``"mAP=74.7"`` or ``["mAP=74.7", "CMC@1=88.1"]``, with all printed digits; values
        above 1 are percentages.  ``mAP`` stands for any average precision, ``CMC@k`` for any kind of CMC.
    metrics
        Names of rank metrics to use instead of the default ones; those of the targets are added.
    distances
        Names; None for ``cosine`` and ``euclidean``.  Each takes one pass.
    also
        Expansions and re-rankings to try as well, such as ``"k_reciprocal"``, ``"dba(k=5)"`` or
        ``"dba(k=5)+k_reciprocal"``, and feature treatments: ``"l2"``, ``"float16"``, ``"flip_sign"``, or
        ``"treatments"`` for all three.  Each takes one pass per distance under which it is defined; at most 32 passes
        in all.
    single_shot
        Add the conventions of CUHK03: one gallery item per identity in the CMC, and items of the query's camera junk or
        kept.  They can double the time.
    chunk_rows, client, workspace, progress
        As in `reid_dist.evaluate`.

    Returns
    -------
    Conventions
        The table, and the conventions nearest to the targets.  Each row is bit-identical to `reid_dist.evaluate` with
        the same protocol, metric, distance, expansion and re-ranking.

    Raises
    ------
    UnknownNameError
        For a metric, distance, expansion or re-ranking that does not exist.
    InputError
        If a target cannot be read, a metric is not a function of ranks, there are more than 32 passes, no distance
        allows a stage, the sets cannot be evaluated, or no query is valid under any convention.
    PlanError, RunFailedError, ClusterError
        As in `reid_dist.evaluate`.
    """
    wanted = parse_targets(targets)
    chosen = _metrics(metrics, [name for target in wanted for name in target.metrics], single_shot=single_shot)
    stages = parse_also(also)
    names = [distances] if isinstance(distances, str) else list(dict.fromkeys(distances or DEFAULT_DISTANCES))
    measures = [DISTANCES.get(name) for name in names]
    query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
    notes: list[Finding] = []
    measures = _usable(measures, query, gallery, notes, given=distances is not None)
    settings, omitted = settings_for(query, gallery, single_shot=single_shot)
    with begin_session(client, workspace, progress, chunk_rows) as session:
        passes = passes_of(query, gallery, measures, stages, notes)
        ranked = _rank(query, gallery, settings, passes, _shot(settings, chosen), session, notes)
    settings, ranked = _with_valid_query(query, gallery, settings, ranked, notes)
    alike = _distinct_passes(ranked, notes)
    rows = _rows(settings, {each: ranked[each] for each in alike}, chosen, alike, query.pids)
    if not rows:
        raise InputError(f"{', '.join(metric.name for metric in chosen)}: of no convention that these sets allow")
    notes += [info("euclidean_ranks"), *([] if stages else [info("also_left_out")])]
    return Conventions(
        rows=rows,
        targets=wanted,
        candidates=find_candidates(rows, wanted),
        inputs={"query": query.describe(), "gallery": gallery.describe()},
        notes=tuple(dict.fromkeys([*omitted, *notes, *input_notes(query, gallery)])),
    )


def _metrics(given: str | Sequence[str] | None, of_targets: Sequence[str], *, single_shot: bool) -> list[Metric]:
    """Metrics of the table; those that a target names alone may be of no setting."""
    found = parse_metrics(default_names() if given is None else given)
    others = [metric.name for metric in found if metric.family.needs not in ALLOWED]
    if others:
        raise InputError(
            f"{', '.join(others)}: no function of the ranks of single queries; use a metric such as mAP, mINP or CMC@1"
        )
    drawn = [metric.name for metric in found if metric.family.needs == SINGLE_SHOT]
    if given is not None and drawn and not single_shot:
        raise InputError(f"{', '.join(drawn)} is of the conventions of CUHK03: add single_shot=True (--single-shot)")
    return list({metric.name: metric for metric in [*found, *parse_metrics(list(of_targets))]}.values())


def _usable(
    measures: list[Distance], query: FeatureSet, gallery: FeatureSet, notes: list[Finding], *, given: bool
) -> list[Distance]:
    """Distances that the sets allow; of those that were `given`, none is left out."""
    found = []
    for measure in measures:
        try:
            check_sets(query, gallery, measure)
        except InputError as error:
            if given or not measure.needs_length:
                raise
            notes.append(info("unfit_distance", distance=measure.name, why=str(error)))
        else:
            found.append(measure)
    return found


# ---- ranks -----------------------------------------------------------------------------------------------------------

Float64 = NDArray[np.float64]
Pass = tuple[str, Stages]
"""Name of a distance, and what comes before it and after it."""

Ranked = dict[Pass, list["_Ranks"]]
"""Ranks by pass, one for each pair of settings."""


@dataclass(frozen=True)
class _Ranks:
    """All that the metrics of a setting are functions of; `single_shot` is (n_query, max_rank), None for none."""

    ranked: RankedQueries
    single_shot: Float64 | None

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Whether each query is valid, (n_query,)."""
        return self.ranked.n_relevant > 0

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the ranks of all positives, and of the single-shot CMC."""
        digest = hashlib.sha256(self.ranked.indptr.tobytes())
        digest.update(self.ranked.rank.tobytes())
        if self.single_shot is not None:
            digest.update(self.single_shot.tobytes())
        return digest.hexdigest()

    def values(self, metric: Metric) -> Float64 | None:
        """Value of every query, NaN for those without positives, (n_query,); None if it is of other settings."""
        if metric.family.needs == RANKS:
            # Single-shot settings have one CMC; others are those of the setting without draws.
            of_others = self.single_shot is not None and metric.family.headline == "match"
            return None if of_others else metric.values(self.ranked)
        return None if self.single_shot is None else self.single_shot[:, metric.parameter - 1]


def _shot(settings: Sequence[Pair], metrics: Sequence[Metric]) -> SingleShot | None:
    """Reduction of the single-shot CMC; None unless a setting has it and a metric needs it."""
    ranks = [metric.parameter for metric in metrics if metric.family.needs == SINGLE_SHOT]
    if not ranks or not single_shot_places([pair[0].protocol for pair in settings]):
        return None
    # The ranks of a run of its own, on which a bit may depend.
    return SingleShot(max(OPTIONS["max_rank"].default, *ranks))


def _rank(
    query: FeatureSet,
    gallery: FeatureSet,
    settings: Sequence[Pair],
    passes: Sequence[tuple[Distance, Stages]],
    shot: SingleShot | None,
    session: Session,
    notes: list[Finding],
) -> Ranked:
    """Rank under all settings, in every pass but those whose stages refuse the features, which are noted."""
    protocols = tuple(pair[0].protocol for pair in settings)
    outputs: list[Output[Any]] = [ProtocolRanks(protocols)]
    outputs += [] if shot is None else [ProtocolCurves(shot=shot, protocols=protocols)]
    # Every query lists the matches of all protocols, and its own row.
    per_query = most_matches(query, gallery) + 1
    joined = tuple(
        dict.fromkeys(kind for each in protocols for kind in joined_labels(query, gallery, each, camids=False))
    )
    # Every protocol is checked.
    rows_are_items = True in {check_labels(query, gallery, each) for each in protocols}
    found: Ranked = {}

    def rank(within: Session, measure: Distance, stages: Stages) -> list[_Ranks]:
        with scored_sets((query, gallery), measure, stages.expand, stages.rerank, within) as (
            visible,
            scorer,
            execution,
        ):
            job = planned_job(
                visible,
                scorer,
                execution,
                outputs,
                protocol=EVERY_ROW,
                rerank=stages.rerank,
                per_query=per_query,
                rows_are_items=rows_are_items,
                joined=joined,
            )
            return _ranks_under(protocols, run_job(job, execution))

    def attempt(within: Session, shown: Progress) -> None:
        for measure, stages in passes:
            if (measure.name, stages) not in found:
                try:
                    found[measure.name, stages] = rank(within, measure, stages)
                except InputError as error:
                    # Known only from the values, as numbers beyond those of float16 are.
                    if stages == PLAIN:
                        raise
                    notes.append(info("unfit_stages", stages=stages.name, distance=measure.name, why=str(error)))
                shown.advance(_PASSES)

    if all(stages == PLAIN for _, stages in passes):
        session.retried(lambda: attempt(session, Progress()))
        return found
    # Stages of several passes are in one workspace, where they share lists of neighbours; progress is that of passes.
    session.progress.start({_PASSES: len(passes)})
    with session.placed() as placed:
        silent = placed.showing(Progress())
        silent.retried(lambda: attempt(silent, session.progress))
    return found


def _ranks_under(protocols: Sequence[Protocol], results: Results) -> list[_Ranks]:
    """Ranks under each protocol of a pass."""
    ranked, found = results.of(ProtocolRanks), results.get(ProtocolCurves)
    places = [] if found is None else single_shot_places(protocols)
    curves = {} if found is None else {place: found[:, :, at] for at, place in enumerate(places)}
    return [_Ranks(each, curves.get(place)) for place, each in enumerate(ranked)]


def _with_valid_query(
    query: FeatureSet, gallery: FeatureSet, settings: Sequence[Pair], ranked: Ranked, notes: list[Finding]
) -> tuple[list[Pair], Ranked]:
    """Leave out settings under which no query is valid, as a run of their own would be refused."""
    first = next(iter(ranked.values()))
    valid = [bool(each.valid.any()) for each in first]
    if not any(valid):
        protocol = settings[0][0].protocol
        joined = joined_labels(query, gallery, protocol, camids=False)
        labels = joined_label_sets(query, gallery, joined, protocol, False)
        raise explain_no_valid_query(query, gallery, labels, protocol, QueryCounts(first[0].ranked).invalid)
    out = [pair[0].name for pair, each in zip(settings, valid, strict=True) if not each]
    if out:
        notes.append(info("no_valid_query_under", conventions=out))
    kept = np.flatnonzero(valid).tolist()
    return [settings[place] for place in kept], {name: [each[place] for place in kept] for name, each in ranked.items()}


# ---- rows ------------------------------------------------------------------------------------------------------------


def _distinct_passes(ranked: Ranked, notes: list[Finding]) -> dict[Pass, list[Pass]]:
    """Passes by the first one that gives the same ranks under every setting."""
    first: dict[tuple[str, ...], Pass] = {}
    alike: dict[Pass, list[Pass]] = {}
    for each, found in ranked.items():
        earlier = first.setdefault(tuple(ranks.fingerprint for ranks in found), each)
        alike.setdefault(earlier, []).append(each)
        if earlier != each:
            notes.append(info("ranks_alike", distance=_named(each), other=_named(earlier)))
    return alike


def _named(one: Pass) -> str:
    """Distance and stages of a pass."""
    distance, stages = one
    return f"{distance} with {stages.name}" if stages.name else distance


def _rows(
    settings: Sequence[Pair],
    ranked: Ranked,
    metrics: Sequence[Metric],
    alike: Mapping[Pass, Sequence[Pass]],
    pids: NDArray[np.int64],
) -> tuple[Row, ...]:
    """Rows of all settings, those of equal ranks together under the first; `alike` are passes of equal ranks."""
    together: dict[tuple[str, ...], list[int]] = {}
    for place in range(len(settings)):
        together.setdefault(tuple(each[place].fingerprint for each in ranked.values()), []).append(place)
    rows = []
    for each, found in ranked.items():
        # Published codes are those of features as they are.
        distances = [name for name, stages in alike[each] if stages == PLAIN]
        for places in together.values():
            ranks = found[places[0]]
            values = {metric: of_metric for metric in metrics if (of_metric := ranks.values(metric)) is not None}
            valid = ranks.valid
            left_out, at_zero = ([settings[place][end] for place in places] for end in (0, 1))
            # Without an invalid query the two are one.
            for same in [[*left_out, *at_zero]] if valid.all() else [left_out, at_zero]:
                for metric, of_metric in values.items():
                    rows.append(
                        Row(
                            value=metric.mean(of_metric, pids, zero_for_invalid=same[0].protocol.zero_for_invalid),
                            metric=metric.name,
                            distance=each[0],
                            stages=each[1],
                            setting=same[0],
                            same_as=tuple(setting.name for setting in same[1:]),
                            codes=tuple(codes_of([setting.name for setting in same], metric, distances)),
                            n_query=len(valid),
                            n_valid=int(valid.sum()),
                        )
                    )
    return tuple(rows)
