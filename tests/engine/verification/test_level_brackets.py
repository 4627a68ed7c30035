"""Thresholds of a few metrics from the pass that ranks: sample, brackets, wrong guesses and interrupted runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles import verification as oracle
from support.exact_products import use_integers
from support.passes import Count

import reid_dist.engine.tasks as tasks
import reid_dist.engine.verification.sampling as sampling
from reid_dist import FeatureSet, evaluate
from reid_dist.core.environment import has_integers
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.plan import TileShape, make_plan
from reid_dist.engine.reductions.key_counts import KeyCounts, ScreenScale
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import Execution, Progress
from reid_dist.engine.verification.crossings import Level
from reid_dist.engine.verification.measures import ROC_RATES
from reid_dist.engine.verification.sampling import LevelBrackets, Sample, edges_of_sample, sampled_groups
from reid_dist.kernels.impostors import falling_keys
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.stores import Workspace

NAMES = ("TAR@FAR=0", "TAR@FAR=1e-3", "TAR@FAR=0.2", "TAR@FAR=1", "EER")


@pytest.fixture(scope="module")
def sides(tmp_path_factory) -> tuple[FeatureSet, FeatureSet]:
    """Sums of squares of small whole numbers are exact; two cameras, junk, queries without a positive."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("sides")
    centres = rng.integers(-6, 7, (40, 24))
    for name, n in (("query", 90), ("gallery", 700)):
        pids = rng.integers(-1, 40 if name == "query" else 36, n)
        features = (centres[pids] + rng.integers(-5, 6, (n, 24))).astype(np.float32)
        FeatureSet.from_arrays(features, pids, rng.integers(0, 2, n)).save(folder / f"{name}.zarr", chunk_rows=64)
    return FeatureSet.open(folder / "query.zarr"), FeatureSet.open(folder / "gallery.zarr")


@pytest.fixture(scope="module")
def pairs(sides) -> oracle.Pairs:
    query, gallery = sides
    near, far = (each.read(0, each.n_rows).astype(int) for each in sides)
    same, same_camera = query.pids[:, None] == gallery.pids, query.camids[:, None] == gallery.camids
    junk = (gallery.pids == -1) | (same & same_camera)
    return oracle.pairs_of(((near[:, None] - far) ** 2).sum(axis=-1), same & ~junk, junk)


def assert_exact(report, pairs) -> None:
    for name in NAMES[:-1]:
        rate = name.partition("=")[2]
        assert report.verification["thresholds"][name] == oracle.threshold_at(pairs.impostor, rate)
        assert report.metrics[name] == float(oracle.tar_at_far(pairs, rate))
    assert report.metrics["EER"] == float(oracle.equal_error_rate(pairs))


def job_of(sides, query_block: int = 32, gallery_block: int = 192) -> EvaluationJob:
    scorer = FeatureScorer(*sides, DISTANCES.get("sqeuclidean"))
    plan = make_plan(*scorer.shapes, n_threads=2)
    plan = replace(
        plan, query_block=query_block, gallery_block=gallery_block, tile=TileShape(20, 50), bracket_counts=2**12
    )
    return EvaluationJob(
        *sides, scorer, plan, (Ranks(), LevelBrackets(names=NAMES)), protocol=PROTOCOLS.get("market1501")
    )


def here(**options) -> Execution:
    return Execution(**{"client": None, "n_threads": 2, "progress": Progress(), **options})


# ---- evaluations -----------------------------------------------------------------------------------------------------


def asked(sides, **options):
    return evaluate(*sides, distance="sqeuclidean", metrics=["mAP", *NAMES], **options)


@pytest.mark.parametrize(("chunk_rows", "roc"), [(None, False), (64, False), (64, True)])
def test_one_pass_gives_ranks_and_thresholds(sides, pairs, chunk_rows, roc) -> None:
    count = Count()
    report = asked(sides, roc=roc, chunk_rows=chunk_rows, progress=count, confidence=None)
    assert_exact(report, pairs)
    if roc:
        assert report.curves["ROC_threshold"].tolist() == [oracle.threshold_at(pairs.impostor, r) for r in ROC_RATES]
        assert report.curves["ROC_TAR"].tolist() == [float(oracle.tar_at_far(pairs, rate)) for rate in ROC_RATES]
    assert [list(totals) for totals in count.passes] == [["pairs", "sweep"]]
    assert "verification" not in report.timing


@pytest.mark.skipif(not has_integers(), reason="needs ONNX Runtime")
@pytest.mark.parametrize("roc", [True, False])
def test_ranks_stay_in_eight_bits(sides, pairs, monkeypatch, roc) -> None:
    use_integers(monkeypatch)
    report = asked(sides, roc=roc)
    assert_exact(report, pairs)
    ranks, _, _ = report.environment["products"].partition("; verification")
    assert ranks.removeprefix("ranks: ") == "int8"


