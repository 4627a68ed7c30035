"""An output that no module of the package knows: it is added by one class, here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.passes import Count

import reid_dist.engine.tasks as tasks
from reid_dist import FeatureSet
from reid_dist.core.model import Targets
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import _build, run_job
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.impostor_distances import ImpostorBrackets
from reid_dist.engine.outputs.output import Output
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.plan import TileShape, make_plan
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.key_counts import distance_of
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import Execution, Progress
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.stores import Workspace

N_QUERY, N_GALLERY = 30, 200


@dataclass(frozen=True)
class NearerThanShare(Output[np.ndarray]):
    """Negatives of every query nearer than a share of the distance of its farthest positive; -1 for no positive."""

    reads_thresholds = True
    queries_per_piece = 7

    share: float

    def _targets(self, block) -> Targets:
        items = block.thresholds.items
        last = items.indptr[1:][np.diff(items.indptr) > 0] - 1
        indptr = np.append(0, np.cumsum(np.diff(items.indptr) > 0))
        row = items.positive_row[items.positive_start[last]]
        return Targets(indptr, self.share * items.distance[last], np.arange(len(last) + 1), row, items.hidden)

    def reductions(self, block) -> dict[str, Any]:
        return {"nearer": CountNearer(self._targets(block), block.labels.mask)}

    def merges(self, labels) -> dict[str, Any]:
        return {"nearer": CountNearer.combine}

    def finish(self, block, merged) -> np.ndarray:
        counts = np.full(len(block.rows), -1)
        # Of the one threshold of a query: nearer pairs, those before its positive, and those behind.
        counts[np.diff(self._targets(block).indptr) > 0] = sum(merged["nearer"].values())[::3]
        return counts[block.queries.start : block.queries.stop]


@dataclass(frozen=True)
class NearerThanTypical(NearerThanShare):
    """Negatives of every query nearer than a share of the median, over all queries, of those distances."""

    prepares = True

    typical: float = np.nan

    def summary(self, block) -> np.ndarray:
        items = block.thresholds.items
        return items.distance[items.indptr[1:][np.diff(items.indptr) > 0] - 1]

    def prepared(self, summaries) -> NearerThanTypical:
        return replace(self, typical=float(np.median(np.concatenate(summaries))))

    def _targets(self, block) -> Targets:
        targets = super()._targets(block)
        return replace(targets, distance=np.full(len(targets.distance), self.share * self.typical))


@pytest.fixture
def sides(tmp_path) -> tuple[FeatureSet, FeatureSet]:
    """Sums of squares of small whole numbers are exact; some queries have no positive, and many pairs are tied."""
    rng = np.random.default_rng(5)
    for name, n in (("query", N_QUERY), ("gallery", N_GALLERY)):
        features = rng.integers(-4, 5, (n, 6)).astype(np.float32)
        pids = rng.integers(-1, 14 if name == "gallery" else 17, n)
        FeatureSet.from_arrays(features, pids, rng.integers(0, 3, n)).save(tmp_path / f"{name}.zarr", chunk_rows=32)
    return FeatureSet.open(tmp_path / "query.zarr"), FeatureSet.open(tmp_path / "gallery.zarr")


def job_of(
    sides, share: float = 0.5, query_block: int = 12, gallery_block: int = 64, n_threads: int = 2
) -> EvaluationJob:
    scorer = FeatureScorer(*sides, DISTANCES.get("sqeuclidean"))
    plan = make_plan(*scorer.shapes, n_threads=n_threads)
    plan = replace(plan, query_block=query_block, gallery_block=gallery_block, tile=TileShape(5, 9))
    return EvaluationJob(*sides, scorer, plan, (Ranks(), NearerThanShare(share)), protocol=PROTOCOLS.get("market1501"))


def here(**options) -> Execution:
    return Execution(**{"client": None, "n_threads": 2, "progress": Progress(), **options})


def pairs_of(sides) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances of all pairs, and which of them are relevant, and negative."""
    query, gallery = sides
    rows = [each.read(0, each.n_rows).astype(int) for each in sides]
    distance = ((rows[0][:, None] - rows[1]) ** 2).sum(axis=-1)
    same_pid, same_camera = query.pids[:, None] == gallery.pids, query.camids[:, None] == gallery.camids
    junk = (gallery.pids == -1) | (same_pid & same_camera)
    return distance, same_pid & ~junk, ~same_pid & ~junk


def by_definition(sides, share: float) -> list[int]:
    distance, relevant, negative = pairs_of(sides)
    return [
        int((distance[q][negative[q]] < share * distance[q][relevant[q]].max()).sum()) if relevant[q].any() else -1
        for q in range(len(distance))
    ]


