"""Repeated seeded splits: the gallery is drawn at random several times, and the mean is reported with its spread.

Some benchmarks are defined so.  VehicleID draws one image of every vehicle for the gallery and takes the others as
queries; SYSU-MM01 draws one image (or ten) of every identity under every camera; few-shot retrieval draws k of every
class.  One draw is noisy, so it is repeated, and the mean of a metric over the draws is printed beside its
sample standard deviation.

Each split is an ordinary, exact evaluation of drawn rows, which keep their order.  Rows of pid -1 are junk to every
protocol; they are no part of a draw, neither as gallery nor as queries.  pid 0 is an identity like any other.  What
else a benchmark prescribes belongs to its protocol: for SYSU-MM01, that camera 2 is hidden from queries of camera 3.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from reid_dist._version import __version__
from reid_dist.core.findings import Finding, caution, of_parts
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import counted, have
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.policy import Policy
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks import Benchmark, benchmark_notes, refuse_unfit_labels, with_benchmark
from reid_dist.evaluation.benchmarks.benchmark import draw_of, refuse_other_codes
from reid_dist.evaluation.benchmarks.variants import CMC, Scores, benchmark_spec, extra_run_scores, other_notes
from reid_dist.evaluation.checked_options import CheckedOptions, ranking_spec
from reid_dist.evaluation.draws import Trials, drawn_splits, listed_splits
from reid_dist.evaluation.evaluate import evaluate_once
from reid_dist.evaluation.options import (
    SPLIT_OPTIONS,
    SPLITS,
    SplitEvaluationOptions,
    complete,
    headline_only,
    refuse_options,
)
from reid_dist.evaluation.report_assembly import described_environment
from reid_dist.evaluation.sessions import Shown, begin_session, lists_options
from reid_dist.evaluation.study import Study, begin_study
from reid_dist.metrics.metric import ByMetric
from reid_dist.metrics.repeats import mean_and_spread
from reid_dist.relevance.protocols import PROTOCOLS, Protocol
from reid_dist.reports import Report
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import make_frame, plain, restored_number
from reid_dist.reports.heading import weak_evidence
from reid_dist.reports.notes import input_notes, label_notes, side_notes
from reid_dist.reports.series_report import SeriesReport
from reid_dist.reports.split_page import render_splits, split_tables
from reid_dist.reports.tabular.table import Table, notes_of
from reid_dist.reports.words import published
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, FeatureSource, as_feature_set
from reid_dist.stores.importers.row_lists import read_split_rows

if TYPE_CHECKING:
    from distributed import Client

_STAGE: Final = "splits"


@dataclass(frozen=True)
class FinishedSplit:
    """What is kept of the evaluation of one split.

    `digests` are those of its sets and of its result; `conventions` are the same in every split: protocol, distance and
    definitions.
    """

    metrics: dict[str, float]
    counts: dict[str, int]
    digests: dict[str, str]
    conventions: dict[str, Any]
    notes: list[dict[str, Any]]

    @classmethod
    def of(cls, report: Report, *, leave_out: Sequence[Finding] = ()) -> FinishedSplit:
        """Values of the report of a split, without some of its notes."""
        return cls(
            metrics=dict(report.metrics),
            counts={name: int(report.counts[name]) for name in ("n_query", "n_valid", "n_gallery")},
            digests={
                **{side: report.inputs[side]["content_digest"] for side in ("query", "gallery")},
                "result": report.result_digest,
            },
            conventions={name: plain(getattr(report, name)) for name in ("protocol", "distance", "definitions")},
            notes=[note.to_dict() for note in report.notes if note not in leave_out],
        )


def _galleries(draw: Mapping[str, Any]) -> str:
    """Where the rows of the galleries come from."""
    if "rows" in draw:
        return f"rows of {draw['rows']}"
    kind = "identity and camera" if draw["per_camera"] else "identity"
    return f"{draw['per_identity']} of each {kind}, seed {draw['seed']}"


def _span(values: Sequence[int]) -> str:
    """Counts of all splits: one number where they agree."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitReport(SeriesReport):
    """Metrics of several splits.  Other attributes are those of `reid_dist.reports.series_report.SeriesReport`.

    Attributes
    ----------
    metrics
        Mean over the splits by name of metric; NaN where a split has no value.
    spread
        Sample standard deviation over the splits (ddof 1) by name; NaN for a single split.
    per_split
        Value of every split by name, (n_splits,) float64.
    counts
        ``n_query``, ``n_valid``, ``n_gallery``: a list with one entry per split.  ``n_identity``: identities in the
        draw or in the listed galleries.  Draws also have ``n_groups``: the identities, or pairs of identity and camera,
        from which rows are drawn; ``n_short``: those with fewer rows than are drawn; and ``n_junk_rows``: gallery rows
        of pid -1, which are left out.
    digests
        ``query``, ``gallery``: content digests of the sets of every split; ``result``: their result digests.
    draw
        How the galleries were drawn, with every parameter, or the source of the listed rows.
    benchmark
        The benchmark with its source; None for none.

    Raises
    ------
    InputError
        If the three mappings of values are inconsistent.
    """

    _what = "report of splits"
    another = "other splits"
    document = "splits.json"
    page = "splits.html"

    metrics: dict[str, float]
    spread: dict[str, float]
    per_split: dict[str, NDArray[np.float64]]
    digests: dict[str, list[str]]
    draw: dict[str, Any]
    benchmark: dict[str, str] | None = None

    def __post_init__(self) -> None:
        per_split = {name: np.asarray(values, np.float64).view() for name, values in self.per_split.items()}
        if not list(self.metrics) == list(self.spread) == list(per_split):
            raise InputError("metrics, spread and per_split of a split report must name the same metrics")
        if len({values.shape for values in per_split.values()}) > 1:
            raise InputError("every metric of a split report must have one value per split")
        for values in per_split.values():
            values.flags.writeable = False
        by_metric: tuple[tuple[str, dict[str, Any]], ...] = (
            ("metrics", self.metrics),
            ("spread", self.spread),
            ("per_split", per_split),
        )
        for field_name, found in by_metric:
            object.__setattr__(self, field_name, ByMetric(found))

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.digests["result"])

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over means, spreads and the values of every split as exact bytes, 64 hexadecimal digits."""
        return arrays_digest(
            {
                "metrics": {name: np.asarray(value, np.float64) for name, value in self.metrics.items()},
                "spread": {name: np.asarray(value, np.float64) for name, value in self.spread.items()},
                "per_split": self.per_split,
            }
        )

    @property
    def weak_evidence(self) -> list[Finding]:
        """Findings about weak evidence, from the split with the smallest share of valid queries."""
        counts = self.counts
        pairs = zip(counts["n_valid"], counts["n_query"], strict=True)
        n_valid, n_query = min(pairs, key=lambda pair: pair[0] / pair[1])
        return weak_evidence({"n_valid": n_valid, "n_query": n_query}, self.protocol, counts["n_identity"])

    def tables(self) -> Sequence[Table]:
        """Return mean, spread, minimum and maximum of every metric with counts below, and the values of each split."""
        metrics, splits = split_tables(self.to_dict())
        counts = self.counts
        facts = {
            **self.heading.chosen("date", "command"),
            **({} if self.benchmark is None else {"benchmark": published(self.benchmark)}),
            "splits": f"{self.n_splits}, {_galleries(self.draw)}",
            "queries": f"{_span(counts['n_valid'])} valid of {_span(counts['n_query'])}",
            "gallery": f"{_span(counts['n_gallery'])} rows of {counted(counts['n_identity'], 'identity')}",
            "protocol": f"{self.protocol['name']}, {self.distance['name']} distance",
            **({"ranked": self.protocol["ranked"]} if "ranked" in self.protocol else {}),
            **self.heading.chosen("version", "digest"),
        }
        notes = [*metrics.notes, *notes_of(facts, self.findings)]
        return [replace(metrics, title=self.heading.title, notes=notes), splits]

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with one row per split and one column per metric.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``).
        """
        return make_frame(self.per_split, index="split")

    def to_html(self) -> str:
        """Return one offline page without scripts; the same report gives the same bytes."""
        return render_splits(self.to_dict(), self.findings)

    @classmethod
    def _restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name."""
        means = {
            name: {metric: restored_number(value) for metric, value in entries[name].items()}
            for name in ("metrics", "spread")
        }
        values = {metric: [restored_number(each) for each in values] for metric, values in entries["per_split"].items()}
        return {**entries, **means, "per_split": values}


@lists_options(SplitEvaluationOptions, evaluation=SPLITS)
def evaluate_splits(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    client: Client | None = None,
    workspace: str | os.PathLike[str] | None = None,
    progress: Shown = None,
    **options: Unpack[SplitEvaluationOptions],
) -> SplitReport:
    """Evaluate exactly on several galleries, drawn at random or listed.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    rows
        Rows of every split, instead of random draws: a file as described in `reid_dist.stores.importers.row_lists`, or
        a list with one entry per split, either ``{"gallery": […], "query": […]}`` or only the gallery rows.  Without
        ``query``, all queries are used.  With the permutations of SYSU-MM01 (``rand_perm_cam.mat``), the first
        `per_identity` images are the gallery.
    seed
        Random seed of the draw, 0 to 2**64 - 1; also passed to `evaluate`.
    client
        Cluster to run on; None for threads of this process.  Results do not depend on it.
    workspace
        Directory visible to every worker; None uses a temporary directory.  Its contents are removed at the end.  If a
        run fails, finished splits are kept, and the same call resumes from them.
    progress
        As in `evaluate`, with one stage, ``"splits"``, that counts finished splits.
    **options
        As in `evaluate`; options that request more than metrics, or name rows of one gallery, are refused.

    Returns
    -------
    SplitReport
        The report; `SplitReport.save` writes it.

    Raises
    ------
    UnknownNameError
        For a protocol, distance or metric that does not exist.
    InputError
        If the sets or options do not exist or cannot be combined, or if a split has no valid query.
    PlanError, RunFailedError, ClusterError
        As `reid_dist.evaluate` does.
    """
    with begin_session(client, workspace, progress) as session:
        return run_splits(session, SplitJob.of(query, gallery, options))


@dataclass(frozen=True, kw_only=True)
class SplitJob:
    """An evaluation over splits with both sides open and its options checked against the whole sets."""

    query: FeatureSet
    gallery: FeatureSet
    trials: Trials
    checked: CheckedOptions
    benchmark: Benchmark | None = None
    other_codes: bool = False

    @classmethod
    def of(cls, query: FeatureSource, gallery: FeatureSource, options: Mapping[str, Any]) -> SplitJob:
        """Read and check options; parameters and errors are those of `evaluate_splits`."""
        chosen, name, other_codes = None, options.get("benchmark"), bool(options.get("other_codes"))
        refuse_other_codes(other_codes, name)
        is_limited = options.get("per_identity") is not None
        if name is not None:
            chosen, options = with_benchmark(name, options)
            if chosen.draw is None and options.get("rows") is None:
                raise InputError(
                    f"benchmark {name!r} evaluates the whole gallery once: evaluate(query, gallery, "
                    f"benchmark={name!r}), or give the rows of each split (rows, --rows FILE)"
                )
        where = complete({name: value for name, value in options.items() if name in SPLIT_OPTIONS}, SPLIT_OPTIONS)
        own = (*where, "benchmark", "other_codes")
        options = {name: value for name, value in options.items() if name not in own}
        given = complete(options)
        refuse_options(
            options, SPLITS, "is about one gallery, and every split has its own; evaluate without splits for it"
        )
        rules = given["protocol"] if isinstance(given["protocol"], Protocol) else PROTOCOLS.get(given["protocol"])
        if rules.is_listed:
            raise InputError(
                f"protocol {rules.name!r} goes by lists of gallery rows, and every split has other rows; use a "
                "protocol by labels, such as no_cameras"
            )
        DISTANCES.get(given["distance"])
        query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
        if chosen is not None:
            refuse_unfit_labels(chosen, query, gallery)
        trials = _trials(query, gallery, rules, where, given["seed"], is_limited)
        _refuse_own_rows(query, gallery, trials, rules)
        # The spread over splits is the uncertainty of the report; intervals of each split would be thrown away.
        checked = CheckedOptions.of(headline_only(given), query, gallery)
        return cls(
            query=query, gallery=gallery, trials=trials, checked=checked, benchmark=chosen, other_codes=other_codes
        )

    @property
    def most_rows(self) -> tuple[int, int]:
        """Rows of the queries and of the gallery of the largest splits."""
        splits = [self.trials.rows(split) for split in range(self.trials.n_splits)]
        queries = [self.query.n_rows if each.query is None else len(each.query) for each in splits]
        return max(queries), max(len(each.gallery) for each in splits)

    @property
    def described_benchmark(self) -> dict[str, str] | None:
        """Description of the benchmark, with listed galleries in the place of draws."""
        if self.benchmark is None:
            return None
        listed = self.trials.description.get("rows")
        return self.benchmark.describe() | ({} if listed is None else {"gallery": f"rows of {listed}"})

    @cached_property
    def spec(self) -> dict[str, Any]:
        """All that the report depends on."""
        more = benchmark_spec(self.benchmark, other_codes=self.other_codes)
        names = [metric.name for metric in self.checked.metrics]
        return ranking_spec(self.checked, self.query, self.gallery, draw=self.trials.spec, metrics=names, **more)


def run_splits(session: Session, job: SplitJob) -> SplitReport:
    """Evaluate every split; parameters as of `evaluate_splits`."""
    query, gallery, rules, trials = job.query, job.gallery, job.checked.protocol, job.trials
    client, shown = session.client, session.progress
    # Its progress is that of finished splits.
    silent = session.showing(Progress())
    started = time.perf_counter()
    finished: list[FinishedSplit] = []
    identity = fingerprint(__version__, job.spec)
    with begin_study(session, _STAGE, identity, FinishedSplit, folder=identity) as study:
        shown.start({_STAGE: trials.n_splits})
        whole = query
        for split in range(trials.n_splits):

            def evaluate_split(_: Session, split: int = split) -> FinishedSplit:
                nonlocal whole
                if client is not None and not whole.is_stored and trials.whole_queries:
                    # Once for all splits; the evaluation of each would put it there again.
                    whole = query.save(study.folder / "query.zarr", overwrite=True)
                listed = trials.rows(split)
                far = gallery if len(listed.gallery) == gallery.n_rows else gallery.take(listed.gallery)
                near = whole if listed.query is None else query.take(listed.query)
                with study.apart(silent, f"{split:05d}") as private:
                    try:
                        report = evaluate_once(private, near, far, **job.checked.values)
                    except InputError as error:
                        message = f"split {split} of {trials.n_splits} (from 0): {error}"
                        raise InputError(message, details=error.details) from error
                # Notes on the two sides are those of the whole sets: a drawn gallery is small by design.
                of_sides = [*side_notes(near, far, rules), *label_notes(near, far, rules), *input_notes(near, far)]
                return FinishedSplit.of(report, leave_out=of_sides)

            finished.append(study.part(f"split-{split:05d}", evaluate_split))
            shown.advance(_STAGE)
        others = _of_other_codes(job, finished, silent, study)
    notes = [
        *([] if job.benchmark is None else [*benchmark_notes(job.benchmark, gallery), *others]),
        *(side_notes(query, gallery, rules) if trials.whole_queries else []),
        *label_notes(query, gallery, rules),
        *of_parts([map(Finding.restored, split.notes) for split in finished], "split"),
        *input_notes(query, gallery),
        *trials.notes,
        *([caution("one_split")] if trials.n_splits == 1 else []),
    ]
    return _summarise(job, finished, notes, time.perf_counter() - started, client)


def _of_other_codes(
    job: SplitJob, finished: Sequence[FinishedSplit], session: Session, study: Study[FinishedSplit]
) -> list[Finding]:
    """Notes on other codes in use, which evaluate whole galleries."""
    benchmark = job.benchmark
    if benchmark is None:
        return []
    # Of listed rows of a benchmark that evaluates whole galleries, no code in use has numbers.
    if benchmark.draw is None or not job.other_codes:
        return list(other_notes(benchmark))

    def run(other: Benchmark, given: dict[str, Any]) -> Report:
        with study.apart(session, "others") as private:
            return evaluate_once(private, job.query, job.gallery, **with_benchmark(other.name, given)[1])

    family = job.checked.protocol.ap_family
    precision, cmc = (
        mean_and_spread([split.metrics.get(name, math.nan) for split in finished])[0] for name in (family, CMC)
    )
    own = Scores(family, precision, cmc, n_draws=len(finished))
    sides = job.query, job.gallery
    extra_runs = extra_run_scores(study.session, benchmark, job.spec, job.checked.values, sides, run)
    return list(other_notes(benchmark, extra_runs=extra_runs, own=own))


def _trials(
    query: FeatureSet, gallery: FeatureSet, rules: Protocol, where: Mapping[str, Any], seed: int, is_limited: bool
) -> Trials:
    """Rows of all splits, by the options of the draw or as they are listed; `is_limited`: per_identity was given."""
    draw, rows, by = draw_of(where, seed), where["rows"], where["by"]
    if rows is None:
        if by != "rows":
            raise InputError(f"by={by!r} (--by) says what rows (--rows FILE) holds; give the list as well")
        return drawn_splits(query, gallery, draw, rules)
    idle = [name for name in ("per_camera", "rest_as_queries", "of_queries") if where[name]]
    if idle:
        raise InputError(f"{' and '.join(idle)} {have(idle)} no effect on listed rows; leave one of them out")
    listed = read_split_rows(rows, query, gallery, by=by, per_identity=draw.per_identity, is_requested=is_limited)
    n_splits = len(listed) if where["repeats"] is None else draw.repeats
    if n_splits > len(listed):
        raise InputError(f"{n_splits} repeats were requested, and {counted(len(listed), 'split')} are listed")
    return listed_splits(gallery, listed[:n_splits], rows)


def _refuse_own_rows(query: FeatureSet, gallery: FeatureSet, trials: Trials, protocol: Protocol) -> None:
    """Refuse one set as query and gallery where every drawn row would be a match of itself."""
    if query.content_digest != gallery.content_digest or trials.keeps_apart:
        return
    # A row shares all labels with itself, so that any junk rule hides it, if the labels are there.
    if not protocol.junk or (protocol.needs_item_ids and query.item_ids is None and query.image_paths is None):
        raise InputError(
            f"under protocol {protocol.name!r}{' without item ids' if protocol.junk else ''}, every drawn row of one "
            "set would find itself; use --rest-as-queries, or the protocol 'same_set'",
            details=(
                "--rest-as-queries (rest_as_queries=True) with 'no_cameras': rows that are not drawn are the queries",
                "the protocol 'same_set' needs item ids",
            ),
        )


def _summarise(
    job: SplitJob, splits: list[FinishedSplit], notes: list[Finding], seconds: float, client: Client | None
) -> SplitReport:
    first, checked = splits[0], job.checked
    per_split = {name: np.array([split.metrics[name] for split in splits]) for name in first.metrics}
    means, spreads = {}, {}
    for name, values in per_split.items():
        means[name], spreads[name] = mean_and_spread(values.tolist())
    return SplitReport(
        metrics=means,
        spread=spreads,
        per_split=per_split,
        counts={**{name: [split.counts[name] for split in splits] for name in first.counts}, **job.trials.counts},
        digests={name: [split.digests[name] for split in splits] for name in first.digests},
        draw=job.trials.description,
        options={
            "max_rank": int(checked.values["max_rank"]),
            **{name: each for name, each in checked.described_stages.items() if each is not None},
        },
        spec=job.spec,
        # The same in every split.
        **first.conventions,
        benchmark=job.described_benchmark,
        inputs={"query": job.query.describe(), "gallery": job.gallery.describe()},
        environment=described_environment(client, Policy.in_force()),
        timing={"total": seconds},
        notes=list(dict.fromkeys(notes)),
    )
