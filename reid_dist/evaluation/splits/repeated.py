"""Evaluate every split, and summarise."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reid_dist._version import __version__
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import counted, have
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.policy import Policy
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks import Benchmark, benchmark_notes, refuse_unfit_labels, with_benchmark
from reid_dist.evaluation.benchmarks.resolving import draw_of, refuse_other_codes
from reid_dist.evaluation.benchmarks.variants import CMC, Scores, benchmark_spec, other_notes, scores_apart
from reid_dist.evaluation.evaluate import evaluate_once
from reid_dist.evaluation.options import (
    SPLIT_EVALUATION_OPTIONS,
    SPLIT_OPTIONS,
    SPLITS,
    EvaluationOptions,
    SplitEvaluationOptions,
    complete,
    headline_only,
    recorded,
    refuse_options,
)
from reid_dist.evaluation.progress_bars import Shown
from reid_dist.evaluation.result_spec import plain_spec
from reid_dist.evaluation.sessions import begin_session
from reid_dist.evaluation.signatures import lists_options
from reid_dist.evaluation.splits.report import SplitReport
from reid_dist.evaluation.splits.trials import DrawnSplits, ListedSplits, Trials
from reid_dist.evaluation.study import Study, begin_study
from reid_dist.evaluation.summary import described_environment
from reid_dist.metrics.definitions import default_metrics, parse_metrics
from reid_dist.metrics.repeats import mean_and_spread
from reid_dist.relevance.protocols import PROTOCOLS, Protocol
from reid_dist.reports import Report
from reid_dist.reports.documents import plain
from reid_dist.reports.notes import label_notes, notes_of_parts, side_notes
from reid_dist.stages.expansion import describe_expansion, parse_expand, spelled
from reid_dist.stages.reranking import parse_rerank
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, FeatureSource, FeatureWriter, as_feature_set
from reid_dist.stores.featureset import MemorySet, read_scattered
from reid_dist.stores.importers.row_lists import read_split_rows

if TYPE_CHECKING:
    from distributed import Client

Int64 = NDArray[np.int64]

_STAGE = "splits"

# Drawn rows are held in memory up to so many bytes, and put into the workspace beyond.
_HELD_BYTES = 256 << 20


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
    notes: list[str]

    @classmethod
    def of(cls, report: Report, *, leave_out: Sequence[str] = ()) -> FinishedSplit:
        """Values of the report of a split, without some of its notes."""
        return cls(
            metrics=dict(report.metrics),
            counts={name: int(report.counts[name]) for name in ("n_query", "n_valid", "n_gallery")},
            digests={
                **{side: report.inputs[side]["content_digest"] for side in ("query", "gallery")},
                "result": report.result_digest,
            },
            conventions={name: plain(getattr(report, name)) for name in ("protocol", "distance", "definitions")},
            notes=[note for note in report.notes if note not in leave_out],
        )


@lists_options(SPLIT_EVALUATION_OPTIONS, evaluation=SPLITS)
def evaluate_splits(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    client: Client | None = None,
    workspace: str | os.PathLike[str] | None = None,
    progress: Shown = None,
    held_bytes: int = _HELD_BYTES,
    **options: Unpack[SplitEvaluationOptions],
) -> SplitReport:
    """Evaluate on several galleries, drawn at random or listed, exactly each time.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    rows
        Rows of every split in place of draws: a file as `reid_dist.stores.importers.row_lists` describes it, or a
        list with one entry per split, ``{"gallery": […], "query": […]}`` or the gallery rows alone; all queries where
        there is no ``query``.  Of the permutations of SYSU-MM01 (``rand_perm_cam.mat``), the first `per_identity`
        images are the gallery.
    seed
        Of the draw, 0 to 2**64 - 1; also handed to `evaluate`, for what it may draw itself.
    client
        Cluster to run on; None for threads of this process.  Results do not depend on it.
    workspace
        Directory that all workers share, for drawn rows; None for a temporary one.  What is put there is removed in the
        end; of a run that breaks, what is finished stays, and the same run goes on from there.
    progress
        As in `evaluate`, of finished splits: one stage, ``"splits"``.
    held_bytes
        Drawn features are held in memory up to so many bytes, and written to the workspace beyond.
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
        For sets or options that cannot be evaluated so, or that do not exist; for a split in which no query is valid.
    PlanError, RunFailedError, ClusterError
        As `reid_dist.evaluate` does.
    """
    with begin_session(client, workspace, progress) as session:
        return run_splits(session, SplitJob.of(query, gallery, options), held_bytes=held_bytes)


@dataclass(frozen=True, kw_only=True)
class SplitJob:
    """An evaluation over splits with both sides open and its options read."""

    query: FeatureSet
    gallery: FeatureSet
    rules: Protocol
    trials: Trials
    options: EvaluationOptions
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
        rules = _check_names(given)
        # The spread over splits is the uncertainty of the report; intervals of each split would be thrown away.
        given = headline_only(given)
        query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
        if chosen is not None:
            refuse_unfit_labels(chosen, query, gallery)
        trials = _trials(query, gallery, rules, where, given["seed"], is_limited)
        _refuse_own_rows(query, gallery, trials, rules)
        return cls(
            query=query,
            gallery=gallery,
            rules=rules,
            trials=trials,
            options=given,
            benchmark=chosen,
            other_codes=other_codes,
        )

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics, each in one spelling."""
        usual = default_metrics(self.rules.cmc_family, self.rules.ap_family, self.rules.reported)
        given = self.options["metrics"]
        return [metric.name for metric in parse_metrics(usual if given is None else given)]

    @property
    def most_rows(self) -> tuple[int, int]:
        """Rows of the queries and of the gallery of the largest splits."""
        splits = [self.trials.rows(split) for split in range(self.trials.n_splits)]
        queries = [self.query.n_rows if each.query is None else len(each.query) for each in splits]
        return max(queries), max(len(each.gallery) for each in splits)

    @property
    def reported_options(self) -> dict[str, Any]:
        """Options that a report lists."""
        expand, rerank = self.options["expand"], self.options["rerank"]
        return {
            "max_rank": self.options["max_rank"],
            **({} if expand is None else {"expand": describe_expansion(parse_expand(expand))}),
            **({} if rerank is None else {"rerank": parse_rerank(rerank).describe()}),
        }

    @property
    def described_benchmark(self) -> dict[str, str] | None:
        """Description of the benchmark, with listed galleries in the place of draws."""
        if self.benchmark is None:
            return None
        listed = self.trials.describe().get("rows")
        return self.benchmark.describe() | ({} if listed is None else {"gallery": f"rows of {listed}"})

    @cached_property
    def spec(self) -> dict[str, Any]:
        """All that the report depends on."""
        options = self.options
        return plain_spec(
            {
                "query": self.query.content_digest,
                "gallery": self.gallery.content_digest,
                "draw": self.trials.spec,
                "protocol": asdict(self.rules),
                "collapse": options["collapse"],
                "distance": options["distance"],
                "expand": None if options["expand"] is None else spelled(parse_expand(options["expand"])),
                "rerank": None if options["rerank"] is None else str(parse_rerank(options["rerank"])),
                **recorded(options),
                "metrics": self.metric_names,
                **benchmark_spec(self.benchmark, other_codes=self.other_codes),
            }
        )

    @property
    def identity(self) -> str:
        """Fingerprint of everything that the values of all splits depend on."""
        return fingerprint(__version__, self.spec)


