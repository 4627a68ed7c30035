"""Speed and memory against the bare matrix product: ``python -m tests.benchmarks KIND``.

Every figure is a ratio taken in one run on one machine.  ``--scale 0.01`` runs the same code on tiny sets.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist import FeatureSet, Report, evaluate, operating_points
from reid_dist.engine.policy import Policy
from reid_dist.evaluation.precompile import warm_up
from reid_dist.kernels.warmup import INTEGERS
from reid_dist.stores.synthetic import SyntheticShape, make_sets
from tests.benchmarks import expansion, gates, nights, planning, reranking, scheduler, training, workers
from tests.benchmarks.measure import (
    bare_product,
    cpu_seconds_of,
    interleave,
    ratio_line,
    run_process,
    seconds_of,
    time_and_peak,
)
from tests.benchmarks.sets import (
    BAD,
    EASY,
    LONG_DIM,
    N_CAMERA,
    RANDOM,
    TYPICAL,
    feature_sets,
    make_shape,
    save_sets,
    score,
    with_elements,
    write_sets,
)


def _against_product(name: str, repeats: int, made: SyntheticShape, metrics: list[str] | None = None) -> None:
    """Arrays in memory, no cluster: `FeatureSet.from_arrays` and `evaluate` against the product, in one process."""
    query, gallery = make_sets(made)

    def evaluated(metrics: list[str] | None = None) -> Report:
        sets = (FeatureSet.from_arrays(each.features, each.pids, each.camids) for each in (query, gallery))
        return evaluate(*sets, metrics=metrics)

    def ours() -> float:
        return seconds_of(partial(evaluated, metrics))

    def bare() -> float:
        return bare_product(query.features, gallery.features)

    size = " x ".join(map(str, (len(query.pids), *gallery.features.shape)))
    print(ratio_line(f"{size}, {name}{score(evaluated())}", *interleave(repeats, ours, bare)))


_FIRST_ALONE = ["CMC@1", "CMC@10"]


def memory(scale: float, repeats: int) -> None:
    """Some 20 images of each identity; rows of 2,048 elements in sets of as much arithmetic."""
    for model in (EASY, TYPICAL, BAD):
        _against_product("", repeats, make_shape(2048 * scale, 200_000 * scale, model))
    for model in (EASY, TYPICAL, BAD):
        made = make_shape(1024 * scale, 100_000 * scale, with_elements(model, LONG_DIM), dim=LONG_DIM)
        _against_product("", repeats, made)


def top(scale: float, repeats: int) -> None:
    """Do as `memory` for metrics that need the first positive of each query alone."""
    for model in (EASY, TYPICAL, BAD):
        _against_product("CMC@1 and CMC@10, ", repeats, make_shape(2048 * scale, 200_000 * scale, model), _FIRST_ALONE)


def positives(scale: float, repeats: int) -> None:
    """Few identities with many images each, down to random features."""
    for model in (TYPICAL, RANDOM):
        for wanted in (2, 20, 83, 830):
            # Those of the query's own camera do not count.
            made = make_shape(1000 * scale, 100_000 * scale, model, wanted * N_CAMERA // (N_CAMERA - 1))
            _against_product(f"{wanted} positives a query, ", repeats, made)


def _words(folder: Path) -> list[str]:
    """Evaluation of the stores in a folder."""
    sides = (str(folder / f"{side}.zarr") for side in ("query", "gallery"))
    return [sys.executable, "-m", "reid_dist.cli", "evaluate", *sides]


def _stores(folder: Path, n_query: float, n_gallery: float) -> tuple[list[str], np.ndarray, np.ndarray]:
    query, gallery = save_sets(folder, make_shape(n_query, n_gallery))
    sides = (("q", query), ("g", gallery))
    labels = {f"{side}_{name}": getattr(each, name) for side, each in sides for name in ("pids", "camids")}
    np.savez(folder / "labels.npz", **labels)
    return _words(folder), query.features, gallery.features


def store(scale: float, repeats: int, peer: str | None) -> None:
    """`reid-dist evaluate` as a whole process, from Zarr."""
    for n_query in (4000, 1000):
        with tempfile.TemporaryDirectory() as folder:
            words, query, gallery = _stores(Path(folder), n_query * scale, 500_000 * scale)
            actions = [
                lambda words=words: run_process(words).seconds,
                lambda query=query, gallery=gallery: bare_product(query, gallery),
            ]
            if peer is not None and n_query == 1000:
                # The peer gets query.npy, gallery.npy and labels.npz in this folder; its whole process is timed, too.
                np.save(Path(folder) / "query.npy", query)
                np.save(Path(folder) / "gallery.npy", gallery)
                actions.append(lambda folder=folder: run_process([*shlex.split(peer), folder]).seconds)
            taken = interleave(repeats, *actions)
            name = f"{len(query)} x {len(gallery)} x 512 from Zarr, whole process"
            print(ratio_line(f"{name} against the product", taken[0], taken[1]))
            if len(taken) > 2:
                print(ratio_line(f"{name} against the peer", taken[0], taken[2]))
            used = run_process(words, memory_every_s=0.1)
            shared, resident = used.peak_bytes / 1e9, used.peak_rss_bytes / 1e9
            print(f"  peak memory, all processes: {shared:.2f} GB ({resident:.2f} GB as a sum of RSS)")


def scaling(scale: float, repeats: int) -> None:
    """The gallery doubled: time must double and memory stay."""
    _growing(scale, repeats, (4000, 250_000, 500_000), 512, "float32")


def ten_million(scale: float, repeats: int) -> None:
    """Galleries of one million and of ten million rows."""
    _growing(scale, repeats, (1000, 1_000_000, 10_000_000), 128, "float16")


def _growing(scale: float, repeats: int, sizes: tuple[int, int, int], dim: int, dtype: str) -> None:
    """Queries against two galleries, from Zarr: time and the peak of memory."""
    n_query, small, large = (max(40, int(size * scale)) for size in sizes)
    results = []
    for n_gallery in (small, large):
        with tempfile.TemporaryDirectory() as name:
            write_sets(Path(name), n_query, n_gallery, dim=dim, dtype=dtype)
            words = _words(Path(name))
            taken, peak = time_and_peak(words, repeats)
        seconds = min(taken)
        results.append((seconds, peak))
        print(f"{n_query} x {n_gallery} x {dim}, {dtype}, from Zarr: {seconds:.2f} s, {peak / 1e9:.3f} GB", flush=True)
    (first, less), (second, more) = results
    print(f"gallery x {large / small:.3g}: time x {second / first:.2f}, memory x {more / less:.3f}")


# Options that request each extra; the plain evaluation has none of them.
EXTRAS: dict[str, dict[str, Any]] = {
    "intervals": {"confidence": 0.95},
    "optimistic and pessimistic ties": {"ties": True},
    "tables by camera and identity": {"breakdowns": ["camera", "identity"]},
    "camera pairs (6 cameras)": {"breakdowns": ["camera_pair"]},
    "distractor curve (10 sizes)": {"breakdowns": ["gallery_size"]},
    "lists of 10 neighbours": {"topk": 10},
    "single-shot CMC, exact": {"metrics": ["mAP", "CMC_single_shot@1"]},
    "single-shot CMC, 10 draws": {"metrics": ["mAP", "CMC_single_shot@1"], "single_shot_draws": 10},
    "TAR@FAR=1e-4 and EER": {"metrics": ["mAP", "TAR@FAR=1e-4", "EER"]},
    "ROC": {"roc": True},
    "another code's rules": {"benchmark": "veri_wild_small_cross_camera"},
}


def extras(scale: float, repeats: int) -> None:
    """What each extra costs, as a ratio to the plain evaluation of the same sets in memory."""
    for model in (TYPICAL, BAD):
        query, gallery = feature_sets(make_shape(1000 * scale, max(200, 100_000 * scale), model))
        plainly = partial(evaluate, query, gallery)
        name_of_model = score(plainly())
        options = [{}, *EXTRAS.values()]
        actions = [partial(seconds_of, partial(plainly, **{"confidence": None, **extra})) for extra in options]
        plain, *taken = interleave(repeats, *actions)
        for name, each in zip(EXTRAS, taken, strict=True):
            print(ratio_line(f"{query.n_rows} x {gallery.n_rows} x 512, {name_of_model}, {name}", each, plain))


def operating(scale: float, repeats: int) -> None:
    """CPU time of operating points as a ratio to that of an evaluation with one false accept rate."""
    for model in (TYPICAL, BAD):
        query, gallery = feature_sets(make_shape(1000 * scale, max(200, 100_000 * scale), model))
        plainly = partial(evaluate, query, gallery, metrics=["TAR@FAR=1e-3"], confidence=None)
        name_of_model = score(evaluate(query, gallery))
        analysed = partial(operating_points, query, gallery)
        ours, theirs = interleave(repeats, *(partial(cpu_seconds_of, action) for action in (analysed, plainly)))
        print(ratio_line(f"{query.n_rows} x {gallery.n_rows} x 512, {name_of_model}, operating points", ours, theirs))


def groups(scale: float, repeats: int) -> None:
    """CPU time of a ranking by group as a ratio to that of items; tracks are the images of an identity in a camera."""
    for model in (TYPICAL, BAD, RANDOM):
        query, gallery = make_sets(make_shape(1000 * scale, 100_000 * scale, model))
        in_order = np.lexsort((gallery.camids, gallery.pids))
        rows = {"tracks in stored order": in_order, "tracks scattered": np.random.default_rng(0).permutation(in_order)}
        near = FeatureSet.from_arrays(query.features, query.pids, query.camids)
        for layout, order in rows.items():
            pids, camids = gallery.pids[order], gallery.camids[order]
            columns = {"track": pids * N_CAMERA + camids}
            far = FeatureSet.from_arrays(gallery.features[order], pids, camids, columns=columns)
            plainly = partial(evaluate, near, far, confidence=None)
            name_of_model = score(plainly())
            collapsed = ("pid", "CMC:pid", "track", "CMC:track")
            actions = [partial(cpu_seconds_of, partial(plainly, collapse=each)) for each in (None, *collapsed)]
            plain, *taken = interleave(repeats, *actions)
            for name, each in zip(collapsed, taken, strict=True):
                print(ratio_line(f"{near.n_rows} x {far.n_rows} x 512, {name_of_model}, {layout}, {name}", each, plain))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=tuple(KINDS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of both sets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--peer", help="command to time beside ours; gets a folder with query.npy, gallery.npy, labels.npz"
    )
    chosen = parser.parse_args()
    scale, repeats, peer = chosen.scale, chosen.repeats, chosen.peer
    if Policy.in_force().may_use_integers:
        # Without their kernels, the first seconds of each process would be in float32.
        warm_up(INTEGERS)
    KINDS[chosen.what](scale, repeats, peer)


KINDS: dict[str, Callable[[float, int, str | None], None]] = {
    "memory": lambda scale, repeats, _: memory(scale, repeats),
    "top": lambda scale, repeats, _: top(scale, repeats),
    "positives": lambda scale, repeats, _: positives(scale, repeats),
    "store": store,
    "scaling": lambda scale, repeats, _: scaling(scale, repeats),
    "ten-million": lambda scale, repeats, _: ten_million(scale, repeats),
    "groups": lambda scale, repeats, _: groups(scale, repeats),
    "extras": lambda scale, repeats, _: extras(scale, repeats),
    "operating": lambda scale, repeats, _: operating(scale, repeats),
    "epochs": lambda scale, repeats, _: training.epochs(scale, repeats),
    "expansion-sweep": lambda scale, repeats, _: expansion.expansion_sweep(scale, repeats),
    "neighbours": lambda scale, repeats, _: reranking.neighbours(scale, repeats),
    "rerank": reranking.rerank,
    "rerank-scaling": lambda scale, repeats, _: reranking.rerank_scaling(scale, repeats),
    "rerankers": lambda scale, repeats, _: reranking.rerankers(scale, repeats),
    "million": lambda scale, *_: reranking.million(scale, "k_reciprocal"),
    "million-gnn": lambda scale, *_: reranking.million(scale, "gnn"),
    "million-ecn": lambda scale, *_: reranking.million(scale, "ecn"),
    "planning": lambda scale, repeats, _: planning.planning(scale, repeats),
    "workers": lambda scale, repeats, _: workers.worker_scaling(scale, repeats),
    "scheduler": lambda scale, *_: scheduler.scheduler_load(scale),
    "gates": lambda scale, *_: gates.gates(scale),
    "nights": lambda scale, *_: nights.nights(scale),
}


if __name__ == "__main__":
    main()