def test_brackets_that_miss_cost_further_passes(sides, pairs, monkeypatch) -> None:
    monkeypatch.setattr(sampling, "_DEVIATIONS", (-8.0,))
    count = Count()
    assert_exact(asked(sides, progress=count), pairs)
    assert [list(totals) for totals in count.passes[1:]] == [["verification"]] * (len(count.passes) - 1)
    assert len(count.passes) > 1


def test_a_sample_of_other_pairs_gives_the_same(sides, pairs, monkeypatch) -> None:
    """Whatever is sampled, such as the first rows alone."""
    first = sampling.Group(np.arange(3), sampling.RowRange(0, 40), np.arange(40))
    monkeypatch.setattr(sampling, "sampled_groups", lambda *_: [first] * 16)
    assert_exact(asked(sides), pairs)


@pytest.mark.slow
def test_on_a_cluster(sides, pairs, two_workers) -> None:
    count = Count()
    assert_exact(asked(sides, client=two_workers, progress=count, confidence=None), pairs)
    assert len(count.passes) == 1


# ---- jobs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "read"), [((32, 192), 2**25), ((90, 700), 2**25), ((90, 700), 700), ((7, 64), 2**25)]
)
def test_brackets_of_all_blocks_add_up(sides, pairs, blocks, read, monkeypatch) -> None:
    """Every impostor is in one bracket or gap; whatever the blocks and the rows read at once, the levels are inside."""
    monkeypatch.setattr(sampling, "_READ_BYTES", read)
    found = run_job(job_of(sides, *blocks), here()).of(LevelBrackets)
    place = np.searchsorted(found.edges, pairs.impostor, "right")
    assert found.below.tolist() == [int((place == 2 * gap).sum()) for gap in range(len(found.below))]
    assert [each.total for each in found.inside] == [int((place == 2 * at + 1).sum()) for at in range(len(found.below))]
    for rate in ("0", "1e-3", "0.2"):
        assert np.searchsorted(found.edges, oracle.threshold_at(pairs.impostor, rate), "right") % 2 == 1


@pytest.mark.parametrize("has_same_brackets", [True, False])
def test_an_interrupted_job_is_resumed(sides, tmp_path, monkeypatch, has_same_brackets: bool) -> None:
    """Partial results around other brackets, as of another sample, are computed again."""
    workspace, real, done = Workspace.at(tmp_path / "workspace"), tasks.tile_task, []

    def failing(*arguments):
        if len(done) >= 5:
            raise KeyboardInterrupt
        done.append(real(*arguments))
        return done[-1]

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "tile_task", failing)
        if not has_same_brackets:
            patched.setattr(sampling, "_SEED", 1)
        job = job_of(sides)
        with pytest.raises(KeyboardInterrupt):
            run_job(replace(job, plan=replace(job.plan, n_threads=1)), here(workspace=workspace))
    computed = []
    monkeypatch.setattr(tasks, "tile_task", lambda *arguments: computed.append(arguments) or real(*arguments))
    found = run_job(job_of(sides), here(workspace=workspace))
    assert len(computed) == 12 - 5 * has_same_brackets
    alone = run_job(job_of(sides), here())
    assert found.of(LevelBrackets).edges.tolist() == alone.of(LevelBrackets).edges.tolist()
    assert found.of(LevelBrackets).below.tolist() == alone.of(LevelBrackets).below.tolist()
    assert found.of(Ranks).rank.tolist() == alone.of(Ranks).rank.tolist()


# ---- the sample ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_query", "n_gallery"), [(1, 1), (1, 10**6), (3, 50), (200, 3), (1000, 100_000), (10**6, 10**7)]
)
def test_sampled_rows_lie_in_the_sets(n_query: int, n_gallery: int) -> None:
    number = {}
    for share in (1e-4, 0.5):
        groups = sampled_groups(n_query, n_gallery, [Level(1, 0, int(share * n_query * n_gallery) + 1)])
        queries = np.concatenate([group.queries for group in groups])
        rows = np.concatenate([group.stretch.start + group.places for group in groups])
        assert 0 <= queries.min() <= queries.max() < n_query
        assert 0 <= rows.min() <= rows.max() < n_gallery
        assert all(group.places.max() < len(group.stretch) for group in groups)
        number[share] = sum(len(group.queries) * len(group.places) for group in groups)
        assert number[share] <= max(2**14, n_query * n_gallery / 16)
        if n_gallery >= 10**5:
            assert number[share] >= 10**4
            # No pair is sampled twice; a query is in two groups, if there are many.
            assert len(np.unique(rows)) == len(rows)
            assert np.unique(queries, return_counts=True)[1].tolist() == [16 if n_query == 1 else 2] * len(set(queries))
    # Few impostors lie about a threshold of few, whatever the error of the sample.
    assert n_query * n_gallery < 10**8 or number[0.5] > 10 * number[1e-4]