def run_splits(session: Session, job: SplitJob, *, held_bytes: int = _HELD_BYTES) -> SplitReport:
    """Evaluate every split; parameters as of `evaluate_splits`."""
    query, gallery, rules, trials = job.query, job.gallery, job.rules, job.trials
    client, shown = session.client, session.progress
    # Its progress is that of finished splits.
    silent = session.showing(Progress())
    started = time.perf_counter()
    finished: list[FinishedSplit] = []
    identity = job.identity
    with begin_study(session, _STAGE, identity, FinishedSplit, folder=identity) as study:
        shown.start({_STAGE: trials.n_splits})
        whole = query
        for split in range(trials.n_splits):

            def evaluate_split(_: Session, split: int = split) -> FinishedSplit:
                nonlocal whole
                if client is not None and not whole.is_stored and trials.whole_queries:
                    # Once for all splits; the evaluation of each would put it there again.
                    whole = query.save(study.folder / "query.zarr", overwrite=True)
                with study.apart(silent, f"{split:05d}") as (private, place):
                    near, far, listed = whole, gallery, trials.rows(split)
                    if len(listed.gallery) < gallery.n_rows:
                        far = _subset(gallery, listed.gallery, place / "gallery.zarr", held_bytes)
                    if listed.query is not None:
                        near = _subset(query, listed.query, place / "query.zarr", held_bytes)
                    try:
                        report = evaluate_once(private, near, far, **job.options)
                    except InputError as error:
                        raise InputError(f"split {split} of {trials.n_splits} (from 0): {error}") from error
                # Notes on the two sides are those of the whole sets: a drawn gallery is small by design.
                of_sides = [*side_notes(near, far, rules), *label_notes(near, far, rules)]
                return FinishedSplit.of(report, leave_out=of_sides)

            finished.append(study.part(f"split-{split:05d}", evaluate_split))
            shown.advance(_STAGE)
        others = _of_other_codes(job, finished, silent, study)
    notes = [
        *([] if job.benchmark is None else [*benchmark_notes(job.benchmark, gallery), *others]),
        *(side_notes(query, gallery, rules) if trials.whole_queries else []),
        *label_notes(query, gallery, rules),
        *notes_of_parts([split.notes for split in finished], "split"),
        *query.notes,
        *gallery.notes,
        *trials.notes(),
        *(["one split has no spread"] if trials.n_splits == 1 else []),
    ]
    seconds = time.perf_counter() - started
    return _summarise(job, finished, notes, seconds, client)