@pytest.mark.parametrize(("query_block", "gallery_block"), [(30, 200), (12, 64), (1, 7)])
def test_in_threads(sides, query_block: int, gallery_block: int) -> None:
    for share in (0.5, 0.8):
        results = run_job(job_of(sides, share, query_block, gallery_block), here())
        found = results.of(NearerThanShare).tolist()
        assert found == by_definition(sides, share)
        assert -1 in found
        assert len(set(found)) > 5
    # The ranks of the same pass are those of a job of their own.
    alone = run_job(replace(job_of(sides), outputs=(Ranks(),)), here())
    assert results.of(Ranks).rank.tolist() == alone.of(Ranks).rank.tolist()
    assert alone.get(NearerThanShare) is None


@pytest.mark.parametrize(("query_block", "gallery_block"), [(30, 200), (12, 64)])
def test_an_output_that_depends_on_all_queries_is_prepared(sides, query_block: int, gallery_block: int) -> None:
    job = job_of(sides, 0.5, query_block, gallery_block)
    found = run_job(replace(job, outputs=(Ranks(), NearerThanTypical(0.6))), here())
    distance, relevant, negative = pairs_of(sides)
    level = 0.6 * np.median([distance[q][relevant[q]].max() for q in range(N_QUERY) if relevant[q].any()])
    expected = [int((distance[q][negative[q]] < level).sum()) if relevant[q].any() else -1 for q in range(N_QUERY)]
    assert found.of(NearerThanTypical).tolist() == expected
    assert len(set(expected)) > 5


def test_brackets_that_are_known_before_the_pass(sides) -> None:
    """Impostors around distances, counted in the pass that ranks."""
    edges = (-np.inf, 20.0, 60.0, 60.5, 61.0, 90.0)
    job = job_of(sides)
    job = replace(job, plan=replace(job.plan, bracket_counts=2**12))
    results = run_job(replace(job, outputs=(*job.outputs, ImpostorBrackets(edges, by_query=True))), here())
    assert results.of(NearerThanShare).tolist() == by_definition(sides, 0.5)
    counts, (distance, _, negative) = results.of(ImpostorBrackets), pairs_of(sides)
    inside = [np.unique(distance[negative & (distance >= low) & (distance < high)], return_counts=True)
              for low, high in zip(edges[::2], edges[1::2], strict=True)]  # fmt: skip
    between = zip((-np.inf, *edges[1::2]), edges[::2], strict=False)
    assert counts.below.tolist() == [
        int((negative & (distance >= low) & (distance < high)).sum()) for low, high in between
    ]
    for found, (values, number) in zip(counts.inside, inside, strict=True):
        assert ([distance_of(key) for key in found.key.tolist()], found.count.tolist()) == (
            values.tolist(),
            number.tolist(),
        )
    nearer = np.cumsum(counts.by_query, axis=1)
    assert nearer.tolist() == [[int((negative[q] & (distance[q] < edge)).sum()) for edge in edges]
                               for q in range(N_QUERY)]  # fmt: skip


def test_merges_depend_on_partial_results_alone(sides) -> None:
    tasks_of_job = _build(job_of(sides), None, None).tasks
    merges = [task for key, task in tasks_of_job.items() if key.startswith("merge-")]
    assert merges
    for _, job, partials in merges:
        assert isinstance(job, EvaluationJob)
        assert {key.split("-")[0] for key in partials} <= {"sweep", "merge"}


@pytest.mark.slow
def test_on_a_cluster(sides, two_workers) -> None:
    results = run_job(job_of(sides), here(client=two_workers))
    assert results.of(NearerThanShare).tolist() == by_definition(sides, 0.5)


def test_an_interrupted_job_is_resumed(sides, tmp_path, monkeypatch) -> None:
    """Only the same definition finds what was computed."""
    workspace, real, done = Workspace.at(tmp_path / "workspace"), tasks.tile_task, []

    def failing(*arguments):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(real(*arguments))
        return done[-1]

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "tile_task", failing)
        with pytest.raises(KeyboardInterrupt):
            run_job(job_of(sides, n_threads=1), here(workspace=workspace))
    for share, n_left in ((0.8, 12), (0.5, 7)):
        count = Count()
        # Whatever its own blocks are, those of the interrupted job are adopted.
        again = job_of(sides, share, *([12, 64] if share == 0.8 else [30, 32]))
        results = run_job(again, here(workspace=workspace, progress=count))
        assert results.of(NearerThanShare).tolist() == by_definition(sides, share)
        assert count.passes[0]["sweep"] == n_left


def test_two_outputs_of_one_class_have_no_results(sides) -> None:
    with pytest.raises(AssertionError, match="by the class of their output"):
        replace(job_of(sides), outputs=(NearerThanShare(0.5), NearerThanShare(0.8)))