def test_unlike_queries_and_neighbours_of_one_identity_do_not_widen_brackets() -> None:
    """Sorted by identity, as data sets are stored; some queries are near to all rows, others to none."""
    rng = np.random.default_rng(0)
    pids = np.repeat(np.arange(200), 20), np.repeat(np.arange(200), 2)
    centres = rng.normal(size=(201, 32))
    gallery, query = (centres[own] + rng.normal(size=(len(own), 32)) for own in pids)
    query += rng.normal(size=(400, 1)) * centres[200]
    gallery += centres[200]
    order = rng.permutation(400), rng.permutation(4000)
    found = {}
    for name, (near, far) in {"sorted": (slice(None), slice(None)), "shuffled": order}.items():
        sides = (FeatureSet.from_arrays(each[rows].astype(np.float32), own[rows]) for each, own, rows in
                 ((query, pids[1], near), (gallery, pids[0], far)))  # fmt: skip
        job = job_of(tuple(sides), 400, 4000)
        job = replace(job, protocol=PROTOCOLS.get("no_cameras"), outputs=(LevelBrackets(names=("TAR@FAR=0.3",)),))
        found[name] = run_job(replace(job, plan=replace(job.plan, bracket_counts=2**20)), here()).of(LevelBrackets)
    inside = {name: sum(each.total for each in counts.inside) for name, counts in found.items()}
    assert inside["sorted"] < 2 * inside["shuffled"]
    assert 1000 < inside["shuffled"] < 400 * 4000 / 20


def keys_of(distance) -> KeyCounts:
    return KeyCounts.of(falling_keys(np.asarray(distance)))


SCALE = ScreenScale(squared=False)


def test_brackets_hold_their_levels() -> None:
    """Groups that differ from each other by chance, as their rows are alike: hardly any level is missed."""
    missed, share = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        # Each group has its own shift; the pairs that it stands for are drawn from all shifts.
        groups = tuple(keys_of(rng.normal(shift, 1.0, 1500)) for shift in rng.normal(0.0, 0.15, 16))
        every = np.sort(rng.normal(rng.normal(0.0, 0.15, 100_000), 1.0))
        genuine = np.sort(rng.normal(-3.0, 1.0, 2000))
        sample = Sample(groups, keys_of(genuine), len(every), 2**18, SCALE)
        rates = [Level(1, 0, int(rate * len(every)) + 1) for rate in (0.0, 1e-4, 1e-3, 0.02, 0.3, 0.999)]
        levels = [*rates, Level(len(genuine), len(every), len(genuine) * len(every))]
        at = np.union1d(every, genuine)
        n_impostor, n_genuine = (np.searchsorted(each, at, "right") for each in (every, genuine))
        for level in levels:
            low, high = edges_of_sample([level], sample)
            reached = level.per_impostor * n_impostor + level.per_genuine * n_genuine >= level.wanted
            missed.append(not low <= at[int(np.argmax(reached))] < high)
            first, last = np.searchsorted(every, [low, high])
            share.append((last - first) / len(every))
    assert len(missed) == 84
    assert sum(missed) <= 1
    # Brackets of few impostors hold few pairs.
    assert max(share[::7]) < 5e-3
    # Where memory is short, brackets are narrower, unless none would fit.
    budgets = (2**18, *range(12_000, 3000, -500), 1)
    widths = [np.diff(edges_of_sample(levels[4:5], replace(sample, most_counts=most)))[0] for most in budgets]
    assert min(widths) < 0.8 * widths[0]
    assert widths[0] == widths[-1] == max(widths)


@pytest.mark.parametrize("apart", [0.0, 1e-9, 0.3])
def test_levels_of_equal_distances(apart: float) -> None:
    """All distances are one, or two that may share a bin; the sample is the whole set, or a part of it."""
    values = np.array([0.7, 0.7 + apart])
    for n in (1, 5, 1000):
        sample = Sample((keys_of(np.repeat(values, n)),), keys_of([0.7, 1.0]), 4 * n, 2**18, SCALE)
        for wanted in (1, 2 * n, 4 * n):
            low, high = edges_of_sample([Level(1, 0, wanted)], sample)
            assert low <= values[int(wanted > 2 * n)] < high


def test_far_distances_of_any_size_have_brackets() -> None:
    groups = (keys_of([-1e39, -2.0, 0.0, 1e-300, 1e39]),)
    edges = edges_of_sample([Level(1, 0, 1), Level(1, 0, 5)], Sample(groups, keys_of([0.0]), 5, 9, SCALE))
    assert list(edges) == sorted(edges)
    assert not np.isnan(edges).any()