def _of_other_codes(
    job: SplitJob, finished: Sequence[FinishedSplit], session: Session, study: Study[FinishedSplit]
) -> list[str]:
    """Notes on other codes in use, which evaluate whole galleries."""
    benchmark = job.benchmark
    if benchmark is None:
        return []
    # Of listed rows of a benchmark that evaluates whole galleries, no code in use has numbers.
    if benchmark.draw is None or not job.other_codes:
        return list(other_notes(benchmark))

    def run(other: Benchmark, given: dict[str, Any]) -> Report:
        with study.apart(session, "others") as (private, _):
            return evaluate_once(private, job.query, job.gallery, **with_benchmark(other.name, given)[1])

    family = job.rules.ap_family
    precision, cmc = (
        mean_and_spread([split.metrics.get(name, math.nan) for split in finished])[0] for name in (family, CMC)
    )
    own = Scores(family, precision, cmc, n_draws=len(finished))
    apart = scores_apart(benchmark, job.options, job.query, job.gallery, run)
    return list(other_notes(benchmark, apart=apart, own=own))


def _trials(
    query: FeatureSet, gallery: FeatureSet, rules: Protocol, where: Mapping[str, Any], seed: int, is_limited: bool
) -> Trials:
    """Rows of all splits, by the options of the draw or as they are listed; `is_limited`: per_identity was given."""
    draw, rows, by = draw_of(where, seed), where["rows"], where["by"]
    if rows is None:
        if by != "rows":
            raise InputError(f"by={by!r} (--by) says what rows (--rows FILE) holds; give the list as well")
        return DrawnSplits(query, gallery, draw, rules)
    idle = [name for name in ("per_camera", "rest_as_queries", "of_queries") if where[name]]
    if idle:
        raise InputError(f"{' and '.join(idle)} {have(idle)} no effect on listed rows; leave one of them out")
    listed = read_split_rows(rows, query, gallery, by=by, per_identity=draw.per_identity, is_requested=is_limited)
    n_splits = len(listed) if where["repeats"] is None else draw.repeats
    if n_splits > len(listed):
        raise InputError(f"{n_splits} repeats were requested, and {counted(len(listed), 'split')} are listed")
    return ListedSplits(gallery, listed[:n_splits], rows)


def _check_names(options: EvaluationOptions) -> Protocol:
    """Refuse names that do not exist, and protocols by lists, before rows are read; return the protocol."""
    protocol = options["protocol"]
    rules = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if rules.is_listed:
        raise InputError(
            f"protocol {rules.name!r} goes by lists of gallery rows, and every split has other rows; use a protocol by "
            "labels, such as no_cameras"
        )
    DISTANCES.get(options["distance"])
    if options["metrics"] is not None:
        parse_metrics(options["metrics"])
    return rules


def _refuse_own_rows(query: FeatureSet, gallery: FeatureSet, trials: Trials, protocol: Protocol) -> None:
    """Refuse one set as query and gallery where every drawn row would be a match of itself."""
    if query.content_digest != gallery.content_digest or trials.keeps_apart:
        return
    # A row shares all labels with itself, so that any junk rule hides it, if the labels are there.
    if not protocol.junk or (protocol.needs_item_ids and query.item_ids is None and query.image_paths is None):
        raise InputError(
            "query and gallery are the same set, so that every drawn row would be a query that finds itself under "
            f"protocol {protocol.name!r}{' without item ids' if protocol.junk else ''}; use --rest-as-queries "
            "(rest_as_queries=True) with 'no_cameras', which takes the rows that are not drawn as queries, or item ids "
            "and the protocol 'same_set'"
        )


def _subset(features: FeatureSet, rows: Int64, path: Path, held_bytes: int) -> FeatureSet:
    """Some rows of a set, in their order: in memory, or stored where they are too many."""
    labels = {name: values if name.endswith("_names") else values[rows] for name, values in features.labels.items()}
    if len(rows) * features.dim * features.dtype.itemsize > held_bytes:
        # A stopped run may have left an incomplete one.
        with FeatureWriter(
            path,
            dim=features.dim,
            n_rows=len(rows),
            dtype=features.dtype,
            allow_zero=features.allow_zero,
            overwrite=True,
        ) as writer:
            for block in read_scattered(features, rows):
                writer.append(block)
            writer.set_labels(labels)
        return FeatureSet.open(path)
    held = np.empty((len(rows), features.dim), features.dtype)
    filled = 0
    for block in read_scattered(features, rows):
        held[filled : filled + len(block)] = block
        filled += len(block)
    return MemorySet(held, labels, allow_zero=features.allow_zero)


def _summarise(
    job: SplitJob, splits: list[FinishedSplit], notes: list[str], seconds: float, client: Client | None
) -> SplitReport:
    first = splits[0]
    per_split = {name: np.array([split.metrics[name] for split in splits]) for name in first.metrics}
    means, spreads = {}, {}
    for name, values in per_split.items():
        means[name], spreads[name] = mean_and_spread(values.tolist())
    return SplitReport(
        metrics=means,
        spread=spreads,
        per_split=per_split,
        counts={**{name: [split.counts[name] for split in splits] for name in first.counts}, **job.trials.counts()},
        digests={name: [split.digests[name] for split in splits] for name in first.digests},
        draw=job.trials.describe(),
        options=job.reported_options,
        spec=job.spec,
        # The same in every split.
        **first.conventions,
        benchmark=job.described_benchmark,
        inputs={"query": job.query.describe(), "gallery": job.gallery.describe()},
        environment=described_environment(client, Policy.in_force()),
        timing={"total": seconds},
        notes=list(dict.fromkeys(notes)),
    )
